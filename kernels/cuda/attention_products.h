// What attention.cc runs in bf16: attention by tensor cores, of heads of up to 64 columns.
//
// A block has 64 places of a head of a row, 16 for each of its four warps, and goes along the tiles of 32 places on the
// other side, one in an iteration. Factors are rounded to bf16, the weights among them; scores, sums, the softmax and
// the slopes of scores are f32. Nothing but factors of products lies in shared memory: what a product makes stays in
// the registers of those threads whose factor of the next product it is (Dao: FlashAttention-2, arXiv 2307.08691).
#ifndef TESSERA_KERNELS_CUDA_ATTENTION_PRODUCTS_H_
#define TESSERA_KERNELS_CUDA_ATTENTION_PRODUCTS_H_

#include <cmath>
#include <cstdint>

#include "kernels/cuda/attention_kernels.h"
#include "kernels/cuda/tiles.h"
#include "kernels/cuda/warp_product.h"
#include "kernels/exponential.h"

namespace tessera::cuda {

// What all of them have in common. kSize: the head's columns, of which those behind `size` are zeros; 32 or 64.
template <int kSize>
struct AttentionProducts : AttentionCall {
  static constexpr int kThreads = 128;
  static constexpr int kOwnTile = 64;  // places of a block
  static constexpr int kTile = 32;     // places on the other side
  static constexpr int kResident = 2;  // blocks at once, so that nothing is spilled
  static constexpr bool Reduces(int) { return false; }

  // Factors have 16 terms, and right ones and sums 8 columns.
  static constexpr int kTerms = kSize / 16;      // of a product over a head's columns
  static constexpr int kTileTerms = kTile / 16;  // of a product over the places of a tile
  static constexpr int kScores = kTile / 8;
  static constexpr int kResults = kSize / 8;
  static constexpr int kRights = kSize / 4;               // of either product
  static constexpr int kUnits = kTile / 2 * (kSize / 4);  // of a tile: two places by four columns
  static_assert(kTerms * kScores == kRights && kTileTerms * kResults == kRights);

  // Two bf16 in a word; rows are four words longer than they must be: the threads of a warp read other banks.
  struct ByPlace {
    uint32_t of[kTile][kSize / 2 + 4];  // two columns of a place
  };
  struct ByColumn {
    uint32_t of[kSize][kTile / 2 + 4];  // two places of a column
  };

  bool is_wide;  // columns are read by fours, from multiples of 16 bytes

  int64_t blocks() const { return rows * heads * own_tiles(); }

 protected:
  using Place = AttentionCall::Place;

  TESSERA_HOST_DEVICE int64_t own_tiles() const { return CeilDiv(places, kOwnTile); }
  TESSERA_HOST_DEVICE int64_t tiles() const { return CeilDiv(places, kTile); }
  TESSERA_HOST_DEVICE Place PlaceOf(int64_t block) const {
    const int64_t head = block / own_tiles();
    return {head / heads, head % heads, block % own_tiles(), 0};
  }
  // Tiles that hold something which the block's queries see.
  TESSERA_HOST_DEVICE int64_t TilesSeen(const Place& at) const {
    const int64_t seen = CeilDiv((at.tile + 1) * kOwnTile, kTile);
    return causal && seen < tiles() ? seen : tiles();
  }

  TESSERA_HOST_DEVICE static int Row(const Lane& lane) { return lane.thread % 32 / 4; }
  TESSERA_HOST_DEVICE static int Pair(const Lane& lane) { return lane.thread % 4; }
  // The block's first of a thread's two places, which are 8 apart; and as a place of the row.
  TESSERA_HOST_DEVICE static int OwnRow(const Lane& lane) {
    return lane.thread / 32 * 16 + Row(lane);
  }
  TESSERA_HOST_DEVICE static int64_t OwnPlace(const Lane& lane, const Place& at, int which) {
    return at.tile * kOwnTile + OwnRow(lane) + 8 * which;
  }

  TESSERA_HOST_DEVICE static void LoadColumns(const float* from, int64_t left, bool wide,
                                              float (&to)[4]) {
    if (wide) {
      TESSERA_UNROLL for (int k = 0; k < 4; ++k) to[k] = 0.0f;
      if (left > 0) LoadFour(from, true, to);
    } else {
      TESSERA_UNROLL for (int k = 0; k < 4; ++k) to[k] = k < left ? from[k] : 0.0f;
    }
  }
  // Calls f(two places of a tile by their first one, the first of four columns, the values of both), zeros behind the
  // last place and the last column, for the unit of a tile that is a thread's. `from` is the head's.
  template <typename F>
  TESSERA_HOST_DEVICE void Read(const Lane& lane, const float* from, int64_t step, int64_t tile,
                                int unit, const F& f) const {
    unit += lane.thread;
    const int first = unit / 4 % (kTile / 2) * 2, column = 4 * (unit / (2 * kTile) * 4 + unit % 4);
    float values[2][4];
    TESSERA_UNROLL for (int r = 0; r < 2; ++r) {
      const int64_t place = tile * kTile + first + r;
      LoadColumns(from + place * step + column, place < places ? size - column : 0, is_wide,
                  values[r]);
    }
    f(first, column, values);
  }
  TESSERA_HOST_DEVICE static void Put(int first, int column, const float (&values)[2][4],
                                      ByPlace* to) {
    TESSERA_UNROLL for (int r = 0; r < 2; ++r) {
      to->of[first + r][column / 2] = PackBf16(values[r][0], values[r][1]);
      to->of[first + r][column / 2 + 1] = PackBf16(values[r][2], values[r][3]);
    }
  }
  TESSERA_HOST_DEVICE static void Put(int first, int column, const float (&values)[2][4],
                                      ByColumn* to) {
    TESSERA_UNROLL for (int k = 0; k < 4; ++k) {
      to->of[column + k][first / 2] = PackBf16(values[0][k], values[1][k]);
    }
  }
  // Fills a tile in one order, or in both, where what a thread has read goes to two places: one unit after the other
  // then, as registers are short.
  template <typename To>
  TESSERA_HOST_DEVICE void Fill(const Lane& lane, const float* from, int64_t step, int64_t tile,
                                To* to) const {
    TESSERA_UNROLL for (int unit = 0; unit < kUnits; unit += kThreads) {
      Read(lane, from, step, tile, unit, [&](int first, int column, const float(&values)[2][4]) {
        Put(first, column, values, to);
      });
    }
  }
  TESSERA_HOST_DEVICE void Fill(const Lane& lane, const float* from, int64_t step, int64_t tile,
                                ByPlace* by_place, ByColumn* by_column) const {
    TESSERA_UNROLL_1 for (int unit = 0; unit < kUnits; unit += kThreads) {
      Read(lane, from, step, tile, unit, [&](int first, int column, const float(&values)[2][4]) {
        Put(first, column, values, by_place);
        Put(first, column, values, by_column);
      });
    }
  }
  TESSERA_HOST_DEVICE const float* PartOf(const Place& at, Part part) const {
    return qkv + At(at, part);
  }
  // The warp's own places as left factors of products over columns. `from` is the head's.
  TESSERA_HOST_DEVICE void LoadOwn(const Lane& lane, const Place& at, const float* from,
                                   int64_t step, LeftFactor (&to)[kTerms]) const {
    TESSERA_UNROLL for (int k = 0; k < kTerms; ++k) {
      TESSERA_UNROLL for (int which = 0; which < 2; ++which) {
        const int64_t place = OwnPlace(lane, at, which);
        TESSERA_UNROLL for (int further = 0; further < 2; ++further) {
          const int64_t column = 16 * k + 8 * further + 2 * Pair(lane);
          const float* const value = from + place * step + column;
          const bool is_place = place < places;
          to[k].v[which + 2 * further] = PackBf16(is_place && column < size ? value[0] : 0.0f,
                                                  is_place && column + 1 < size ? value[1] : 0.0f);
        }
      }
    }
  }
  // Right factors of a product over the head's columns: [term][8 places of the tile].
  TESSERA_HOST_DEVICE static void ReadRight(const Lane& lane, const ByPlace& from,
                                            RightFactor (&to)[kRights]) {
    TESSERA_UNROLL for (int k = 0; k < kTerms; ++k) {
      TESSERA_UNROLL for (int n = 0; n < kScores; ++n) {
        const uint32_t* const words = &from.of[8 * n + Row(lane)][8 * k + Pair(lane)];
        to[k * kScores + n] = {{words[0], words[4]}};
      }
    }
  }
  // Right factors of a product over the tile's places: [term][8 columns].
  TESSERA_HOST_DEVICE static void ReadRight(const Lane& lane, const ByColumn& from,
                                            RightFactor (&to)[kRights]) {
    TESSERA_UNROLL for (int k = 0; k < kTileTerms; ++k) {
      TESSERA_UNROLL for (int n = 0; n < kResults; ++n) {
        const uint32_t* const words = &from.of[8 * n + Row(lane)][8 * k + Pair(lane)];
        to[k * kResults + n] = {{words[0], words[4]}};
      }
    }
  }

  template <int count>
  TESSERA_HOST_DEVICE static void Clear(ProductSums (&sums)[count]) {
    TESSERA_UNROLL for (int n = 0; n < count; ++n) sums[n] = {};
  }
  // The factors that follow in order are taken by `multiply`, which the launch gives: of a warp together.
  template <typename Multiply>
  TESSERA_HOST_DEVICE static void ScoreProducts(const Multiply& multiply,
                                                const LeftFactor (&left)[kTerms],
                                                const RightFactor (&right)[kRights],
                                                ProductSums (&sums)[kScores]) {
    TESSERA_UNROLL for (int k = 0; k < kTerms; ++k) {
      TESSERA_UNROLL for (int n = 0; n < kScores; ++n) {
        multiply(left[k], right[k * kScores + n], &sums[n]);
      }
    }
  }
  template <typename Multiply>
  TESSERA_HOST_DEVICE static void ResultProducts(const Multiply& multiply,
                                                 const LeftFactor (&left)[kTileTerms],
                                                 const RightFactor (&right)[kRights],
                                                 ProductSums (&sums)[kResults]) {
    TESSERA_UNROLL for (int k = 0; k < kTileTerms; ++k) {
      TESSERA_UNROLL for (int n = 0; n < kResults; ++n) {
        multiply(left[k], right[k * kResults + n], &sums[n]);
      }
    }
  }
  // Sums are where a left factor of 16 terms wants them.
  TESSERA_HOST_DEVICE static void AsLeftFactors(const ProductSums (&sums)[kScores],
                                                LeftFactor (&to)[kTileTerms]) {
    TESSERA_UNROLL for (int k = 0; k < kTileTerms; ++k) {
      TESSERA_UNROLL for (int i = 0; i < 4; ++i) {
        const ProductSums& from = sums[2 * k + i / 2];
        to[k].v[i] = PackBf16(from.v[i % 2 * 2], from.v[i % 2 * 2 + 1]);
      }
    }
  }
  // Calls f(which of the thread's places, entry of the tile, which of two entries side by side, value) for each of its
  // sums.
  template <typename F>
  TESSERA_HOST_DEVICE static void ForEach(const Lane& lane, ProductSums (&sums)[kScores],
                                          const F& f) {
    TESSERA_UNROLL for (int n = 0; n < kScores; ++n) {
      TESSERA_UNROLL for (int i = 0; i < 4; ++i) {
        f(i / 2, 8 * n + 2 * Pair(lane) + i % 2, i % 2, sums[n].v[i]);
      }
    }
  }
  // Stores those that there are. `to` is the head's.
  TESSERA_HOST_DEVICE void StoreOwn(const Lane& lane, const Place& at,
                                    const ProductSums (&results)[kResults],
                                    const float (&factors)[2], float* to, int64_t step) const {
    TESSERA_UNROLL for (int n = 0; n < kResults; ++n) {
      TESSERA_UNROLL for (int i = 0; i < 4; ++i) {
        const int64_t place = OwnPlace(lane, at, i / 2);
        const int64_t column = 8 * n + 2 * Pair(lane) + i % 2;
        if (place < places && column < size) {
          to[place * step + column] = results[n].v[i] * factors[i / 2];
        }
      }
    }
  }
};

// A block's own places are queries.
template <int kSize>
struct AttentionForwardProducts : AttentionProducts<kSize> {
  using Base = AttentionProducts<kSize>;
  using typename Base::Place;
  static constexpr int kPhases = 5;
  static constexpr bool Multiplies(int phase) { return phase == 1 || phase == 3; }

  struct Shared {
    typename Base::ByPlace keys;
    typename Base::ByColumn values;
    float largest[Base::kOwnTile][4];
    float sums[Base::kOwnTile][4];
  };
  struct Own {
    LeftFactor queries[Base::kTerms];
    RightFactor right[Base::kRights];
    ProductSums scores[Base::kScores];
    LeftFactor weights[Base::kTileTerms];
    ProductSums results[Base::kResults];
    float largest[2], sum[2];  // the sum is of the thread's own columns
  };
  float* y;
  float* log_sums;  // may be null

  TESSERA_HOST_DEVICE int64_t Iterations(int64_t block) const {
    return this->TilesSeen(this->PlaceOf(block));
  }

  template <int phase>
  TESSERA_HOST_DEVICE void Run(const Lane& lane, Shared& shared, Own& own) const {
    const Place at = this->PlaceOf(lane.block);
    if constexpr (phase == 0) {
      if (lane.iteration == 0) Begin(lane, at, &own);
      this->Fill(lane, this->PartOf(at, Base::kKey), this->step(), lane.iteration, &shared.keys);
      this->Fill(lane, this->PartOf(at, Base::kValue), this->step(), lane.iteration,
                 &shared.values);
    } else if constexpr (phase == 1) {
      Base::Clear(own.scores);
      Base::ReadRight(lane, shared.keys, own.right);
    } else if constexpr (phase == 2) {
      Scale(lane, at, &shared, &own);
    } else if constexpr (phase == 3) {
      Weigh(lane, at, shared, &own);
      Base::ReadRight(lane, shared.values, own.right);
      if (!IsLast(lane)) return;
      TESSERA_UNROLL for (int w = 0; w < 2; ++w) {
        shared.sums[Base::OwnRow(lane) + 8 * w][Base::Pair(lane)] = own.sum[w];
      }
    } else {
      if (IsLast(lane)) End(lane, at, shared, own);
    }
  }

  template <int phase, typename Multiply>
  TESSERA_HOST_DEVICE static void Products(const Multiply& multiply, Own& own) {
    if constexpr (phase == 1) {
      Base::ScoreProducts(multiply, own.queries, own.right, own.scores);
    } else {
      Base::ResultProducts(multiply, own.weights, own.right, own.results);
    }
  }

 private:
  TESSERA_HOST_DEVICE bool IsLast(const Lane& lane) const {
    return lane.iteration + 1 == Iterations(lane.block);
  }
  TESSERA_HOST_DEVICE void Begin(const Lane& lane, const Place& at, Own* own) const {
    this->LoadOwn(lane, at, this->PartOf(at, Base::kQuery), this->step(), own->queries);
    Base::Clear(own->results);
    TESSERA_UNROLL for (int w = 0; w < 2; ++w) {
      own->largest[w] = -INFINITY;
      own->sum[w] = 0.0f;
    }
  }
  TESSERA_HOST_DEVICE void Scale(const Lane& lane, const Place& at, Shared* shared,
                                 Own* own) const {
    float largest[2] = {-INFINITY, -INFINITY};
    Base::ForEach(lane, own->scores, [&](int w, int j, int, float& score) {
      const int64_t key = lane.iteration * Base::kTile + j;
      const bool sees = key < this->places && (!this->causal || key <= Base::OwnPlace(lane, at, w));
      score = sees ? score * this->scale : -INFINITY;
      largest[w] = score > largest[w] ? score : largest[w];
    });
    TESSERA_UNROLL for (int w = 0; w < 2; ++w) {
      shared->largest[Base::OwnRow(lane) + 8 * w][Base::Pair(lane)] = largest[w];
    }
  }
  TESSERA_HOST_DEVICE void Weigh(const Lane& lane, const Place& at, const Shared& shared,
                                 Own* own) const {
    float shrinks[2];
    TESSERA_UNROLL for (int w = 0; w < 2; ++w) {
      float largest = own->largest[w];
      TESSERA_UNROLL for (int k = 0; k < 4; ++k) {
        const float score = shared.largest[Base::OwnRow(lane) + 8 * w][k];
        largest = score > largest ? score : largest;
      }
      shrinks[w] = FastExp(own->largest[w] - largest);
      own->largest[w] = largest;
      own->sum[w] *= shrinks[w];
    }
    TESSERA_UNROLL for (int n = 0; n < Base::kResults; ++n) {
      TESSERA_UNROLL for (int i = 0; i < 4; ++i) own->results[n].v[i] *= shrinks[i / 2];
    }
    bool dropped[2] = {};
    Base::ForEach(lane, own->scores, [&](int w, int j, int second, float& score) {
      const float weight = FastExp(score - own->largest[w]);
      own->sum[w] += weight;
      // Two entries side by side are of one query and two keys.
      if (second == 0) {
        this->AreDropped(at, Base::OwnPlace(lane, at, w), lane.iteration * Base::kTile + j,
                         dropped);
      }
      score = dropped[second] ? 0.0f : weight;
    });
    Base::AsLeftFactors(own->scores, own->weights);
  }
  TESSERA_HOST_DEVICE void End(const Lane& lane, const Place& at, const Shared& shared,
                               const Own& own) const {
    float factors[2];
    TESSERA_UNROLL for (int w = 0; w < 2; ++w) {
      const float* const parts = shared.sums[Base::OwnRow(lane) + 8 * w];
      const float sum = (parts[0] + parts[1]) + (parts[2] + parts[3]);
      factors[w] = this->grows / sum;
      const int64_t place = Base::OwnPlace(lane, at, w);
      if (log_sums == nullptr || Base::Pair(lane) > 0 || place >= this->places) continue;
      log_sums[this->SumAt(at, place)] = static_cast<float>(static_cast<double>(own.largest[w]) +
                                                            std::log(static_cast<double>(sum)));
    }
    this->StoreOwn(lane, at, own.results, factors, y + this->ResultAt(at), this->result_step());
  }
};

// What both backward kernels have.
template <int kSize>
struct AttentionBackwardProducts : AttentionProducts<kSize> {
  using Base = AttentionProducts<kSize>;
  const float* log_sums;
  const float* shares;
  const float* dy;
  float* dqkv;

 protected:
  // Scores and slopes of weights become weights behind the dropout and slopes of scores.
  TESSERA_HOST_DEVICE void WeighOne(const typename Base::Place& at, int64_t query, int64_t key,
                                    float log_sum, float share, bool dropped, float* score,
                                    float* slope) const {
    const bool sees = this->Sees(query, key);
    const float weight = sees ? FastExp(*score * this->scale - log_sum) : 0.0f;
    const float factor = dropped ? 0.0f : this->grows;
    *slope = sees ? weight * (factor * *slope - share) : 0.0f;
    *score = weight * factor;
  }
};

// A block's own places are queries.
template <int kSize>
struct AttentionQueryProducts : AttentionBackwardProducts<kSize> {
  using Base = AttentionProducts<kSize>;
  using typename Base::Place;
  static constexpr int kPhases = 5;
  static constexpr bool Multiplies(int phase) { return phase >= 1 && phase <= 3; }

  struct Shared {
    typename Base::ByPlace keys, values;
    typename Base::ByColumn key_columns;
  };
  struct Own {
    LeftFactor queries[Base::kTerms], slopes_of_results[Base::kTerms];
    RightFactor right[Base::kRights];
    ProductSums scores[Base::kScores], slopes[Base::kScores];
    LeftFactor left[Base::kTileTerms];
    ProductSums results[Base::kResults];
    float log_sum[2], share[2];
  };

  TESSERA_HOST_DEVICE int64_t Iterations(int64_t block) const {
    return this->TilesSeen(this->PlaceOf(block));
  }

  template <int phase>
  TESSERA_HOST_DEVICE void Run(const Lane& lane, Shared& shared, Own& own) const {
    const Place at = this->PlaceOf(lane.block);
    if constexpr (phase == 0) {
      if (lane.iteration == 0) Begin(lane, at, &own);
      this->Fill(lane, this->PartOf(at, Base::kKey), this->step(), lane.iteration, &shared.keys,
                 &shared.key_columns);
      this->Fill(lane, this->PartOf(at, Base::kValue), this->step(), lane.iteration,
                 &shared.values);
    } else if constexpr (phase == 1) {
      Base::Clear(own.scores);
      Base::ReadRight(lane, shared.keys, own.right);
    } else if constexpr (phase == 2) {
      Base::Clear(own.slopes);
      Base::ReadRight(lane, shared.values, own.right);
    } else if constexpr (phase == 3) {
      bool dropped[2] = {};
      TESSERA_UNROLL for (int n = 0; n < Base::kScores; ++n) {
        TESSERA_UNROLL for (int i = 0; i < 4; ++i) {
          const int64_t query = Base::OwnPlace(lane, at, i / 2);
          const int64_t key = lane.iteration * Base::kTile + 8 * n + 2 * Base::Pair(lane) + i % 2;
          if (i % 2 == 0) this->AreDropped(at, query, key, dropped);
          this->WeighOne(at, query, key, own.log_sum[i / 2], own.share[i / 2], dropped[i % 2],
                         &own.scores[n].v[i], &own.slopes[n].v[i]);
        }
      }
      Base::AsLeftFactors(own.slopes, own.left);
      Base::ReadRight(lane, shared.key_columns, own.right);
    } else {
      if (lane.iteration + 1 < Iterations(lane.block)) return;
      this->StoreOwn(lane, at, own.results, {this->scale, this->scale},
                     this->dqkv + this->At(at, Base::kQuery), this->step());
    }
  }

  template <int phase, typename Multiply>
  TESSERA_HOST_DEVICE static void Products(const Multiply& multiply, Own& own) {
    if constexpr (phase == 1) {
      Base::ScoreProducts(multiply, own.queries, own.right, own.scores);
    } else if constexpr (phase == 2) {
      Base::ScoreProducts(multiply, own.slopes_of_results, own.right, own.slopes);
    } else {
      Base::ResultProducts(multiply, own.left, own.right, own.results);
    }
  }

 private:
  TESSERA_HOST_DEVICE void Begin(const Lane& lane, const Place& at, Own* own) const {
    this->LoadOwn(lane, at, this->PartOf(at, Base::kQuery), this->step(), own->queries);
    this->LoadOwn(lane, at, this->dy + this->ResultAt(at), this->result_step(),
                  own->slopes_of_results);
    Base::Clear(own->results);
    TESSERA_UNROLL for (int w = 0; w < 2; ++w) {
      const int64_t place = Base::OwnPlace(lane, at, w);
      const bool is_place = place < this->places;
      own->log_sum[w] = is_place ? this->log_sums[this->SumAt(at, place)] : 0.0f;
      own->share[w] = is_place ? this->shares[this->SumAt(at, place)] : 0.0f;
    }
  }
};

// A block's own places are keys, and their values. Scores are those of the keys for the queries of a tile.
template <int kSize>
struct AttentionKeyProducts : AttentionBackwardProducts<kSize> {
  using Base = AttentionProducts<kSize>;
  using typename Base::Place;
  static constexpr int kPhases = 6;
  static constexpr bool Multiplies(int phase) { return phase >= 1 && phase <= 4; }

  struct Shared {
    typename Base::ByPlace queries, slopes;
    typename Base::ByColumn query_columns, slope_columns;
    float log_sums[Base::kTile], shares[Base::kTile];
  };
  struct Own {
    LeftFactor keys[Base::kTerms], values[Base::kTerms];
    RightFactor right[Base::kRights];
    ProductSums scores[Base::kScores], slopes[Base::kScores];
    LeftFactor left[Base::kTileTerms], left_of_keys[Base::kTileTerms];
    ProductSums key_results[Base::kResults], value_results[Base::kResults];
  };

  TESSERA_HOST_DEVICE int64_t Iterations(int64_t block) const {
    return this->tiles() - FirstTile(this->PlaceOf(block));
  }

  template <int phase>
  TESSERA_HOST_DEVICE void Run(const Lane& lane, Shared& shared, Own& own) const {
    const Place at = this->PlaceOf(lane.block);
    const int64_t tile = FirstTile(at) + lane.iteration;
    if constexpr (phase == 0) {
      if (lane.iteration == 0) Begin(lane, at, &own);
      this->Fill(lane, this->PartOf(at, Base::kQuery), this->step(), tile, &shared.queries,
                 &shared.query_columns);
      this->Fill(lane, this->dy + this->ResultAt(at), this->result_step(), tile, &shared.slopes,
                 &shared.slope_columns);
      if (lane.thread < Base::kTile) {
        const int64_t query = tile * Base::kTile + lane.thread;
        const bool is_place = query < this->places;
        shared.log_sums[lane.thread] = is_place ? this->log_sums[this->SumAt(at, query)] : 0.0f;
        shared.shares[lane.thread] = is_place ? this->shares[this->SumAt(at, query)] : 0.0f;
      }
    } else if constexpr (phase == 1) {
      Base::Clear(own.scores);
      Base::ReadRight(lane, shared.queries, own.right);
    } else if constexpr (phase == 2) {
      Base::Clear(own.slopes);
      Base::ReadRight(lane, shared.slopes, own.right);
    } else if constexpr (phase == 3) {
      TESSERA_UNROLL for (int n = 0; n < Base::kScores; ++n) {
        TESSERA_UNROLL for (int i = 0; i < 4; ++i) {
          const int j = 8 * n + 2 * Base::Pair(lane) + i % 2;
          const int64_t query = tile * Base::kTile + j, key = Base::OwnPlace(lane, at, i / 2);
          this->WeighOne(at, query, key, shared.log_sums[j], shared.shares[j],
                         this->IsDropped(at, query, key), &own.scores[n].v[i], &own.slopes[n].v[i]);
        }
      }
      Base::AsLeftFactors(own.scores, own.left);
      Base::AsLeftFactors(own.slopes, own.left_of_keys);
      Base::ReadRight(lane, shared.slope_columns, own.right);
    } else if constexpr (phase == 4) {
      Base::ReadRight(lane, shared.query_columns, own.right);
    } else {
      if (lane.iteration + 1 < Iterations(lane.block)) return;
      this->StoreOwn(lane, at, own.key_results, {this->scale, this->scale},
                     this->dqkv + this->At(at, Base::kKey), this->step());
      this->StoreOwn(lane, at, own.value_results, {1.0f, 1.0f},
                     this->dqkv + this->At(at, Base::kValue), this->step());
    }
  }

  template <int phase, typename Multiply>
  TESSERA_HOST_DEVICE static void Products(const Multiply& multiply, Own& own) {
    if constexpr (phase == 1) {
      Base::ScoreProducts(multiply, own.keys, own.right, own.scores);
    } else if constexpr (phase == 2) {
      Base::ScoreProducts(multiply, own.values, own.right, own.slopes);
    } else if constexpr (phase == 3) {
      Base::ResultProducts(multiply, own.left, own.right, own.value_results);
    } else {
      Base::ResultProducts(multiply, own.left_of_keys, own.right, own.key_results);
    }
  }

 private:
  // The first tile of queries that see the block's keys.
  TESSERA_HOST_DEVICE int64_t FirstTile(const Place& at) const {
    return this->causal ? at.tile * Base::kOwnTile / Base::kTile : 0;
  }
  TESSERA_HOST_DEVICE void Begin(const Lane& lane, const Place& at, Own* own) const {
    this->LoadOwn(lane, at, this->PartOf(at, Base::kKey), this->step(), own->keys);
    this->LoadOwn(lane, at, this->PartOf(at, Base::kValue), this->step(), own->values);
    Base::Clear(own->key_results);
    Base::Clear(own->value_results);
  }
};

}  // namespace tessera::cuda

#endif  // TESSERA_KERNELS_CUDA_ATTENTION_PRODUCTS_H_
