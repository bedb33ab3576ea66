// Which entries a worker's exchanges move, where these are a core's and an explorer's.
//
// The explorer of the next exchange is drawn on a thread of its own while the minibatches before it are
// computed; where there is none to be had, when it is asked for.
#ifndef TESSERA_WORKER_EXCHANGE_EXCHANGE_KEYS_H_
#define TESSERA_WORKER_EXCHANGE_EXCHANGE_KEYS_H_

#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <vector>

#include "common/base/ids.h"
#include "common/keyset/key_set.h"
#include "common/keyset/sparse_keys.h"
#include "common/layout/parameters.h"
#include "worker/exchange/parameter_client.h"

namespace tessera {

// One thread, the train loop's.
class ExchangeKeys {
 public:
  struct Options {
    ModelShape shape;
    int servers = 1;
    CoreShare share;
    uint64_t seed = 0;
    Rank rank;
    // The worker's first exchange.
    Exchange first{1};
    // All members make the same exchange together.
    bool lockstep = true;
  };

  explicit ExchangeKeys(const Options& options);
  ~ExchangeKeys();

  // The keys of the next exchange's push. All entries until there is a core, as in the first pull.
  const KeySet& update_keys();
  const KeySet& value_keys();
  // The next push is of all entries in any case.
  void PushAll() { pushes_all_ = true; }
  // The exchange has been made: keys are those of the next one from now on.
  void Advance();

  // The number of the core that the next exchange waits for; nullopt: none. Where members advance on
  // their own, of a later one than the last, which Tell says there is.
  std::optional<uint64_t> wanted() const;
  void Tell(uint64_t cores);
  void Adopt(Cores cores);
  // A server does not know the core any more: all entries are pulled next, and a core is wanted.
  void Drop();

 private:
  using Sparse = std::vector<std::shared_ptr<const SparseKeys>>;
  bool is_ready() const { return !cores_.empty(); }
  void BeginDraw();
  const KeySet& sparse_keys();

  const Options options_;
  const KeySet dense_;
  KeySet sparse_;
  std::future<Sparse> drawn_;  // valid: sparse_ is of an earlier exchange or core
  Exchange exchange_;          // the next
  bool pushes_all_ = false;
  Cores cores_;         // empty: none yet
  uint64_t known_ = 0;  // least number among cores_
  uint64_t told_ = 0;   // cores that there are
};

}  // namespace tessera

#endif  // TESSERA_WORKER_EXCHANGE_EXCHANGE_KEYS_H_
