#include "common/base/address_file.h"

#include <stdlib.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace tessera {
namespace {

std::string Path(const std::string& name) {
  return std::string(getenv("TEST_TMPDIR")) + "/address_file_" + name;
}

std::string TextOf(const std::string& path) {
  std::ifstream file(path);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

TEST_CASE("a file that is written is read with all addresses that it has", "[base]") {
  REQUIRE(WriteAddressFile(Path("both"), {"127.0.0.1:7000", "127.0.0.1:9464", ""}).ok());
  REQUIRE(WriteAddressFile(Path("one"), {"127.0.0.1:7000", "", ""}).ok());
  CHECK(ReadAddressFile(Path("both"))->services == "127.0.0.1:7000");
  CHECK(ReadAddressFile(Path("both"))->metrics == "127.0.0.1:9464");
  CHECK(ReadAddressFile(Path("one"))->services == "127.0.0.1:7000");
  CHECK(ReadAddressFile(Path("one"))->metrics.empty());
}

TEST_CASE("the page has a line of its own, whether there are metrics or not", "[base]") {
  REQUIRE(WriteAddressFile(Path("page"), {"127.0.0.1:7000", "", "http://127.0.0.1:8080/"}).ok());
  CHECK(TextOf(Path("page")).rfind("127.0.0.1:7000\n\nhttp://127.0.0.1:8080/", 0) == 0);
  const ServerAddresses read = *ReadAddressFile(Path("page"));
  CHECK(read.metrics.empty());
  CHECK(read.page == "http://127.0.0.1:8080/");
}

TEST_CASE("a file that is not there yet, or is empty, has no address", "[base]") {
  CHECK_FALSE(ReadAddressFile(Path("none")).has_value());
  std::ofstream(Path("empty")) << "";
  CHECK_FALSE(ReadAddressFile(Path("empty")).has_value());
}

TEST_CASE("an address file that cannot be written is refused by name", "[base]") {
  const absl::Status status =
      WriteAddressFile(Path("no_folder") + "/file", {"127.0.0.1:7000", "", ""});
  CHECK(absl::IsUnavailable(status));
  CHECK(status.message() == "address file: \"" + Path("no_folder") +
                                "/file\" cannot be written: No such file or directory");
  // /dev/full takes nothing.
  CHECK(WriteAddressFile("/dev/full", {"127.0.0.1:7000", "", ""}).message() ==
        "address file: \"/dev/full\" cannot be written: No space left on device");
}

TEST_CASE("files and links beside an address file are nobody's to write or remove", "[base]") {
  std::ofstream(Path("mine.part")) << "the user's own\n";
  std::ofstream(Path("target")) << "another file\n";
  std::filesystem::create_symlink(Path("target"), Path("linked.part"));
  for (const char* const name : {"mine", "linked"}) {
    CAPTURE(name);
    CHECK(CheckAddressFile(Path(name)).ok());
    CHECK(WriteAddressFile(Path(name), {"127.0.0.1:7000", "", ""}).ok());
    CHECK(ReadAddressFile(Path(name))->services == "127.0.0.1:7000");
  }
  CHECK(TextOf(Path("mine.part")) == "the user's own\n");
  CHECK(TextOf(Path("target")) == "another file\n");
  CHECK(std::filesystem::is_symlink(Path("linked.part")));
}

TEST_CASE("whether an address file can be written is known before, and nothing is left of asking",
          "[base]") {
  CHECK(CheckAddressFile("").ok());
  CHECK(CheckAddressFile(Path("to_be")).ok());
  CHECK_FALSE(std::filesystem::exists(Path("to_be")));
  CHECK_FALSE(std::filesystem::exists(Path("to_be.part")));
  std::ofstream(Path("of_before")) << "127.0.0.1:7000\n";
  CHECK(CheckAddressFile(Path("of_before")).ok());
  CHECK(ReadAddressFile(Path("of_before"))->services == "127.0.0.1:7000");
  const absl::Status status = CheckAddressFile(Path("missing") + "/file");
  CHECK(absl::IsInvalidArgument(status));
  CHECK(status.message() == "--address-file: \"" + Path("missing") +
                                "/file\" cannot be written: No such file or directory; name a "
                                "file in a folder that exists");
  std::filesystem::create_directory(Path("folder"));
  for (const std::string& other : {Path("folder"), std::string("/dev/null")}) {
    CHECK(CheckAddressFile(other).message() ==
          "--address-file: \"" + other + "\" is no file; name a file in a folder that exists");
  }
}

}  // namespace
}  // namespace tessera
