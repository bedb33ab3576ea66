// The f32 codec: little-endian IEEE singles in key-set order, 4 bytes an entry.
#ifndef TESSERA_COMMON_CODEC_F32_H_
#define TESSERA_COMMON_CODEC_F32_H_

#include "common/codec/codec.h"
#include "common/codec/entry_form.h"

namespace tessera {

extern const EntryForm kF32Form;

Codec F32Codec();

}  // namespace tessera

#endif  // TESSERA_COMMON_CODEC_F32_H_
