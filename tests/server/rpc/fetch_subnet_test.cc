// Subnets as any protobuf client fetches and returns them.
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <grpcpp/create_channel.h>
#include <grpcpp/grpcpp.h>

#include "common/consistency/barrier.h"
#include "common/rpc/chunk.h"
#include "proto/parameter_server.grpc.pb.h"
#include "tests/server/rpc/running_servers.h"

namespace tessera {
namespace {

constexpr uint64_t kSeed = 7;  // of RunningServers

struct Context : grpc::ClientContext {
  Context() { set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20)); }
};

v1::Caller CallerOf(uint64_t member) {
  v1::Caller caller;
  caller.set_member(member);
  caller.set_job_digest(kDigest);
  caller.set_generation(3);
  return caller;
}

v1::SubnetRequest Request(uint64_t member, uint64_t round, uint32_t site, uint32_t sites) {
  v1::SubnetRequest request;
  *request.mutable_caller() = CallerOf(member);
  request.set_seed(kSeed);
  request.set_round(round);
  request.set_site(site);
  request.set_sites(sites);
  return request;
}

// A job of subnets, inputs - hidden - outputs, with biases.
struct Job {
  Job(int64_t inputs, int64_t hidden, int64_t outputs, int server_count, int members)
      : model(ModelOf(inputs, hidden, outputs)),
        shape(*ShapeOf(model)),
        groups(GroupsOf(shape)),
        servers(shape, server_count, MakeBarrier, members, groups) {
    for (const std::string& address : servers.addresses()) {
      grpc::ChannelArguments arguments;
      arguments.SetMaxReceiveMessageSize(-1);
      arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
      stubs.push_back(v1::ParameterServer::NewStub(
          grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments)));
    }
  }
  static v1::Model ModelOf(int64_t inputs, int64_t hidden, int64_t outputs) {
    v1::Model model;
    model.add_input(inputs);
    for (const int64_t units : {hidden, outputs}) {
      model.add_layers()->mutable_linear()->set_units(units);
      model.mutable_layers(model.layers_size() - 1)->mutable_linear()->set_bias(true);
    }
    return model;
  }

  struct Fetched {
    grpc::Status status;
    v1::ChunkHeader header;
    std::vector<size_t> chunks;
    std::string bytes;
  };
  Fetched Fetch(int server, const v1::SubnetRequest& request) {
    Context context;
    Fetched fetched;
    const auto reader = stubs[server]->FetchSubnet(&context, request);
    v1::Chunk chunk;
    while (reader->Read(&chunk)) {
      CHECK(chunk.has_header() == fetched.chunks.empty());
      if (chunk.has_header()) fetched.header = chunk.header();
      fetched.chunks.push_back(chunk.payload().size());
      fetched.bytes += chunk.payload();
    }
    fetched.status = reader->Finish();
    return fetched;
  }

  // A push of these bytes as the subnet of `place`.
  v1::PushChunk Chunk(uint64_t member, const SubnetPlace& place, const std::string& bytes) const {
    v1::PushChunk chunk;
    v1::PushHeader& header = *chunk.mutable_header();
    *header.mutable_caller() = CallerOf(member);
    v1::SubnetKeys& keys = *header.mutable_keys()->mutable_subnet();
    keys.set_seed(place.seed);
    keys.set_round(place.round);
    keys.set_site(place.site);
    keys.mutable_shares()->Add(place.shares.begin(), place.shares.end());
    header.set_exchange(place.round);
    header.set_kind(v1::VALUE);
    header.set_payload_bytes(bytes.size());
    header.set_layout_hash(servers.layout_hash());
    header.set_examples(10);
    chunk.set_payload(bytes);
    return chunk;
  }
  grpc::Status Push(int server, const v1::PushChunk& chunk) {
    Context context;
    v1::PushReply reply;
    const auto writer = stubs[server]->Push(&context, &reply);
    // In pieces that no entry's border respects.
    v1::PushChunk piece = chunk;
    const std::string& all = chunk.payload();
    const size_t piece_bytes = all.size() / 3 + 1;
    for (size_t begin = 0; begin == 0 || begin < all.size(); begin += piece_bytes) {
      piece.set_payload(all.substr(begin, piece_bytes));
      if (!writer->Write(piece)) break;
      piece.clear_header();
    }
    writer->WritesDone();
    return writer->Finish();
  }

  // The whole model as it begins: the values of one server's part of a subnet.
  std::string Initial(int server, const SubnetPlace& place) const {
    std::string bytes;
    const Subnet subnet = SubnetOf(shape, groups, place);
    const std::vector<ShardSlices> all_slices = servers.slices();
    for (const Slice& slice : all_slices[server].slices) {
      const ParameterSpec& spec = shape.parameters[slice.parameter];
      std::vector<float> all(spec.size());
      FillInitialRows(spec, slice.parameter, kSeed, 0, spec.rows, all.data());
      for (const int32_t row : subnet.rows(slice.parameter)) {
        if (row < slice.row_begin || row >= slice.row_end) continue;
        std::vector<int32_t> columns = {0};
        if (!spec.is_vector) columns = subnet.columns(slice.parameter);
        for (const int32_t column : columns) {
          bytes.append(reinterpret_cast<const char*>(&all[row * spec.columns + column]), 4);
        }
      }
    }
    return bytes;
  }

  uint64_t ParkedReads(int server) {
    absl::Mutex mutex;
    bool answered = false;
    uint64_t reads = 0;
    servers[server].thread->Inspect(false, [&](const ShardThread::View& view) {
      absl::MutexLock lock(&mutex);
      reads = view.parked_reads;
      answered = true;
    });
    absl::MutexLock lock(&mutex);
    mutex.Await(absl::Condition(&answered));
    return reads;
  }

  const v1::Model model;
  const ModelShape shape;
  const NeuronGroups groups;
  RunningServers servers;
  std::vector<std::unique_ptr<v1::ParameterServer::Stub>> stubs;
};

SubnetPlace Place(uint64_t round, uint32_t site, uint32_t sites) {
  return {kSeed, round, site, std::vector<uint32_t>(sites, 1)};
}

TEST_CASE("a client fetches its subnet from each server, and its returns are in the next round's",
          "[rpc][subnet]") {
  Job job(11, 9, 5, 2, 2);
  for (int server = 0; server < 2; ++server) {
    std::vector<std::string> first;
    for (uint32_t site = 0; site < 2; ++site) {
      const Job::Fetched fetched = job.Fetch(server, Request(site + 1, 1, site, 2));
      CHECK(fetched.status.error_message() == "");
      CHECK(fetched.header.version() == 0);
      CHECK(fetched.header.generation() == 3);
      CHECK(fetched.header.layout_hash() == job.servers.layout_hash());
      CHECK(fetched.header.payload_bytes() == fetched.bytes.size());
      CHECK(fetched.header.subnet().seed() == kSeed);
      CHECK(fetched.header.subnet().round() == 1);
      CHECK(fetched.header.subnet().site() == site);
      CHECK(fetched.header.subnet().shares_size() == 2);
      CHECK(fetched.bytes == job.Initial(server, Place(1, site, 2)));
      first.push_back(fetched.bytes);
    }
    const DataPlaneTraffic traffic = job.servers[server].service->traffic();
    CHECK(traffic.pull_payload_bytes == first[0].size() + first[1].size());
    CHECK(traffic.other_payload_bytes == 0);
    // What is not trained stays bit for bit; a repeated push is dropped.
    for (uint32_t site = 0; site < 2; ++site) {
      const v1::PushChunk chunk = job.Chunk(site + 1, Place(1, site, 2), first[site]);
      CHECK(job.Push(server, chunk).error_message() == "");
      CHECK(job.Push(server, chunk).error_message() == "");
    }
    CHECK(job.servers[server].service->traffic().push_payload_bytes ==
          2 * (first[0].size() + first[1].size()));
    for (uint32_t site = 0; site < 2; ++site) {
      const Job::Fetched fetched = job.Fetch(server, Request(site + 1, 2, site, 2));
      CHECK(fetched.header.version() == 1);
      CHECK(fetched.header.examples() == 20);
      CHECK(fetched.bytes == job.Initial(server, Place(2, site, 2)));
    }
    // New values arrive where the next cut says.
    const std::string sevens = [&] {
      std::string bytes = job.Initial(server, Place(2, 0, 2));
      const float seven = 7;
      for (size_t i = 0; i < bytes.size(); i += 4) std::memcpy(&bytes[i], &seven, 4);
      return bytes;
    }();
    CHECK(job.Push(server, job.Chunk(1, Place(2, 0, 2), sevens)).ok());
    Context context;
    const std::string whole = [&] {
      v1::PullRequest request;
      *request.mutable_caller() = CallerOf(1);
      request.mutable_keys()->mutable_dense();
      request.set_outside_exchange(true);
      const auto reader = job.stubs[server]->Pull(&context, request);
      v1::Chunk chunk;
      std::string bytes;
      while (reader->Read(&chunk)) bytes += chunk.payload();
      return bytes;
    }();
    int64_t count = 0;
    for (size_t i = 0; i < whole.size(); i += 4) {
      float x;
      std::memcpy(&x, &whole[i], 4);
      count += x == 7;
    }
    // The shared output bias is averaged when the round ends.
    const Slice last = job.servers.slices()[server].slices.back();
    CHECK(count == static_cast<int64_t>(sevens.size() / 4) - last.size());
  }
}

TEST_CASE("a large subnet comes in chunks that split rows", "[rpc][subnet]") {
  // The second matrix: 1200 rows of half of 1500 columns.
  Job job(700, 1500, 1200, 1, 2);
  for (uint32_t site = 0; site < 2; ++site) {
    const Job::Fetched fetched = job.Fetch(0, Request(site + 1, 1, site, 2));
    CHECK(fetched.bytes == job.Initial(0, Place(1, site, 2)));
    REQUIRE(fetched.chunks.size() > 3);
    CHECK(fetched.chunks[0] == 0);
    CHECK(fetched.chunks[1] == kChunkBytes);
  }
}

TEST_CASE("one server of more than there are rows answers with a header alone", "[rpc][subnet]") {
  Job job(3, 2, 1, 5, 2);
  for (int server = 0; server < 5; ++server) {
    const Job::Fetched fetched = job.Fetch(server, Request(1, 1, 0, 2));
    CHECK(fetched.status.ok());
    CHECK(fetched.bytes == job.Initial(server, Place(1, 0, 2)));
    CHECK(job.Push(server, job.Chunk(1, Place(1, 0, 2), fetched.bytes)).error_message() == "");
  }
}

TEST_CASE("who asks for a place that is not its own is told its own and gets no values",
          "[rpc][subnet]") {
  Job job(11, 9, 5, 1, 3);
  std::vector<v1::SubnetRequest> wrong = {Request(2, 1, 0, 3), Request(2, 1, 1, 2),
                                          Request(2, 1, 1, 4), Request(2, 1, 1, 3),
                                          Request(2, 1, 1, 3)};
  wrong[3].set_seed(8);
  for (const uint32_t share : {2, 2, 2}) wrong[4].add_shares(share);
  for (const v1::SubnetRequest& request : wrong) {
    const Job::Fetched fetched = job.Fetch(0, request);
    CHECK(fetched.status.ok());
    CHECK(fetched.bytes.empty());
    CHECK(fetched.header.payload_bytes() == 0);
    const v1::SubnetKeys& own = fetched.header.subnet();
    CHECK(own.seed() == kSeed);
    CHECK(own.round() == 1);
    CHECK(own.site() == 1);
    CHECK(std::vector<uint32_t>(own.shares().begin(), own.shares().end()) ==
          std::vector<uint32_t>{1, 1, 1});
  }
  CHECK(job.servers[0].service->traffic().pull_payload_bytes == 0);
  v1::SubnetRequest right = Request(2, 1, 1, 3);
  for (int i = 0; i < 3; ++i) right.add_shares(1);
  CHECK(job.Fetch(0, right).bytes == job.Initial(0, Place(1, 1, 3)));
}

TEST_CASE("a fetch with a bad request gets a precise answer", "[rpc][subnet]") {
  Job job(11, 9, 5, 1, 1);
  const auto expect = [&](v1::SubnetRequest request, grpc::StatusCode code,
                          const std::string& message) {
    const Job::Fetched fetched = job.Fetch(0, request);
    CHECK(fetched.chunks.empty());
    CHECK(fetched.status.error_code() == code);
    CHECK(fetched.status.error_message() == message);
  };
  const auto invalid = grpc::StatusCode::INVALID_ARGUMENT;
  const auto refused = grpc::StatusCode::FAILED_PRECONDITION;
  const std::string where = "fetch from member 1 round 1: ";
  expect(Request(1, 1, 1, 1), invalid,
         where + "subnet: site is 1, want less than the 1 sites that have a share");
  expect(Request(1, 1, 0, 0), invalid,
         where + "subnet: site is 0, want less than the 0 sites that have a share");
  expect(Request(1, 1, 0, 4294967295u), invalid, where + "sites are 4294967295, want at most 4096");
  v1::SubnetRequest request = Request(1, 1, 0, 2);
  request.add_shares(1);
  expect(request, invalid, where + "shares are 1, want none or one for each of 2 sites");
  request.add_shares(0);
  expect(request, invalid, where + "subnet: shares are not each at least 1 with a sum below 2^31");
  expect(Request(1, uint64_t{1} << 40, 0, 1), invalid,
         "fetch from member 1 round 1099511627776: subnet: round is 1099511627776, want less than "
         "2^40");
  expect(Request(1, 0, 0, 1), refused,
         "fetch from member 1 round 0: round 1 is open, want that one or the next");
  expect(Request(1, 3, 0, 1), refused,
         "fetch from member 1 round 3: round 1 is open, want that one or the next");
  expect(Request(2, 1, 0, 1), refused,
         "fetch from member 2 round 1: not a member of the current plan (generation 1); its lease "
         "has ended, or it never joined");
  expect(Request(0, 1, 0, 1), refused,
         "fetch from member 0 round 1: member is 0, want the number that JoinReply gave; join "
         "first");
  request = Request(1, 1, 0, 1);
  request.mutable_caller()->set_job_digest("other");
  expect(request, invalid,
         where + "job digest is \"other\", want \"" + kDigest +
             "\"; start both ends from the same job file");
  CHECK(job.Fetch(0, Request(1, 1, 0, 1)).status.ok());

  RunningServers dense(TestShape(2, 2), 1, MakeBarrier, 1);
  const auto stub = v1::ParameterServer::NewStub(
      grpc::CreateChannel(dense.addresses()[0], grpc::InsecureChannelCredentials()));
  Context context;
  v1::Chunk chunk;
  const auto reader = stub->FetchSubnet(&context, Request(1, 1, 0, 1));
  CHECK_FALSE(reader->Read(&chunk));
  const grpc::Status status = reader->Finish();
  CHECK(status.error_code() == invalid);
  CHECK(status.error_message() == where + "the job's method trains no subnets, want a pull");
}

TEST_CASE("a bad return of a subnet gets a precise answer and changes nothing", "[rpc][subnet]") {
  Job job(11, 9, 5, 1, 2);
  const std::string bytes = job.Fetch(0, Request(1, 1, 0, 2)).bytes;
  const std::string where = "push from member 1 exchange 1: ";
  const auto expect = [&](const std::function<void(v1::PushHeader*)>& spoil, grpc::StatusCode code,
                          const std::string& message) {
    v1::PushChunk chunk = job.Chunk(1, Place(1, 0, 2), bytes);
    spoil(chunk.mutable_header());
    const grpc::Status status = job.Push(0, chunk);
    CHECK(status.error_code() == code);
    CHECK(status.error_message() == message);
  };
  const auto invalid = grpc::StatusCode::INVALID_ARGUMENT;
  const auto refused = grpc::StatusCode::FAILED_PRECONDITION;
  expect([](v1::PushHeader* h) { h->mutable_keys()->mutable_dense(); }, invalid,
         where + "keys are dense, want a subnet's");
  expect([](v1::PushHeader* h) { h->clear_keys(); }, invalid,
         where + "keys are absent or unknown, want a subnet's");
  expect([](v1::PushHeader* h) { h->mutable_keys()->mutable_subnet()->set_site(2); }, invalid,
         where + "subnet: site is 2, want less than the 2 sites that have a share");
  expect(
      [](v1::PushHeader* h) {
        h->mutable_keys()->mutable_subnet()->mutable_shares()->Resize(5000, 1);
      },
      invalid, where + "shares are 5000, want at most 4096");
  expect([](v1::PushHeader* h) { h->mutable_keys()->mutable_subnet()->set_round(2); }, refused,
         where + "subnet is of round 2, want round 1, which is open; fetch before pushing");
  expect([](v1::PushHeader* h) { h->mutable_keys()->mutable_subnet()->set_site(1); }, refused,
         where +
             "subnet is site 1 of 2 (shares 1, 1), seed 7, want site 0 of 2 (shares 1, 1), seed "
             "7 in round 1");
  const std::string all = std::to_string(job.shape.size * 4);
  expect([&](v1::PushHeader* h) { h->set_payload_bytes(job.shape.size * 4 + 4); }, invalid,
         where + "payload is " + std::to_string(job.shape.size * 4 + 4) +
             " bytes, want a multiple of 4 of at most " + all +
             "; layouts differ, compare layout_hash in status");
  expect([](v1::PushHeader* h) { h->set_payload_bytes(h->payload_bytes() - 1); }, invalid,
         where + "payload is " + std::to_string(bytes.size() - 1) +
             " bytes, want a multiple of 4 of at most " + all +
             "; layouts differ, compare layout_hash in status");
  v1::PushChunk chunk = job.Chunk(1, Place(1, 0, 2), bytes + "more");
  CHECK(job.Push(0, chunk).error_message() ==
        where + "payload is " + std::to_string(bytes.size() + 4) + " bytes, want " +
            std::to_string(bytes.size()) + " (" + std::to_string(bytes.size() / 4) +
            " entries as f32); layouts differ, compare layout_hash in status");
  CHECK(job.Push(0, job.Chunk(1, Place(1, 0, 2), bytes)).ok());

  RunningServers dense(TestShape(2, 2), 1, MakeBarrier, 1);
  const auto stub = v1::ParameterServer::NewStub(
      grpc::CreateChannel(dense.addresses()[0], grpc::InsecureChannelCredentials()));
  Context context;
  v1::PushReply reply;
  const auto writer = stub->Push(&context, &reply);
  writer->Write(chunk);
  writer->WritesDone();
  CHECK(writer->Finish().error_message() ==
        where + "keys are a subnet's, want dense; the job's methods differ");
}

TEST_CASE("a fetch waits for the other sites and is forgotten when its client goes",
          "[rpc][subnet]") {
  Job job(11, 9, 5, 1, 2);
  CHECK(job.Push(0, job.Chunk(1, Place(1, 0, 2), job.Initial(0, Place(1, 0, 2)))).ok());
  {
    Context context;
    const auto reader = job.stubs[0]->FetchSubnet(&context, Request(1, 2, 0, 2));
    while (job.ParkedReads(0) != 1) {
    }
    context.TryCancel();
    CHECK(reader->Finish().error_code() == grpc::StatusCode::CANCELLED);
    while (job.ParkedReads(0) != 0) {
    }
  }
  Context context;
  const auto reader = job.stubs[0]->FetchSubnet(&context, Request(1, 2, 0, 2));
  while (job.ParkedReads(0) != 1) {
  }
  CHECK(job.Push(0, job.Chunk(2, Place(1, 1, 2), job.Initial(0, Place(1, 1, 2)))).ok());
  v1::Chunk chunk;
  REQUIRE(reader->Read(&chunk));
  CHECK(chunk.header().version() == 1);
  std::string bytes = chunk.payload();
  while (reader->Read(&chunk)) bytes += chunk.payload();
  CHECK(reader->Finish().ok());
  CHECK(bytes == job.Initial(0, Place(2, 0, 2)));
}

}  // namespace
}  // namespace tessera
