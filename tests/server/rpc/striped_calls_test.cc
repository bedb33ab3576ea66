// The connections of striped calls, in any order and with any of them lost.
#include "server/rpc/striped_calls.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>
#include <grpcpp/support/slice.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/rpc/windows.h"

namespace tessera {
namespace {

grpc::ByteBuffer NumberMessage(int number) {
  const grpc::Slice slice(absl::StrCat(number));
  return grpc::ByteBuffer(&slice, 1);
}

int NumberIn(const grpc::ByteBuffer& message) {
  std::vector<grpc::Slice> slices;
  REQUIRE(message.Dump(&slices).ok());
  std::string text;
  for (const grpc::Slice& slice : slices) {
    text.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return std::stoi(text);
}

// A connection as gRPC has it: one read or write at a time, which is done when the test says so, and an end. What gRPC
// asks of a call is checked here.
class FakeStripe final : public CallStream {
 public:
  explicit FakeStripe(std::string peer = "ipv4:10.0.0.1:1") : peer_(std::move(peer)) {}
  void Serve(std::shared_ptr<StreamEvents> events) { events_ = std::move(events); }

  std::string peer() const override { return peer_; }
  absl::Status CheckCaller(const v1::Caller&) const override { return absl::OkStatus(); }
  bool wants_one_message() const override { return false; }
  void Read(grpc::ByteBuffer* message) override {
    REQUIRE(is_free());
    read_ = message;
  }
  void Write(const grpc::ByteBuffer* message) override {
    REQUIRE(is_free());
    write_ = message;
  }
  void WriteLast(const grpc::ByteBuffer* message) override {
    REQUIRE(is_free());
    if (!is_cancelled) written.push_back(NumberIn(*message));
    end = absl::OkStatus();
  }
  void End(const absl::Status& status) override {
    // gRPC would wait for it. Only what was cancelled may still be under way.
    REQUIRE((is_free() || is_cancelled));
    REQUIRE(!end.has_value());
    end = status;
  }
  void Cancel() override { is_cancelled = true; }

  // --- what the test does ---
  bool is_free() const { return read_ == nullptr && write_ == nullptr && !end.has_value(); }
  bool reads() const { return read_ != nullptr; }
  bool writes() const { return write_ != nullptr; }
  bool is_done() const { return events_ == nullptr; }
  // The read has a message, or there will be no more.
  void FinishRead(std::optional<int> number) {
    grpc::ByteBuffer* const message = std::exchange(read_, nullptr);
    if (number) *message = NumberMessage(*number);
    events_->OnReadDone(number.has_value());
  }
  void FinishWrite() {
    const grpc::ByteBuffer* const message = std::exchange(write_, nullptr);
    if (!is_cancelled) written.push_back(NumberIn(*message));
    events_->OnWriteDone(!is_cancelled);
  }
  void TellCancelled() {
    is_cancelled = is_told = true;
    events_->OnCancel();
  }
  void TellDone() {
    const std::shared_ptr<StreamEvents> events = std::exchange(events_, nullptr);
    events->OnDone();
  }

  std::vector<int> written;
  std::optional<absl::Status> end;
  bool is_cancelled = false;
  bool is_told = false;

 private:
  const std::string peer_;
  std::shared_ptr<StreamEvents> events_;
  grpc::ByteBuffer* read_ = nullptr;
  const grpc::ByteBuffer* write_ = nullptr;
};

// A call that reads all there is and answers, or that answers with so many messages.
class CallOfStripes final : public StreamEvents {
 public:
  CallOfStripes(CallStream* stream, int writes) : stream_(*stream), writes_(writes) {}
  void Start() { writes_ == 0 ? stream_.Read(&message_) : WriteNext(); }

  void OnReadDone(bool ok) override {
    REQUIRE(!is_done);
    if (ok) {
      read.push_back(NumberIn(message_));
      return stream_.Read(&message_);
    }
    if (is_cancelled) return stream_.End(absl::CancelledError("gone"));
    message_ = NumberMessage(static_cast<int>(read.size()));
    stream_.WriteLast(&message_);
  }
  void OnWriteDone(bool ok) override {
    REQUIRE(!is_done);
    if (!ok) return stream_.End(absl::CancelledError("gone"));
    WriteNext();
  }
  void OnCancel() override {
    REQUIRE(!is_done);
    REQUIRE(!is_cancelled);
    is_cancelled = true;
  }
  void OnDone() override {
    REQUIRE(!is_done);
    is_done = true;
  }

  std::vector<int> read;
  bool is_cancelled = false;
  bool is_done = false;

 private:
  void WriteNext() {
    message_ = NumberMessage(written_++);
    written_ < writes_ ? stream_.Write(&message_) : stream_.WriteLast(&message_);
  }

  CallStream& stream_;
  const int writes_;
  int written_ = 0;
  grpc::ByteBuffer message_;
};

StripeName NameOf(int number, int count) { return {std::string(32, 'a'), number, count}; }

struct CallEnds {
  std::vector<std::unique_ptr<FakeStripe>> connections;
  std::shared_ptr<CallOfStripes> call;

  void Come(StripedCalls* calls, int number, int count, int writes) {
    FakeStripe* const connection = connections[static_cast<size_t>(number)].get();
    if (number > 0) {
      const auto stripe =
          std::make_shared<Stripe>(calls, NameOf(number, count), connection, nullptr);
      connection->Serve(stripe);
      return calls->Join(stripe);
    }
    const auto all = std::make_shared<StripedStream>(
        calls, NameOf(0, count), writes == 0 ? Striped::kReads : Striped::kWrites, connection);
    call = std::make_shared<CallOfStripes>(all.get(), writes);
    all->Serve(call);
    connection->Serve(std::make_shared<Stripe>(calls, all->name(), connection, all));
    REQUIRE(calls->Open(all).ok());
    call->Start();
  }
};

// One of the things that may happen next, by chance, until nothing is left to happen.
void PlayStripes(uint64_t seed, bool may_lose) {
  std::mt19937_64 random(seed);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<uint64_t>(n)); };
  const int count = 2 + below(kStripesMax - 1);
  const int messages = 1 + below(20);
  const int writes = below(2) == 0 ? 0 : messages;
  INFO("seed " << seed << ": " << count << " connections, " << messages << " messages, "
               << (writes == 0 ? "read" : "written"));
  StripedCalls calls(64);
  CallEnds ends;
  for (int i = 0; i < count; ++i) ends.connections.push_back(std::make_unique<FakeStripe>());
  std::vector<bool> has_come(static_cast<size_t>(count));
  std::vector<int> sent(static_cast<size_t>(count));
  bool is_lost = false;
  for (int step = 0; step < 10000; ++step) {
    std::vector<std::pair<char, int>> next;
    for (int i = 0; i < count; ++i) {
      FakeStripe& connection = *ends.connections[static_cast<size_t>(i)];
      if (!has_come[static_cast<size_t>(i)]) {
        // A caller that has gone begins nothing more.
        if (!is_lost) next.emplace_back('c', i);
        continue;
      }
      if (connection.is_done()) continue;
      if (connection.reads()) next.emplace_back('r', i);
      if (connection.writes()) next.emplace_back('w', i);
      if (connection.end.has_value() && !connection.reads() && !connection.writes() &&
          connection.is_cancelled == connection.is_told) {
        next.emplace_back('d', i);
      }
      if (connection.is_cancelled && !connection.is_told) next.emplace_back('t', i);
      if (may_lose && !connection.is_cancelled && !connection.end && below(20) == 0) {
        next.emplace_back('l', i);
      }
    }
    if (next.empty()) break;
    const auto [what, i] = next[static_cast<size_t>(below(static_cast<int>(next.size())))];
    FakeStripe& connection = *ends.connections[static_cast<size_t>(i)];
    int& number = sent[static_cast<size_t>(i)];
    switch (what) {
      case 'c':
        has_come[static_cast<size_t>(i)] = true;
        ends.Come(&calls, i, count, writes);
        break;
      case 'r': {
        const int message = i + count * number++;
        const bool has_more = !connection.is_cancelled && message < messages;
        connection.FinishRead(has_more ? std::optional<int>(message) : std::nullopt);
        break;
      }
      case 'w':
        connection.FinishWrite();
        break;
      case 'd':
        connection.TellDone();
        break;
      case 'l':
        is_lost = true;
        connection.TellCancelled();
        break;
      case 't':
        connection.TellCancelled();
        break;
    }
    // A caller that has lost one connection gives up the others, too; as it does when all has come.
    if (is_lost || (has_come[0] && ends.connections[0]->is_done())) {
      for (int j = 0; j < count; ++j) {
        if (has_come[static_cast<size_t>(j)] &&
            !ends.connections[static_cast<size_t>(j)]->is_done()) {
          ends.connections[static_cast<size_t>(j)]->is_cancelled = true;
        }
      }
    }
  }
  // Whatever happened, all that came has ended, and the call has heard of its end once.
  for (int i = 0; i < count; ++i) {
    if (has_come[static_cast<size_t>(i)]) {
      REQUIRE(ends.connections[static_cast<size_t>(i)]->is_done());
    }
  }
  REQUIRE(calls.waiting() == 0);
  if (ends.call != nullptr) REQUIRE(ends.call->is_done);
  if (is_lost) return;
  std::vector<int> all;
  for (int i = 0; i < messages; ++i) all.push_back(i);
  if (writes == 0) {
    REQUIRE(ends.call->read == all);
    REQUIRE(ends.connections[0]->written == std::vector<int>{messages});
  } else {
    std::vector<int> written;
    for (int i = 0; i < messages; ++i) {
      written.push_back(ends.connections[static_cast<size_t>(i % count)]
                            ->written[static_cast<size_t>(i / count)]);
    }
    REQUIRE(written == all);
  }
  for (const auto& connection : ends.connections) {
    // One that its call did not need may have come when that was over.
    REQUIRE((connection->end->ok() || connection->is_cancelled));
  }
}

TEST_CASE("messages come and go in turn, in whatever order the connections come",
          "[rpc][stripes]") {
  for (uint64_t seed = 0; seed < 2000; ++seed) PlayStripes(seed, false);
}

TEST_CASE("a connection that is lost ends the call and all others, at any moment",
          "[rpc][stripes]") {
  for (uint64_t seed = 0; seed < 4000; ++seed) PlayStripes(seed, true);
}

TEST_CASE("a connection that is there, or of another number of them, is refused",
          "[rpc][stripes]") {
  StripedCalls calls(64);
  CallEnds ends;
  for (int i = 0; i < 2; ++i) ends.connections.push_back(std::make_unique<FakeStripe>());
  ends.Come(&calls, 0, 2, 0);
  ends.Come(&calls, 1, 2, 0);
  for (const StripeName& name : {NameOf(1, 2), NameOf(2, 3)}) {
    FakeStripe other;
    const auto stripe = std::make_shared<Stripe>(&calls, name, &other, nullptr);
    other.Serve(stripe);
    calls.Join(stripe);
    REQUIRE(other.end.has_value());
    CHECK(other.end->code() == absl::StatusCode::kInvalidArgument);
    other.TellCancelled();
    other.TellDone();
  }
  // A second call of the same name, too, and the first one goes on.
  FakeStripe again;
  const auto all = std::make_shared<StripedStream>(&calls, NameOf(0, 2), Striped::kReads, &again);
  const auto call = std::make_shared<CallOfStripes>(all.get(), 0);
  all->Serve(call);
  again.Serve(std::make_shared<Stripe>(&calls, all->name(), &again, all));
  const absl::Status refused = calls.Open(all);
  CHECK(refused.code() == absl::StatusCode::kInvalidArgument);
  all->End(refused);
  again.TellDone();
  CHECK(call->is_done);
  CHECK_FALSE(ends.call->is_cancelled);
  ends.connections[0]->FinishRead(0);
  ends.connections[1]->FinishRead(std::nullopt);
  CHECK(ends.call->read == std::vector<int>{0});
  for (const auto& connection : ends.connections) connection->TellDone();
  CHECK(ends.call->is_done);
}

TEST_CASE("of one host so many connections wait for calls that do not come", "[rpc][stripes]") {
  StripedCalls calls(3);
  std::vector<std::unique_ptr<FakeStripe>> connections;
  for (int i = 0; i < 5; ++i) {
    connections.push_back(std::make_unique<FakeStripe>());
    StripeName name = NameOf(1, 2);
    name.call[0] = static_cast<char>('0' + i);
    const auto stripe = std::make_shared<Stripe>(&calls, name, connections.back().get(), nullptr);
    connections.back()->Serve(stripe);
    calls.Join(stripe);
  }
  for (int i = 0; i < 5; ++i) {
    const std::optional<absl::Status>& end = connections[static_cast<size_t>(i)]->end;
    CHECK(end.has_value() == (i < 2));
    if (end) CHECK(end->code() == absl::StatusCode::kResourceExhausted);
  }
  // Another host's waits beside them.
  FakeStripe other("ipv4:10.0.0.2:1");
  const auto stripe = std::make_shared<Stripe>(&calls, NameOf(1, 2), &other, nullptr);
  other.Serve(stripe);
  calls.Join(stripe);
  CHECK_FALSE(other.end.has_value());
  CHECK(calls.waiting() == 4);
  // Whoever has ended is told of its caller's end once more, as gRPC may, and the others end by it.
  connections.push_back(nullptr);
  for (const auto& connection : connections) {
    FakeStripe& each = connection == nullptr ? other : *connection;
    each.TellCancelled();
    REQUIRE(each.end.has_value());
    each.TellDone();
  }
  CHECK(calls.waiting() == 0);
}

}  // namespace
}  // namespace tessera
