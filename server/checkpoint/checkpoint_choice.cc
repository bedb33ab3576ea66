#include "server/checkpoint/checkpoint_choice.h"

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/store/own_disks.h"

namespace tessera {
namespace {

// One that is named in a message; a job of many workers would name hundreds.
constexpr size_t kNamedMax = 4;

// One checkpoint as all servers together have it.
struct Gathered {
  std::map<std::string, bool> files;  // whether it is whole somewhere
  std::vector<std::string> broken;    // copies, in words
};

// "shard-1-of-3.safetensors (want it on server 1 and server 2)", for each file that nobody has.
std::string Lacking(const Gathered& gathered, int64_t copies) {
  uint64_t servers = 0;
  FileOwner owner;
  for (const auto& [name, whole] : gathered.files) {
    if (ParseFileName(name, &owner) && !owner.is_worker) ++servers;
  }
  std::vector<std::string> lacking;
  size_t more = 0;
  for (const auto& [name, whole] : gathered.files) {
    if (whole || !ParseFileName(name, &owner)) continue;
    if (lacking.size() == kNamedMax) {
      ++more;
      continue;
    }
    lacking.push_back(absl::StrCat(name, " (want it on ",
                                   DescribeServers(HoldersOf(owner, servers, copies)), ")"));
  }
  std::string text = absl::StrJoin(lacking, ", ");
  if (more > 0) absl::StrAppend(&text, " and ", more, " more");
  return text;
}

}  // namespace

absl::StatusOr<CheckpointChoice> ChooseCheckpoint(const std::vector<ServerHolding>& holdings,
                                                  std::optional<uint64_t> step, int64_t copies) {
  // Newest first. Of two of one step, which only a commit leaves that was half done, either is whole or not.
  std::map<std::pair<uint64_t, uint64_t>, Gathered, std::greater<>> all;
  for (const ServerHolding& holding : holdings) {
    for (const v1::HeldCheckpoint& held : holding.list.checkpoints()) {
      if (step && held.step() != *step) continue;
      Gathered& gathered = all[{held.step(), held.manifest_sum()}];
      for (const v1::HeldFile& file : held.files()) {
        const bool is_whole = file.is_here() && file.broken().empty();
        gathered.files[file.name()] |= is_whole;
        if (file.broken().empty()) continue;
        gathered.broken.push_back(
            absl::StrCat("server ", holding.server, ", step ", held.step(), ": ", file.broken()));
      }
    }
  }
  CheckpointChoice choice;
  std::vector<std::string> incomplete;
  for (const auto& [key, gathered] : all) {
    choice.passed_over.insert(choice.passed_over.end(), gathered.broken.begin(),
                              gathered.broken.end());
    // By files, not by servers: any disk may be lost whose files others have.
    const bool is_whole = std::all_of(gathered.files.begin(), gathered.files.end(),
                                      [](const auto& file) { return file.second; });
    if (is_whole) {
      choice.step = key.first;
      choice.manifest_sum = key.second;
      choice.passed_over.insert(choice.passed_over.begin(), incomplete.begin(), incomplete.end());
      return choice;
    }
    incomplete.push_back(absl::StrCat("step ", key.first, " lacks ", Lacking(gathered, copies)));
  }
  const std::string which = step ? absl::StrCat(" of step ", *step) : "";
  if (all.empty()) {
    return absl::NotFoundError(absl::StrCat("checkpoint: none", which, " is on the disks of ",
                                            holdings.size(), " servers"));
  }
  // The newest are the ones to be missed.
  if (incomplete.size() > kNamedMax) incomplete.resize(kNamedMax);
  std::string why = absl::StrJoin(incomplete, "; ");
  if (!choice.passed_over.empty()) {
    absl::StrAppend(&why, "; broken: ", absl::StrJoin(choice.passed_over, "; "));
  }
  return absl::NotFoundError(absl::StrCat(
      "checkpoint: none", which, " is whole on the disks of ", holdings.size(), " servers: ", why,
      "; start the server whose disk has it, or begin anew without checkpoint.restore"));
}

}  // namespace tessera
