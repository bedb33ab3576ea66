// From which step a job goes on whose servers each have a disk.
#include "server/checkpoint/checkpoint_choice.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "common/checkpoint/manifest.h"
#include "common/store/own_disks.h"

namespace tessera {
namespace {

// What server `rank` of three says of a checkpoint whose files lie as they should.
void Hold(uint64_t rank, uint64_t step, uint64_t sum, ServerHolding* holding) {
  holding->server = rank;
  v1::HeldCheckpoint& held = *holding->list.add_checkpoints();
  held.set_step(step);
  held.set_manifest_sum(sum);
  for (const std::string& name : {ShardFileName(0, 3), ShardFileName(1, 3), ShardFileName(2, 3),
                                  WorkerFileName(0), WorkerFileName(4)}) {
    v1::HeldFile& file = *held.add_files();
    file.set_name(name);
    FileOwner owner;
    REQUIRE(ParseFileName(name, &owner));
    for (const uint64_t holder : HoldersOf(owner, 3, 2)) {
      if (holder == rank) file.set_is_here(true);
    }
  }
}

std::vector<ServerHolding> AllHold(uint64_t step, uint64_t sum) {
  std::vector<ServerHolding> holdings(3);
  for (uint64_t rank = 0; rank < 3; ++rank) Hold(rank, step, sum, &holdings[rank]);
  return holdings;
}

TEST_CASE("each file has its disks", "[checkpoint]") {
  const std::vector<uint64_t> both = {2, 0};
  CHECK(HoldersOf({false, 2}, 3, 2) == both);
  CHECK(HoldersOf({true, 5}, 3, 2) == both);
  CHECK(HoldersOf({false, 0}, 1, 2) == std::vector<uint64_t>{0});
  CHECK(HoldersOf({true, 7}, 3, 1) == std::vector<uint64_t>{1});
}

TEST_CASE("only names of a checkpoint's files are taken for such", "[checkpoint]") {
  FileOwner owner;
  CHECK(ParseFileName("shard-12-of-13.safetensors", &owner));
  CHECK(owner.rank == 12);
  CHECK_FALSE(owner.is_worker);
  CHECK(ParseFileName("worker-3.safetensors", &owner));
  CHECK(owner.is_worker);
  for (const char* name :
       {"", "worker-3", "worker-03.safetensors", "../worker-3.safetensors",
        "worker-3.safetensors/..", "shard-1-of-1.safetensors", "shard-0-of-0.safetensors",
        "shard-0-of-1000.safetensors", "shard--1-of-2.safetensors", "worker-+3.safetensors",
        "worker-99999999999999999999.safetensors", "shard-0-of-2.safetensors\n"}) {
    CAPTURE(name);
    CHECK_FALSE(ParseFileName(name, &owner));
  }
}

TEST_CASE("the newest is chosen of which every file is somewhere", "[checkpoint]") {
  std::vector<ServerHolding> holdings = AllHold(40, 4);
  for (uint64_t rank = 0; rank < 3; ++rank) Hold(rank, 20, 2, &holdings[rank]);
  SECTION("all are there") {}
  SECTION("one disk is lost") { holdings[1].list.Clear(); }
  SECTION("one copy is broken") {
    v1::HeldFile& file = *holdings[0].list.mutable_checkpoints(0)->mutable_files(0);
    REQUIRE(file.is_here());
    file.set_broken("it was cut");
    const auto choice = ChooseCheckpoint(holdings, std::nullopt, 2);
    REQUIRE(choice.ok());
    REQUIRE(choice->passed_over.size() == 1);
    CHECK(choice->passed_over[0] == "server 0, step 40: it was cut");
  }
  const auto choice = ChooseCheckpoint(holdings, std::nullopt, 2);
  REQUIRE(choice.ok());
  CHECK(choice->step == 40);
  CHECK(choice->manifest_sum == 4);
  const auto older = ChooseCheckpoint(holdings, 20, 2);
  REQUIRE(older.ok());
  CHECK(older->step == 20);
}

TEST_CASE(
    "a commit that only some servers made counts if all files are there, and two of one step do "
    "not mix",
    "[checkpoint]") {
  std::vector<ServerHolding> holdings = AllHold(40, 4);
  // Server 2 has another step 40, of a run that was given up, and its own 20.
  holdings[2].list.Clear();
  Hold(2, 40, 5, &holdings[2]);
  auto choice = ChooseCheckpoint(holdings, std::nullopt, 2);
  REQUIRE(choice.ok());
  CHECK(choice->manifest_sum == 4);
  // Without server 1 the files of server 1 are in the other one alone.
  holdings[1].list.Clear();
  choice = ChooseCheckpoint(holdings, std::nullopt, 2);
  CHECK(absl::IsNotFound(choice.status()));
}

TEST_CASE("two neighbours' disks lost is a refusal that names the step, the files and the servers",
          "[checkpoint]") {
  std::vector<ServerHolding> holdings = AllHold(40, 4);
  holdings[1].list.Clear();
  holdings[2].list.Clear();
  auto choice = ChooseCheckpoint(holdings, std::nullopt, 2);
  REQUIRE(absl::IsNotFound(choice.status()));
  const std::string message(choice.status().message());
  CAPTURE(message);
  CHECK(message.find("step 40 lacks shard-1-of-3.safetensors (want it on server 1 and server 2), "
                     "worker-4.safetensors (want it on server 1 and server 2)") !=
        std::string::npos);
  // An older one that is whole is taken instead, and the later one named.
  for (uint64_t rank = 0; rank < 3; ++rank) Hold(rank, 20, 2, &holdings[rank]);
  choice = ChooseCheckpoint(holdings, std::nullopt, 2);
  REQUIRE(choice.ok());
  CHECK(choice->step == 20);
  REQUIRE(choice->passed_over.size() == 1);
  CHECK(choice->passed_over[0].find("step 40 lacks shard-1-of-3") == 0);
  // There is none of that step, and none at all.
  CHECK(ChooseCheckpoint(holdings, 30, 2).status().message() ==
        "checkpoint: none of step 30 is on the disks of 3 servers");
  CHECK(ChooseCheckpoint({{}, {}}, std::nullopt, 2).status().message() ==
        "checkpoint: none is on the disks of 2 servers");
}

}  // namespace
}  // namespace tessera
