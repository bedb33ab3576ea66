#include "common/rpc/coordinator_contact.h"

#include <catch2/catch.hpp>

#include "absl/time/time.h"

namespace tessera {
namespace {

constexpr absl::Duration kLease = absl::Seconds(15);
const absl::Time kBegin = absl::UnixEpoch() + absl::Hours(2);

v1::CoordinatorWord WordOf(uint64_t term, absl::Duration away = absl::ZeroDuration()) {
  v1::CoordinatorWord word;
  word.set_term(term);
  word.set_away_timeout_ns(absl::ToInt64Nanoseconds(away));
  return word;
}

TEST_CASE("a coordinator that was never heard is not silent, however long that is", "[contact]") {
  CoordinatorContact contact(kLease, kBegin);
  CHECK_FALSE(contact.has_heard());
  CHECK(contact.Silence(kBegin + absl::Hours(1)) == absl::ZeroDuration());
  CHECK(contact.last_heard() == kBegin);
  CHECK(contact.patience() == kLease);
}

TEST_CASE("silence counts from what was heard last, with a word or without", "[contact]") {
  CoordinatorContact contact(kLease, kBegin);
  const v1::CoordinatorWord word = WordOf(3);
  CHECK(contact.Hear(&word, kBegin + absl::Seconds(5)));
  CHECK(contact.Silence(kBegin + absl::Seconds(25)) == absl::Seconds(20));
  CHECK(contact.Hear(nullptr, kBegin + absl::Seconds(30)));
  CHECK(contact.Silence(kBegin + absl::Seconds(31)) == absl::Seconds(1));
  CHECK(contact.word().term() == 3);
}

TEST_CASE("a word of an earlier term is not believed, and ends no silence", "[contact]") {
  CoordinatorContact contact(kLease, kBegin);
  const v1::CoordinatorWord newer = WordOf(4), older = WordOf(3, absl::Hours(1));
  CHECK(contact.Hear(&newer, kBegin));
  CHECK_FALSE(contact.Hear(&older, kBegin + absl::Seconds(10)));
  CHECK(contact.Silence(kBegin + absl::Seconds(10)) == absl::Seconds(10));
  CHECK(contact.word().term() == 4);
  CHECK(contact.patience() == kLease);
  CHECK(contact.Hear(&newer, kBegin + absl::Seconds(11)));
}

TEST_CASE("patience is as long as another coordinator may take, and never shorter than the lease",
          "[contact]") {
  CoordinatorContact contact(kLease, kBegin);
  const v1::CoordinatorWord longer = WordOf(1, absl::Seconds(60)),
                            shorter = WordOf(2, absl::Seconds(1));
  CHECK(contact.Hear(&longer, kBegin));
  CHECK(contact.patience() == absl::Seconds(60));
  CHECK(contact.Hear(&shorter, kBegin));
  CHECK(contact.patience() == kLease);
  contact.SetLease(absl::Milliseconds(500));
  CHECK(contact.patience() == absl::Seconds(1));
}

}  // namespace
}  // namespace tessera
