#include "common/base/output_file.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"

namespace tessera {
namespace {

std::string Path(const std::string& name) {
  return std::string(getenv("TEST_TMPDIR")) + "/output_file_" + name;
}

TEST_CASE("a file that is asked for is not there before it is written", "[base]") {
  CHECK(CheckWritable("--report", "").ok());
  CHECK(CheckWritable("--report", Path("new")).ok());
  CHECK(!std::filesystem::exists(Path("new")));
}

TEST_CASE("what is read is not written over, by whatever path", "[base]") {
  std::ofstream(Path("in")) << "data";
  std::ofstream(Path("other")) << "data";
  std::filesystem::create_hard_link(Path("in"), Path("hard"));
  std::filesystem::create_symlink(Path("in"), Path("soft"));
  for (const char* name : {"in", "hard", "soft"}) {
    const absl::Status status = CheckIsNoInput("--report", Path(name), {Path("gone"), Path("in")});
    CHECK(absl::IsInvalidArgument(status));
    CHECK(status.message() == "--report: \"" + Path(name) + "\" would be written over \"" +
                                  Path("in") + "\", which is read; name another file");
  }
  CHECK(CheckIsNoInput("--report", Path("other"), {Path("in")}).ok());
  CHECK(CheckIsNoInput("--report", Path("gone"), {Path("gone")}).ok());
  CHECK(CheckIsNoInput("--report", "", {""}).ok());
  CHECK(CheckIsNoInput("--report", "/dev/null", {"/dev/null"}).ok());
}

TEST_CASE("a link may lead to a file that is yet to be written", "[base]") {
  std::filesystem::create_symlink("behind", Path("link"));
  std::filesystem::create_symlink(Path("missing") + "/behind", Path("lost_link"));
  CHECK(CheckWritable("--report", Path("link")).ok());
  CHECK(std::filesystem::is_symlink(Path("link")));
  CHECK(!std::filesystem::exists(Path("link")));
  CHECK(!CheckWritable("--report", Path("lost_link")).ok());
  CHECK(WriteOutput("--report", Path("link"), "text").ok());
  CHECK(std::filesystem::exists(std::string(getenv("TEST_TMPDIR")) + "/behind"));
}

TEST_CASE("a file that is there stays as it is until it is written", "[base]") {
  std::ofstream(Path("old")) << "before";
  CHECK(CheckWritable("--report", Path("old")).ok());
  std::string text;
  std::ifstream(Path("old")) >> text;
  CHECK(text == "before");
}

TEST_CASE("what cannot be written is refused with its flag and the reason", "[base]") {
  const absl::Status missing = CheckWritable("--report", Path("missing") + "/report.json");
  CHECK(absl::IsInvalidArgument(missing));
  CHECK(absl::StartsWith(missing.message(), "--report: \""));
  CHECK(absl::StrContains(missing.message(), "No such file or directory; name a file in a folder"));
  const absl::Status folder = CheckWritable("--report", getenv("TEST_TMPDIR"));
  CHECK(absl::IsInvalidArgument(folder));
  CHECK(absl::StrContains(folder.message(), "Is a directory"));
}

TEST_CASE("whoever reads a pipe has what is written, however often it was asked for before",
          "[base]") {
  const std::string path = Path("pipe");
  REQUIRE(mkfifo(path.c_str(), 0600) == 0);
  // Nobody reads yet, and nobody is waited for.
  CHECK(CheckWritable("--report", path).ok());
  std::string got;
  std::thread reader([&] {
    std::ifstream file(path);
    got.assign(std::istreambuf_iterator<char>(file), {});
  });
  CHECK(CheckWritable("--report", path).ok());
  CHECK(WriteOutput("--report", path, "text").ok());
  reader.join();
  CHECK(got == "text\n");
}

TEST_CASE("what is written takes the place of what was there", "[base]") {
  const std::string path = Path("written");
  std::ofstream(path) << "something longer";
  REQUIRE(WriteOutput("--report", path, "text").ok());
  std::ifstream file(path);
  CHECK(std::string(std::istreambuf_iterator<char>(file), {}) == "text\n");
  const absl::Status full = WriteOutput("--report", "/dev/full", "text");
  CHECK(absl::IsUnavailable(full));
  CHECK(full.message() == "--report: \"/dev/full\" cannot be written: No space left on device");
}

// Of the folder of the tests, those that begin as this one's.
std::vector<std::string> NamesLike(const std::string& name) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(getenv("TEST_TMPDIR"))) {
    const std::string found = entry.path().filename().string();
    if (absl::StartsWith(found, "output_file_" + name)) names.push_back(found);
  }
  return names;
}

std::string Content(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST_CASE("without room for all of it the file stays as it was", "[base]") {
  const std::string path = Path("full");
  std::ofstream(path) << "before";
  // As a full disk, and for this process alone.
  signal(SIGXFSZ, SIG_IGN);
  rlimit before;
  getrlimit(RLIMIT_FSIZE, &before);
  rlimit little = before;
  little.rlim_cur = 1000;
  setrlimit(RLIMIT_FSIZE, &little);
  const absl::Status there = WriteOutput("--report", path, std::string(100000, 'x'));
  const absl::Status fresh = WriteOutput("--report", Path("fullest"), std::string(100000, 'x'));
  setrlimit(RLIMIT_FSIZE, &before);
  CHECK(there.message() == "--report: \"" + path + "\" cannot be written: File too large");
  CHECK(Content(path) == "before");
  CHECK(absl::IsUnavailable(fresh));
  CHECK(NamesLike("full") == std::vector<std::string>{"output_file_full"});
}

TEST_CASE("what takes a file's place has its rights, and nothing is left beside it", "[base]") {
  const std::string path = Path("rights");
  std::ofstream(path) << "before";
  chmod(path.c_str(), 0640);
  struct stat before, after;
  REQUIRE(stat(path.c_str(), &before) == 0);
  REQUIRE(WriteOutput("--report", path, "text").ok());
  REQUIRE(stat(path.c_str(), &after) == 0);
  CHECK(after.st_mode == before.st_mode);
  CHECK(after.st_ino != before.st_ino);
  CHECK(Content(path) == "text\n");
  CHECK(NamesLike("rights") == std::vector<std::string>{"output_file_rights"});
}

TEST_CASE("two who write to one place do not share what they write", "[base]") {
  const std::string path = Path("shared");
  {
    OutputFile first(path), second(path);
    REQUIRE(first.error() == 0);
    CHECK(first.is_beside());
    CHECK(first.path() != second.path());
    std::ofstream(first.path()) << "first";
    std::ofstream(second.path()) << "second";
    CHECK(!std::filesystem::exists(path));
    CHECK(first.Commit() == 0);
    CHECK(Content(path) == "first");
  }
  CHECK(Content(path) == "first");
  CHECK(NamesLike("shared").size() == 1);
}

TEST_CASE("the file that stdout goes to is written to as it is", "[base]") {
  const std::string path = Path("stdout");
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_APPEND, 0644);
  REQUIRE(file >= 0);
  const int before = dup(STDOUT_FILENO);
  dup2(file, STDOUT_FILENO);
  const bool by_name = PlaceOf(path).may_be_replaced;
  const bool by_link = PlaceOf("/dev/stdout").may_be_replaced;
  const absl::Status written = WriteOutput("--report", "/dev/stdout", "text");
  const bool is_further = write(STDOUT_FILENO, "more\n", 5) == 5;
  dup2(before, STDOUT_FILENO);
  CHECK_FALSE(by_name);
  CHECK_FALSE(by_link);
  CHECK(written.ok());
  CHECK(is_further);
  CHECK(Content(path) == "text\nmore\n");
  CHECK(PlaceOf(path).may_be_replaced);
}

TEST_CASE("a symbolic link stands for what it leads to, also for nothing yet", "[base]") {
  namespace fs = std::filesystem;
  const std::string folder = Path("place");
  fs::remove_all(folder);
  fs::create_directories(folder + "/below");
  std::ofstream(folder + "/file") << "1";
  fs::create_symlink("../file", folder + "/below/link");
  fs::create_symlink(folder + "/below/link", folder + "/chain");
  fs::create_symlink("new", folder + "/dangling");
  for (const char* name : {"/file", "/chain", "/below/link"}) {
    INFO(name);
    const OutputPlace place = PlaceOf(folder + name);
    CHECK(place.may_be_replaced);
    CHECK(fs::equivalent(place.path, folder + "/file"));
    CHECK_FALSE(fs::is_symlink(place.path));
  }
  CHECK(PlaceOf(folder + "/dangling").path == folder + "/new");
  CHECK(PlaceOf(folder + "/dangling").may_be_replaced);
  CHECK(PlaceOf("new").path == "new");
}

TEST_CASE("what is no file is not to be replaced", "[base]") {
  namespace fs = std::filesystem;
  const std::string pipe = Path("pipe"), link = Path("pipe_link");
  fs::remove(pipe);
  fs::remove(link);
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  fs::create_symlink(pipe, link);
  for (const std::string& path :
       {pipe, link, std::string("/dev/null"), std::string(getenv("TEST_TMPDIR"))}) {
    INFO(path);
    CHECK_FALSE(PlaceOf(path).may_be_replaced);
    CHECK(PlaceOf(path).path == path);
  }
  // A link to itself leads nowhere.
  const std::string loop = Path("loop");
  fs::remove(loop);
  fs::create_symlink(loop, loop);
  CHECK(PlaceOf(loop).path == loop);
}

}  // namespace
}  // namespace tessera
