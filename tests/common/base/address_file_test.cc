#include "common/base/address_file.h"

#include <stdlib.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <string>

namespace tessera {
namespace {

std::string Path(const std::string& name) {
  return std::string(getenv("TEST_TMPDIR")) + "/address_file_" + name;
}

TEST_CASE("a file that is written is read with all addresses that it has", "[base]") {
  REQUIRE(WriteAddressFile(Path("both"), {"127.0.0.1:7000", "127.0.0.1:9464"}).ok());
  REQUIRE(WriteAddressFile(Path("one"), {"127.0.0.1:7000", ""}).ok());
  CHECK(ReadAddressFile(Path("both"))->services == "127.0.0.1:7000");
  CHECK(ReadAddressFile(Path("both"))->metrics == "127.0.0.1:9464");
  CHECK(ReadAddressFile(Path("one"))->services == "127.0.0.1:7000");
  CHECK(ReadAddressFile(Path("one"))->metrics.empty());
}

TEST_CASE("a file that is not there yet, or is empty, has no address", "[base]") {
  CHECK_FALSE(ReadAddressFile(Path("none")).has_value());
  std::ofstream(Path("empty")) << "";
  CHECK_FALSE(ReadAddressFile(Path("empty")).has_value());
}

TEST_CASE("an address file that cannot be written is refused by name", "[base]") {
  const absl::Status status = WriteAddressFile(Path("no_folder") + "/file", {"127.0.0.1:7000", ""});
  CHECK(absl::IsInvalidArgument(status));
  CHECK(status.message() == "address file: \"" + Path("no_folder") +
                                "/file\" cannot be written: No such file or directory");
  // /dev/full takes nothing.
  std::filesystem::create_symlink("/dev/full", Path("full.part"));
  CHECK(WriteAddressFile(Path("full"), {"127.0.0.1:7000", ""}).message() ==
        "address file: \"" + Path("full") + "\" cannot be written: No space left on device");
}

}  // namespace
}  // namespace tessera
