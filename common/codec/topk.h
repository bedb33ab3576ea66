// The top-k codec: of each chunk of entries the largest few are sent, as places and 2 bits of value; the rest waits.
//
// Sarfi, Therien, Lidin, Belilovsky: Communication Efficient LLM Pre-training with SparseLoCo, 2025
// (arXiv 2508.15706), algorithm 1, with the buffer e kept whole (beta = 1) and without a choice of Q in the paper's
// equations:
//
//   m = e + delta;  sent = Q(TopK(m));  e = m - sent
//
// A payload's entries are cut into chunks of kTopkChunk, the last of which may have fewer. Of a chunk with n entries
// TopK keeps the s = ceil(k n / kTopkChunk) of the largest magnitudes, of equal ones those that come first. Q gives
// each of them its sign and one of two levels, so that the mean of either class of magnitudes stays:
//
//   mean  = sum |m| / s                     over the entries kept
//   high  = the mean of those |m| >= mean   low = the mean of the others; high, where there is none
//   Q(m)  = sign(m) (|m| >= mean ? high : low)
//
// Sums are in f64, in the order of the places; means are rounded to f32.
//
// Payload, little-endian, without a head: its size follows from the entries and k.
//   payload  = *chunk
//   chunk    = low(f32) high(f32) s * code, the last byte filled up with zeros
//   code     = place(12 bits) + 2^12 (1 if high) + 2^13 (1 if negative): 14 bits, the lowest first, places ascending
// Where an entry of a chunk is not finite, low and high are NaN.
#ifndef TESSERA_COMMON_CODEC_TOPK_H_
#define TESSERA_COMMON_CODEC_TOPK_H_

#include <cstdint>

#include "common/codec/codec.h"

namespace tessera {

constexpr int64_t kTopkChunk = 4096;

struct TopkNumbers {
  int64_t k = 64;  // entries sent of a whole chunk: 1 to kTopkChunk
};

Codec TopkCodec(const TopkNumbers& numbers = {});

}  // namespace tessera

#endif  // TESSERA_COMMON_CODEC_TOPK_H_
