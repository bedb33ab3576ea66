// Metrics as Prometheus reads them: the text, by its grammar.
#ifndef TESSERA_TESTS_SERVER_MONITOR_EXPOSITION_H_
#define TESSERA_TESTS_SERVER_MONITOR_EXPOSITION_H_

#include <map>
#include <set>
#include <string>
#include <vector>

#include <prometheus/metric_family.h>

namespace tessera {

struct Exposition {
  std::map<std::string, std::string> types;  // by family: "gauge", "counter", "histogram"
  std::map<std::string, std::string> help;
  // By name and labels as they are written: tessera_members{state="lost"}.
  std::map<std::string, double> samples;
  // What is no line of the format, or a second sample of the same name and labels.
  std::vector<std::string> errors;

  bool has(const std::string& sample) const { return samples.count(sample) > 0; }
  // Names of families.
  std::set<std::string> names() const;
};

std::string TextOf(const std::vector<prometheus::MetricFamily>& families);
Exposition Parse(const std::string& text);

}  // namespace tessera

#endif  // TESSERA_TESTS_SERVER_MONITOR_EXPOSITION_H_
