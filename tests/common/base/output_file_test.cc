#include "common/base/output_file.h"

#include <stdlib.h>
#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

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
