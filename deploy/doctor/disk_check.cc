#include "deploy/doctor/disk_check.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/folder_lock.h"
#include "common/checkpoint/manifest.h"
#include "common/rule/optimizer.h"
#include "deploy/cli/counted.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

// What to do where a folder cannot be written in, by errno.
std::string AdviceOn(int error) {
  switch (error) {
    case ENOTDIR:
      return "it, or what it is in, is no folder: move that away, or name another folder";
    case EROFS:
      return "its file system is read-only: name a folder on another, or mount it for writing";
    case ENOSPC:
    case EDQUOT:
      return "make room, or name another folder";
    case EACCES:
    case EPERM:
      return "give this user the right to write there, or name another folder";
    default:
      return "name another folder";
  }
}

// What server 0 locks a folder for.
enum class Locked { kNothing, kCheckpoints, kCheckpointsAndState, kState };

// Looks whether the file system of `directory` has locks, by `probe`, a folder on it.
void CheckLocks(absl::string_view key, const std::string& directory, const std::string& probe,
                Locked locked, Findings* findings) {
  if (locked == Locked::kNothing) return;
  // The question is whether there are locks at all, not whether somebody has this one.
  if (!absl::IsUnimplemented(FolderLock::Take(probe, "lock").status())) return;
  const std::string what =
      absl::StrCat(key, ": \"", directory, "\" is on a file system without locks: ");
  if (locked == Locked::kState) {
    findings->push_back(
        {Finding::Kind::kProblem, absl::StrCat(what, "server 0 would end with 2"), kNoLocksAdvice});
    return;
  }
  findings->push_back({Finding::Kind::kNote,
                       absl::StrCat(what, "another job in that folder would not be noticed"),
                       "give every job a folder of its own"});
  if (locked != Locked::kCheckpointsAndState) return;
  findings->push_back({Finding::Kind::kNote,
                       absl::StrCat(what, "the coordinator's state is kept nowhere"),
                       kNoLocksAdvice});
}

// Where a server writes `directory`, of whose last folders it makes `made`; empty: it cannot, and `findings` say so.
std::string WritableAt(const char* key, const std::string& directory, int made, Locked locked,
                       Findings* findings) {
  const auto problem = [&](std::string what, std::string advice) {
    findings->push_back({Finding::Kind::kProblem, absl::StrCat(key, ": \"", directory, "\" ", what),
                         std::move(advice)});
  };
  std::error_code error;
  // Relative paths are seen from here; servers see them from where they are started.
  fs::path at = fs::absolute(directory).lexically_normal();
  if (!at.has_filename()) at = at.parent_path();  // "a/b/"
  const bool is_there = fs::exists(at, error);
  // A server makes the last folders, so that these may be missing.
  for (int i = 0; i < made && !fs::exists(at, error); ++i) at = at.parent_path();
  if (!fs::exists(at, error)) {
    problem(absl::StrCat("cannot be made: \"", at.string(),
                         "\" is not there, and servers make the last ",
                         made == 1 ? "folder" : "two folders", " alone"),
            absl::StrCat("make it: mkdir -p ", at.string(), "; or name another folder"));
    return "";
  }
  // A folder is made, as a server makes one: the right to write is not all that it takes. Servers remove folders
  // of such a name.
  std::string probe = absl::StrCat(at.string(), "/", kPartialPrefix, "doctor-XXXXXX");
  if (mkdtemp(probe.data()) == nullptr) {
    const int why = errno;
    problem(absl::StrCat("cannot be ", is_there ? "written: " : "made: ", std::strerror(why)),
            AdviceOn(why));
    return "";
  }
  CheckLocks(key, directory, probe, locked, findings);
  // The probe is empty, but for the lock's file.
  fs::remove_all(probe, error);
  return at.string();
}

// The bytes of one checkpoint, by all processes, which share the folder: the servers' parameters and states, and
// each worker's file (worker_file.h). Halves of the layers count as if each were the whole.
double CheckpointBytes(const v1::Job& job, const Recipe& recipe, const ModelShape& shape) {
  // Parameters, and as many arrays as the rule has states.
  double floats = static_cast<double>(shape.size) * (1.0 + ServerStates(recipe).size());
  double own = 0;  // arrays of each worker
  // Each worker has an optimizer of its own.
  if (recipe.payload == PayloadKind::kDelta && recipe.averaged_states.empty()) {
    own += StateNames(job.train().optimizer()).size();
  }
  // What exchanges of a core have not moved is each worker's.
  if (recipe.core) own += 1;
  if (recipe.codecs.holds_back()) own += 1;
  floats += own * static_cast<double>(shape.size * job.cluster().workers());
  return sizeof(float) * floats;
}

// The bytes of the checkpoints in `directory`, without those that cannot be read.
double BytesThere(const std::string& directory) {
  double bytes = 0;
  std::error_code error;
  for (fs::directory_iterator each(directory, error), end; !error && each != end;
       each.increment(error)) {
    uint64_t step = 0;
    // Other files in the folder are no checkpoints, and stay.
    if (!ParseStepFolderName(each->path().filename().string(), &step)) continue;
    std::error_code inner;
    for (fs::directory_iterator file(each->path(), inner); !inner && file != end;
         file.increment(inner)) {
      std::error_code unreadable;
      const uintmax_t size = file->file_size(unreadable);
      if (!unreadable) bytes += static_cast<double>(size);
    }
  }
  return bytes;
}

}  // namespace

double RoomWanted(const std::string& directory, double bytes, int64_t keep) {
  // At least the first new checkpoint comes while all old ones are there.
  return std::max(bytes, bytes * static_cast<double>(keep + 1) - BytesThere(directory));
}

Findings CheckDisk(const v1::Job& job, const Recipe& recipe, const ModelShape& shape) {
  Findings findings;
  const v1::CoordinatorPlace& place = job.cluster().coordinator();
  const bool keeps_elsewhere = !place.directory().empty();
  // In etcd the state takes no folder.
  if (keeps_elsewhere && place.etcd().empty()) {
    WritableAt("cluster.coordinator.directory", place.directory(), 2, Locked::kState, &findings);
  }
  const std::string& directory = job.checkpoint().directory();
  if (directory.empty()) return findings;
  const Locked locked = !place.etcd().empty() ? Locked::kNothing
                        : keeps_elsewhere     ? Locked::kCheckpoints
                                              : Locked::kCheckpointsAndState;
  const std::string at = WritableAt("checkpoint.directory", directory, 1, locked, &findings);
  if (at.empty()) return findings;
  std::error_code error;
  const fs::space_info space = fs::space(at, error);
  // Nobody says how much room there is: no finding.
  if (error) return findings;
  const int64_t keep = job.checkpoint().keep();
  const double want = RoomWanted(directory, CheckpointBytes(job, recipe, shape), keep);
  const auto left = static_cast<double>(space.available);
  if (left < want) {
    findings.push_back({Finding::Kind::kProblem,
                        absl::StrCat("checkpoint.directory: \"", directory, "\" has ", Bytes(left),
                                     " left, want ", Bytes(want), " more for ", keep + 1,
                                     " checkpoints of the job, with those that are there"),
                        "make room, keep fewer (checkpoint.keep), or name another folder"});
  } else {
    findings.push_back({Finding::Kind::kGood,
                        absl::StrCat("checkpoints: ", Bytes(left), " left in ", directory), ""});
  }
  return findings;
}

}  // namespace tessera
