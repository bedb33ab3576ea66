#include "deploy/cli/sample/written_text.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace tessera {
namespace {

using Tokens = std::vector<int32_t>;

// The token behind t is t + 1, again from 0 behind the last, by far the likeliest.
class CountingModel final : public NextToken {
 public:
  explicit CountingModel(int32_t vocabulary) : scores_(static_cast<size_t>(vocabulary)) {}

  absl::StatusOr<absl::Span<const float>> Scores(absl::Span<const int32_t> tokens) override {
    asked.emplace_back(tokens.begin(), tokens.end());
    if (fails_at == static_cast<int>(asked.size())) return absl::InternalError("no more");
    std::fill(scores_.begin(), scores_.end(), 0.0f);
    scores_[static_cast<size_t>(tokens.back() + 1) % scores_.size()] = 100;
    return absl::MakeConstSpan(scores_);
  }

  std::vector<Tokens> asked;
  int fails_at = 0;

 private:
  std::vector<float> scores_;
};

struct Pieces {
  std::vector<std::string> pieces;
  size_t most = 1000;
  bool operator()(absl::string_view piece) {
    pieces.emplace_back(piece);
    return pieces.size() < most;
  }
};

TEST_CASE("a text is the prompt and what follows it, piece by piece", "[written_text]") {
  CountingModel model(4);
  Sampler sampler(0.8, 1);
  const auto spelling = SpellCharacters({'a', 'b', 'c', 'd'});
  Pieces got;
  REQUIRE(WriteText({1, 2}, 3, &model, &sampler, spelling.get(), std::ref(got)).ok());
  CHECK(got.pieces == std::vector<std::string>{"b", "c", "d", "a", "b"});
  CHECK(model.asked == std::vector<Tokens>{{1, 2}, {1, 2, 3}, {1, 2, 3, 0}});
}

TEST_CASE("a text without a prompt begins behind a line's end that is not written",
          "[written_text]") {
  CountingModel model(3);
  Sampler sampler(0, 1);
  const auto spelling = SpellCharacters({'\n', 'b', 'c'});
  Pieces got;
  REQUIRE(WriteText({}, 2, &model, &sampler, spelling.get(), std::ref(got)).ok());
  CHECK(got.pieces == std::vector<std::string>{"b", "c"});
  CHECK(model.asked[0] == Tokens{0});
}

TEST_CASE("tokens that no text has are not drawn", "[written_text]") {
  CountingModel model(10);
  Sampler sampler(0, 1);
  const auto spelling = SpellCharacters({'a', 'b'});
  Pieces got;
  // The likeliest behind b would be token 2, which has no character.
  REQUIRE(WriteText({1}, 1, &model, &sampler, spelling.get(), std::ref(got)).ok());
  CHECK(got.pieces == std::vector<std::string>{"b", "a"});
}

TEST_CASE("a text ends where nobody takes it, and where the model fails", "[written_text]") {
  CountingModel model(4);
  Sampler sampler(0, 1);
  const auto spelling = SpellNumbers(4);
  Pieces got;
  got.most = 3;
  REQUIRE(WriteText({1, 2}, 100, &model, &sampler, spelling.get(), std::ref(got)).ok());
  CHECK(got.pieces == std::vector<std::string>{"1", " 2", " 3"});
  CHECK(model.asked.size() == 1);
  model.fails_at = 3;
  Pieces more;
  CHECK(WriteText({1}, 100, &model, &sampler, spelling.get(), std::ref(more)).message() ==
        "no more");
  CHECK(more.pieces.size() == 2);
}

}  // namespace
}  // namespace tessera
