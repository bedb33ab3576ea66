// The job file: text and --set options.
//
//   input = text [00 option (00 option)*]
// Whatever they are, the reader answers with errors of one line each, or with a job that prints, reads
// back and has the same digest.
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "common/base/check.h"
#include "common/config/job_digest.h"
#include "common/config/job_print.h"
#include "common/config/job_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  std::vector<std::string> parts = absl::StrSplit(
      absl::string_view(reinterpret_cast<const char*>(data), size), absl::MaxSplits('\0', 8));
  JobSource source;
  source.text = parts[0];
  source.path = "x.yaml";
  source.directory = "/jobs";
  source.overrides.assign(parts.begin() + 1, parts.end());
  const JobReading reading = ReadJob(source, {/*check_files=*/false});
  for (const JobError& error : reading.errors) {
    TESSERA_CHECK(!error.message.empty());
    TESSERA_CHECK(FormatJobError(error).find('\n') == std::string::npos);
  }
  if (!reading.ok()) return 0;
  const JobReading again =
      ReadJob({PrintJob(reading.job), "x.yaml", "/jobs", {}}, {/*check_files=*/false});
  TESSERA_CHECK(again.ok());
  TESSERA_CHECK(JobDigest(again.job) == JobDigest(reading.job));
  return 0;
}
