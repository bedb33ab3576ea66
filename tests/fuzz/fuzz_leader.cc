#include "tests/fuzz/fuzz_leader.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "server/shard/forms/layer_parts.h"
#include "server/core/core_messages.h"

namespace tessera {
namespace {

// Work that follows from one event; more is a shard that never rests.
constexpr int kPiecesOfWorkMax = 10000;
constexpr int64_t kQueueBytes = 1 << 20;

v1::LogHeader HeaderOf(const FuzzJob& job, uint64_t term) {
  v1::LogHeader header;
  header.set_job_digest(job.digest);
  header.set_term(term);
  header.set_layout_hash(job.facts.layout_hash);
  return header;
}

CoreAgreement::Options AgreementOf(const FuzzJob& job) {
  CoreAgreement::Options options;
  options.parameters = job.facts.parameters;
  options.entries = static_cast<uint64_t>(job.facts.entries);
  options.core_entries = static_cast<uint64_t>(CoreCount(*job.facts.core, job.facts.entries));
  options.gradient_weight = job.facts.core->gradient_weight;
  return options;
}

Payload Filled(int64_t bytes, float value) {
  const auto values = std::make_shared<std::vector<float>>((bytes + 3) / 4, value);
  Payload payload;
  payload.Append({reinterpret_cast<const char*>(values->data()), bytes}, values);
  return payload;
}

}  // namespace

const std::vector<const FuzzJob*>& LeadingJobs() {
  static const auto* const jobs = [] {
    auto* const some = new std::vector<const FuzzJob*>;
    for (const FuzzJob& job : FuzzJobs()) {
      if (job.facts.servers == 1) some->push_back(&job);
    }
    return some;
  }();
  return *jobs;
}

FuzzLog::FuzzLog(const FuzzJob& job, uint64_t term, const absl::Time* now)
    : queue(HeaderOf(job, term), kQueueBytes, job.facts.lease_timeout), now_(now) {}

FuzzLeader::FuzzLeader(const FuzzJob& job, std::unique_ptr<Shard> shard)
    : job_(job), served_(std::move(shard)) {
  if (job.facts.core) agreement_.emplace(AgreementOf(job));
}

Exchange FuzzLeader::NextOf(MemberId member) const {
  const Shard& shard = served_.shard();
  if (job_.recipe.lockstep) return shard.counters().collecting;
  const auto pushed = pushed_.find(member);
  return pushed == pushed_.end() ? shard.plan().Find(member)->first_exchange
                                 : pushed->second.Next();
}

void FuzzLeader::AddMember() {
  Plan plan = served_.shard().plan();
  plan.generation = plan.generation.Next();
  const Rank rank(plan.members.empty() ? 0 : plan.members.back().rank.value() + 1);
  PlanMember member{MemberId(++last_member_), rank, Exchange(1)};
  if (last_member_ > 2) {
    const uint64_t near = std::max<uint64_t>(1, served_.shard().counters().collecting.value());
    member.first_exchange = served_.Propose(plan.generation.value(), Exchange(near + 2));
  }
  plan.members.push_back(member);
  served_.SetPlan(plan);
}

void FuzzLeader::RemoveMember(size_t i) {
  Plan plan = served_.shard().plan();
  plan.generation = plan.generation.Next();
  const PlanMember removed = plan.members[i];
  plan.members.erase(plan.members.begin() + static_cast<int64_t>(i));
  if (job_.recipe.subnets) {
    plan.departed.push_back({removed.member, removed.rank, removed.first_exchange,
                             served_.shard().counters().collecting.Next()});
  }
  served_.SetPlan(plan);
}

bool FuzzLeader::Push(MemberId member, float value,
                      std::function<void(absl::StatusOr<PushAccepted>)> done) {
  Shard& shard = served_.shard();
  const PlanMember* const entry = shard.plan().Find(member);
  if (entry == nullptr) return false;
  ReceivedPush push;
  push.member = member;
  push.exchange = NextOf(member);
  push.generation = shard.plan().generation;
  push.base = shard.counters().version;
  push.kind = static_cast<int>(job_.recipe.payload);
  push.layout_hash = shard.layout_hash();
  push.examples = 2;
  const CodedKeys* keys = shard.traits().dense_forms().Find(push.codec);
  const JobKeys& job_keys = *shard.traits().keys;
  std::shared_ptr<const ExchangedEntries> entries;
  if (job_keys.OfPush(SubnetPlace(), 1).ok()) {
    const Exchange after(push.exchange.value() - 1);
    const auto read = shard.Read(member, after, SubnetPlace());
    if (!read.ok() || !read->has_value()) return false;
    entries = (*read)->entries;
    if (entries != nullptr) {
      keys = entries->forms().Find(push.codec);
      push.keys = entries->name();
      push.whole_next = job_keys.OfPush(AllEntries(), 1).ok() && push.exchange >= Exchange(3);
    } else {
      push.kind = static_cast<int>(TailOf(job_.recipe).payload);
    }
  } else if (shard.cores() != nullptr && !PushesAll(*job_.facts.core, push.exchange.value())) {
    const std::shared_ptr<const Core> core = shard.cores()->core();
    if (core == nullptr) return false;
    push.keys = NamedCore{core->name, 0, std::nullopt};
    entries = shard.cores()->PlaceOfPull(*entry, push.exchange, core->name);
    keys = entries->forms().Find(push.codec);
  } else if (const auto* parts = dynamic_cast<const LayerParts*>(&job_keys); parts != nullptr) {
    const LayerPart& part = entry->rank.value() % 2 == 0 ? parts->front() : parts->back();
    push.keys = part.layers();
    keys = part.forms().Find(push.codec);
  }
  push.payload = Filled(keys->bytes(), value);
  const Exchange exchange = push.exchange;
  const uint64_t before = shard.counters().pushes;
  served_.Accept(std::move(push), std::move(done));
  if (shard.counters().pushes > before) pushed_[member] = exchange;
  return true;
}

void FuzzLeader::Work(absl::Time now) {
  for (int pieces = 0; served_.Work(/*had_events=*/true, now);) {
    TESSERA_CHECK(++pieces < kPiecesOfWorkMax);
    const std::optional<CoreReport> report = served_.core_report();
    if (!report.has_value() || !agreement_.has_value()) continue;
    for (const auto& [server, question] : agreement_->OnReport(ShardId(0), *report)) {
      if (server == ShardId(0)) served_.AskCore(question);
    }
  }
}

}  // namespace tessera
