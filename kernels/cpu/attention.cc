#include "kernels/cpu/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/attention_blocks.h"
#include "kernels/cpu/block_product.h"
#include "kernels/cpu/dropout.h"

namespace tessera {
namespace {

constexpr int64_t kBlock = kAttentionBlock;
constexpr int64_t kStrip = kAttentionStrip;

// Where a head of a row has its values.
struct Head {
  int64_t places, size, padded;
  int64_t width;             // of all heads
  int64_t qkv_step, y_step;  // from a place to the next
  bool causal;
  float scale;       // of scores
  uint64_t element;  // of the dropout: the first weight's

  int64_t blocks() const { return (places + kBlock - 1) / kBlock; }
  int64_t begin(int64_t block) const { return block * kBlock; }
  PlacesShape Block(int64_t block) const {
    return {std::min(kBlock, places - begin(block)), size, padded};
  }
  PlacesShape All() const { return {places, size, padded}; }
  // Whether queries of the block see a part of its keys only.
  bool IsCut(int64_t query_block, int64_t key_block) const {
    return causal && query_block == key_block;
  }
  // What queries of a block see of a block of keys, from `strip` on.
  StripView View(int64_t query_block, int64_t key_block, int64_t strip) const {
    const int64_t rows = std::min(kStrip, Block(query_block).count - strip);
    const int64_t keys = Block(key_block).count;
    if (!IsCut(query_block, key_block)) return {rows, PadToLanes(keys), keys, 0};
    return {rows, PadToLanes(strip + rows), strip + 1, 1};
  }
  uint64_t Element(int64_t query, int64_t key) const {
    return element + static_cast<uint64_t>(query * places + key);
  }
};

// Hands out the parts of a thread's scratch.
class Room {
 public:
  explicit Room(float* scratch) : next_(scratch) {}
  float* Take(int64_t count) {
    float* const taken = next_;
    next_ += count;
    return taken;
  }
  float* Square() { return Take(kBlock * kBlock); }

 private:
  float* next_;
};
// The head's keys and values, and a block of its queries and of their results.
int64_t ForwardRoom(const Head& head) {
  return 2 * (head.blocks() + 1) * kBlock * head.padded + kBlock * kBlock;
}
// The head's queries, their gradients and those of their results, and a block of its keys and of what belongs to them.
int64_t BackwardRoom(const Head& head) {
  return (3 * head.blocks() + 5) * kBlock * head.padded + 4 * kBlock * kBlock +
         head.blocks() * kBlock;
}

// A kernel's call for one head of one row.
struct ForwardCall {
  const float* qkv;
  float* y;
  float* log_sums;  // may be null
};
struct BackwardCall {
  const float* qkv;
  const float* y;
  const float* log_sums;
  const float* dy;
  float* dqkv;
};

// Computes one head of one row in blocks with the online softmax of FlashAttention (Dao et al., NeurIPS 2022): per
// query it keeps the largest score so far and the sum of weights, and shrinks what was summed whenever a larger score
// comes. `dropout` is null for none.
void ForwardHead(const Head& head, const CpuDropout* dropout, const ForwardCall& call,
                 float* scratch) {
  Room room(scratch);
  const int64_t block_size = kBlock * head.padded;
  float* const q = room.Take(block_size);
  float* const sums = room.Take(block_size);
  float* const k = room.Take(head.blocks() * block_size);  // each block turned
  float* const v = room.Take(head.blocks() * block_size);
  float* const weights = room.Square();
  // Keys are transposed once per head: every block of queries then reads them along whole vectors.
  for (int64_t keys = 0; keys < head.blocks(); ++keys) {
    const float* const key = call.qkv + head.begin(keys) * head.qkv_step + head.width;
    TurnPlaces(head.Block(keys), key, head.qkv_step, k + keys * block_size);
  }
  CopyPlaces(head.All(), call.qkv + 2 * head.width, head.qkv_step, 1.0f, v);
  for (int64_t queries = 0; queries < head.blocks(); ++queries) {
    const int64_t first = head.begin(queries);
    const PlacesShape block = head.Block(queries);
    CopyPlaces(block, call.qkv + first * head.qkv_step, head.qkv_step, head.scale, q);
    SoftmaxStates states;
    std::fill_n(states.largest, kBlock, -std::numeric_limits<float>::infinity());
    std::fill_n(states.sum, kBlock, 0.0f);
    // A causal query sees no key behind its own place, so later blocks of keys have weight 0 and are never read.
    const int64_t end = head.causal ? queries + 1 : head.blocks();
    for (int64_t keys = 0; keys < end; ++keys) {
      for (int64_t strip = 0; strip < block.count; strip += kStrip) {
        const StripView view = head.View(queries, keys, strip);
        float* const sum = sums + strip * head.padded;
        MultiplyBlock(view.rows, view.padded, head.size,
                      {q + strip * head.padded, head.padded, 1, k + keys * block_size, kBlock},
                      false, weights, kBlock);
        float shrinks[kStrip];
        WeighScores(view, strip, weights, &states, shrinks);
        // The first block of keys overwrites `sum`, which holds whatever an earlier call left there.
        if (keys > 0) ScaleRows(view.rows, head.padded, shrinks, sum);
        // The states have the sums of weights already: dropout thins out the normalised weights and must not change the
        // denominator.
        for (int64_t i = 0; dropout != nullptr && i < view.rows; ++i) {
          float* const own = weights + i * kBlock;
          dropout->Apply(head.Element(first + strip + i, head.begin(keys)), view.Seen(i), own, own);
        }
        MultiplyBlock(view.rows, head.padded, view.Seen(view.rows - 1),
                      {weights, kBlock, 1, v + keys * block_size, head.padded}, keys > 0, sum,
                      head.padded);
      }
    }
    if (call.log_sums != nullptr) {
      // log(sum of exp(score)) is all that the backward pass needs to form the weights again; they are never stored.
      for (int64_t i = 0; i < block.count; ++i) {
        call.log_sums[first + i] = static_cast<float>(static_cast<double>(states.largest[i]) +
                                                      std::log(static_cast<double>(states.sum[i])));
      }
    }
    // The softmax's denominator divides each query's result once, at the end.
    for (int64_t i = 0; i < block.count; ++i) states.sum[i] = 1.0f / states.sum[i];
    StorePlaces(block, sums, states.sum, call.y + first * head.y_step, head.y_step);
  }
}

// Computes the gradients of one head of one row. The weights P are formed again from scores and log_sums. With the
// shares D = dy . y per query (`shares`), dS = P (dP - D), dV = P^T dy, dK = dS^T q and dq = dS k. P, dP and dS exist
// for one pair of blocks at a time.
void BackwardHead(const Head& head, const CpuDropout* dropout, const BackwardCall& call,
                  float* scratch) {
  Room room(scratch);
  const int64_t block_size = kBlock * head.padded;
  float* const q = room.Take(head.blocks() * block_size);
  float* const dq = room.Take(head.blocks() * block_size);
  float* const dy = room.Take(head.blocks() * block_size);
  float* const k = room.Take(block_size);
  float* const turned_k = room.Take(block_size);
  float* const turned_v = room.Take(block_size);
  float* const dk = room.Take(block_size);
  float* const dv = room.Take(block_size);
  float* const scores = room.Square();
  float* const slopes = room.Square();
  float* const kept = room.Square();  // weights behind the dropout
  float* const factors = room.Square();
  float* const shares = room.Take(head.blocks() * kBlock);
  // The scale is part of q, so that scores and dk come out right by themselves; dq gets it when it is stored.
  CopyPlaces(head.All(), call.qkv, head.qkv_step, head.scale, q);
  CopyPlaces(head.All(), call.dy, head.y_step, 1.0f, dy);
  DotPlaces(head.All(), call.dy, call.y, head.y_step, shares);
  float ones[kBlock], scales[kBlock];
  std::fill_n(ones, kBlock, 1.0f);
  std::fill_n(scales, kBlock, head.scale);
  for (int64_t keys = 0; keys < head.blocks(); ++keys) {
    const PlacesShape block = head.Block(keys);
    const int64_t at_key = head.begin(keys) * head.qkv_step + head.width;
    CopyPlaces(block, call.qkv + at_key, head.qkv_step, 1.0f, k);
    TurnPlaces(block, call.qkv + at_key, head.qkv_step, turned_k);
    TurnPlaces(block, call.qkv + at_key + head.width, head.qkv_step, turned_v);
    // Causal queries in front of this block of keys see none of it.
    const int64_t first_queries = head.causal ? keys : 0;
    for (int64_t queries = first_queries; queries < head.blocks(); ++queries) {
      const int64_t first = head.begin(queries), count = head.Block(queries).count;
      for (int64_t strip = 0; strip < count; strip += kStrip) {
        const StripView view = head.View(queries, keys, strip);
        const int64_t at = strip * kBlock, from = (first + strip) * head.padded;
        MultiplyBlock(view.rows, view.padded, head.size,
                      {q + from, head.padded, 1, turned_k, kBlock}, false, scores + at, kBlock);
        MultiplyBlock(view.rows, view.padded, head.size,
                      {dy + from, head.padded, 1, turned_v, kBlock}, false, slopes + at, kBlock);
        for (int64_t i = 0; dropout != nullptr && i < view.rows; ++i) {
          dropout->Factors(head.Element(first + strip + i, head.begin(keys)), view.Seen(i),
                           factors + at + i * kBlock);
        }
        SlopeOfScores(view, {call.log_sums + first + strip, shares + first + strip},
                      dropout == nullptr ? nullptr : factors + at, scores + at, slopes + at,
                      kept + at);
        MultiplyBlock(view.rows, head.padded, view.Seen(view.rows - 1),
                      {slopes + at, kBlock, 1, k, head.padded}, keys > 0, dq + from, head.padded);
      }
      for (int64_t strip = 0; strip < block.count; strip += kStrip) {
        // Queries in front of the strip do not see it.
        const int64_t begin = head.IsCut(queries, keys) ? strip : 0;
        const int64_t rows = std::min(kStrip, block.count - strip), at = begin * kBlock + strip;
        const int64_t from = (first + begin) * head.padded, to = strip * head.padded;
        const bool adds = queries > first_queries;
        MultiplyBlock(rows, head.padded, count - begin,
                      {kept + at, 1, kBlock, dy + from, head.padded}, adds, dv + to, head.padded);
        MultiplyBlock(rows, head.padded, count - begin,
                      {slopes + at, 1, kBlock, q + from, head.padded}, adds, dk + to, head.padded);
      }
    }
    StorePlaces(block, dk, ones, call.dqkv + at_key, head.qkv_step);
    StorePlaces(block, dv, ones, call.dqkv + at_key + head.width, head.qkv_step);
  }
  // Every block of keys has added to dq, so it is complete only now.
  for (int64_t queries = 0; queries < head.blocks(); ++queries) {
    StorePlaces(head.Block(queries), dq + queries * block_size, scales,
                call.dqkv + head.begin(queries) * head.qkv_step, head.qkv_step);
  }
}

Head HeadOf(const AttentionShape& shape) {
  Head head;
  head.places = shape.places;
  head.size = shape.head_size;
  head.padded = PadToLanes(shape.head_size);
  head.width = shape.width();
  head.qkv_step = 3 * shape.width();
  head.y_step = shape.width();
  head.causal = shape.causal;
  head.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(shape.head_size)));
  head.element = 0;
  return head;
}

// Calls f(head, its dropout or null, row, number of the head, scratch of its own) for each head of each row.
template <typename F>
void ForHeads(const CpuThreads& threads, const AttentionShape& shape,
              const AttentionDropout& dropout, int64_t room, std::vector<float>* scratch,
              const F& f) {
  // Vectors that lie across two lines of the cache are loaded twice.
  constexpr int64_t kLine = 64 / sizeof(float);
  const auto wanted = static_cast<size_t>(room * threads.count() + kLine);
  if (scratch->size() < wanted) scratch->resize(wanted);
  float* first = scratch->data();
  while (reinterpret_cast<uintptr_t>(first) % (kLine * sizeof(float)) != 0) ++first;
  CpuDropout drops;
  const bool has_dropout = dropout.probability > 0;
  if (has_dropout) drops = CpuDropout::Of(*dropout.key, dropout.layer, dropout.probability);
  const int64_t cost = shape.places * shape.places * (shape.head_size / 8 + 1);
  threads.SplitWhole(shape.rows * shape.heads, cost, [&](int64_t begin, int64_t end) {
    float* const own = first + omp_get_thread_num() * room;
    Head head = HeadOf(shape);
    for (int64_t i = begin; i < end; ++i) {
      // Elements are counted from the minibatch's first row, so that a row loses the same weights on any thread, and in
      // any piece of its minibatch.
      if (has_dropout) {
        const uint64_t before = dropout.key->first_row * static_cast<uint64_t>(shape.heads);
        head.element = (before + static_cast<uint64_t>(i)) *
                       static_cast<uint64_t>(shape.places * shape.places);
      }
      f(head, has_dropout ? &drops : nullptr, i / shape.heads, i % shape.heads, own);
    }
  });
}

}  // namespace

void CpuAttention::Forward(const AttentionShape& shape, const AttentionDropout& dropout,
                           const float* qkv, float* y, float* log_sums) {
  ForHeads(threads_, shape, dropout, ForwardRoom(HeadOf(shape)), &scratch_,
           [&](const Head& head, const CpuDropout* drops, int64_t row, int64_t number, float* own) {
             const int64_t at = row * shape.places * shape.width() + number * head.size;
             const int64_t from = row * shape.places * head.qkv_step + number * head.size;
             float* const own_sums = log_sums == nullptr
                                         ? nullptr
                                         : log_sums + (row * shape.heads + number) * shape.places;
             ForwardHead(head, drops, {qkv + from, y + at, own_sums}, own);
           });
}

void CpuAttention::Backward(const AttentionShape& shape, const AttentionDropout& dropout,
                            const BackwardInput& in, float* dqkv) {
  ForHeads(threads_, shape, dropout, BackwardRoom(HeadOf(shape)), &scratch_,
           [&](const Head& head, const CpuDropout* drops, int64_t row, int64_t number, float* own) {
             const int64_t at = row * shape.places * shape.width() + number * head.size;
             const int64_t from = row * shape.places * head.qkv_step + number * head.size;
             const int64_t sums = (row * shape.heads + number) * shape.places;
             BackwardHead(head, drops,
                          {in.qkv + from, in.y + at, in.log_sums + sums, in.dy + at, dqkv + from},
                          own);
           });
}

}  // namespace tessera
