#include "common/config/job_difference.h"

#include "common/config/job_digest.h"
#include "tests/common/config/job_text.h"

namespace tessera {
namespace {

std::string Differences(const v1::Job& given, const v1::Job& wanted) {
  return Describe(DifferencesOf(JobTextToSend(given), JobTextToSend(wanted)));
}

TEST_CASE("keys that differ are named with both values", "[config]") {
  const v1::Job job = Good(kJob);
  CHECK(Differences(job, job).empty());
  CHECK(Differences(Good(kJob, {"train.batch_size=64", "seed=8"}), job) ==
        "seed is 8, want 7; train.batch_size is 64, want 16");
  CHECK(Differences(Good(kJob, {"name=other"}), job) == "name is \"other\", want \"small\"");
}

TEST_CASE("keys that one job alone has come after the others, and of many their number",
          "[config]") {
  const v1::Job job = Good(kJob);
  const std::string text =
      Differences(Good(kJob, {"method={ssp: {bound: 2}}", "train.batch_size=64"}), job);
  INFO(text);
  CHECK(text.find("method is ssp, want local_sgd; train.batch_size is 64, want 16; ") == 0);
  CHECK(text.find("method.ssp.bound is 2, want not set") != std::string::npos);
  CHECK(text.find("method.local_sgd.local_steps is not set, want 20") != std::string::npos);
  const std::string many = Differences(
      Good(kJob, {"name=x", "seed=1", "train.batch_size=2", "train.epochs=1", "cluster.servers=1",
                  "cluster.workers=1", "cluster.lease_timeout=1s", "checkpoint.keep=1"}),
      job);
  INFO(many);
  CHECK(many.find("; and 2 keys more") != std::string::npos);
}

TEST_CASE("nothing that may differ between machines is in the text", "[config]") {
  const v1::Job job =
      Good(kJob, {"security.token_file=/etc/secret-tokens", "security.authority=/etc/secret-ca",
                  "data.directory=/srv/secret-data", "checkpoint.directory=/srv/secret-ckpt"});
  CHECK(JobTextToSend(job).find("secret") == std::string::npos);
  CHECK(JobTextToSend(job) == CanonicalJobText(job));
}

TEST_CASE("a text from elsewhere may be missing, too long, or anything", "[config]") {
  const std::string own = JobTextToSend(Good(kJob));
  for (const std::string& text : {std::string(), std::string(kJobTextBytesMax + 1, 'x')}) {
    CHECK(DifferencesOf(text, own).empty());
    CHECK(DifferencesOf(own, text).empty());
  }
  const std::string odd = Describe(DifferencesOf(
      own + "a\x1b[31m=\xff\n" + std::string(5000, 'k') + "=" + std::string(5000, 'v') + "\n",
      own));
  INFO(odd);
  CHECK(odd.find("a\\x1b[31m is \\xff, want not set") != std::string::npos);
  CHECK(odd.size() < 500);
}

TEST_CASE("a job whose text is too long sends none", "[config]") {
  v1::Job job = Good(kJob);
  job.set_name(std::string(kJobTextBytesMax, 'n'));
  CHECK(JobTextToSend(job).empty());
}

}  // namespace
}  // namespace tessera
