#include "worker/exchange/exchange_keys.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "common/base/check.h"

namespace tessera {

ExchangeKeys::ExchangeKeys(const Options& options)
    : options_(options),
      dense_(DenseKeys(options.shape, options.servers)),
      sparse_(dense_),
      exchange_(options.first) {}

ExchangeKeys::~ExchangeKeys() {
  // The thread that draws reads options_.
  if (drawn_.valid()) drawn_.wait();
}

const KeySet& ExchangeKeys::update_keys() {
  // All entries are pushed until there is a core, and before each new one.
  const bool is_sparse =
      is_ready() && !pushes_all_ && !PushesAll(options_.share, exchange_.value());
  return is_sparse ? sparse_keys() : dense_;
}

const KeySet& ExchangeKeys::value_keys() { return is_ready() ? sparse_keys() : dense_; }

const KeySet& ExchangeKeys::sparse_keys() {
  // The next keys are drawn beside the step, and are here when the exchange begins.
  if (drawn_.valid()) sparse_.sparse = drawn_.get();
  return sparse_;
}

void ExchangeKeys::Advance() {
  exchange_ = exchange_.Next();
  pushes_all_ = false;
  // Not where another core comes first: its explorer is drawn when that is there.
  if (is_ready() && !wanted().has_value()) BeginDraw();
}

std::optional<uint64_t> ExchangeKeys::wanted() const {
  // In lockstep all know by the exchange's number which core it has. Else servers tell.
  const uint64_t number = options_.lockstep ? CoreOf(options_.share, exchange_.value())
                                            : std::max<uint64_t>(told_, 1) - 1;
  if (is_ready() && known_ >= number) return std::nullopt;
  return number;
}

void ExchangeKeys::Tell(uint64_t cores) {
  if (!options_.lockstep) told_ = std::max(told_, cores);
}

void ExchangeKeys::Adopt(Cores cores) {
  TESSERA_CHECK(static_cast<int>(cores.size()) == options_.servers);
  cores_ = std::move(cores);
  // Servers may have different cores: what all have counts.
  known_ = cores_.front()->name.number;
  for (const std::shared_ptr<const Core>& core : cores_) {
    known_ = std::min(known_, core->name.number);
  }
  BeginDraw();
}

void ExchangeKeys::Drop() { cores_.clear(); }

void ExchangeKeys::BeginDraw() {
  if (drawn_.valid()) drawn_.wait();
  // By value: cores_ may be replaced while they are drawn.
  const auto draw = [cores = cores_, options = &options_, exchange = exchange_] {
    Sparse keys;
    for (size_t s = 0; s < cores.size(); ++s) {
      // The explorer is random by exchange and worker, so that all entries are moved in time.
      const ExplorerPlace place{options->seed, options->rank, exchange, ShardId(s)};
      keys.push_back(std::make_shared<const SparseKeys>(
          DrawKeys(options->share, place, options->shape.size, cores[s])));
    }
    return keys;
  };
  try {
    drawn_ = std::async(std::launch::async, draw);
  } catch (const std::system_error&) {
    // The machine has no thread left: it is drawn when it is asked for.
    drawn_ = std::async(std::launch::deferred, draw);
  }
}

}  // namespace tessera
