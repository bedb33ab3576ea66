// The bf16 codec: the upper half of each f32, rounded to nearest even (half.h), 2 bytes an entry.
#ifndef TESSERA_COMMON_CODEC_BF16_H_
#define TESSERA_COMMON_CODEC_BF16_H_

#include "common/codec/codec.h"
#include "common/codec/entry_form.h"

namespace tessera {

extern const EntryForm kBf16Form;

Codec Bf16Codec();

}  // namespace tessera

#endif  // TESSERA_COMMON_CODEC_BF16_H_
