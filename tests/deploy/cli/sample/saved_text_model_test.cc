#include "deploy/cli/sample/saved_text_model.h"

#include <catch2/catch.hpp>
#include <string>

#include "google/protobuf/text_format.h"

namespace tessera {
namespace {

v1::Model ModelOf(const std::string& text) {
  v1::Model model;
  REQUIRE(google::protobuf::TextFormat::ParseFromString(text, &model));
  return model;
}

const char kTokens[] = "tokens { vocabulary: 9 context: 4 } layers { embedding { units: 8 } } ";

TEST_CASE("models of tokens write texts, and others do not", "[saved_text_model]") {
  CHECK(CheckWrites(ModelOf(kTokens)).ok());
  const absl::Status refused = CheckWrites(ModelOf("input: 4 layers { linear { units: 3 } }"));
  CHECK(absl::IsFailedPrecondition(refused));
  CHECK(std::string(refused.message()).find("the checkpoint's model has no tokens, want") == 0);
}

TEST_CASE("attention that sees what is not written yet is found at any depth",
          "[saved_text_model]") {
  const std::string sees = "{ attention { heads: 2 causal: false } }";
  const std::string causal = "{ attention { heads: 2 causal: true } }";
  for (const std::string& around : {
           std::string("layers $"),
           std::string("layers { residual { layers $ } }"),
           std::string("layers { repeat { times: 2 layers { residual { layers { relu {} } layers $ "
                       "} } } }"),
       }) {
    std::string with = around, without = around;
    with.replace(with.find('$'), 1, sees);
    without.replace(without.find('$'), 1, causal);
    INFO(with);
    CHECK(CheckWrites(ModelOf(kTokens + without)).ok());
    const absl::Status refused = CheckWrites(ModelOf(kTokens + with));
    CHECK(std::string(refused.message())
              .find("the checkpoint's model has attention with causal: false, want true") == 0);
  }
}

TEST_CASE("tokens are written as the job that trained the model read them", "[saved_text_model]") {
  v1::Job job;
  *job.mutable_model() = ModelOf(kTokens);
  ModelFacts facts;
  facts.characters = {'a', 'b', 'c'};
  job.mutable_data()->set_format("text");
  CHECK((*SpellingOf(job, facts))->Write(1) == "b");
  CHECK(SpellingOf(job, ModelFacts())
            .status()
            .message()
            .find("the checkpoint has no characters, want") == 0);
  job.mutable_data()->set_tokenizer("bytes");
  CHECK((*SpellingOf(job, ModelFacts()))->Write('z') == "z");
  job.mutable_data()->set_format("tokens");
  CHECK((*SpellingOf(job, ModelFacts()))->Write(7) == "7");
  CHECK((*SpellingOf(job, ModelFacts()))->tokens() == 9);
}

}  // namespace
}  // namespace tessera
