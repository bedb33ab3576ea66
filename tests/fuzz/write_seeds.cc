// Writes seeds for the targets whose inputs are messages that the product makes: streams to standbys, with and
// without an image, and a coordinator's state at several moments of a job; exchanges of a leader; and files of
// checkpoints.
//
//   bazel run //tests/fuzz:write_seeds -- EVENTS FOLDER     FOLDER/follower/..., FOLDER/leader/..., ...
//
// EVENTS is a folder with the inputs of the target `coordinator` (corpus.py unpacks them): a coordinator that gets them
// has the states that are written.
//
// Inputs that a fuzzer added to a corpus may have another meaning after a change of the messages. Seeds are then
// written anew.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/log.h"
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/safetensors_writer.h"
#include "common/rpc/borrowed_slice.h"
#include "common/rpc/chunk.h"
#include "server/rpc/followed_shards.h"
#include "tests/fuzz/coordinator_events.h"
#include "tests/fuzz/fuzz_leader.h"
#include "worker/checkpoint/worker_file.h"

namespace tessera {
namespace {

std::string Number(uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text.push_back(static_cast<char>(value >> (8 * i)));
  return text;
}

std::string Piece(const std::string& bytes) { return Number(bytes.size(), 2) + bytes; }

std::string WireOf(LogQueue::Message message) {
  const auto values = std::make_shared<const Payload>(std::move(message.values));
  std::vector<grpc::Slice> slices;
  for (const Payload::Piece& piece : values->pieces()) {
    slices.push_back(BorrowSlice(piece.data, piece.size, values));
  }
  const grpc::ByteBuffer wire = WriteChunk(message.head, slices);
  std::string bytes;
  std::vector<grpc::Slice> parts;
  TESSERA_CHECK(wire.Dump(&parts).ok());
  for (const grpc::Slice& part : parts) {
    bytes.append(reinterpret_cast<const char*>(part.begin()), part.size());
  }
  return bytes;
}

void Write(const std::filesystem::path& path, const std::string& bytes) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << bytes;
  file.close();
  TESSERA_CHECK(file.good());
}

// What a standby hears of some exchanges, from the beginning or from an image on: an input of follower_fuzz.
std::string Stream(size_t place, const FuzzJob& job, bool copies) {
  absl::Time now = absl::FromUnixSeconds(1000);
  FuzzLeader leader(job);
  const auto log = std::make_shared<FuzzLog>(job, 1, &now);
  if (!copies) leader.served().gate().SetStandby(log);
  leader.AddMember();
  leader.AddMember();
  std::string input = Number(place, 1);
  for (int exchange = 0; exchange < 4; ++exchange) {
    if (copies && exchange == 2) leader.served().gate().SetStandby(log);
    if (exchange == 3) leader.RemoveMember(1);
    leader.Work(now);
    const std::vector<PlanMember> members = leader.served().shard().plan().members;
    for (const PlanMember& member : members) {
      leader.Push(member.member, 0.25f, [](const absl::StatusOr<PushAccepted>&) {});
      leader.Work(now);
    }
    leader.served().Propose(100 + exchange, Exchange(exchange + 5));
    leader.served().Withdraw(100 + exchange);
    now += absl::Seconds(2);
  }
  FollowedShards::Options followed;
  followed.job_digest = job.digest;
  followed.layout_hash = job.facts.layout_hash;
  followed.make_shard = [&job](ShardId) { return job.MakeShard(); };
  FollowedShards shards(std::move(followed));
  shards.Follow(ShardId(0), 1);
  while (shards.PrepareOne()) {
  }
  LogReader reader(&shards);
  while (std::optional<LogQueue::Message> next = log->queue.Next(200)) {
    // A standby takes it, or it would seed nothing.
    TESSERA_CHECK(reader.Take(next->head, next->values.Share(), now).ok());
    // A chunk, with nothing put right.
    input += Number(0, 1) + Number(0, 1) + Piece(WireOf(*std::move(next)));
  }
  return input;
}

void WriteStreams(const std::filesystem::path& folder) {
  for (size_t i = 0; i < LeadingJobs().size(); ++i) {
    const FuzzJob& job = *LeadingJobs()[i];
    for (const bool copies : {false, true}) {
      Write(folder / absl::StrCat("stream-", i, copies ? "-image" : ""), Stream(i, job, copies));
    }
  }
}

// Events of leader_fuzz, by their numbers there: two members push, and what follows from it goes to a standby and
// back; a few rounds of that, a member that joins, another standby, and an acknowledgement that cannot be.
std::string Exchanges(size_t place, bool has_standby) {
  const auto times = [](int count, const std::string& event) {
    std::string events;
    for (int i = 0; i < count; ++i) events += event;
    return events;
  };
  const std::string none(1, '\0');
  const std::string push = none + none + "\1" + none + "\1\1", work = "\3", send = "\5\xff";
  const std::string round = push + work + times(3, send) + times(3, "\7") + times(3, "\11");
  const std::string join = "\14" + none, feed = "\15", ends = "\16\1", ack = "\10\x90\x4e";
  const std::string lie = "\13" + Piece(ack) + none;
  return Number(place, 1) + (has_standby ? "\1" : none) + times(3, round) + join + times(2, round) +
         feed + times(3, round) + ends + times(2, round) + lie + round;
}

void WriteExchanges(const std::filesystem::path& folder) {
  for (size_t i = 0; i < LeadingJobs().size(); ++i) {
    for (const bool has_standby : {false, true}) {
      Write(folder / absl::StrCat("exchanges-", i, has_standby ? "-from-the-start" : ""),
            Exchanges(i, has_standby));
    }
  }
}

void WriteState(const std::filesystem::path& path, size_t place, const CoordinatorEvents& events) {
  v1::CoordinatorState state = events.coordinator().Save();
  Stamp({events.now(), kSteadyClock, events.now()}, &state);
  // Digest and format are put right; nothing follows but that everybody is lost.
  Write(path, Number(place, 1) + Number(2, 1) + Piece(state.SerializeAsString()));
}

// Of a job that has begun, and after each of the inputs that the coordinator's own target keeps.
void WriteStates(const std::filesystem::path& inputs, const std::filesystem::path& folder) {
  const absl::Time now = absl::FromUnixSeconds(1000);
  for (size_t i = 0; i < FuzzJobs().size(); ++i) {
    const FuzzJob& job = FuzzJobs()[i];
    FuzzInput none(nullptr, 0);
    CoordinatorEvents events(job, &none, Coordinator::Create(job.facts, now).value(), now);
    events.Begin();
    WriteState(folder / absl::StrCat("state-", i), i, events);
  }
  for (const auto& entry : std::filesystem::directory_iterator(inputs)) {
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string bytes(std::istreambuf_iterator<char>(file), {});
    FuzzInput input(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
    const size_t place = input.Below(FuzzJobs().size());
    const FuzzJob& job = FuzzJobs()[place];
    CoordinatorEvents events(job, &input, Coordinator::Create(job.facts, now).value(), now);
    if (input.Bit()) events.Begin();
    events.Some(300);
    WriteState(folder / entry.path().filename(), place, events);
  }
}

std::string TextOf(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// Of one server and of two, with a worker's file.
void WriteCheckpoints(const std::filesystem::path& folder) {
  const std::filesystem::path scratch = folder / "scratch";
  std::filesystem::create_directories(scratch);
  WorkerCopy worker;
  worker.cursor.progress.step = 40;
  worker.cursor.progress.exchange = 2;
  worker.cursor.loss_sum = 1.5;
  worker.cursor.loss_count = 3;
  worker.arrays = {{"state.momentum.w", std::vector<float>(6, 0.5f)},
                   {"replica.b", {2}},
                   {"residual.0", {1, 2, 3}},
                   {"codec", {4, 5}}};
  const CheckpointFile saved = WriteWorkerFile(scratch, Rank(0), worker).value();
  Write(folder / "worker_file" / "whole", TextOf(scratch / WrittenName(saved)));
  worker.facts = {{-1, 1}, {0.5, 1}, {2, 0.25}, 77, {1, 2}};
  const CheckpointFile with_facts = WriteWorkerFile(scratch, Rank(0), worker).value();
  Write(folder / "worker_file" / "facts", TextOf(scratch / WrittenName(with_facts)));
  for (size_t shards = 1; shards <= 2; ++shards) {
    Manifest manifest;
    manifest.job = "digits";
    manifest.job_digest = std::string(64, 'a');
    manifest.job_text = "tessera job 1\n";
    manifest.method = "local_sgd";
    manifest.version = "test";
    manifest.step = 40;
    manifest.exchange = 2;
    manifest.generation = 3;
    manifest.layout_hash = 5;
    manifest.states = 1;
    manifest.model_parameters = 2;
    manifest.parameters = {{"w", 3, 2, false, 1}, {"b", 3, 1, true, 0.5}};
    manifest.shards.resize(shards);
    manifest.members = {{1, 0, 2, 40}};
    std::string files;
    for (size_t shard = 0; shard < shards; ++shard) {
      const std::string name =
          ShardFileName(static_cast<int64_t>(shard), static_cast<int64_t>(shards));
      auto writer = SafetensorsWriter::CreatePart(
                        scratch, name, ShardTensors(manifest, static_cast<int64_t>(shard)), {})
                        .value();
      const std::string values(static_cast<size_t>(writer->missing_bytes()), '\x3f');
      TESSERA_CHECK(writer->Append(values.data(), writer->missing_bytes()).ok());
      manifest.files.push_back(writer->Finish().value());
      files += Piece(TextOf(scratch / WrittenName(manifest.files.back())));
    }
    const std::string how = {static_cast<char>(shards - 1), '\1'};
    Write(folder / "checkpoint" / absl::StrCat("servers", shards),
          how + Piece(FormatManifest(manifest)) + files);
  }
  std::filesystem::remove_all(scratch);
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: write_seeds EVENTS FOLDER\n");
    return 2;
  }
  tessera::SetLogLevel(static_cast<tessera::LogLevel>(4));
  const std::filesystem::path events = argv[1], folder = argv[2];
  tessera::WriteStreams(folder / "follower");
  tessera::WriteExchanges(folder / "leader");
  tessera::WriteStates(events, folder / "coordinator_state");
  tessera::WriteCheckpoints(folder);
  return 0;
}
