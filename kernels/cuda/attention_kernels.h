// What attention.cc runs in f32.
//
// A block has a tile of 32 places of a head of a row, and 64 of the head's columns at most, and goes along the tiles of
// 32 places on the other side. An iteration is a chunk of 32 columns of the products that make the scores of two tiles;
// behind the last chunk the weights follow, and what they are multiplied by. A head of more than 64 columns has its
// scores computed for each 64 of them.
#ifndef TESSERA_KERNELS_CUDA_ATTENTION_KERNELS_H_
#define TESSERA_KERNELS_CUDA_ATTENTION_KERNELS_H_

#include <cmath>
#include <cstdint>

#include "common/base/philox.h"
#include "kernels/cuda/tiles.h"
#include "kernels/dropout_key.h"
#include "kernels/exponential.h"

namespace tessera::cuda {

// A call's arguments, and where things lie in its arrays.
struct AttentionCall {
  int64_t rows, places, heads, size;
  bool causal;
  float scale;
  const float* qkv;
  const DropoutKey* key;  // read when the kernel runs; null: no dropout
  uint64_t layer;
  uint32_t drop;  // a number below it drops its weight
  float grows;    // what is kept, by so much

 protected:
  enum Part { kQuery, kKey, kValue };

  // Where a block is at work.
  struct Place {
    int64_t row, head, tile, column;
  };

  // The offset of the first value of a head's queries, keys or values, and below of its result. Places follow each
  // other by a step.
  TESSERA_HOST_DEVICE int64_t At(const Place& at, Part part) const {
    return (at.row * places * 3 + part) * heads * size + at.head * size;
  }
  TESSERA_HOST_DEVICE int64_t ResultAt(const Place& at) const {
    return (at.row * places * heads + at.head) * size;
  }
  TESSERA_HOST_DEVICE int64_t step() const { return 3 * result_step(); }
  TESSERA_HOST_DEVICE int64_t result_step() const { return heads * size; }
  TESSERA_HOST_DEVICE int64_t SumAt(const Place& at, int64_t place) const {
    return (at.row * heads + at.head) * places + place;
  }
  TESSERA_HOST_DEVICE bool Sees(int64_t query, int64_t key_place) const {
    return query < places && key_place < places && (!causal || key_place <= query);
  }

  // Whether the weight of a query for a key is dropped; below also of the one for the key behind it.
  TESSERA_HOST_DEVICE bool IsDropped(const Place& at, int64_t query, int64_t key_place) const {
    if (drop == 0) return false;
    const uint64_t element = ElementOf(at, query, key_place);
    return WordOf(NumbersOf(element), element) >> 8 < drop;
  }
  TESSERA_HOST_DEVICE void AreDropped(const Place& at, int64_t query, int64_t key_place,
                                      bool (&dropped)[2]) const {
    if (drop == 0) return;
    const uint64_t element = ElementOf(at, query, key_place);
    PhiloxBlock block = NumbersOf(element);
    dropped[0] = WordOf(block, element) >> 8 < drop;
    if (element % 4 == 3) block = NumbersOf(element + 1);
    dropped[1] = WordOf(block, element + 1) >> 8 < drop;
  }

 private:
  TESSERA_HOST_DEVICE uint64_t ElementOf(const Place& at, int64_t query, int64_t key_place) const {
    const uint64_t row = key->first_row + static_cast<uint64_t>(at.row);
    const auto n = static_cast<uint64_t>(places);
    return (row * static_cast<uint64_t>(heads) + static_cast<uint64_t>(at.head)) * n * n +
           static_cast<uint64_t>(query) * n + static_cast<uint64_t>(key_place);
  }
  TESSERA_HOST_DEVICE PhiloxBlock NumbersOf(uint64_t element) const {
    const uint64_t number = element / 4 % (uint64_t{1} << 40);
    return Philox(key->seed, tessera::Stream::kDropout, key->A(layer), key->B(layer, number));
  }
  TESSERA_HOST_DEVICE static uint32_t WordOf(const PhiloxBlock& block, uint64_t element) {
    const auto word = static_cast<int>(element % 4);
    uint32_t bits = block[0];
    // Places that the compiler knows, so that the block stays in registers.
    TESSERA_UNROLL for (int k = 1; k < 4; ++k) {
      if (k == word) bits = block[k];
    }
    return bits;
  }
};

// What those in f32 have in common.
struct AttentionTiles : AttentionCall {
  static constexpr int kThreads = 256;
  static constexpr int kTile = 32;     // places
  static constexpr int kChunk = 32;    // columns of a product's factors
  static constexpr int kColumns = 64;  // of a result
  static constexpr int kSide = 16;     // threads lie 16 by 16
  static constexpr bool Reduces(int) { return false; }

  // Rows are one Four longer than they must be: threads side by side read other banks.
  struct Chunk {
    Four<float> of[kTile][kChunk / 4 + 1];
  };
  struct Columns {
    Four<float> of[kTile][kColumns / 4];
  };
  struct Square {
    float of[kTile][kTile + 1];
  };

  int64_t blocks() const { return rows * heads * tiles() * parts(); }

 protected:
  // What an iteration works on: the tile on the other side, and the chunk.
  struct Iteration {
    int64_t tile;
    int64_t column;
    bool first, last;  // chunk
  };

  TESSERA_HOST_DEVICE int64_t tiles() const { return CeilDiv(places, kTile); }
  TESSERA_HOST_DEVICE int64_t parts() const { return CeilDiv(size, kColumns); }
  TESSERA_HOST_DEVICE int64_t chunks() const { return CeilDiv(size, kChunk); }
  TESSERA_HOST_DEVICE Place PlaceOf(int64_t block) const {
    const int64_t tile = block / parts();
    const int64_t head = tile / tiles();
    return {head / heads, head % heads, tile % tiles(), block % parts() * kColumns};
  }
  TESSERA_HOST_DEVICE Iteration IterationAt(int64_t number, int64_t first_tile) const {
    const int64_t count = chunks(), chunk = number % count;
    return {first_tile + number / count, chunk * kChunk, chunk == 0, chunk == count - 1};
  }
  // Fills a tile of kWidth columns, with zeros behind the last place and the last column. `from` is the head's.
  template <int kWidth, typename To>
  TESSERA_HOST_DEVICE void Load(const Lane& lane, const float* from, int64_t step, int64_t tile,
                                int64_t column, To* to) const {
    constexpr int kRows = kThreads / kWidth;
    const int c = lane.thread % kWidth, first = lane.thread / kWidth;
    const int64_t left = places - tile * kTile;
    const bool is_column = column + c < size;
    from += (tile * kTile + first) * step + column + c;
    TESSERA_UNROLL for (int r = 0; r < kTile; r += kRows) {
      to->of[first + r][c / 4].v[c % 4] = is_column && first + r < left ? *from : 0.0f;
      from += kRows * step;
    }
  }
  template <int kWidth, typename To>
  TESSERA_HOST_DEVICE void LoadPart(const Lane& lane, const Place& at, Part part, int64_t tile,
                                    int64_t column, To* to) const {
    Load<kWidth>(lane, qkv + At(at, part), step(), tile, column, to);
  }
  template <int kWidth, typename To>
  TESSERA_HOST_DEVICE void LoadResult(const Lane& lane, const Place& at, const float* from,
                                      int64_t tile, int64_t column, To* to) const {
    Load<kWidth>(lane, from + ResultAt(at), result_step(), tile, column, to);
  }

  // A thread's scores: of queries y and y + 16 for keys x and x + 16.
  static constexpr int kOwn = kTile / kSide;
  TESSERA_HOST_DEVICE static int X(const Lane& lane) { return lane.thread % kSide; }
  TESSERA_HOST_DEVICE static int Y(const Lane& lane) { return lane.thread / kSide; }

  TESSERA_HOST_DEVICE static void Clear(float (&sums)[kOwn][kOwn]) {
    TESSERA_UNROLL for (int a = 0; a < kOwn; ++a) {
      TESSERA_UNROLL for (int b = 0; b < kOwn; ++b) sums[a][b] = 0.0f;
    }
  }
  TESSERA_HOST_DEVICE static float MultiplyAdd(float a, float b, float sum) {
#ifdef __CUDA_ARCH__
    return __fmaf_rn(a, b, sum);
#else
    return sum + a * b;
#endif
  }
  // sums[a][b] += the product of a row of each side.
  TESSERA_HOST_DEVICE static void AddProducts(const Lane& lane, const Chunk& queries,
                                              const Chunk& keys, float (&sums)[kOwn][kOwn]) {
    TESSERA_UNROLL for (int c = 0; c < kChunk / 4; ++c) {
      Four<float> query[kOwn], of_key[kOwn];
      TESSERA_UNROLL for (int k = 0; k < kOwn; ++k) {
        query[k] = queries.of[Y(lane) + k * kSide][c];
        of_key[k] = keys.of[X(lane) + k * kSide][c];
      }
      TESSERA_UNROLL for (int a = 0; a < kOwn; ++a) {
        TESSERA_UNROLL for (int b = 0; b < kOwn; ++b) {
          TESSERA_UNROLL for (int k = 0; k < 4; ++k) {
            sums[a][b] = MultiplyAdd(query[a].v[k], of_key[b].v[k], sums[a][b]);
          }
        }
      }
    }
  }

  // A thread's results: of places y and y + 16, columns 4 x to 4 x + 3 of the block's.
  struct Results {
    float of[kOwn][4];
  };
  TESSERA_HOST_DEVICE static void Clear(Results* results) {
    TESSERA_UNROLL for (int a = 0; a < kOwn; ++a) {
      TESSERA_UNROLL for (int k = 0; k < 4; ++k) results->of[a][k] = 0.0f;
    }
  }
  TESSERA_HOST_DEVICE static void Add(float weight, const Four<float>& columns, int a,
                                      Results* results) {
    TESSERA_UNROLL for (int k = 0; k < 4; ++k) {
      results->of[a][k] = MultiplyAdd(weight, columns.v[k], results->of[a][k]);
    }
  }
  // Stores those that there are. `to` is the head's; `factors` are the two places'.
  TESSERA_HOST_DEVICE void Store(const Lane& lane, const Place& at, const Results& results,
                                 const float (&factors)[kOwn], float* to, int64_t step) const {
    TESSERA_UNROLL for (int a = 0; a < kOwn; ++a) {
      const int64_t place = at.tile * kTile + Y(lane) + a * kSide;
      const int64_t column = at.column + 4 * X(lane);
      TESSERA_UNROLL for (int k = 0; k < 4; ++k) {
        if (place < places && column + k < size) {
          to[place * step + column + k] = results.of[a][k] * factors[a];
        }
      }
    }
  }
};

// A block's tile is of queries.
struct AttentionForward : AttentionTiles {
  static constexpr int kPhases = 4;
  struct Shared {
    Chunk queries, keys;
    Columns values;
    Square scores, weights;
  };
  struct Own {
    float scores[kOwn][kOwn];
    float largest[kOwn], sum[kOwn];
    Results results;
  };
  float* y;
  float* log_sums;  // may be null

  TESSERA_HOST_DEVICE int64_t Iterations(int64_t block) const {
    return (causal ? PlaceOf(block).tile + 1 : tiles()) * chunks();
  }

  template <int phase>
  TESSERA_HOST_DEVICE void Run(const Lane& lane, Shared& shared, Own& own) const {
    const Place at = PlaceOf(lane.block);
    const Iteration now = IterationAt(lane.iteration, 0);
    if constexpr (phase == 0) {
      if (lane.iteration == 0) Begin(&own);
      LoadPart<kChunk>(lane, at, kQuery, at.tile, now.column, &shared.queries);
      LoadPart<kChunk>(lane, at, kKey, now.tile, now.column, &shared.keys);
      if (now.last) LoadPart<kColumns>(lane, at, kValue, now.tile, at.column, &shared.values);
    } else if constexpr (phase == 1) {
      if (now.first) Clear(own.scores);
      AddProducts(lane, shared.queries, shared.keys, own.scores);
      if (now.last) PutScores(lane, at, now, own, &shared);
    } else if constexpr (phase == 2) {
      if (now.last) Weigh(lane, at, now, &shared, &own);
    } else {
      if (now.last) AddValues(lane, shared, &own);
      if (lane.iteration + 1 == Iterations(lane.block)) End(lane, at, own);
    }
  }

 private:
  TESSERA_HOST_DEVICE static void Begin(Own* own) {
    Clear(&own->results);
    TESSERA_UNROLL for (int a = 0; a < kOwn; ++a) {
      own->largest[a] = -INFINITY;
      own->sum[a] = 0.0f;
    }
  }
  TESSERA_HOST_DEVICE void PutScores(const Lane& lane, const Place& at, const Iteration& now,
                                     const Own& own, Shared* shared) const {
    TESSERA_UNROLL for (int a = 0; a < kOwn; ++a) {
      TESSERA_UNROLL for (int b = 0; b < kOwn; ++b) {
        const int i = Y(lane) + a * kSide, j = X(lane) + b * kSide;
        const bool sees = now.tile * kTile + j < places &&
                          (!causal || now.tile * kTile + j <= at.tile * kTile + i);
        shared->scores.of[i][j] = sees ? own.scores[a][b] * scale : -INFINITY;
      }
    }
  }
  // A dropped weight is marked by its sign: it counts in the sum.
  TESSERA_HOST_DEVICE void Weigh(const Lane& lane, const Place& at, const Iteration& now,
                                 Shared* shared, Own* own) const {
    TESSERA_UNROLL for (int a = 0; a < kOwn; ++a) {
      const int i = Y(lane) + a * kSide;
      float largest = own->largest[a];
      TESSERA_UNROLL_8 for (int j = 0; j < kTile; ++j) {
        const float score = shared->scores.of[i][j];
        largest = score > largest ? score : largest;
      }
      const float shrinks = FastExp(own->largest[a] - largest);
      own->largest[a] = largest;
      own->sum[a] *= shrinks;
      TESSERA_UNROLL for (int k = 0; k < 4; ++k) own->results.of[a][k] *= shrinks;
      TESSERA_UNROLL for (int b = 0; b < kOwn; ++b) {
        const int j = X(lane) + b * kSide;
        const float weight = FastExp(shared->scores.of[i][j] - largest);
        const bool dropped = IsDropped(at, at.tile * kTile + i, now.tile * kTile + j);
        shared->weights.of[i][j] = dropped ? -weight : weight;
      }
    }
  }
  TESSERA_HOST_DEVICE static void AddValues(const Lane& lane, const Shared& shared, Own* own) {
    TESSERA_UNROLL_8 for (int j = 0; j < kTile; ++j) {
      const Four<float> columns = shared.values.of[j][X(lane)];
      TESSERA_UNROLL for (int a = 0; a < kOwn; ++a) {
        const float weight = shared.weights.of[Y(lane) + a * kSide][j];
        own->sum[a] += std::fabs(weight);
        Add(weight < 0.0f ? 0.0f : weight, columns, a, &own->results);
      }
    }
  }
  TESSERA_HOST_DEVICE void End(const Lane& lane, const Place& at, const Own& own) const {
    float factors[kOwn];
    TESSERA_UNROLL for (int a = 0; a < kOwn; ++a) factors[a] = grows / own.sum[a];
    Store(lane, at, own.results, factors, y + ResultAt(at), result_step());
    if (log_sums == nullptr || at.column > 0 || X(lane) > 0) return;
    TESSERA_UNROLL for (int a = 0; a < kOwn; ++a) {
      const int64_t place = at.tile * kTile + Y(lane) + a * kSide;
      if (place >= places) continue;
      log_sums[SumAt(at, place)] = static_cast<float>(static_cast<double>(own.largest[a]) +
                                                      std::log(static_cast<double>(own.sum[a])));
    }
  }
};

// shares[row, head, place] = dy . y of the place.
struct AttentionShares : OnePhase {
  int64_t count, places, heads, size;
  const float* y;
  const float* dy;
  float* shares;

  int64_t blocks() const { return CeilDiv(count, kThreads); }

  template <int phase>
  TESSERA_HOST_DEVICE void Run(const Lane& lane, OnePhase::Shared&, OnePhase::Own&) const {
    const int64_t i = lane.block * kThreads + lane.thread;
    if (i >= count) return;
    const int64_t head = i / places;
    const int64_t at = ((head / heads * places + i % places) * heads + head % heads) * size;
    float sum = 0;
    TESSERA_UNROLL_4 for (int64_t c = 0; c < size; ++c) sum += dy[at + c] * y[at + c];
    shares[i] = sum;
  }
};

// What both backward kernels have: scores and the slopes of weights, in the same iterations.
struct AttentionBackward : AttentionTiles {
  static constexpr int kPhases = 3;
  struct Chunks {
    Chunk queries, keys, slopes, values;
  };
  struct Products {
    float scores[kOwn][kOwn], slopes[kOwn][kOwn];
  };
  const float* log_sums;
  const float* shares;
  const float* dy;
  float* dqkv;

 protected:
  TESSERA_HOST_DEVICE void LoadChunks(const Lane& lane, const Place& at, int64_t queries,
                                      int64_t keys, int64_t column, Chunks* to) const {
    LoadPart<kChunk>(lane, at, kQuery, queries, column, &to->queries);
    LoadPart<kChunk>(lane, at, kKey, keys, column, &to->keys);
    LoadResult<kChunk>(lane, at, dy, queries, column, &to->slopes);
    LoadPart<kChunk>(lane, at, kValue, keys, column, &to->values);
  }
  TESSERA_HOST_DEVICE static void AddChunks(const Lane& lane, const Iteration& now,
                                            const Chunks& chunks, Products* products) {
    if (now.first) {
      Clear(products->scores);
      Clear(products->slopes);
    }
    AddProducts(lane, chunks.queries, chunks.keys, products->scores);
    AddProducts(lane, chunks.slopes, chunks.values, products->slopes);
  }
  // Calls f(query of the tile, key of the tile, weight behind the dropout, slope of the score) for a thread's own.
  template <typename F>
  TESSERA_HOST_DEVICE void ForOwn(const Lane& lane, const Place& at, int64_t queries, int64_t keys,
                                  const Products& products, const F& f) const {
    TESSERA_UNROLL for (int a = 0; a < kOwn; ++a) {
      const int i = Y(lane) + a * kSide;
      const int64_t query = queries * kTile + i;
      const float log_sum = query < places ? log_sums[SumAt(at, query)] : 0.0f;
      const float share = query < places ? shares[SumAt(at, query)] : 0.0f;
      TESSERA_UNROLL for (int b = 0; b < kOwn; ++b) {
        const int j = X(lane) + b * kSide;
        const int64_t of_key = keys * kTile + j;
        if (!Sees(query, of_key)) {
          f(i, j, 0.0f, 0.0f);
          continue;
        }
        const float weight = FastExp(products.scores[a][b] * scale - log_sum);
        const float factor = IsDropped(at, query, of_key) ? 0.0f : grows;
        f(i, j, weight * factor, weight * (factor * products.slopes[a][b] - share));
      }
    }
  }
};

// A block's tile is of queries.
struct AttentionQueryGradients : AttentionBackward {
  struct Shared {
    Chunks chunks;
    Columns keys;
    Square slopes;
  };
  struct Own {
    Products products;
    Results results;
  };

  TESSERA_HOST_DEVICE int64_t Iterations(int64_t block) const {
    return (causal ? PlaceOf(block).tile + 1 : tiles()) * chunks();
  }

  template <int phase>
  TESSERA_HOST_DEVICE void Run(const Lane& lane, Shared& shared, Own& own) const {
    const Place at = PlaceOf(lane.block);
    const Iteration now = IterationAt(lane.iteration, 0);
    if constexpr (phase == 0) {
      if (lane.iteration == 0) Clear(&own.results);
      LoadChunks(lane, at, at.tile, now.tile, now.column, &shared.chunks);
      if (now.last) LoadPart<kColumns>(lane, at, kKey, now.tile, at.column, &shared.keys);
    } else if constexpr (phase == 1) {
      AddChunks(lane, now, shared.chunks, &own.products);
      if (!now.last) return;
      ForOwn(lane, at, at.tile, now.tile, own.products,
             [&](int i, int j, float, float slope) { shared.slopes.of[i][j] = slope; });
    } else {
      if (!now.last) return;
      TESSERA_UNROLL_8 for (int j = 0; j < kTile; ++j) {
        const Four<float> columns = shared.keys.of[j][X(lane)];
        TESSERA_UNROLL for (int a = 0; a < kOwn; ++a) {
          Add(shared.slopes.of[Y(lane) + a * kSide][j], columns, a, &own.results);
        }
      }
      if (lane.iteration + 1 < Iterations(lane.block)) return;
      Store(lane, at, own.results, {scale, scale}, dqkv + At(at, kQuery), step());
    }
  }
};

// A block's tile is of keys, and of their values.
struct AttentionKeyGradients : AttentionBackward {
  struct Shared {
    Chunks chunks;
    Columns queries, slopes_of_results;
    Square weights, slopes;
  };
  struct Own {
    Products products;
    Results keys, values;
  };

  TESSERA_HOST_DEVICE int64_t Iterations(int64_t block) const {
    return (tiles() - FirstTile(PlaceOf(block))) * chunks();
  }

  template <int phase>
  TESSERA_HOST_DEVICE void Run(const Lane& lane, Shared& shared, Own& own) const {
    const Place at = PlaceOf(lane.block);
    const Iteration now = IterationAt(lane.iteration, FirstTile(at));
    if constexpr (phase == 0) {
      if (lane.iteration == 0) {
        Clear(&own.keys);
        Clear(&own.values);
      }
      LoadChunks(lane, at, now.tile, at.tile, now.column, &shared.chunks);
      if (!now.last) return;
      LoadPart<kColumns>(lane, at, kQuery, now.tile, at.column, &shared.queries);
      LoadResult<kColumns>(lane, at, dy, now.tile, at.column, &shared.slopes_of_results);
    } else if constexpr (phase == 1) {
      AddChunks(lane, now, shared.chunks, &own.products);
      if (!now.last) return;
      ForOwn(lane, at, now.tile, at.tile, own.products,
             [&](int i, int j, float weight, float slope) {
               shared.weights.of[i][j] = weight;
               shared.slopes.of[i][j] = slope;
             });
    } else {
      if (!now.last) return;
      TESSERA_UNROLL_4 for (int i = 0; i < kTile; ++i) {
        const Four<float> query = shared.queries.of[i][X(lane)];
        const Four<float> slope = shared.slopes_of_results.of[i][X(lane)];
        TESSERA_UNROLL for (int a = 0; a < kOwn; ++a) {
          Add(shared.slopes.of[i][Y(lane) + a * kSide], query, a, &own.keys);
          Add(shared.weights.of[i][Y(lane) + a * kSide], slope, a, &own.values);
        }
      }
      if (lane.iteration + 1 < Iterations(lane.block)) return;
      Store(lane, at, own.keys, {scale, scale}, dqkv + At(at, kKey), step());
      Store(lane, at, own.values, {1.0f, 1.0f}, dqkv + At(at, kValue), step());
    }
  }

 private:
  TESSERA_HOST_DEVICE int64_t FirstTile(const Place& at) const { return causal ? at.tile : 0; }
};

}  // namespace tessera::cuda

#endif  // TESSERA_KERNELS_CUDA_ATTENTION_KERNELS_H_
