// Damaged job files. Whatever the bytes, the reader answers: with a job that prints and reads back,
// or with errors.
//
// A failure names its seed; JOB_FUZZ_SEED=<seed> runs that one alone.
#include <catch2/catch.hpp>

#include <cstdlib>
#include <random>
#include <string>

#include "common/config/job_digest.h"
#include "common/config/job_print.h"
#include "tests/common/config/job_text.h"

namespace tessera {
namespace {

const char* const kPieces[] = {"{",         "}",
                               "[",         "]",
                               ": ",        ":",
                               "- ",        "? ",
                               "\n",        "  ",
                               "\t",        "\"",
                               "'",         "#",
                               "&a ",       "*a",
                               "!",         "|",
                               ">",         "~",
                               "%",         "@",
                               "---\n",     "...\n",
                               "<<: *a",    "\x01",
                               "\xff",      "\xc3\xa9",
                               "null",      "true",
                               "-1",        "0",
                               "1e308",     "9223372036854775808",
                               "nan",       "5s",
                               "4MiB",      "relu",
                               "linear",    "f32",
                               "ist",       "epochs",
                               "steps: 3\n"};

std::string Damaged(std::mt19937_64* random) {
  std::string text = kJob;
  const auto below = [&](size_t n) { return static_cast<size_t>((*random)() % n); };
  for (size_t edits = 1 + below(6); edits > 0; --edits) {
    const size_t at = below(text.size() + 1);
    const size_t length = std::min(text.size() - at, below(12));
    switch (below(5)) {
      case 0:
        text.insert(at, kPieces[below(sizeof(kPieces) / sizeof(*kPieces))]);
        break;
      case 1:
        text.replace(at, length, kPieces[below(sizeof(kPieces) / sizeof(*kPieces))]);
        break;
      case 2:
        text.erase(at, length);
        break;
      case 3:
        text.insert(at, text.substr(below(text.size() + 1), below(60)));
        break;
      case 4:
        if (at < text.size()) text[at] = static_cast<char>(below(256));
        break;
    }
    if (text.empty()) text = "a";
  }
  return text;
}

void CheckOne(uint64_t seed) {
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  const std::string text = Damaged(&random);
  std::vector<std::string> overrides;
  if (random() % 2 == 0) {
    std::string override_text = "model.layers.0.linear.units=64";
    override_text[random() % override_text.size()] = static_cast<char>(random() % 256);
    overrides.push_back(override_text);
  }
  INFO(text);
  const JobReading reading = Reading(text, overrides);
  for (const JobError& error : reading.errors) {
    REQUIRE_FALSE(error.message.empty());
    REQUIRE(FormatJobError(error).find('\n') == std::string::npos);
  }
  if (!reading.ok()) return;
  const JobReading again = Reading(PrintJob(reading.job));
  INFO(FormatJobErrors(again.errors));
  REQUIRE(again.ok());
  REQUIRE(JobDigest(again.job) == JobDigest(reading.job));
}

TEST_CASE("a damaged job file is a job or has errors, never a crash", "[job_fuzz]") {
  if (const char* seed = std::getenv("JOB_FUZZ_SEED")) {
    CheckOne(std::strtoull(seed, nullptr, 10));
    return;
  }
  for (uint64_t seed = 0; seed < 20000; ++seed) CheckOne(seed);
}

TEST_CASE("a job file cut anywhere is a job or has errors", "[job_fuzz]") {
  const std::string text = kJob;
  for (size_t length = 0; length < text.size(); ++length) {
    INFO("length " << length);
    const JobReading reading = Reading(text.substr(0, length));
    if (reading.ok()) REQUIRE(Reading(PrintJob(reading.job)).ok());
  }
}

}  // namespace
}  // namespace tessera
