// weight -= eta (scale dy^T x + decay weight), and the same rounded to bf16, on compute capability 9.0. Standard and
// CUDA headers only: nvcc sees nothing else.
//
// A block takes tiles of 128 x 128 weights, one after another. Of its three warpgroups
//
//   the first    loads: a warp the factors of products, 64 rows of both at a time, into a ring of stages; two more the
//                weights of a consumer each, in chunks of 64 x 32, into its ring of slots
//   the others   consume, each a tile of its own, in turn: while one multiplies the other one updates. So products and
//                memory are both at work. A chunk of weights is changed where it lies in the ring, and stored from there
//
// Rings: `full` is told by TMA's bytes, `empty` by consumers; a round of a slot is a phase of both.
//
// Edges. Extents need be no multiples of a tile or a stage. Rows behind the last one are zeros in both factors and add
// nothing; columns behind the last one are zeros too, or products with them, and are in sums of weights that are not
// there alone. Of those a chunk has zeros, which the update may make anything of, as their store is clipped. Every
// weight that is there is in one chunk of one tile: loaded once, and stored behind that. TMA clips each extent by
// itself, so that a chunk never reaches into the next row.
#include <cuda.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/hopper.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/plain_sgd.h"
#include "kernels/cuda/weight_step.h"
#include "kernels/cuda/wgmma.h"

namespace tessera::cuda {
namespace {

using namespace hopper;  // NOLINT: this file is written in its words

constexpr int kWarpgroup = 128;
constexpr int kThreads = 3 * kWarpgroup;
constexpr int kTile = 128;
constexpr int kHalf = 64;  // rows of a product: a tile is two, one below the other

constexpr int kStageRows = 64;
constexpr int kStages = 4;
constexpr uint32_t kBoxBytes = kStageRows * kBoxColumns * sizeof(Bf16);
constexpr uint32_t kFactorBytes = kTile / kBoxColumns * kBoxBytes;
constexpr uint32_t kStageBytes = 2 * kFactorBytes;  // x, then dy

constexpr int kChunkColumns = 32;
constexpr int kChunks = kTile / kChunkColumns;  // beside one another
constexpr int kSlots = 5;
constexpr uint32_t kWeightBytes = kHalf * kChunkColumns * sizeof(float);
constexpr uint32_t kRoundedBytes = kHalf * kChunkColumns * sizeof(Bf16);
// A consumer's: slots of weights, and two by turns of rounded ones.
constexpr uint32_t kRingBytes = kSlots * kWeightBytes + 2 * kRoundedBytes;

// What lies in shared memory, from an address of whole kBlockBytes on.
constexpr uint32_t kRings = kStages * kStageBytes;
constexpr uint32_t kBarriers = kRings + 2 * kRingBytes;
constexpr uint32_t kSharedBytes = kBarriers + 8 * (2 * kStages + 4 * kSlots + 2) + kBlockBytes;
static_assert(kBoxBytes % kBlockBytes == 0 && kWeightBytes % kBlockBytes == 0);
static_assert(kRoundedBytes % kBlockBytes == 0);
static_assert(kSharedBytes <= 227 * 1024, "a block's most on compute capability 9.0");

struct Barriers {
  uint32_t begin;
  __device__ __forceinline__ uint32_t full(uint32_t stage) const { return begin + 8 * stage; }
  __device__ __forceinline__ uint32_t empty(uint32_t stage) const {
    return begin + 8 * (kStages + stage);
  }
  __device__ __forceinline__ uint32_t weight_full(uint32_t consumer, uint32_t slot) const {
    return begin + 8 * (2 * kStages + consumer * kSlots + slot);
  }
  __device__ __forceinline__ uint32_t weight_empty(uint32_t consumer, uint32_t slot) const {
    return begin + 8 * (2 * kStages + (2 + consumer) * kSlots + slot);
  }
  // The consumer's turn to multiply.
  __device__ __forceinline__ uint32_t turn(uint32_t consumer) const {
    return begin + 8 * (2 * kStages + 4 * kSlots + consumer);
  }
};

// A place in a ring, and the parity of its round.
template <int slots>
struct Place {
  uint32_t slot, parity;
  __device__ __forceinline__ explicit Place(uint32_t count = 0)
      : slot(count % slots), parity(count / slots & 1) {}
  __device__ __forceinline__ void Next() {
    if (++slot != slots) return;
    slot = 0;
    parity ^= 1;
  }
};

struct Extents {
  int rows, inputs, outputs;
};

// The tiles of this block, in order: blocks that are at work at a time have tiles beside one another, which share
// dy.
struct Tiles {
  int across, first, step, count;
  __device__ __forceinline__ explicit Tiles(const Extents& of) {
    across = static_cast<int>(CeilDiv(of.inputs, kTile));
    const int all = static_cast<int>(CeilDiv(of.outputs, kTile)) * across;
    first = static_cast<int>(blockIdx.x);
    step = static_cast<int>(gridDim.x);
    count = (all - first + step - 1) / step;
  }
  __device__ __forceinline__ int row(int k) const { return (first + k * step) / across * kTile; }
  __device__ __forceinline__ int column(int k) const { return (first + k * step) % across * kTile; }
};

// One thread.
__device__ __forceinline__ void LoadFactors(const CUtensorMap& dy, const CUtensorMap& x,
                                            const Tiles& tiles, int steps, const Barriers& barriers,
                                            uint32_t shared) {
  const uint64_t policy = KeepInCache();
  Place<kStages> place;
  for (int tile = 0; tile < tiles.count; ++tile) {
    const int row = tiles.row(tile), column = tiles.column(tile);
#pragma unroll 1
    for (int k = 0; k < steps; ++k, place.Next()) {
      Wait(barriers.empty(place.slot), place.parity ^ 1);
      const uint32_t full = barriers.full(place.slot);
      ArriveExpecting(full, kStageBytes);
      const uint32_t stage = shared + place.slot * kStageBytes;
#pragma unroll
      for (int box = 0; box < kTile / kBoxColumns; ++box) {
        LoadBox(stage + box * kBoxBytes, x, column + box * kBoxColumns, k * kStageRows, full,
                policy);
      }
#pragma unroll
      for (int box = 0; box < kTile / kBoxColumns; ++box) {
        LoadBox(stage + kFactorBytes + box * kBoxBytes, dy, row + box * kBoxColumns, k * kStageRows,
                full, policy);
      }
    }
  }
}

// One thread for each consumer. Chunks that lie behind an edge are loaded as well, as zeros.
__device__ __forceinline__ void LoadWeights(const CUtensorMap& weight, const Tiles& tiles,
                                            int consumer, const Barriers& barriers, uint32_t ring) {
  const uint64_t policy = PassThroughCache();
  Place<kSlots> place;
  for (int tile = consumer; tile < tiles.count; tile += 2) {
    const int row = tiles.row(tile), column = tiles.column(tile);
#pragma unroll 1
    for (int chunk = 0; chunk < 2 * kChunks; ++chunk, place.Next()) {
      Wait(barriers.weight_empty(consumer, place.slot), place.parity ^ 1);
      const uint32_t full = barriers.weight_full(consumer, place.slot);
      ArriveExpecting(full, kWeightBytes);
      LoadBox(ring + place.slot * kWeightBytes, weight, column + chunk % kChunks * kChunkColumns,
              row + chunk / kChunks * kHalf, full, policy);
    }
  }
}

// sums = dy^T x of a tile, both halves.
__device__ __forceinline__ void MultiplyTile(int tile, int steps, int consumer,
                                             const Barriers& barriers, uint32_t shared,
                                             float (&sums)[2][64]) {
  const bool tells = threadIdx.x % 32 == 0;  // for its warp
  constexpr uint64_t kFactor = FactorOf(kStageRows);
  // The other one is past its waits: with parities alone, nobody may wait for a round that is more than one ahead.
  const int turn = tile / 2 - (consumer == 0 ? 1 : 0);
  if (turn >= 0) Wait(barriers.turn(consumer), turn & 1);
  Place<kStages> place(static_cast<uint32_t>(tile) * static_cast<uint32_t>(steps));
  uint32_t before = 0;
#pragma unroll
  for (auto& half : sums) Pin(half);
#pragma unroll 1
  for (int k = 0; k < steps; ++k) {
    Wait(barriers.full(place.slot), place.parity);
    const uint32_t x = shared + place.slot * kStageBytes, dy = x + kFactorBytes;
    BeginProducts();
#pragma unroll
    for (int part = 0; part < kStageRows / kProductTerms; ++part) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        Multiply(sums[half], FactorAt(kFactor, dy + half * kBoxBytes + part * kAdvance),
                 FactorAt(kFactor, x + part * kAdvance), (k | part) != 0);
      }
    }
    EndProductGroup();
    WaitForProducts<1>();
    if (k > 0 && tells) Arrive(barriers.empty(before));
    before = place.slot;
    place.Next();
  }
  if (tells) Arrive(barriers.turn(consumer ^ 1));
  WaitForProducts<0>();
  if (tells) Arrive(barriers.empty(before));
#pragma unroll
  for (auto& half : sums) Pin(half);
}

struct Outputs {
  const CUtensorMap& weight;
  const CUtensorMap& rounded;
};

__device__ __forceinline__ void Consume(const Outputs& outputs, const Tiles& tiles, int steps,
                                        int consumer, const Barriers& barriers, uint32_t shared,
                                        const Rates& rates, float decay) {
  const bool leads = threadIdx.x % kWarpgroup == 0;  // stores for the warpgroup
  const uint64_t policy = PassThroughCache();
  const uint32_t ring = shared + kRings + consumer * kRingBytes;
  const uint32_t rounded_ring = ring + kSlots * kWeightBytes;

  // This thread's places in a chunk, as Multiply deals out sums: rows `lane / 4` of its warp's and 8 further, of each 8
  // columns two. Rows of weights are 128 bytes with 128-byte swizzle, rounded ones 64 bytes with 64-byte swizzle.
  // Threads of odd rows take the four 8 columns in the order 2 3 0 1: no bank conflicts then.
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  const uint32_t row = lane / 4, pair = lane % 4, odd = row & 1;
  const uint32_t weight_row = (warp * 16 + row) * 128 + (pair & 1) * 8;
  const uint32_t weight_swizzle = ((pair >> 1) ^ row ^ (odd << 2)) << 4;
  const uint32_t rounded_row = (warp * 16 + row) * 64 + pair * 4;
  const uint32_t rounded_swizzle = ((row >> 1) ^ (odd << 1)) << 4;

  Place<kSlots> place;
  uint32_t stored = 0;  // the slot that was stored last
  uint32_t rounded_slot = 0;
  float sums[2][64];
  for (int tile = consumer; tile < tiles.count; tile += 2) {
    MultiplyTile(tile, steps, consumer, barriers, shared, sums);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int chunk = 0; chunk < kChunks; ++chunk) {
        Wait(barriers.weight_full(consumer, place.slot), place.parity);
        // The leader has seen that the last but one rounded chunk was read.
        Meet(1 + consumer, kWarpgroup);
        const uint32_t weight = ring + place.slot * kWeightBytes;
        const uint32_t rounded = rounded_ring + rounded_slot * kRoundedBytes;
        float2 w[4][2];
#pragma unroll
        for (uint32_t j = 0; j < 4; ++j) {
#pragma unroll
          for (uint32_t below = 0; below < 2; ++below) {
            w[j][below] =
                LoadShared(weight + weight_row + below * 8 * 128 + (weight_swizzle ^ j << 5));
          }
        }
#pragma unroll
        for (uint32_t j = 0; j < 4; ++j) {
#pragma unroll
          for (uint32_t below = 0; below < 2; ++below) {
            const uint32_t in_even = 16 * chunk + 4 * j + 2 * below;
            const uint32_t in_odd = 16 * chunk + 4 * (j ^ 2) + 2 * below;
            const float2 g = {odd ? sums[half][in_odd] : sums[half][in_even],
                              odd ? sums[half][in_odd + 1] : sums[half][in_even + 1]};
            const float2 v = {PlainSgd(rates, decay, g.x, w[j][below].x),
                              PlainSgd(rates, decay, g.y, w[j][below].y)};
            StoreShared(weight + weight_row + below * 8 * 128 + (weight_swizzle ^ j << 5), v);
            StoreShared(rounded + rounded_row + below * 8 * 64 + (rounded_swizzle ^ j << 4),
                        RoundTwo(v.x, v.y));
          }
        }
        ShowWritesToCopies();
        Meet(1 + consumer, kWarpgroup);
        if (leads) {
          const int to_row = tiles.row(tile) + half * kHalf;
          const int to_column = tiles.column(tile) + chunk * kChunkColumns;
          StoreBox(outputs.weight, to_column, to_row, weight, policy);
          StoreBox(outputs.rounded, to_column, to_row, rounded, policy);
          EndStoreGroup();
          // The store before this one is waited for, not this one.
          WaitForStoresToRead<1>();
          if (half > 0 || chunk > 0) Arrive(barriers.weight_empty(consumer, stored));
        }
        stored = place.slot;
        rounded_slot ^= 1;
        place.Next();
      }
    }
    if (leads) {
      WaitForStoresToRead<0>();
      Arrive(barriers.weight_empty(consumer, stored));
    }
  }
  if (leads) WaitForStores();
}

__global__ void __launch_bounds__(kThreads, 1)
    StepWeights(const __grid_constant__ CUtensorMap dy, const __grid_constant__ CUtensorMap x,
                const __grid_constant__ CUtensorMap weight,
                const __grid_constant__ CUtensorMap rounded, const Extents extents,
                const OptimizerNumbers* numbers, float learning_rate, float decay) {
  extern __shared__ uint8_t memory[];
  const uint32_t shared = (SharedAddress(memory) + kBlockBytes - 1) & ~(kBlockBytes - 1);
  const Barriers barriers{shared + kBarriers};
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < kStages; ++stage) {
      MakeBarrier(barriers.full(stage), 1);
      MakeBarrier(barriers.empty(stage), kWarpgroup / 32);
    }
    for (int consumer = 0; consumer < 2; ++consumer) {
      for (int slot = 0; slot < kSlots; ++slot) {
        MakeBarrier(barriers.weight_full(consumer, slot), 1);
        MakeBarrier(barriers.weight_empty(consumer, slot), 1);
      }
      MakeBarrier(barriers.turn(consumer), kWarpgroup / 32);
    }
    PublishBarriers();
    Prefetch(dy);
    Prefetch(x);
    Prefetch(weight);
    Prefetch(rounded);
  }
  __syncthreads();

  const Tiles tiles(extents);
  const int steps = static_cast<int>(CeilDiv(extents.rows, kStageRows));
  // The warpgroup's number is the same in all lanes, and known to be: otherwise the compiler keeps registers for
  // both roles.
  const int warpgroup = __shfl_sync(0xffffffffu, threadIdx.x / kWarpgroup, 0);
  if (warpgroup == 0) {
    GiveRegisters<40>();
    const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);
    if (threadIdx.x % 32 != 0) return;
    if (warp == 0) {
      LoadFactors(dy, x, tiles, steps, barriers, shared);
    } else if (warp <= 2) {
      LoadWeights(weight, tiles, warp - 1, barriers, shared + kRings + (warp - 1) * kRingBytes);
    }
  } else {
    TakeRegisters<232>();
    Consume({weight, rounded}, tiles, steps, warpgroup - 1, barriers, shared,
            RatesOf(*numbers, learning_rate), decay);
  }
}

// How a row-major matrix is cut into boxes for TMA.
struct Boxes {
  CUtensorMapDataType type;
  CUtensorMapSwizzle swizzle;
  CUtensorMapL2promotion promotion;
  uint32_t value_bytes, columns, rows;
};
// The boxes of factors. What a row has of a box is as long as the swizzle, in all of them.
constexpr Boxes kFactorBoxes = {CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                                CU_TENSOR_MAP_SWIZZLE_128B,
                                CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                                2,
                                kBoxColumns,
                                kStageRows};
constexpr Boxes kWeightBoxes = {CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
                                CU_TENSOR_MAP_SWIZZLE_128B,
                                CU_TENSOR_MAP_L2_PROMOTION_NONE,
                                4,
                                kChunkColumns,
                                kHalf};
constexpr Boxes kRoundedBoxes = {CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                                 CU_TENSOR_MAP_SWIZZLE_64B,
                                 CU_TENSOR_MAP_L2_PROMOTION_NONE,
                                 2,
                                 kChunkColumns,
                                 kHalf};

}  // namespace

int LaunchWeightStep(void* stream, void* encode, int multiprocessors, const WeightStep& step) {
  CUresult failed = CUDA_SUCCESS;
  const auto map_of = [&](const Boxes& boxes, const void* matrix, int64_t rows, int64_t columns) {
    CUtensorMap map;
    const cuuint64_t extents[] = {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows)};
    const cuuint64_t row_bytes[] = {static_cast<cuuint64_t>(columns) * boxes.value_bytes};
    const cuuint32_t box[] = {boxes.columns, boxes.rows}, every[] = {1, 1};
    const CUresult error = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(encode)(
        &map, boxes.type, 2, const_cast<void*>(matrix), extents, row_bytes, box, every,
        CU_TENSOR_MAP_INTERLEAVE_NONE, boxes.swizzle, boxes.promotion,
        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (error != CUDA_SUCCESS) failed = error;
    return map;
  };
  const CUtensorMap dy = map_of(kFactorBoxes, step.dy, step.rows, step.outputs);
  const CUtensorMap x = map_of(kFactorBoxes, step.x, step.rows, step.inputs);
  const CUtensorMap weight = map_of(kWeightBoxes, step.weight, step.outputs, step.inputs);
  const CUtensorMap rounded = map_of(kRoundedBoxes, step.rounded, step.outputs, step.inputs);
  // The driver's errors have the runtime's numbers.
  if (failed != CUDA_SUCCESS) return static_cast<int>(failed);
  const cudaError_t error = cudaFuncSetAttribute(
      StepWeights, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kSharedBytes));
  if (error != cudaSuccess) {
    cudaGetLastError();
    return static_cast<int>(error);
  }
  const Extents extents{static_cast<int>(step.rows), static_cast<int>(step.inputs),
                        static_cast<int>(step.outputs)};
  const int64_t tiles = CeilDiv(step.inputs, kTile) * CeilDiv(step.outputs, kTile);
  const auto blocks = static_cast<unsigned>(std::min<int64_t>(tiles, multiprocessors));
  StepWeights<<<blocks, kThreads, kSharedBytes, static_cast<cudaStream_t>(stream)>>>(
      dy, x, weight, rounded, extents, step.numbers, step.learning_rate, step.decay);
  return static_cast<int>(cudaGetLastError());
}

}  // namespace tessera::cuda
