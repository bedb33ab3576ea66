// Checkpoints come into being whole or not at all, whenever their writer is killed or its disk fails.
#include "server/checkpoint/checkpoint_directory.h"

#include <dirent.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdio>
#include <cstdlib>
#include <sstream>

#include "common/checkpoint/durable_file.h"
#include "tests/common/checkpoint/saved_model.h"

namespace tessera {
namespace {

constexpr char kWriter[] = "tests/server/checkpoint/write_checkpoints";

struct Writing {
  bool killed = false;
  std::vector<std::string> lines;

  // Steps after the word.
  std::vector<uint64_t> Steps(const std::string& word) const {
    std::vector<uint64_t> steps;
    for (const std::string& line : lines) {
      std::istringstream text(line);
      std::string first;
      uint64_t step = 0;
      if (text >> first >> step && first == word) steps.push_back(step);
    }
    return steps;
  }
};

Writing Write(const std::string& directory, const std::string& arguments,
              const std::string& failpoints) {
  const std::string command =
      "TESSERA_FAILPOINTS='" + failpoints + "' exec " + kWriter + " " + directory + " " + arguments;
  FILE* const output = popen(command.c_str(), "r");
  REQUIRE(output != nullptr);
  Writing writing;
  char line[4096];
  while (std::fgets(line, sizeof(line), output) != nullptr) {
    writing.lines.push_back(std::string(line, std::string(line).size() - 1));
  }
  const int status = pclose(output);
  writing.killed = WIFSIGNALED(status) || (WIFEXITED(status) && WEXITSTATUS(status) == 128 + 9);
  return writing;
}

std::vector<std::string> NamesIn(const std::string& path) {
  std::vector<std::string> names;
  DIR* const folder = opendir(path.c_str());
  REQUIRE(folder != nullptr);
  while (const dirent* entry = readdir(folder)) {
    if (entry->d_name[0] != '.') names.push_back(entry->d_name);
  }
  closedir(folder);
  std::sort(names.begin(), names.end());
  return names;
}

using Names = std::vector<std::string>;

std::unique_ptr<Checkpoint> Newest(const std::string& path) {
  std::vector<ListedCheckpoint> broken;
  auto newest = NewestCheckpoint(path, &broken);
  CHECK(broken.empty());
  return newest.ok() ? *std::move(newest) : nullptr;
}

TEST_CASE("the newest checkpoints are kept, so many as wanted", "[checkpoint]") {
  const std::string path = EmptyFolder() + "/made";
  const Writing writing = Write(path, "--keep 2 100 200 300 1000", "");
  CHECK(writing.Steps("whole") == std::vector<uint64_t>{100, 200, 300, 1000});
  CHECK(NamesIn(path) == Names{"step-000000000300", "step-000000001000"});
  const auto listed = ListCheckpoints(path, /*verify=*/true);
  REQUIRE(listed.ok());
  REQUIRE(listed->size() == 2);
  CHECK((*listed)[0].step == 1000);
  CHECK((*listed)[1].step == 300);
  CHECK((*listed)[1].status.ok());
  CHECK(HasSavedValues(*Newest(path)));
}

// kill -9 after every single thing that the writer does to the disk.
TEST_CASE("a writer killed at any step leaves the previous checkpoint or the new one whole",
          "[checkpoint][crash]") {
  int kills = 0, previous = 0, next = 0;
  for (int place = 1;; ++place) {
    const std::string path = EmptyFolder();
    REQUIRE_FALSE(Write(path, "--keep 1 --shards 2 100", "").killed);
    const Writing writing =
        Write(path, "--keep 1 --shards 3 200 300", "*@" + std::to_string(place) + "=kill");
    const auto newest = Newest(path);
    REQUIRE(newest != nullptr);
    CHECK(HasSavedValues(*newest));
    const std::vector<uint64_t> begun = writing.Steps("begun"), whole = writing.Steps("whole");
    // What the writer said is whole is there, or a later one.
    const uint64_t said = whole.empty() ? 100 : whole.back();
    const uint64_t may_be = begun.empty() ? 100 : begun.back();
    const uint64_t step = newest->manifest().step;
    CHECK((step == said || step == may_be));
    if (!writing.killed) {
      CHECK(step == 300);
      break;
    }
    ++kills;
    previous += step == said && said != may_be;
    next += step == may_be && said != may_be;
    // Every name is a whole checkpoint's or says that it is none.
    const auto listed = ListCheckpoints(path, /*verify=*/true);
    REQUIRE(listed.ok());
    for (const ListedCheckpoint& entry : *listed) CHECK(entry.status.ok());
    // The next life of the job begins with a clean folder and goes on.
    CHECK_FALSE(Write(path, "--keep 1 --shards 3 400", "").killed);
    CHECK(NamesIn(path) == Names{"step-000000000400"});
    CHECK(HasSavedValues(*Newest(path)));
  }
  CHECK(kills > 40);
  CHECK(previous > 10);
  CHECK(next > 3);
}

TEST_CASE("each failure of the disk is told, costs one checkpoint and leaves no part of it",
          "[checkpoint]") {
  const struct {
    const char* failpoint;
    absl::StatusCode code;
    const char* file;
    const char* words;
  } cases[] = {
      {"file.write@4=enospc", absl::StatusCode::kResourceExhausted,
       "/shard-1-of-2.safetensors.part.", "\" cannot be written: No space left on device"},
      {"file.create@1=enospc", absl::StatusCode::kResourceExhausted,
       "/shard-0-of-2.safetensors.part.", "\" cannot be made: No space left on device"},
      {"file.create@3=erofs", absl::StatusCode::kPermissionDenied, "/manifest.json",
       "\" cannot be made: Read-only file system"},
      {"file.sync@2=eio", absl::StatusCode::kUnavailable, "/shard-1-of-2.safetensors.part.",
       "\" cannot be written: Input/output error"},
      {"file.rename@2=eio", absl::StatusCode::kUnavailable, "/shard-1-of-2.safetensors.part.",
       "\" cannot be renamed: Input/output error"},
      {"file.rename@3=eio", absl::StatusCode::kUnavailable, "/shard-0-of-2.safetensors.",
       "\" cannot be renamed: Input/output error"},
      {"folder.sync@1=eio", absl::StatusCode::kUnavailable, "/partial-step-000000000200",
       "\" cannot be written: Input/output error"},
      {"folder.make@3=enospc", absl::StatusCode::kResourceExhausted, "/partial-step-000000000200",
       "\" cannot be made: No space left on device"},
  };
  for (const auto& c : cases) {
    const std::string path = EmptyFolder();
    Write(path, "100", "");
    const Writing writing = Write(path, "200 300", c.failpoint);
    REQUIRE(writing.lines.size() >= 2);
    const auto failed = std::find_if(writing.lines.begin(), writing.lines.end(),
                                     [](const auto& l) { return l.find("failed 200 ") == 0; });
    REQUIRE(failed != writing.lines.end());
    CHECK_THAT(*failed,
               Catch::StartsWith("failed 200 " + std::to_string(static_cast<int>(c.code))));
    CHECK_THAT(*failed, Catch::Contains(c.file) && Catch::Contains(c.words));
    CHECK(writing.Steps("whole") == std::vector<uint64_t>{300});
    CHECK(NamesIn(path) == Names{"step-000000000100", "step-000000000300"});
  }
}

TEST_CASE("a folder that cannot be used is told at once", "[checkpoint]") {
  const std::string root = EmptyFolder();
  CHECK(CheckpointDirectory::Open(root + "/a/b", 1).status().message() ==
        "checkpoint: \"" + root + "/a/b\" cannot be made: No such file or directory");
  WriteText(root + "/file", "x");
  CHECK(CheckpointDirectory::Open(root + "/file", 1).status().message() ==
        "checkpoint: \"" + root + "/file\" cannot be made: Not a directory");
  CHECK_THAT(Write(root + "/c", "100", "folder.make@2=erofs").lines.at(0),
             Catch::StartsWith("failed open 7 checkpoint: \"" + root + "/c/partial-probe\""));
}

TEST_CASE("a file that lies elsewhere, or is another, is not committed", "[checkpoint]") {
  const std::string path = EmptyFolder();
  auto directory = CheckpointDirectory::Open(path, 2);
  REQUIRE(directory.ok());
  const auto folder = (*directory)->Begin(7);
  REQUIRE(folder.ok());
  Manifest manifest = ManifestOf(2, 7);
  REQUIRE(SaveShards(*folder, &manifest).ok());
  const std::string second = *folder + "/" + WrittenName(manifest.files[1]);
  const std::string whole = TextOf(second);
  REQUIRE(unlink(second.c_str()) == 0);
  CHECK((*directory)->Commit(manifest).message() ==
        "checkpoint: \"" + *folder + "/shard-1-of-2.safetensors" +
            "\" is not here, but was written; checkpoint.directory must be "
            "the same folder for all processes of the job");
  WriteText(second, whole + "x");
  CHECK((*directory)->Commit(manifest).code() == absl::StatusCode::kFailedPrecondition);
  CHECK(NamesIn(path) == Names{"partial-step-000000000007"});
  WriteText(second, whole);
  CHECK((*directory)->Commit(manifest).ok());
  CHECK(NamesIn(path) == Names{"step-000000000007"});
}

const Names kWholeOfTwo = {"manifest.json", "shard-0-of-2.safetensors", "shard-1-of-2.safetensors"};

TEST_CASE("a commit takes the files that it was told of, whoever else wrote some", "[checkpoint]") {
  const std::string path = EmptyFolder();
  auto directory = CheckpointDirectory::Open(path, 2);
  REQUIRE(directory.ok());
  const auto folder = (*directory)->Begin(7);
  REQUIRE(folder.ok());
  Manifest manifest = ManifestOf(2, 7), of_another = ManifestOf(2, 8);
  const bool comes_last = GENERATE(false, true);
  if (!comes_last) REQUIRE(SaveShards(*folder, &of_another).ok());
  REQUIRE(SaveShards(*folder, &manifest).ok());
  if (comes_last) REQUIRE(SaveShards(*folder, &of_another).ok());
  CHECK(NamesIn(*folder).size() == 4);
  REQUIRE((*directory)->Commit(manifest).ok());
  CHECK(NamesIn(path + "/step-000000000007") == kWholeOfTwo);
  CHECK(HasSavedValues(*Newest(path)));
}

TEST_CASE("who still writes when a commit comes has written nothing", "[checkpoint]") {
  const std::string path = EmptyFolder();
  auto directory = CheckpointDirectory::Open(path, 2);
  REQUIRE(directory.ok());
  const auto folder = (*directory)->Begin(7);
  REQUIRE(folder.ok());
  const std::string name = ShardFileName(0, 2);
  const auto create = [&] {
    return SafetensorsWriter::CreatePart(*folder, name, {{"b", "U8", {1}}}, {});
  };
  auto late = create();
  REQUIRE(late.ok());
  Manifest manifest = ManifestOf(2, 7);
  REQUIRE(SaveShards(*folder, &manifest).ok());
  REQUIRE((*directory)->Commit(manifest).ok());
  CHECK((*late)->Append("x", 1).ok());
  CHECK(absl::IsNotFound((*late)->Finish().status()));
  CHECK(absl::IsNotFound(create().status()));
  CHECK(NamesIn(path) == Names{"step-000000000007"});
  CHECK(NamesIn(path + "/step-000000000007") == kWholeOfTwo);
  CHECK(HasSavedValues(*Newest(path)));
}

TEST_CASE("a commit goes on from wherever one before it ended", "[checkpoint]") {
  const std::string path = EmptyFolder();
  auto directory = CheckpointDirectory::Open(path, 2);
  REQUIRE(directory.ok());
  const auto folder = (*directory)->Begin(7);
  REQUIRE(folder.ok());
  Manifest manifest = ManifestOf(2, 7), of_another = ManifestOf(2, 8);
  REQUIRE(SaveShards(*folder, &manifest).ok());
  const int named = GENERATE(0, 1, 2);
  CAPTURE(named);
  for (int i = 0; i < named; ++i) NameFile(*folder, manifest.files[static_cast<size_t>(i)]);
  // One that was given up comes in between.
  REQUIRE(SaveShards(*folder, &of_another).ok());
  if (named == 2) WriteText(*folder + "/manifest.json", "{");
  REQUIRE((*directory)->Commit(manifest).ok());
  CHECK((*directory)->Commit(manifest).ok());
  CHECK(NamesIn(path + "/step-000000000007") == kWholeOfTwo);
  CHECK(HasSavedValues(*Newest(path)));
}

TEST_CASE("who goes on with a job finds what was being committed, and no other leftover stays",
          "[checkpoint]") {
  const std::string path = EmptyFolder();
  Manifest manifest = ManifestOf(2, 7);
  {
    auto directory = CheckpointDirectory::Open(path, 2);
    REQUIRE(directory.ok());
    const auto folder = (*directory)->Begin(7);
    REQUIRE(folder.ok());
    REQUIRE(SaveShards(*folder, &manifest).ok());
  }
  const bool goes_on = GENERATE(true, false);
  CAPTURE(goes_on);
  auto directory = CheckpointDirectory::Open(path, 2, goes_on);
  REQUIRE(directory.ok());
  CHECK((*directory)->Commit(manifest).ok() == goes_on);
  REQUIRE(mkdir((path + "/partial-step-000000000003").c_str(), 0755) == 0);
  REQUIRE((*directory)->Begin(8).ok());
  const Names begun = {"partial-step-000000000008"};
  CHECK(NamesIn(path) == (goes_on ? Names{begun[0], "step-000000000007"} : begun));
}

TEST_CASE("a whole checkpoint is never replaced, a broken one is", "[checkpoint]") {
  const std::string path = EmptyFolder();
  Write(path, "100 200", "");
  CHECK(Write(path, "--shards 3 200", "").Steps("failed") == std::vector<uint64_t>{200});
  // Who asks again for what is there had not been told that it was done.
  CHECK(Write(path, "200", "").Steps("whole") == std::vector<uint64_t>{200});
  REQUIRE(unlink((path + "/step-000000000200/manifest.json").c_str()) == 0);
  std::vector<ListedCheckpoint> broken;
  const auto newest = NewestCheckpoint(path, &broken);
  REQUIRE(newest.ok());
  CHECK((*newest)->manifest().step == 100);
  REQUIRE(broken.size() == 1);
  CHECK(broken[0].step == 200);
  CHECK(broken[0].status.message() == "checkpoint: \"" + path +
                                          "/step-000000000200/manifest.json\" cannot be read: No "
                                          "such file or directory");
  // A job that went back behind it: neither does the broken one push out a whole one, nor stay.
  CHECK(Write(path, "--keep 1 150", "").Steps("whole") == std::vector<uint64_t>{150});
  CHECK(NamesIn(path) == Names{"step-000000000150", "step-000000000200"});
  CHECK(Write(path, "--keep 1 200", "").Steps("whole") == std::vector<uint64_t>{200});
  CHECK(NamesIn(path) == Names{"step-000000000200"});
  CHECK(HasSavedValues(*Newest(path)));
}

TEST_CASE("what is given up once it is whole is removed, and no other", "[checkpoint]") {
  const std::string path = EmptyFolder();
  auto directory = CheckpointDirectory::Open(path, 2);
  REQUIRE(directory.ok());
  const auto folder = (*directory)->Begin(6);
  REQUIRE(folder.ok());
  Manifest manifest = ManifestOf(2, 7);
  REQUIRE(SaveShards(*folder, &manifest).ok());
  REQUIRE((*directory)->Commit(manifest, 6).ok());
  Manifest other = manifest;
  other.generation += 1;
  (*directory)->Abandon(6, Manifest());
  (*directory)->Abandon(6, other);
  CHECK(NamesIn(path) == Names{"step-000000000007"});
  (*directory)->Abandon(6, manifest);
  CHECK(NamesIn(path).empty());
}

TEST_CASE("folders that have changed places, or names, are passed over for an older whole one",
          "[checkpoint]") {
  const std::string path = EmptyFolder() + "/made";
  REQUIRE(Write(path, "--keep 4 100 200 300", "").Steps("whole").size() == 3);
  const auto folder = [&](uint64_t step) { return path + "/" + StepFolderName(step); };
  REQUIRE(RenameFolder(folder(300), path + "/away").ok());
  REQUIRE(RenameFolder(folder(200), folder(300)).ok());
  REQUIRE(RenameFolder(path + "/away", folder(200)).ok());
  std::vector<ListedCheckpoint> broken;
  const auto newest = NewestCheckpoint(path, &broken);
  REQUIRE(newest.ok());
  CHECK((*newest)->manifest().step == 100);
  REQUIRE(broken.size() == 2);
  CHECK(broken[0].status.message() ==
        "checkpoint: \"" + folder(300) +
            "\" is of step 200, as its manifest.json says, which decides; name the folder "
            "step-000000000200, or give it as checkpoint.restore by itself");
  CHECK(ListCheckpoints(path, /*verify=*/true)->front().status == broken[0].status);
  // Named by itself it is what its manifest says.
  const auto named = NamedCheckpoint(folder(300), &broken);
  REQUIRE(named.ok());
  CHECK((*named)->manifest().step == 200);
}

TEST_CASE("a directory without checkpoints has none, and says so", "[checkpoint]") {
  const std::string path = EmptyFolder();
  std::vector<ListedCheckpoint> broken;
  CHECK(NewestCheckpoint(path, &broken).status().message() ==
        "checkpoint: \"" + path + "\" has no whole checkpoint");
  CHECK(ListCheckpoints(path + "/none", true)->empty());
  REQUIRE(mkdir((path + "/step-000000000009").c_str(), 0755) == 0);
  REQUIRE(mkdir((path + "/step-9").c_str(), 0755) == 0);
  CHECK(ListCheckpoints(path, true)->size() == 1);
}

}  // namespace
}  // namespace tessera
