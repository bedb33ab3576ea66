#include "server/rpc/pull_call.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/steady_clock.h"
#include "common/rpc/chunk.h"
#include "common/rpc/core_message.h"
#include "common/rpc/layer_message.h"
#include "common/rpc/status.h"
#include "common/rpc/subnet_message.h"
#include "common/rpc/transport.h"
#include "server/rpc/replica_table_message.h"
#include "server/shard/layer_parts.h"

namespace tessera {
namespace {

// The first of several chunks. An answer of up to twice this is one chunk.
constexpr int64_t kFirstChunkBytes = int64_t{64} << 10;

// A fetch as it would be answered if the caller is right.
absl::StatusOr<SubnetPlace> AskedPlace(const v1::SubnetRequest& request) {
  if (request.sites() > kSitesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("sites are ", request.sites(), ", want at most ", kSitesMax));
  }
  if (request.shares_size() != 0 && request.shares_size() != static_cast<int>(request.sites())) {
    return absl::InvalidArgumentError(absl::StrCat("shares are ", request.shares_size(),
                                                   ", want none or one for each of ",
                                                   request.sites(), " sites"));
  }
  v1::SubnetKeys keys;
  keys.set_seed(request.seed());
  keys.set_round(request.round());
  keys.set_site(request.site());
  *keys.mutable_shares() = request.shares();
  if (keys.shares_size() == 0) keys.mutable_shares()->Resize(request.sites(), 1);
  return PlaceOf(keys);
}

}  // namespace

grpc::ServerWriteReactor<grpc::ByteBuffer>* PullCall::Start(DataPlanes* planes,
                                                            grpc::CallbackServerContext* context,
                                                            const grpc::ByteBuffer& request) {
  return Begin(std::shared_ptr<PullCall>(new PullCall(planes, context)), &PullCall::AskAll,
               request);
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* PullCall::StartFetch(
    DataPlanes* planes, grpc::CallbackServerContext* context, const grpc::ByteBuffer& request) {
  return Begin(std::shared_ptr<PullCall>(new PullCall(planes, context)), &PullCall::AskSubnet,
               request);
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* PullCall::Begin(std::shared_ptr<PullCall> call,
                                                            AskFunction ask,
                                                            const grpc::ByteBuffer& request) {
  call->self_ = call;
  const absl::Status status = ((*call).*ask)(request);
  if (!status.ok()) call->Finish(ToGrpc(status));
  return call.get();
}

absl::Status PullCall::AskAll(const grpc::ByteBuffer& bytes) {
  v1::PullRequest request;
  const absl::Status read = ReadMessage(bytes, &request);
  if (!read.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("pull from ", context_->peer(), ": ", read.message()));
  }
  if (request.copies_replica()) return AskCopy(request);
  const MemberId member(request.caller().member());
  where_ = absl::StrCat("pull from member ", member.value(), " after exchange ",
                        request.after_exchange());
  TESSERA_ASSIGN_OR_RETURN(plane_, planes_->Find(where_, request.caller()));
  TESSERA_RETURN_IF_ERROR(plane_->CheckCaller(where_, request.caller()));
  outside_exchange_ = request.outside_exchange();
  if (request.has_core_wanted()) {
    CancelWhenGone(plane_->shard().Read<std::shared_ptr<const Core>>(
        member, Exchange(0), RestWord(),
        [member, wanted = request.core_wanted()](Shard& shard) {
          return shard.ReadCore(member, wanted);
        },
        [self = shared_from_this()](absl::StatusOr<std::shared_ptr<const Core>> core) {
          self->AnswerCore(std::move(core));
        }));
    return absl::OkStatus();
  }
  if (request.keys().has_sparse()) return AskSparse(request);
  TESSERA_RETURN_IF_ERROR(TakeKeys(request));
  TESSERA_RETURN_IF_ERROR(TakeCodec(request.codec()));
  const RestWord word{request.rest(), request.rests()};
  const Exchange after(request.after_exchange());
  const std::shared_ptr<PullCall> self = shared_from_this();
  if (outside_exchange_) {
    plane_->shard().Ask(
        [member, after, word](ServedShard& served, auto done) {
          served.ReadOutside(member, after, word, SteadyNow(), std::move(done));
        },
        [self](absl::StatusOr<ReadResult> result) { self->Answer(std::move(result)); });
    return absl::OkStatus();
  }
  CancelWhenGone(plane_->shard().Read<ReadResult>(
      member, after, word, [member, after](Shard& shard) { return shard.Read(member, after); },
      [self](absl::StatusOr<ReadResult> result) { self->Answer(std::move(result)); }));
  return absl::OkStatus();
}

absl::Status PullCall::AskCopy(const v1::PullRequest& request) {
  where_ = absl::StrCat("copy for ", context_->peer());
  TESSERA_ASSIGN_OR_RETURN(plane_, planes_->Find(where_, request.caller()));
  TESSERA_RETURN_IF_ERROR(plane_->CheckJob(where_, request.caller()));
  outside_exchange_ = true;
  const std::shared_ptr<PullCall> self = shared_from_this();
  plane_->shard().Ask(
      [](ServedShard& served, auto done) { done(served.shard().CopyReplica(SteadyNow())); },
      [self](absl::StatusOr<ReplicaCopy> copy) {
        if (!copy.ok()) return self->Finish(ToGrpc(copy.status()));
        self->table_ = std::move(copy->table);
        self->Answer(std::move(copy->read));
      });
  return absl::OkStatus();
}

absl::Status PullCall::AskSparse(const v1::PullRequest& request) {
  TESSERA_RETURN_IF_ERROR(TakeCodec(request.codec()));
  const absl::StatusOr<CoreName> core = CoreOf(request.keys().sparse());
  if (!core.ok() || outside_exchange_) {
    return absl::InvalidArgumentError(
        absl::StrCat(where_, ": ",
                     core.ok() ? "keys are sparse, want dense or rows outside an exchange"
                               : core.status().message()));
  }
  const MemberId member(request.caller().member());
  const Exchange after(request.after_exchange());
  CancelWhenGone(plane_->shard().Read<SparseReadResult>(
      member, after, {request.rest(), request.rests()},
      [member, after, name = *core](Shard& shard) { return shard.ReadSparse(member, after, name); },
      [self = shared_from_this()](absl::StatusOr<SparseReadResult> result) {
        self->AnswerSparse(std::move(result));
      }));
  return absl::OkStatus();
}

absl::Status PullCall::TakeKeys(const v1::PullRequest& request) {
  if (request.keys().has_dense()) return absl::OkStatus();
  if (request.keys().has_layers()) return TakeLayers(request.keys().layers());
  if (!request.keys().has_rows()) {
    return absl::InvalidArgumentError(
        absl::StrCat(where_, ": keys are absent or unknown, want dense or rows",
                     plane_->shard().traits().layer_parts.get() != nullptr ? " or some layers'" : ""));
  }
  if (!outside_exchange_) {
    return absl::InvalidArgumentError(
        absl::StrCat(where_, ": keys are rows, want dense; rows are read outside an exchange"));
  }
  const v1::RowKeys& keys = request.keys().rows();
  // What is too large for the index types is too large for any parameter.
  rows_ = RowRange{
      static_cast<int>(std::min<uint32_t>(keys.parameter(), std::numeric_limits<int>::max())),
      static_cast<int64_t>(
          std::min<uint64_t>(keys.row_begin(), std::numeric_limits<int64_t>::max())),
      static_cast<int64_t>(
          std::min<uint64_t>(keys.row_end(), std::numeric_limits<int64_t>::max()))};
  const absl::Status status = CheckRows(plane_->shard().traits().shape, *rows_);
  if (status.ok()) return status;
  return absl::InvalidArgumentError(absl::StrCat(where_, ": ", status.message()));
}

absl::Status PullCall::TakeLayers(const v1::LayerKeys& keys) {
  const auto take = [&]() -> absl::Status {
    TESSERA_ASSIGN_OR_RETURN(const ParameterRange layers, LayersOf(keys));
    TESSERA_ASSIGN_OR_RETURN(part_,
                             FindPart(plane_->shard().traits().layer_parts.get(), layers, "dense or rows"));
    return absl::OkStatus();
  };
  const absl::Status status = take();
  if (status.ok()) return status;
  return absl::InvalidArgumentError(absl::StrCat(where_, ": ", status.message()));
}

absl::Status PullCall::TakeCodec(absl::string_view name) {
  const Codec own = outside_exchange_ ? Codec() : plane_->shard().traits().codecs.pull;
  absl::StatusOr<Codec> codec = NamedCodec(name, own);
  if (!codec.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(
        where_, ": ", codec.status().message(), outside_exchange_ ? " outside an exchange" : ""));
  }
  codec_ = *codec;
  return absl::OkStatus();
}

absl::Status PullCall::AskSubnet(const grpc::ByteBuffer& bytes) {
  v1::SubnetRequest request;
  const absl::Status read = ReadMessage(bytes, &request);
  if (!read.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("fetch from ", context_->peer(), ": ", read.message()));
  }
  const MemberId member(request.caller().member());
  where_ = absl::StrCat("fetch from member ", member.value(), " round ", request.round());
  TESSERA_ASSIGN_OR_RETURN(plane_, planes_->Find(where_, request.caller()));
  TESSERA_RETURN_IF_ERROR(plane_->CheckCaller(where_, request.caller()));
  absl::StatusOr<SubnetPlace> asked = AskedPlace(request);
  if (!asked.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(where_, ": ", asked.status().message()));
  }
  TESSERA_RETURN_IF_ERROR(TakeCodec(request.codec()));
  waits_only_ = request.waits_only();
  const std::shared_ptr<PullCall> self = shared_from_this();
  const Exchange round(request.round());
  CancelWhenGone(plane_->shard().Read<SubnetReadResult>(
      member, Exchange(round.value() - 1), RestWord(),
      [member, round](Shard& shard) { return shard.ReadSubnet(member, round); },
      [self, asked = *std::move(asked)](absl::StatusOr<SubnetReadResult> result) {
        self->AnswerSubnet(asked, std::move(result));
      }));
  return absl::OkStatus();
}

void PullCall::CancelWhenGone(uint64_t read) {
  absl::MutexLock lock(&mutex_);
  read_ = read;
  if (gone_) plane_->shard().CancelRead(read_);
}

void PullCall::OnCancel() {
  absl::MutexLock lock(&mutex_);
  gone_ = true;
  // A read that was answered already is unknown to the shard by now.
  if (read_ != 0) plane_->shard().CancelRead(read_);
}

void PullCall::Answer(absl::StatusOr<ReadResult> result) {
  if (!result.ok()) return Finish(ToGrpc(result.status()));
  const ShardSlices& slices = plane_->shard().traits().slices;
  const int64_t begin = part_ != nullptr ? part_->begin : 0;
  if (rows_.has_value()) {
    const Slice owned = OwnedRows(slices, *rows_);
    payload_ = DensePayload(result->snapshot, owned.offset, owned.size());
  } else if (codec_ == Codec()) {
    payload_ =
        DensePayload(result->snapshot, begin, part_ != nullptr ? part_->entries() : slices.size);
  } else {
    const CodedForms& forms = part_ != nullptr ? part_->forms : plane_->shard().traits().dense_forms;
    payload_ = Coded(*forms.Find(codec_), result->version, DenseSource(result->snapshot, begin));
  }
  BeginAnswer(*std::move(result));
}

std::unique_ptr<AnswerPayload> PullCall::Coded(const CodedKeys& keys, Version version,
                                               std::unique_ptr<EntrySource> source) {
  ShardThread& shard = plane_->shard();
  return CodedPayload(keys, PayloadRandom::OfValues(shard.traits().seed, version, shard.traits().slices.shard),
                      std::move(source));
}

void PullCall::AnswerSparse(absl::StatusOr<SparseReadResult> result) {
  if (!result.ok()) return Finish(ToGrpc(result.status()));
  place_ = std::move(result->place);
  need_keys_ = place_ == nullptr;
  if (place_ != nullptr) {
    payload_ = Coded(*place_->forms.Find(codec_), result->read.version,
                     SparseSource(place_, result->read.snapshot));
  }
  BeginAnswer(std::move(result->read));
}

void PullCall::AnswerCore(absl::StatusOr<std::shared_ptr<const Core>> core) {
  if (!core.ok()) return Finish(ToGrpc(core.status()));
  core_ = *std::move(core);
  EncodedKeys keys = EncodeKeys(core_->keys);
  core_form_ = static_cast<int>(keys.form);
  payload_ = BytesPayload(std::move(keys.bytes));
  ReadResult nothing;
  nothing.snapshot = std::make_shared<const Snapshot>();
  BeginAnswer(std::move(nothing));
}

void PullCall::AnswerSubnet(const SubnetPlace& asked, absl::StatusOr<SubnetReadResult> result) {
  if (!result.ok()) return Finish(ToGrpc(result.status()));
  ReadResult& read = result->read;
  site_ = std::move(result->site);
  is_whole_model_ = site_ == nullptr;
  const bool is_right = site_ != nullptr && site_->place() == asked && !waits_only_;
  if (is_right && codec_ == Codec()) {
    payload_ = SubnetPayload(site_, read.snapshot);
  } else if (is_right) {
    payload_ =
        Coded(*site_->forms().Find(codec_), read.version, SubnetSource(site_, read.snapshot));
  }
  BeginAnswer(std::move(read));
}

void PullCall::BeginAnswer(ReadResult result) {
  snapshot_ = std::move(result.snapshot);
  version_ = result.version;
  examples_ = result.examples;
  cores_ = result.cores;
  plan_ = result.plan;
  checkpoint_ = result.checkpoint;
  bytes_ = left();
  if (bytes_ > kFirstChunkBytes) {
    is_reader_ = true;
    plane_->AddReader(this);
  }
  SendNext();
}

v1::ChunkHeader PullCall::Header() const {
  v1::ChunkHeader header;
  header.set_version(version_.value());
  header.set_payload_bytes(bytes_);
  header.set_layout_hash(plane_->shard().traits().layout_hash);
  header.set_generation(plane_->generation().value());
  header.set_examples(examples_);
  if (site_ != nullptr) *header.mutable_subnet() = ToMessage(site_->place());
  header.set_whole_model(is_whole_model_);
  header.set_plan_generation(plan_.value());
  if (table_.has_value()) *header.mutable_replica() = ToMessage(*table_);
  header.set_cores(cores_);
  header.set_need_keys(need_keys_);
  if (core_ != nullptr) {
    *header.mutable_core() = ToMessage(core_->name);
    header.mutable_core()->set_keys_bytes(static_cast<uint64_t>(bytes_));
    header.mutable_core()->set_key_form(static_cast<uint32_t>(core_form_));
  }
  header.set_checkpoint_number(checkpoint_.number);
  header.set_checkpoint_step(checkpoint_.folder_step);
  return header;
}

void PullCall::SendNext() {
  v1::Chunk head;
  int64_t room = kChunkBytes;
  if (!has_begun_) {
    has_begun_ = true;
    *head.mutable_header() = Header();
    room = left() > 2 * kFirstChunkBytes ? kFirstChunkBytes : left();
    // What has to be made first does not hold up the word that the answer has begun.
    if (payload_ != nullptr && !payload_->is_borrowed()) room = 0;
  }
  const int64_t left_before = left();
  std::vector<grpc::Slice> slices;
  if (room > 0) slices = payload_->Next(room);
  message_ = WriteChunk(head, slices);
  const int64_t sent = left_before - left();
  if (table_.has_value()) {
    plane_->CountCopied(sent);
  } else {
    plane_->CountPull(sent, WireBytes(message_.Length()), outside_exchange_);
  }
  if (left() == 0) {
    StartWriteAndFinish(&message_, grpc::WriteOptions(), grpc::Status());
  } else {
    StartWrite(&message_);
  }
}

void PullCall::OnWriteDone(bool ok) {
  // After StartWriteAndFinish only OnDone matters.
  if (left() == 0) return;
  if (snapshot_->revoked()) {
    plane_->CountCutOff();
    return Finish(ToGrpc(absl::AbortedError(absl::StrCat(
        where_, ": reader too slow, ", left(), " of ", bytes_, " bytes were left; pull again"))));
  }
  if (!ok) {
    return Finish(ToGrpc(absl::CancelledError(absl::StrCat(where_, ": the client has gone"))));
  }
  SendNext();
}

void PullCall::CutOffIfRevoked() {
  if (snapshot_->revoked()) context_->TryCancel();
}

void PullCall::OnDone() {
  if (is_reader_) plane_->RemoveReader(this);
  // gRPC has come back from OnCancel by now: said here, so that a checker sees it.
  mutex_.Lock();
  mutex_.Unlock();
  // Ends this object unless the shard still holds it.
  const std::shared_ptr<PullCall> self = std::move(self_);
}

}  // namespace tessera
