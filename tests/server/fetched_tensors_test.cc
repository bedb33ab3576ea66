// Servers that have no file of a job of tensors copy the coordinator's.
#include "server/fetched_tensors.h"

#include <grpcpp/grpcpp.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "server/rpc/tensor_file_service.h"

namespace tessera {
namespace {

std::string PathOf(const std::string& name) {
  return absl::StrCat(std::getenv("TEST_TMPDIR"), "/", name);
}

std::string TextOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Bytes that differ from piece to piece.
std::string Bytes(size_t count) {
  std::string bytes(count, '\0');
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<char>(i * 7 + i / 1000);
  return bytes;
}

// A coordinator's service in this process.
struct Served {
  explicit Served(const std::string& path) {
    auto opened = TensorFileService::Open(path);
    REQUIRE(opened.ok());
    service = *std::move(opened);
    grpc::ServerBuilder builder;
    builder.RegisterService(service.get());
    server = builder.BuildAndStart();
    REQUIRE(server != nullptr);
  }
  ~Served() { server->Shutdown(); }

  std::shared_ptr<grpc::Channel> channel() { return server->InProcessChannel({}); }

  std::unique_ptr<TensorFileService> service;
  std::unique_ptr<grpc::Server> server;
};

grpc::Status ReadAt(Served* served, uint64_t offset, v1::TensorFilePiece* piece) {
  grpc::ClientContext context;
  v1::TensorFileRequest request;
  request.set_offset(offset);
  return v1::TensorFile::NewStub(served->channel())->Read(&context, request, piece);
}

}  // namespace

TEST_CASE("a copy has the file's bytes, however many pieces they are", "[tensors]") {
  for (const size_t count : {size_t{1}, size_t{1} << 20, (size_t{1} << 20) + 1, size_t{5} << 19}) {
    INFO(count);
    const std::string path = PathOf("whole");
    std::ofstream(path, std::ios::binary) << Bytes(count);
    Served served(path);
    const auto fetched = FetchedTensors::Fetch(served.channel(), absl::Seconds(5));
    INFO(fetched.status());
    REQUIRE(fetched.ok());
    CHECK(TextOf((*fetched)->path()) == Bytes(count));
  }
}

TEST_CASE("nothing is left of a copy", "[tensors]") {
  const std::string folder = PathOf("temporary");
  std::filesystem::create_directory(folder);
  setenv("TMPDIR", folder.c_str(), 1);
  const std::string path = PathOf("file");
  std::ofstream(path, std::ios::binary) << Bytes(100);
  Served served(path);
  const auto fetched = FetchedTensors::Fetch(served.channel(), absl::Seconds(5));
  REQUIRE(fetched.ok());
  CHECK(std::filesystem::is_empty(folder));
  setenv("TMPDIR", (folder + "/none").c_str(), 1);
  // Where the folder is not there the system's own is taken.
  CHECK(FetchedTensors::Fetch(served.channel(), absl::Seconds(5)).ok());
  unsetenv("TMPDIR");
}

TEST_CASE("a file that takes the place of the one that was opened is not read", "[tensors]") {
  const std::string path = PathOf("replaced");
  std::ofstream(path, std::ios::binary) << Bytes(1000);
  Served served(path);
  std::ofstream(path + ".new", std::ios::binary) << "other";
  std::filesystem::rename(path + ".new", path);
  const auto fetched = FetchedTensors::Fetch(served.channel(), absl::Seconds(5));
  REQUIRE(fetched.ok());
  CHECK(TextOf((*fetched)->path()) == Bytes(1000));
}

TEST_CASE("pieces that there are none of are refused, each with its reason", "[tensors]") {
  const std::string path = PathOf("cut");
  std::ofstream(path, std::ios::binary) << Bytes(1000);
  Served served(path);
  v1::TensorFilePiece piece;
  CHECK(ReadAt(&served, 1000, &piece).ok());
  CHECK((piece.data().empty() && piece.file_bytes() == 1000));
  const grpc::Status beyond = ReadAt(&served, 1001, &piece);
  CHECK(beyond.error_code() == grpc::StatusCode::INVALID_ARGUMENT);
  CHECK(beyond.error_message() ==
        "tensor file: offset is 1001, want at most 1000, which is the size of the file");
  std::filesystem::resize_file(path, 10);
  const grpc::Status cut = ReadAt(&served, 0, &piece);
  CHECK(cut.error_code() == grpc::StatusCode::FAILED_PRECONDITION);
  CHECK(cut.error_message() ==
        "tensor file: byte 10 cannot be read: the file was cut since the job was read");
  CHECK(absl::IsFailedPrecondition(
      FetchedTensors::Fetch(served.channel(), absl::Seconds(5)).status()));
  Served none("");
  CHECK(ReadAt(&none, 0, &piece).error_message() ==
        "tensor file: the job is none of tensors, want one with model.tensors");
  CHECK(absl::IsNotFound(TensorFileService::Open(PathOf("not-there")).status()));
}

TEST_CASE("a coordinator that does not answer is waited for, and no longer than that",
          "[tensors]") {
  const auto nobody = grpc::CreateChannel("127.0.0.1:1", grpc::InsecureChannelCredentials());
  CHECK(absl::IsUnavailable(FetchedTensors::Fetch(nobody, absl::ZeroDuration()).status()));
}

}  // namespace tessera
