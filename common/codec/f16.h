// The f16 codec: IEEE 754 binary16, rounded to nearest even (half.h), 2 bytes an entry.
#ifndef TESSERA_COMMON_CODEC_F16_H_
#define TESSERA_COMMON_CODEC_F16_H_

#include "common/codec/codec.h"
#include "common/codec/entry_form.h"

namespace tessera {

extern const EntryForm kF16Form;

Codec F16Codec();

}  // namespace tessera

#endif  // TESSERA_COMMON_CODEC_F16_H_
