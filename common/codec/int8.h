// The int8 codec: a row of a matrix is its scale max|v| / 127, then a byte an entry, rounded to nearest even.
#ifndef TESSERA_COMMON_CODEC_INT8_H_
#define TESSERA_COMMON_CODEC_INT8_H_

#include "common/codec/codec.h"
#include "common/codec/entry_form.h"

namespace tessera {

extern const EntryForm kInt8Form;

Codec Int8Codec();

}  // namespace tessera

#endif  // TESSERA_COMMON_CODEC_INT8_H_
