#include "worker/rpc/layer_exchange.h"

#include <utility>

#include "common/base/check.h"

namespace tessera {
namespace {

// Memory for what comes: batches of all that may send, each of which may have begun anew, and messages that are small.
constexpr int64_t kReceiveBytesBase = int64_t{256} << 20;
constexpr int64_t kReceiveBatches = 2;

}  // namespace

LayerExchange::LayerExchange(Options options)
    : options_(std::move(options)),
      // As of pushes to a server.
      service_(options_.job_digest, static_cast<size_t>(64 + 2 * (options_.split.front_workers +
                                                                  options_.split.linear_workers))) {
}

absl::StatusOr<std::unique_ptr<LayerExchange>> LayerExchange::Open(Options options) {
  std::unique_ptr<LayerExchange> exchange(new LayerExchange(std::move(options)));
  const Options& own = exchange->options_;
  // Workers in front of the cut call, and need not be reached.
  if (own.listen.empty()) return exchange;
  const int64_t batch_bytes =
      own.rows_max * (own.features + own.outputs) * static_cast<int64_t>(sizeof(float));
  GrpcServer::Options server;
  server.address = own.listen;
  server.services = {exchange->service_.service()};
  // Each has one, and another one for a moment.
  server.connections_per_host_max = 64 + 8 * own.split.front_workers;
  server.receive_bytes_max =
      kReceiveBytesBase + kReceiveBatches * own.split.front_workers * batch_bytes;
  TESSERA_ASSIGN_OR_RETURN(exchange->server_, GrpcServer::Start(server));
  return exchange;
}

LayerExchange::~LayerExchange() {
  End();
  if (server_ != nullptr) server_->Shutdown(absl::ZeroDuration());
}

void LayerExchange::Begin(Life life) {
  absl::MutexLock lock(&mutex_);
  // A list that came before the membership began may be newer than the one that came with it.
  if (life.workers.generation() > workers_.generation()) workers_ = std::move(life.workers);
  if (!options_.split.is_linear(life.rank)) {
    client_ = std::make_unique<ActivationClient>(
        ActivationClient::Options{life.member, options_.job_digest, options_.split, life.retry_time,
                                  std::move(life.on_trouble)});
    client_->SetWorkers(workers_);
    client_->SetAway(away_);
    if (leaves_) client_->Leave();
    return;
  }
  inbox_ = std::make_shared<ActivationInbox>(
      ActivationQueue::Options{life.member, options_.split, options_.rows_max, options_.features,
                               options_.outputs, options_.has_classes},
      std::move(life.on_trouble));
  inbox_->SetWorkers(workers_);
  if (leaves_) inbox_->Leave();
  service_.Serve(inbox_);
}

ActivationSender* LayerExchange::sender() const {
  absl::MutexLock lock(&mutex_);
  return client_.get();
}

ActivationInbox* LayerExchange::receiver() const {
  absl::MutexLock lock(&mutex_);
  return inbox_.get();
}

void LayerExchange::SetWorkers(const v1::WorkerList& list) {
  absl::MutexLock lock(&mutex_);
  if (list.generation() > workers_.generation()) workers_ = list;
  if (client_ != nullptr) client_->SetWorkers(list);
  // A worker has one of the two: in front of the cut a client, behind it an inbox.
  if (inbox_ != nullptr) inbox_->SetWorkers(list);
}

void LayerExchange::SetAway(bool away) {
  absl::MutexLock lock(&mutex_);
  away_ = away;
  if (client_ != nullptr) client_->SetAway(away);
}

void LayerExchange::Leave() {
  absl::MutexLock lock(&mutex_);
  // Kept, as a membership may begin behind it.
  leaves_ = true;
  if (client_ != nullptr) client_->Leave();
  if (inbox_ != nullptr) inbox_->Leave();
}

void LayerExchange::Cancel() {
  absl::MutexLock lock(&mutex_);
  if (client_ != nullptr) client_->Cancel();
  if (inbox_ != nullptr) inbox_->Cancel();
}

void LayerExchange::End() {
  // Whoever is blocked in a call goes on before the service is taken away.
  Cancel();
  service_.Serve(nullptr);
  absl::MutexLock lock(&mutex_);
  client_.reset();
  inbox_.reset();
}

}  // namespace tessera
