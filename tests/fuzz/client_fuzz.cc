// A worker's clients under any replies of a server and a coordinator, over gRPC: what is right is taken as it was sent,
// all else is refused in words; nothing beside the wanted entries is written, and no more bytes are taken than
// they have.
//
//   input = job(1) (event(1) choices)*
#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "common/base/check.h"
#include "common/base/limits.h"
#include "common/codec/coded_keys.h"
#include "common/keyset/entry_keys.h"
#include "common/keyset/key_set.h"
#include "common/layout/shard_map.h"
#include "common/rpc/key_set_message.h"
#include "proto/coordinator.pb.h"
#include "proto/parameter_server.pb.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/fuzz_job.h"
#include "tests/fuzz/scripted_calls.h"
#include "worker/data/order.h"
#include "worker/rpc/coordinator_client.h"
#include "worker/rpc/parameter_client_grpc.h"
#include "worker/rpc/remote_coordination.h"

namespace tessera {
namespace {

constexpr int kEventsMax = 6;
constexpr char kPull[] = "/tessera.v1.ParameterServer/Pull";
constexpr char kFetch[] = "/tessera.v1.ParameterServer/FetchSubnet";
constexpr char kPush[] = "/tessera.v1.ParameterServer/Push";
constexpr absl::Duration kRetryTime = absl::Milliseconds(1);
constexpr uint64_t kLayoutHash = 5;
constexpr float kBefore = 77;
// Around every array; nobody writes there.
constexpr int64_t kGuard = 4;
// Of training data, and of test data.
constexpr int64_t kRows = 40;

ScriptedCalls& Calls() {
  static auto* const calls = new ScriptedCalls;
  return *calls;
}

// A worker's arrays, with room around them.
class GuardedArrays {
 public:
  explicit GuardedArrays(const std::vector<int64_t>& sizes) : sizes_(sizes) {
    for (const int64_t size : sizes) memory_.emplace_back(size + 2 * kGuard, kBefore);
  }
  ParameterArrays spans() {
    ParameterArrays spans;
    for (size_t i = 0; i < memory_.size(); ++i) {
      spans.emplace_back(memory_[i].data() + kGuard, sizes_[i]);
    }
    return spans;
  }
  ConstParameterArrays updates() {
    const ParameterArrays all = spans();
    return {all.begin(), all.end()};
  }
  void CheckGuards() const {
    for (size_t i = 0; i < memory_.size(); ++i) {
      for (int64_t k = 0; k < kGuard; ++k) {
        TESSERA_CHECK(memory_[i][k] == kBefore && memory_[i][kGuard + sizes_[i] + k] == kBefore);
      }
    }
  }
  std::string Bytes() const {
    std::string bytes;
    for (size_t i = 0; i < memory_.size(); ++i) {
      bytes.append(reinterpret_cast<const char*>(memory_[i].data() + kGuard), 4 * sizes_[i]);
    }
    return bytes;
  }

 private:
  std::vector<int64_t> sizes_;
  std::vector<std::vector<float>> memory_;
};

void CheckWords(const absl::Status& status) {
  TESSERA_CHECK(status.ok() || !status.message().empty());
}

class Events {
 public:
  Events(const FuzzJob& job, FuzzInput* input)
      : job_(job),
        in_(*input),
        replicated_(job.recipe.placement == Placement::kReplicated),
        client_(Make()) {
    if (job_.recipe.subnets) {
      CutBy({job_.job.seed(), 1, 0, {1, 1}});
      return;
    }
    keys_ = job_.recipe.split ? LayerKeys(job_.shape, 1, job_.recipe.split->range(Rank(0)))
                              : DenseKeys(job_.shape, 1);
    shape_ = job_.shape;
  }

  void Run() {
    for (int events = 0; !in_.ended() && events < kEventsMax; ++events) One();
  }

 private:
  std::unique_ptr<ParameterClientGrpc> Make() const {
    ParameterClientGrpc::Options options;
    options.placement = job_.recipe.placement;
    if (!replicated_) options.servers = {Calls().address()};
    options.slices = {SlicesOf(job_.shape, ShardId(0), 1)};
    options.layout_hash = kLayoutHash;
    options.member = MemberId(1);
    options.job_digest = job_.digest;
    options.kind = static_cast<v1::PayloadKind>(job_.recipe.payload);
    options.coding = {job_.recipe.codecs,    job_.shape, job_.job.seed(), Rank(0),
                      job_.recipe.placement, {},         nullptr};
    if (job_.recipe.split) options.coding.layers = job_.recipe.split->range(Rank(0));
    options.has_standbys = job_.facts.standbys;
    options.retry_time = kRetryTime;
    std::unique_ptr<ParameterClientGrpc> client =
        ParameterClientGrpc::Create(std::move(options)).value();
    if (replicated_) {
      v1::ServerList list;
      list.set_generation(1);
      v1::ServerEntry& entry = *list.add_servers();
      entry.set_address(Calls().address());
      entry.set_life(1);
      client->SetServers(list);
    }
    return client;
  }

  void CutBy(const SubnetPlace& place) {
    const Subnet subnet = SubnetOf(job_.shape, GroupsOf(job_.shape), place);
    keys_ = SubnetKeys(job_.shape, subnet, place, 1);
    shape_ = subnet.shape;
  }

  static std::vector<int64_t> SizesOf(const ModelShape& shape) {
    std::vector<int64_t> sizes;
    for (const ParameterSpec& spec : shape.parameters) sizes.push_back(spec.size());
    return sizes;
  }

  int64_t WireBytes(const KeySet& keys, bool is_outside) const {
    const Codec& codec = is_outside ? Codec() : job_.recipe.codecs.pull;
    if (keys.is_sparse()) {
      const SparseKeys& sparse = *keys.sparse[0];
      return CodedForms::OfEntries(job_.recipe.codecs, sparse.entries.count(), sparse.on_all)
          .Find(codec)
          ->bytes();
    }
    if (codec == Codec()) return keys.slices[0].bytes();
    return CodedKeys(codec, keys.slices[0], job_.shape).bytes();
  }

  grpc::StatusCode Code() {
    const uint8_t code = in_.Byte();
    return code < 240 ? grpc::StatusCode::OK : static_cast<grpc::StatusCode>(code - 239);
  }

  // Of a stream of values, or of a core's keys.
  v1::ChunkHeader Header(const KeySet& keys) {
    v1::ChunkHeader header;
    const uint8_t how = in_.Byte();
    if ((how & 1) != 0) {
      const absl::string_view piece = in_.Piece();
      if (!header.ParseFromArray(piece.data(), static_cast<int>(piece.size()))) header.Clear();
    }
    if ((how & 2) == 0) header.set_layout_hash(kLayoutHash);
    if ((how & 4) == 0 && keys.subnet) *header.mutable_subnet() = ToMessage(*keys.subnet);
    if ((how & 8) != 0 && keys.subnet) {
      SubnetPlace other = *keys.subnet;
      other.site = static_cast<uint32_t>(in_.Below(4));
      other.shares.assign(1 + in_.Below(8), 1 + static_cast<uint32_t>(in_.Count()));
      *header.mutable_subnet() = ToMessage(other);
    }
    if ((how & 16) != 0) header.set_need_keys(in_.Bit());
    if ((how & 32) != 0) header.set_whole_model(in_.Bit());
    return header;
  }

  ScriptedAnswer Values(const v1::ChunkHeader& header, std::string payload) {
    ScriptedAnswer answer;
    const uint64_t chunks = 1 + in_.Below(4);
    for (uint64_t i = 0; i < chunks; ++i) {
      if (in_.Byte() >= 224) {
        answer.messages.emplace_back(in_.Piece());
        continue;
      }
      v1::Chunk chunk;
      if (i == 0 || in_.Byte() >= 240) *chunk.mutable_header() = header;
      const uint8_t how = in_.Byte();
      const size_t size =
          how < 64 || i + 1 == chunks ? payload.size() : std::min<size_t>(how, payload.size());
      chunk.set_payload(payload.substr(0, size));
      payload.erase(0, size);
      if (how >= 248) chunk.mutable_payload()->append(how - 247, '\0');
      answer.messages.push_back(chunk.SerializeAsString());
    }
    answer.code = Code();
    return answer;
  }

  std::string Payload(int64_t bytes) {
    std::string payload(static_cast<size_t>(bytes), static_cast<char>(in_.Byte()));
    const absl::string_view piece = in_.Bit() ? in_.Piece() : absl::string_view();
    std::copy_n(piece.begin(), std::min(piece.size(), payload.size()), payload.begin());
    return payload;
  }

  // What protobuf's own parser reads in them.
  static std::string PayloadsOf(const ScriptedAnswer& answer) {
    std::string all;
    v1::Chunk chunk;
    for (const std::string& message : answer.messages) {
      TESSERA_CHECK(chunk.ParseFromString(message));
      all += chunk.payload();
    }
    return all;
  }

  void Pull(bool pushes) {
    GuardedArrays update(SizesOf(shape_));
    const KeySet pushed = keys_;
    const Exchange exchange(keys_.subnet ? keys_.subnet->round : exchange_ + 1);
    // Behind a push come the values of the next round.
    if (pushes && keys_.subnet) {
      SubnetPlace next = *keys_.subnet;
      ++next.round;
      CutBy(next);
    }
    GuardedArrays values(SizesOf(shape_));
    const int64_t bytes = WireBytes(keys_, false);
    const ScriptedAnswer answer = Values(Header(keys_), Payload(bytes));
    Calls().Set(keys_.subnet ? kFetch : kPull, {answer});
    if (pushes) {
      ScriptedAnswer reply;
      v1::PushReply message;
      message.set_need_keys(in_.Byte() >= 224);
      reply.messages = {in_.Byte() < 224 ? message.SerializeAsString() : std::string(in_.Piece())};
      if (in_.Byte() >= 240) reply.messages.clear();
      reply.code = Code();
      Calls().Set(kPush, {reply, reply});
    }
    const uint64_t before = client_->traffic().pull_payload_bytes;
    const absl::StatusOr<ExchangeResult> result =
        pushes ? client_->PushPull({exchange, 2}, pushed, update.updates(), keys_, values.spans())
               : client_->Pull(Exchange(exchange.value() - 1), keys_, values.spans());
    CheckWords(result.status());
    values.CheckGuards();
    update.CheckGuards();
    TESSERA_CHECK(client_->traffic().pull_payload_bytes - before <= static_cast<uint64_t>(bytes));
    if (!result.ok()) return;
    if (pushes) ++exchange_;
    const bool has_values = !result->recut && !result->is_whole && !result->needs_all;
    TESSERA_CHECK(!result->needs_all || keys_.is_sparse());
    TESSERA_CHECK(keys_.subnet || (!result->recut && !result->is_whole));
    if (result->recut) return CutBy(*result->recut);
    if (has_values && !keys_.is_sparse() && !keys_.layers && job_.recipe.codecs.pull == Codec()) {
      TESSERA_CHECK(values.Bytes() == PayloadsOf(answer));
    }
    if (has_values && keys_.is_sparse()) CheckOthersUntouched(values.Bytes());
  }

  void CheckOthersUntouched(const std::string& bytes) const {
    const EntrySet& entries = keys_.sparse[0]->entries;
    for (int64_t place = 0; place < entries.size(); ++place) {
      if (entries.Contains(place)) continue;
      TESSERA_CHECK(std::memcmp(bytes.data() + 4 * place, &kBefore, 4) == 0);
    }
  }

  void Read() {
    GuardedArrays values(SizesOf(job_.shape));
    const KeySet all = DenseKeys(job_.shape, 1);
    const ScriptedAnswer answer = Values(Header(all), Payload(WireBytes(all, true)));
    Calls().Set(kPull, {answer});
    const absl::Status status =
        client_->Read(Exchange(exchange_), IdleNotice(), values.spans()).status();
    CheckWords(status);
    values.CheckGuards();
    if (status.ok()) TESSERA_CHECK(values.Bytes() == PayloadsOf(answer));
  }

  void AskCore() {
    const int64_t size = job_.shape.size;
    std::vector<uint64_t> words((size + 63) / 64);
    for (int64_t i = 0; i < size; i += 1 + static_cast<int64_t>(in_.Below(16))) {
      words[i / 64] |= uint64_t{1} << i % 64;
    }
    const EntrySet entries(size, std::move(words));
    const EncodedKeys keys = EncodeKeys(entries);
    v1::ChunkHeader header = Header(KeySet());
    const uint64_t number = in_.Count();
    if (in_.Byte() < 240) {
      v1::SparseKeys& core = *header.mutable_core();
      core = ToMessage(CoreName{number, SignatureOf(kLayoutHash, number, entries)});
      core.set_keys_bytes(keys.bytes.size());
      core.set_key_form(static_cast<uint32_t>(keys.form));
    }
    std::string bytes = keys.bytes;
    if (in_.Byte() >= 224) bytes = std::string(in_.Piece());
    Calls().Set(kPull, {Values(header, std::move(bytes))});
    const uint64_t before = client_->traffic().pull_payload_bytes;
    client_->AskCores(number);
    const absl::StatusOr<Cores> cores = client_->TakeCores();
    CheckWords(cores.status());
    if (!cores.ok()) return;
    TESSERA_CHECK(client_->traffic().pull_payload_bytes - before <=
                  static_cast<uint64_t>(KeyBytesMax(size)));
    const std::shared_ptr<const Core>& core = cores->front();
    TESSERA_CHECK(cores->size() == 1 && core->keys.size() == size);
    TESSERA_CHECK(SignatureOf(kLayoutHash, core->name.number, core->keys) == core->name.signature);
    if (!job_.recipe.core) return;
    keys_.sparse = {std::make_shared<const SparseKeys>(
        DrawKeys(*job_.recipe.core, {job_.job.seed(), Rank(0), Exchange(exchange_ + 1), ShardId(0)},
                 size, core))};
  }

  template <typename Message>
  ScriptedAnswer Reply(Message message) {
    if (in_.Bit()) {
      const absl::string_view piece = in_.Piece();
      Message other;
      if (other.ParseFromArray(piece.data(), static_cast<int>(piece.size()))) {
        message.MergeFrom(other);
      }
    }
    ScriptedAnswer answer;
    answer.messages = {in_.Byte() < 240 ? message.SerializeAsString() : std::string(in_.Piece())};
    answer.code = Code();
    return answer;
  }

  // Joins, and asks what a train loop does.
  void Coordinate() {
    CoordinatorClient::Options options;
    options.address = Calls().address();
    options.layout_hash = kLayoutHash;
    options.join_timeout = kRetryTime;
    CoordinatorClient client(std::move(options));
    v1::JoinReply admission;
    admission.set_member(1);
    admission.set_admitted(true);
    admission.set_layout_hash(kLayoutHash);
    admission.set_lease_timeout_ns(absl::ToInt64Nanoseconds(absl::Seconds(10)));
    admission.set_first_exchange(1);
    Calls().Set("/tessera.v1.Coordinator/Join", {Reply(admission)});
    const absl::StatusOr<v1::JoinReply> joined = client.Join(nullptr);
    CheckWords(joined.status());
    if (!joined.ok()) return;
    TESSERA_CHECK(joined->rank() < kRankEnd && joined->first_exchange() > 0);
    RemoteCoordination coordination(&client);
    BeginEpoch(&coordination, joined->first_step());
    Evaluate(&coordination);
  }

  void BeginEpoch(RemoteCoordination* coordination, uint64_t step) {
    v1::EpochCut message;
    message.set_parts(1);
    message.set_steps(4);
    message.set_first_step(step);
    Calls().Set("/tessera.v1.Coordinator/BeginEpoch", {Reply(message)});
    const absl::StatusOr<EpochCut> cut = coordination->BeginEpoch(1, step);
    CheckWords(cut.status());
    if (!cut.ok()) return;
    TESSERA_CHECK(cut->first_step <= step && cut->steps >= 0);
    EpochOrder::Options options;
    options.partition = static_cast<Partition>(in_.Below(4));
    options.rows = kRows;
    options.batch = 4;
    EpochOrder order(options);
    const absl::Status begun = order.Begin({1, Rank(0), cut->part, cut->parts, cut->rows_total});
    CheckWords(begun);
    if (!begun.ok()) return;
    for (int64_t i = 0; i < std::min<int64_t>(order.steps(), 8); ++i) {
      for (const uint32_t row : order.Rows(i)) TESSERA_CHECK(row < kRows);
    }
  }

  void Evaluate(RemoteCoordination* coordination) {
    v1::EvaluateReply place;
    place.set_parts(2);
    place.set_part(static_cast<uint32_t>(in_.Below(2)));
    v1::EvaluateReply constants;
    constants.set_constants(std::string(in_.Below(16), '\0'));
    Calls().Set("/tessera.v1.Coordinator/Evaluate",
                {Reply(place), Reply(constants), Reply(v1::EvaluateReply())});
    const auto arrived = coordination->Arrive({});
    CheckWords(arrived.status());
    if (!arrived.ok()) return;
    TESSERA_CHECK(EvaluationRows(kRows, arrived->part, arrived->parts).size() <= kRows);
    const auto shared = coordination->ShareConstants(*arrived, {1, 2});
    CheckWords(shared.status());
    if (!shared.ok()) return;
    CheckWords(coordination->Score(*arrived, {}).status());
  }

  void One() {
    switch (in_.Below(8)) {
      case 0:
      case 1:
        return Pull(/*pushes=*/false);
      case 2:
      case 3:
        return Pull(/*pushes=*/true);
      case 4:
        return Read();
      case 5:
        return replicated_ ? Read() : AskCore();
      default:
        return Coordinate();
    }
  }

  const FuzzJob& job_;
  FuzzInput& in_;
  const bool replicated_;
  const std::unique_ptr<ParameterClientGrpc> client_;
  KeySet keys_;
  ModelShape shape_;  // of the arrays
  uint64_t exchange_ = 0;
};

}  // namespace
}  // namespace tessera

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  FuzzInput input(data, size);
  const std::vector<FuzzJob>& jobs = FuzzJobs();
  Events(jobs[input.Below(jobs.size())], &input).Run();
  return 0;
}
