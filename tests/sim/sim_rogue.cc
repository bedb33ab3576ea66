#include "tests/sim/sim_rogue.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/rpc/control_protocol.h"
#include "server/shard/received_push.h"

namespace tessera {
namespace {

constexpr uint64_t kOdd[] = {0,
                             1,
                             2,
                             7,
                             1000,
                             uint64_t{1} << 20,
                             uint64_t{1} << 32,
                             (uint64_t{1} << 40) + 1,
                             uint64_t{1} << 63,
                             ~uint64_t{0}};

Payload PayloadOf(const std::shared_ptr<const std::vector<float>>& values) {
  Payload payload;
  payload.Append({reinterpret_cast<const char*>(values->data()),
                  static_cast<int64_t>(values->size() * sizeof(float))},
                 values);
  return payload;
}

}  // namespace

SimRogue::SimRogue(FaultyNetwork* network, SimCoordinator* coordinator, Checker* checker,
                   Options options)
    : network_(network),
      coordinator_(coordinator),
      checker_(checker),
      options_(std::move(options)),
      node_(network->AddNode()),
      numbers_(NumbersOf(*options_.shape)),
      bases_(options_.doors.size()) {
  // The job may be in any state when it comes.
  network_->After(node_, network_->dice().Between(absl::ZeroDuration(), absl::Seconds(2)),
                  [this] { Join(); });
}

uint64_t SimRogue::Number(uint64_t right) {
  Dice& dice = network_->dice();
  const uint64_t way = dice.Below(10);
  if (way < 6) return right;
  if (way == 6) return right + 1 + dice.Below(2);
  if (way == 7) return right - 1 - dice.Below(2);
  return kOdd[dice.Below(std::size(kOdd))];
}

void SimRogue::Join() {
  v1::JoinRequest request;
  request.set_member(member_.value());
  request.set_protocol(kControlProtocol);
  request.set_layout_hash(options_.layout_hash);
  request.set_rows(options_.rows);
  request.set_life(life_);
  coordinator_->Ask<v1::JoinReply>(
      node_, [request](Coordinator& c, absl::Time now) { return c.Join(request, now); },
      [this](std::optional<absl::StatusOr<v1::JoinReply>> reply) {
        if (reply.has_value() && !reply->ok()) return network_->Kill(node_);  // The job is over.
        if (reply.has_value()) {
          member_ = MemberId((*reply)->member());
          checker_->OnNamed(member_, life_);
          if ((*reply)->admitted()) {
            generation_ = Generation((*reply)->generation());
            exchange_ = Exchange((*reply)->first_exchange() - 1);
            checker_->OnAdmitted(member_, exchange_.Next(), generation_);
            return Act();
          }
        }
        network_->After(node_, absl::Milliseconds(50), [this] { Join(); });
      });
}

void SimRogue::Act() {
  struct Kind {
    const char* name;
    void (SimRogue::*make)();
  };
  static constexpr Kind kKinds[] = {
      {"push_all", &SimRogue::PushAll},
      {"push_all", &SimRogue::PushAll},
      {"push", &SimRogue::PushSome},
      {"pull", &SimRogue::Pull},
      {"read", &SimRogue::ReadOutside},
      {"renew", &SimRogue::Renew},
      {"begin_training", &SimRogue::BeginTraining},
      {"begin_epoch", &SimRogue::BeginEpoch},
      {"evaluate", &SimRogue::Evaluate},
      {"saved", &SimRogue::Saved},
      {"join", &SimRogue::JoinAgain},
      {"leave", &SimRogue::Leave},
  };
  if (calls_made_ >= options_.calls) return network_->Kill(node_);
  const Kind& kind = kKinds[network_->dice().Below(std::size(kKinds))];
  ++calls_made_;
  absl::StrAppend(&made_, kind.name, " ");
  (this->*kind.make)();
  network_->After(node_, network_->dice().Between(absl::ZeroDuration(), absl::Milliseconds(100)),
                  [this] { Act(); });
}

v1::Progress SimRogue::DrawProgress() {
  v1::Progress progress;
  progress.set_step(Number(exchange_.value()));
  progress.set_exchange(Number(exchange_.value()));
  progress.set_epoch(Number(1));
  progress.set_examples(Number(exchange_.value()));
  progress.set_work(static_cast<v1::Progress::Work>(network_->dice().Below(3)));
  progress.set_beats(Number(static_cast<uint64_t>(calls_made_)));
  constexpr double kSpeeds[] = {1, 0, -1, 1e300, INFINITY, NAN};
  progress.set_steps_per_second(kSpeeds[network_->dice().Below(std::size(kSpeeds))]);
  progress.set_speed_steps(Number(10));
  progress.set_batch_rows(Number(10));
  return progress;
}

void SimRogue::JoinAgain() {
  v1::JoinRequest request;
  request.set_member(network_->dice().Chance(0.5) ? member_.value() : 0);
  request.set_protocol(kControlProtocol);
  request.set_layout_hash(options_.layout_hash);
  request.set_rows(std::max<uint64_t>(1, Number(options_.rows)));
  // A life of one that is somebody else, whom nobody hears of again.
  request.set_life(request.member() != 0 ? life_ : kFirstRogueLife + 1 + network_->dice().Below(3));
  Ask<v1::JoinReply>([request](Coordinator& c, absl::Time now) { return c.Join(request, now); });
}

void SimRogue::Renew() {
  v1::RenewRequest request;
  request.set_member(member_.value());
  *request.mutable_progress() = DrawProgress();
  request.set_drain_seen(Number(0));
  request.set_servers_known(Number(0));
  request.set_ends_warm_up(network_->dice().Chance(0.1));
  Ask<v1::RenewReply>([request](Coordinator& c, absl::Time now) { return c.Renew(request, now); });
}

void SimRogue::BeginTraining() {
  Ask<v1::LeaveReply>(
      [member = member_](Coordinator& c, absl::Time now) -> absl::StatusOr<v1::LeaveReply> {
        const absl::Status begun = c.BeginTraining(member, now);
        if (!begun.ok()) return begun;
        return v1::LeaveReply();
      });
}

void SimRogue::BeginEpoch() {
  v1::BeginEpochRequest request;
  request.set_member(member_.value());
  request.set_epoch(Number(1));
  request.set_step(Number(exchange_.value()));
  Ask<v1::EpochCut>(
      [request](Coordinator& c, absl::Time now) { return c.BeginEpoch(request, now); });
}

void SimRogue::Evaluate() {
  Dice& dice = network_->dice();
  v1::EvaluateRequest request;
  request.set_member(member_.value());
  request.set_evaluation(Number(1));
  request.set_attempt(Number(1));
  request.set_stage(static_cast<v1::EvaluateStage>(dice.Below(4)));
  *request.mutable_progress() = DrawProgress();
  request.set_loss_sum(1);
  request.set_loss_count(Number(10));
  request.set_constants(std::string(dice.Below(3) * 500, 'x'));
  request.mutable_scores()->set_rows(Number(10));
  request.mutable_scores()->set_correct(Number(1));
  request.set_last(dice.Chance(0.2));
  request.set_round(Number(1));
  coordinator_->Evaluate(node_, request,
                         [](const std::optional<absl::StatusOr<v1::EvaluateReply>>&) {});
}

void SimRogue::Saved() {
  v1::SavedRequest request;
  request.set_member(member_.value());
  request.set_number(Number(1));
  request.set_error(network_->dice().Chance(0.5) ? "broken" : "");
  request.mutable_file()->set_name(network_->dice().Chance(0.5) ? "../x" : "worker-1");
  *request.mutable_progress() = DrawProgress();
  request.set_sites(Number(2));
  Ask<v1::SavedReply>([request](Coordinator& c, absl::Time now) { return c.Saved(request, now); });
}

void SimRogue::Leave() {
  // Once in a while, as little is left to say afterwards.
  if (!network_->dice().Chance(0.2)) return;
  v1::LeaveRequest request;
  request.set_member(member_.value());
  request.mutable_report()->set_steps(Number(exchange_.value()));
  request.mutable_report()->set_examples(Number(7));
  request.set_error(network_->dice().Chance(0.5) ? "it gave up" : "");
  Ask<v1::LeaveReply>([request](Coordinator& c, absl::Time now) -> absl::StatusOr<v1::LeaveReply> {
    const absl::Status left = c.Leave(request, now);
    if (!left.ok()) return left;
    return v1::LeaveReply();
  });
}

template <typename Reply>
void SimRogue::Call(size_t server,
                    std::function<void(SimServer*, std::function<void(absl::StatusOr<Reply>)>)> ask,
                    std::function<void(const absl::StatusOr<Reply>&)> done) {
  ShardDoor* const door = options_.doors[server];
  const Generation generation(Number(generation_.value()));
  network_->Call<absl::StatusOr<Reply>>(
      node_, door->node(),
      [door, shard = ShardId(server), generation,
       ask](std::function<void(absl::StatusOr<Reply>)> answer) {
        SimServer* const to = door->Find(shard);
        if (to == nullptr) return answer(absl::UnavailableError("not led by this server"));
        const absl::Status checked = to->CheckCaller(generation);
        if (!checked.ok()) return answer(checked);
        ask(to, answer);
      },
      [done](std::optional<absl::StatusOr<Reply>> reply) {
        if (reply.has_value()) done(*reply);
      });
}

void SimRogue::Push(size_t server, Exchange exchange, bool is_right) {
  Dice& dice = network_->dice();
  auto values = std::make_shared<std::vector<float>>();
  for (const int64_t number : NumbersIn(numbers_, options_.slices[server])) {
    values->push_back(static_cast<float>(UpdateEntry(options_.seed, member_, exchange, number)));
  }
  int64_t bad_entry = -1;
  if (!is_right && dice.Chance(0.2) && !values->empty()) {
    // As the service finds it while the bytes arrive.
    bad_entry = static_cast<int64_t>(dice.Below(values->size()));
    (*values)[static_cast<size_t>(bad_entry)] = NAN;
  } else if (!is_right && dice.Chance(0.2)) {
    values->resize(dice.Chance(0.5) ? values->size() + 1 : 0);
  }
  const uint64_t examples = is_right || options_.by_examples ? 1 : Number(1);
  const Version base = is_right ? bases_[server] : Version(Number(bases_[server].value()));
  const int kind =
      is_right ? options_.kind : static_cast<int>(Number(static_cast<uint64_t>(options_.kind)) % 4);
  const uint64_t layout = is_right ? options_.layout_hash : Number(options_.layout_hash);
  const auto make = [=, shared = std::shared_ptr<const std::vector<float>>(values)] {
    ReceivedPush push;
    push.member = member_;
    push.exchange = exchange;
    push.base = base;
    push.examples = examples;
    push.kind = kind;
    push.layout_hash = layout;
    push.bad_entry = bad_entry;
    push.payload = PayloadOf(shared);
    return push;
  };
  Call<PushAccepted>(
      server, [make](SimServer* to, auto answer) { to->Push(make, answer); },
      [this](const absl::StatusOr<PushAccepted>& accepted) { pushes_taken_ += accepted.ok(); });
}

void SimRogue::PushSome() {
  Push(network_->dice().Below(options_.doors.size()), Exchange(Number(exchange_.value() + 1)),
       /*is_right=*/false);
}

void SimRogue::PushAll() {
  exchange_ = exchange_.Next();
  for (size_t server = 0; server < options_.doors.size(); ++server) {
    Push(server, exchange_, /*is_right=*/true);
  }
}

void SimRogue::Pull() {
  const size_t server = network_->dice().Below(options_.doors.size());
  const Exchange after(Number(exchange_.value()));
  const IdleNotice word{Number(rest_), network_->dice().Chance(0.3)};
  Call<PulledValues>(
      server,
      [member = member_, after, word](SimServer* from, auto answer) {
        from->Pull(member, after, word, std::nullopt, answer);
      },
      [this, server](const absl::StatusOr<PulledValues>& pulled) {
        if (pulled.ok()) bases_[server] = pulled->version;
      });
}

void SimRogue::ReadOutside() {
  const size_t server = network_->dice().Below(options_.doors.size());
  const Exchange after(Number(exchange_.value()));
  rest_ += network_->dice().Below(2);
  const IdleNotice word{Number(rest_), network_->dice().Chance(0.5)};
  Call<ReadOfMoment>(
      server,
      [member = member_, after, word](SimServer* from, auto answer) {
        from->ReadOutside(member, after, word, answer);
      },
      [](const absl::StatusOr<ReadOfMoment>&) {});
}

}  // namespace tessera
