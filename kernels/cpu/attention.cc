#include "kernels/cpu/attention.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/attention_blocks.h"
#include "kernels/cpu/block_product.h"
#include "kernels/cpu/dropout.h"

namespace tessera {
namespace {

// Places of a block, and those of it whose scores are multiplied together.
constexpr int64_t kBlock = kAttentionBlock;
constexpr int64_t kStrip = 8;

// Where a head of a row has its values.
struct Head {
  int64_t places, size, padded;
  int64_t qkv_step, y_step;  // from a place to the next
  bool causal;
  float scale;       // of scores
  uint64_t element;  // of the dropout: the first weight's

  int64_t blocks() const { return (places + kBlock - 1) / kBlock; }
  int64_t begin(int64_t block) const { return block * kBlock; }
  int64_t count(int64_t block) const { return std::min(kBlock, places - begin(block)); }
  // The keys of a block that a strip of queries computes with: what its last one sees.
  int64_t Seen(int64_t query_block, int64_t key_block, int64_t strip_end) const {
    return IsCut(query_block, key_block) ? std::min(strip_end, count(key_block)) : count(key_block);
  }
  // Whether queries of the block see a part of its keys only.
  bool IsCut(int64_t query_block, int64_t key_block) const {
    return causal && query_block == key_block;
  }
};

// Hands out the parts of a thread's scratch.
class Room {
 public:
  Room(const Head& head, float* scratch) : rows_(kBlock * head.padded), next_(scratch) {}
  float* Rows() { return Take(rows_); }  // a block of places by the head's size
  float* Square() { return Take(kBlock * kBlock); }
  float* Take(int64_t count) {
    float* const taken = next_;
    next_ += count;
    return taken;
  }

 private:
  const int64_t rows_;
  float* next_;
};
int64_t ForwardRoom(const Head& head) { return 4 * kBlock * head.padded + kBlock * kBlock; }
int64_t BackwardRoom(const Head& head) {
  return 8 * kBlock * head.padded + 4 * kBlock * kBlock + PadToLanes(head.places);
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

// `dropout` is null for none.
void ForwardHead(const Head& head, const CpuDropout* dropout, const ForwardCall& call,
                 float* scratch) {
  Room room(head, scratch);
  float* const q = room.Rows();
  float* const k = room.Rows();  // turned
  float* const v = room.Rows();
  float* const sums = room.Rows();
  float* const weights = room.Square();
  const int64_t width = head.qkv_step / 3;
  for (int64_t queries = 0; queries < head.blocks(); ++queries) {
    const int64_t first = head.begin(queries), count = head.count(queries);
    const float* const from = call.qkv + first * head.qkv_step;
    CopyPlaces({count, head.size, head.padded}, from, head.qkv_step, head.scale, q);
    SoftmaxState states[kBlock];
    const int64_t end = head.causal ? queries + 1 : head.blocks();
    for (int64_t keys = 0; keys < end; ++keys) {
      const PlacesShape of_keys{head.count(keys), head.size, head.padded};
      const float* const key = call.qkv + head.begin(keys) * head.qkv_step + width;
      if (head.blocks() > 1 || queries == 0) {
        TurnPlaces(of_keys, key, head.qkv_step, k);
        CopyPlaces(of_keys, key + width, head.qkv_step, 1.0f, v);
      }
      for (int64_t strip = 0; strip < count; strip += kStrip) {
        const int64_t rows = std::min(kStrip, count - strip);
        const int64_t seen = head.Seen(queries, keys, strip + rows);
        float* const own = weights + strip * kBlock;
        float* const sum = sums + strip * head.padded;
        MultiplyBlock(rows, PadToLanes(seen), head.size,
                      {q + strip * head.padded, head.padded, 1, k, kBlock}, false, own, kBlock);
        for (int64_t i = 0; i < rows; ++i) {
          const int64_t place = strip + i;
          const int64_t sees = head.Seen(queries, keys, place + 1);
          const float shrinks =
              WeighScores(sees, PadToLanes(seen), own + i * kBlock, &states[place]);
          if (keys > 0) ScaleRow(head.padded, shrinks, sum + i * head.padded);
          if (dropout == nullptr) continue;
          dropout->Apply(head.element + static_cast<uint64_t>((first + place) * head.places +
                                                              head.begin(keys)),
                         sees, own + i * kBlock, own + i * kBlock);
        }
        MultiplyBlock(rows, head.padded, seen, {own, kBlock, 1, v, head.padded}, keys > 0, sum,
                      head.padded);
      }
    }
    for (int64_t i = 0; i < count; ++i) {
      const SoftmaxState& state = states[i];
      StoreRow(head.size, 1.0f / state.sum, sums + i * head.padded, false,
               call.y + (first + i) * head.y_step);
      if (call.log_sums == nullptr) continue;
      call.log_sums[first + i] = static_cast<float>(static_cast<double>(state.largest) +
                                                    std::log(static_cast<double>(state.sum)));
    }
  }
}

void BackwardHead(const Head& head, const CpuDropout* dropout, const BackwardCall& call,
                  float* scratch) {
  Room room(head, scratch);
  float* const q = room.Rows();
  float* const dy = room.Rows();
  float* const k = room.Rows();
  float* const turned_k = room.Rows();
  float* const turned_v = room.Rows();
  float* const dk = room.Rows();
  float* const dv = room.Rows();
  float* const dq = room.Rows();
  float* const weights = room.Square();
  float* const slopes = room.Square();  // of scores
  float* const kept = room.Square();    // weights behind the dropout
  float* const factors = room.Square();
  float* const shares = room.Take(PadToLanes(head.places));  // of each query: dy . y
  const int64_t width = head.qkv_step / 3;
  for (int64_t keys = 0; keys < head.blocks(); ++keys) {
    const int64_t key_count = head.count(keys);
    const PlacesShape of_keys{key_count, head.size, head.padded};
    const float* const key = call.qkv + head.begin(keys) * head.qkv_step + width;
    CopyPlaces(of_keys, key, head.qkv_step, 1.0f, k);
    TurnPlaces(of_keys, key, head.qkv_step, turned_k);
    TurnPlaces(of_keys, key + width, head.qkv_step, turned_v);
    const int64_t first_queries = head.causal ? keys : 0;
    for (int64_t queries = first_queries; queries < head.blocks(); ++queries) {
      const int64_t first = head.begin(queries), count = head.count(queries);
      const PlacesShape of_queries{count, head.size, head.padded};
      CopyPlaces(of_queries, call.qkv + first * head.qkv_step, head.qkv_step, head.scale, q);
      CopyPlaces(of_queries, call.dy + first * head.y_step, head.y_step, 1.0f, dy);
      if (keys == 0) {
        for (int64_t i = first; i < first + count; ++i) {
          shares[i] = Dot(head.size, call.dy + i * head.y_step, call.y + i * head.y_step);
        }
      }
      for (int64_t strip = 0; strip < count; strip += kStrip) {
        const int64_t rows = std::min(kStrip, count - strip);
        const int64_t seen = head.Seen(queries, keys, strip + rows), padded = PadToLanes(seen);
        const int64_t at = strip * kBlock;
        MultiplyBlock(rows, padded, head.size,
                      {q + strip * head.padded, head.padded, 1, turned_k, kBlock}, false,
                      weights + at, kBlock);
        MultiplyBlock(rows, padded, head.size,
                      {dy + strip * head.padded, head.padded, 1, turned_v, kBlock}, false,
                      slopes + at, kBlock);
        for (int64_t i = 0; i < rows; ++i) {
          const int64_t place = first + strip + i, row = at + i * kBlock;
          const int64_t sees = head.Seen(queries, keys, strip + i + 1);
          if (dropout != nullptr) {
            dropout->Factors(
                head.element + static_cast<uint64_t>(place * head.places + head.begin(keys)), sees,
                factors + row);
          }
          SlopeOfScores(sees, padded, {call.log_sums[place], shares[place]},
                        dropout == nullptr ? nullptr : factors + row, weights + row, slopes + row,
                        kept + row);
        }
        MultiplyBlock(rows, head.padded, seen, {slopes + at, kBlock, 1, k, head.padded}, false, dq,
                      head.padded);
        for (int64_t i = 0; i < rows; ++i) {
          StoreRow(head.size, head.scale, dq + i * head.padded, keys > 0,
                   call.dqkv + (first + strip + i) * head.qkv_step);
        }
      }
      for (int64_t strip = 0; strip < key_count; strip += kStrip) {
        // Queries in front of the strip do not see it.
        const int64_t begin = head.IsCut(queries, keys) ? strip : 0;
        const int64_t rows = std::min(kStrip, key_count - strip), at = begin * kBlock + strip;
        const bool adds = queries > first_queries;
        MultiplyBlock(rows, head.padded, count - begin,
                      {kept + at, 1, kBlock, dy + begin * head.padded, head.padded}, adds,
                      dv + strip * head.padded, head.padded);
        MultiplyBlock(rows, head.padded, count - begin,
                      {slopes + at, 1, kBlock, q + begin * head.padded, head.padded}, adds,
                      dk + strip * head.padded, head.padded);
      }
    }
    for (int64_t i = 0; i < key_count; ++i) {
      float* const to = call.dqkv + (head.begin(keys) + i) * head.qkv_step + width;
      StoreRow(head.size, 1.0f, dk + i * head.padded, false, to);
      StoreRow(head.size, 1.0f, dv + i * head.padded, false, to + width);
    }
  }
}

Head HeadOf(const AttentionShape& shape) {
  Head head;
  head.places = shape.places;
  head.size = shape.head_size;
  head.padded = PadToLanes(shape.head_size);
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
  const auto wanted = static_cast<size_t>(room * threads.count());
  if (scratch->size() < wanted) scratch->resize(wanted);
  CpuDropout drops;
  const bool has_dropout = dropout.probability > 0;
  if (has_dropout) drops = CpuDropout::Of(*dropout.key, dropout.layer, dropout.probability);
  const int64_t cost = shape.places * shape.places * (shape.head_size / 8 + 1);
  threads.SplitWhole(shape.rows * shape.heads, cost, [&](int64_t begin, int64_t end) {
    float* const own = scratch->data() + omp_get_thread_num() * room;
    Head head = HeadOf(shape);
    for (int64_t i = begin; i < end; ++i) {
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
