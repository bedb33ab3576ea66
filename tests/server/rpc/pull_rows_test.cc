// Pulls of rows as any protobuf client makes them.
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>
#include <grpcpp/create_channel.h>
#include <grpcpp/grpcpp.h>

#include "common/consistency/none.h"
#include "proto/parameter_server.grpc.pb.h"
#include "tests/server/rpc/running_servers.h"

namespace tessera {
namespace {

std::unique_ptr<ConsistencyPolicy> None() { return MakeNone(1); }

struct Pulled {
  grpc::Status status;
  v1::ChunkHeader header;
  std::string bytes;
};

// Of server 0.
class Client {
 public:
  explicit Client(RunningServers& servers) {
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(-1);
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    stub_ = v1::ParameterServer::NewStub(grpc::CreateCustomChannel(
        servers.addresses()[0], grpc::InsecureChannelCredentials(), arguments));
  }

  Pulled Pull(const v1::PullRequest& request) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    Pulled pulled;
    const auto reader = stub_->Pull(&context, request);
    v1::Chunk chunk;
    while (reader->Read(&chunk)) {
      if (chunk.has_header()) pulled.header = chunk.header();
      pulled.bytes += chunk.payload();
    }
    pulled.status = reader->Finish();
    return pulled;
  }

 private:
  std::unique_ptr<v1::ParameterServer::Stub> stub_;
};

// All that a server owns, now.
v1::PullRequest Dense() {
  v1::PullRequest request;
  request.mutable_caller()->set_member(1);
  request.mutable_caller()->set_job_digest(kDigest);
  request.mutable_caller()->set_generation(3);
  request.mutable_keys()->mutable_dense();
  request.set_outside_exchange(true);
  return request;
}

v1::PullRequest RowsRequest(uint32_t parameter, uint64_t begin, uint64_t end) {
  v1::PullRequest request = Dense();
  v1::RowKeys& rows = *request.mutable_keys()->mutable_rows();
  rows.set_parameter(parameter);
  rows.set_row_begin(begin);
  rows.set_row_end(end);
  return request;
}

TEST_CASE("rows of one parameter come as the dense order has them, however many blocks they span",
          "[rpc][service][rows]") {
  const int server_count = GENERATE(1, 3);
  // A thousand rows to the MiB block, and a row of 3 MiB.
  const bool wide = GENERATE(false, true);
  const ModelShape shape = wide ? TestShape(6, 786432) : TestShape(2500, 250);
  RunningServers servers(shape, server_count, None, 1);
  Client client(servers);  // of server 0
  const std::string all = client.Pull(Dense()).bytes;
  const int64_t own = shape.parameters[0].rows / server_count;
  const int64_t columns = shape.parameters[0].columns;
  const std::vector<std::pair<int64_t, int64_t>> ranges = {
      {0, own}, {own - 1, own}, {own / 3, own / 2 + 1}, {own / 2, own + own / 2}, {2, 2}};
  int64_t bytes = static_cast<int64_t>(all.size());
  for (auto [begin, end] : ranges) {
    end = std::min(end, shape.parameters[0].rows);
    const Pulled pulled = client.Pull(RowsRequest(0, begin, end));
    REQUIRE(pulled.status.ok());
    const int64_t owned = std::min(end, own) - begin;
    CHECK(pulled.header.payload_bytes() == 4 * owned * columns);
    CHECK(pulled.bytes == all.substr(4 * begin * columns, 4 * owned * columns));
    bytes += 4 * owned * columns;
  }
  const Pulled bias = client.Pull(RowsRequest(1, 1, own));
  CHECK(bias.bytes == all.substr(4 * own * columns + 4));
  CHECK(servers[0].service->traffic().other_payload_bytes ==
        static_cast<uint64_t>(bytes + 4 * (own - 1)));
  CHECK(servers[0].service->traffic().pull_payload_bytes == 0);
}

TEST_CASE("rows that are another server's are an empty answer", "[rpc][service][rows]") {
  RunningServers servers(TestShape(10, 4), 2, None, 1);
  Client client(servers);
  const Pulled pulled = client.Pull(RowsRequest(0, 5, 10));
  REQUIRE(pulled.status.ok());
  CHECK(pulled.header.payload_bytes() == 0);
  CHECK(pulled.bytes.empty());
}

TEST_CASE("a pull of rows that there are not, or in an exchange, is refused by what is wanted",
          "[rpc][service][rows]") {
  RunningServers servers(TestShape(10, 4), 2, None, 1);
  Client client(servers);
  const auto refusal = [&](const v1::PullRequest& request) {
    const Pulled pulled = client.Pull(request);
    CHECK(pulled.status.error_code() == grpc::StatusCode::INVALID_ARGUMENT);
    CHECK(pulled.bytes.empty());
    return pulled.status.error_message();
  };
  const std::string where = "pull from member 1 after exchange 0: ";
  CHECK(refusal(RowsRequest(2, 0, 1)) == where + "rows: parameter is 2, want 0 to 1");
  CHECK(refusal(RowsRequest(~uint32_t{0}, 0, 1)) ==
        where + "rows: parameter is 2147483647, want 0 to 1");
  CHECK(refusal(RowsRequest(0, 8, 11)) ==
        where + "rows: are 8 to 11 of layers.0.weight, want them between 0 and 10");
  CHECK(refusal(RowsRequest(0, 3, 2)) ==
        where + "rows: are 3 to 2 of layers.0.weight, want them between 0 and 10");
  CHECK(refusal(RowsRequest(1, ~uint64_t{0} - 1, ~uint64_t{0})) ==
        where +
            "rows: are 9223372036854775807 to 9223372036854775807 of layers.0.bias, want them "
            "between 0 and 10");
  v1::PullRequest far = Dense();
  far.set_rest(~uint64_t{0});
  CHECK(refusal(far) == where + "rest is 18446744073709551615, want below 549755813888");
  far = Dense();
  far.set_after_exchange(uint64_t{1} << 39);
  CHECK(refusal(far) ==
        "pull from member 1 after exchange 549755813888: after_exchange is "
        "549755813888, want below 549755813888");
  v1::PullRequest inside = RowsRequest(0, 0, 1);
  inside.set_outside_exchange(false);
  CHECK(refusal(inside) == where + "keys are rows, want dense; rows are read outside an exchange");
  v1::PullRequest none = RowsRequest(0, 0, 1);
  none.clear_keys();
  CHECK(refusal(none) == where + "keys are absent or unknown, want dense or rows");
  CHECK(client.Pull(RowsRequest(0, 0, 5)).status.ok());
}

}  // namespace
}  // namespace tessera
