// Jobs whose rows are tokens: what is taken of the data section, and what is said of the rest.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/common/config/job_text.h"

namespace tessera {
namespace {

using Overrides = std::vector<std::string>;

// A job of texts, with more overrides.
Overrides Texts(const Overrides& more = {}) {
  Overrides all = {"model.input={tokens: {vocabulary: 65, context: 16}}",
                   "model.layers=[{embedding: {units: 8}}, {linear: {units: vocabulary}}]",
                   "data.format=text", "data.train={features: [a.txt, b.txt]}",
                   "data.test={features: c.txt}"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

Overrides Tokens(const Overrides& more = {}) {
  Overrides all = Texts({"data.format=tokens"});
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

// What is said of keys of the data section and of the vocabulary.
std::string Said(const Overrides& overrides) {
  std::string said;
  for (const JobError& error : Reading(kJob, overrides).errors) {
    if (error.key.find("data.") == 0 || error.key.find("model.input") == 0) {
      absl::StrAppend(&said, error.key, ": ", error.message, "\n");
    }
  }
  return said;
}

TEST_CASE("tokens and texts go with models of tokens", "[job_check][tokens]") {
  CHECK(Said(Texts()) == "");
  CHECK(Said(Texts({"data.tokenizer=characters"})) == "");
  CHECK(Said(Texts({"data.tokenizer=bytes", "model.input.tokens.vocabulary=256"})) == "");
  CHECK(Said(Tokens({"data.type=uint32", "data.memory=1MiB", "data.partition=local"})) == "");
}

TEST_CASE("other formats go with no model of tokens, and tokens with no other model",
          "[job_check][tokens]") {
  CHECK(Said(Texts({"data.format=csv"})) ==
        "data.format: got csv, want tokens or text: model.input is tokens\n");
  CHECK(Said(Texts({"data.format=images", "data.augment.flip=horizontal"})) ==
        "data.format: got images, want tokens or text: model.input is tokens\n");
  for (const char* const format : {"tokens", "text"}) {
    CHECK(Said({absl::StrCat("data.format=", format), "data.train={features: a}",
                "data.test={features: b}"}) ==
          absl::StrCat("model.input: got [64], want {tokens: {vocabulary: ..., context: ...}} with "
                       "data.format ",
                       format, ": its rows are tokens\n"));
  }
}

TEST_CASE("keys that mean nothing for tokens are refused by name", "[job_check][tokens]") {
  CHECK(Said(Texts({"data.normalize={mean: 0.5}"})) ==
        "data.normalize: got a section, want none with data.format text: tokens are no "
        "quantities\n");
  CHECK(Said(Texts({"data.normalize={mean: 0, stddev: 1}"})) == "");
  CHECK(Said(Tokens({"data.augment.crop.padding=2"})) ==
        "data.augment: got a section, want none with data.format tokens: tokens are no "
        "quantities, and rows no images\n");
  CHECK(Said(Texts({"data.resize=8"})) ==
        "data.resize: got 8, want no such key with data.format text: it is of files that are "
        "pictures\n");
  CHECK(Said(Texts({"data.type=uint32"})) ==
        "data.type: got \"uint32\", want no such key with data.format text: it is of tokens "
        "files\n");
  CHECK(Said(Tokens({"data.tokenizer=bytes"})) ==
        "data.tokenizer: got \"bytes\", want no such key with data.format tokens: it is of text "
        "files\n");
  CHECK(Said(Texts({"data.memory=1MiB"}))
            .find("data.memory: got 1048576, want no such key with "
                  "data.format text: its rows are always held") == 0);
  CHECK(Said(Texts({"data.train.labels=l"})) ==
        "data.train.labels: got \"l\", want no such key: text files carry their labels\n");
}

TEST_CASE("bytes want a vocabulary of all bytes", "[job_check][tokens]") {
  CHECK(Said(Texts({"data.tokenizer=bytes"})) ==
        "model.input.tokens.vocabulary: got 65, want at least 256 with data.tokenizer bytes: each "
        "byte is a token\n");
}

TEST_CASE("workers with texts of their own cannot number characters", "[job_check][tokens]") {
  CHECK(Said(Texts({"data.partition=local"})) ==
        "data.tokenizer: got characters with data.partition local, want bytes: no worker sees the "
        "others' characters, and each would number its own\n");
  CHECK(Said(Texts({"data.partition=local", "data.tokenizer=bytes",
                    "model.input.tokens.vocabulary=300"})) == "");
}

}  // namespace
}  // namespace tessera
