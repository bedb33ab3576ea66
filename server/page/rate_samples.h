// How fast a job was, from its beginning until now: so many samples, the coarser the longer it runs.
#ifndef TESSERA_SERVER_PAGE_RATE_SAMPLES_H_
#define TESSERA_SERVER_PAGE_RATE_SAMPLES_H_

#include <cstddef>
#include <optional>
#include <vector>

#include "proto/status.pb.h"

namespace tessera {

// The most samples; then neighbours become one, and each stands for twice as long.
constexpr size_t kRateSamplesMax = 240;

struct RateSample {
  // JobStatus.wall_seconds at its end.
  double seconds = 0;
  double examples_per_second = 0;
  // Of all workers' pulls and pushes, with framing.
  double bytes_per_second = 0;
};

class RateSamples {
 public:
  // Takes what a status says, at whatever pace statuses come.
  void Add(const v1::JobStatus& status);
  const std::vector<RateSample>& samples() const { return samples_; }

 private:
  struct Seen {
    double seconds = 0;
    double bytes = 0;
  };

  double interval_ = 1;  // seconds that a sample stands for at least
  std::optional<Seen> last_;
  std::vector<RateSample> samples_;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_PAGE_RATE_SAMPLES_H_
