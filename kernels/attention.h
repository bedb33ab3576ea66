// Scaled dot-product attention of several heads.  Vaswani et al.: Attention Is All You Need, NeurIPS 2017.
//
//   s_ij = q_i . k_j / sqrt(head size)                 for the places j that place i sees
//   a_ij = exp(s_ij - log sum_j exp(s_ij))
//   y_i = sum_j drop(a_ij) v_j
//
// of each sequence and each head by itself. No more than a block of s lies in memory at a time, forward and backward
// (Dao, Fu, Ermon, Rudra, Re: FlashAttention, NeurIPS 2022).
#ifndef TESSERA_KERNELS_ATTENTION_H_
#define TESSERA_KERNELS_ATTENTION_H_

#include <cstdint>

#include "kernels/dropout_key.h"

namespace tessera {

// Queries, keys and values of a place are side by side, [rows, places, 3, heads, head_size]. Results are
// [rows, places, heads, head_size].
struct AttentionShape {
  int64_t rows = 0;  // sequences
  int64_t places = 1;
  int64_t heads = 1;
  int64_t head_size = 1;
  // Place i sees the places up to i; otherwise all of its sequence.
  bool causal = false;
  // Factors of products may be rounded to bf16, the weights a among them, where a device gains by it; their sums are
  // f32. Forward and Backward of a step are told the same.
  bool bf16 = false;

  int64_t width() const { return heads * head_size; }
  // Entries of results, and of what Forward tells Backward.
  int64_t size() const { return rows * places * width(); }
  int64_t sums() const { return rows * heads * places; }
};

// Which weights are zeroed; the others are multiplied by 1 / (1 - probability). Probability 0: none, and `key` is not
// read. The weight of place i for place j, of head h, in row r of a call is element
//   ((first_row + r) heads + h) places^2 + i places + j      modulo 2^42
// of the layer's random numbers (DropoutKey).
struct AttentionDropout {
  const DropoutKey* key = nullptr;  // in the device's memory, read when the kernel runs
  uint64_t layer = 0;               // below 2^16
  double probability = 0;
};

// Arithmetic is f32, but for AttentionShape::bf16. A row's results do not depend on the others of its call.
class AttentionKernel {
 public:
  virtual ~AttentionKernel() = default;

  // Writes y, and log sum_j exp(s_ij) to log_sums, [rows, heads, places], unless that is null. Neither overlaps qkv.
  virtual void Forward(const AttentionShape& shape, const AttentionDropout& dropout,
                       const float* qkv, float* y, float* log_sums) = 0;

  struct BackwardInput {
    const float* qkv = nullptr;
    const float* y = nullptr;         // what Forward wrote
    const float* log_sums = nullptr;  // what Forward wrote
    const float* dy = nullptr;
  };
  // Overwrites dqkv, which overlaps nothing else.
  virtual void Backward(const AttentionShape& shape, const AttentionDropout& dropout,
                        const BackwardInput& in, float* dqkv) = 0;

  // Bytes of the device's memory that calls with this shape, or with fewer rows, take besides their arguments. 0 where
  // they are some blocks of the host's.
  virtual int64_t ScratchBytes(const AttentionShape& shape) const = 0;
};

}  // namespace tessera

#endif  // TESSERA_KERNELS_ATTENTION_H_
