// Error feedback: what a codec lost of one update is added to the next one.
//
//   v = update + r;  sent = decode(encode(v));  r = v - sent
//
// Seide, Fu, Droppo, Li, Yu: 1-Bit Stochastic Gradient Descent, Interspeech 2014. For any codec whose
// rounding has a bias; one without needs none.
#ifndef TESSERA_COMMON_CODEC_ERROR_FEEDBACK_H_
#define TESSERA_COMMON_CODEC_ERROR_FEEDBACK_H_

#include <cstdint>
#include <vector>

#include "common/codec/encoder.h"
#include "common/codec/residual.h"

namespace tessera {

// Wears the same calls as the encoder it decorates. One thread. A payload must be encoded once
// only: what is sent again must be the same bytes.
class FeedbackEncoder {
 public:
  // All must outlive this. `residual` stands where the payload of `encoder` begins.
  FeedbackEncoder(Encoder* encoder, ResidualCursor* residual)
      : encoder_(*encoder), residual_(*residual) {}

  int64_t left() const { return encoder_.left(); }
  Encoder::Ahead ahead() const { return encoder_.ahead(); }
  Encoder::Step Encode(const float* entries, int64_t count, char* out, int64_t room);

 private:
  Encoder& encoder_;
  ResidualCursor& residual_;
  std::vector<float> sum_;
  std::vector<float> decoded_;
};

}  // namespace tessera

#endif  // TESSERA_COMMON_CODEC_ERROR_FEEDBACK_H_
