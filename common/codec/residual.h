// What a worker's codec has held back: for every entry of every parameter the difference between what
// was to be sent and what a reader saw of it.
//
// It belongs to the entry, whatever key set or server that is sent with: it survives every change of
// either.
#ifndef TESSERA_COMMON_CODEC_RESIDUAL_H_
#define TESSERA_COMMON_CODEC_RESIDUAL_H_

#include <cstdint>
#include <vector>

#include "common/keyset/subnet.h"
#include "common/layout/layer_cut.h"
#include "common/layout/parameters.h"
#include "common/layout/shard_map.h"

namespace tessera {

// What a codec has held back of a worker's updates: as many values as the model has, or the worker's layers. One
// thread.
class Residual {
 public:
  explicit Residual(const ModelShape& shape);
  // Holds the residual of `layers` alone: of() of any other parameter is empty.
  Residual(const ModelShape& shape, const ParameterRange& layers);

  // All entries of a parameter, row by row.
  std::vector<float>& of(int parameter) { return values_[parameter]; }
  const std::vector<float>& of(int parameter) const { return values_[parameter]; }

  int64_t rows(int parameter) const { return rows_[parameter]; }

  // Adds what is held back of `parameter` to `update`, as large, and holds nothing back of it any
  // more: at the end of a job, or where a codec is left.
  void Flush(int parameter, float* update);

 private:
  std::vector<std::vector<float>> values_;
  std::vector<int64_t> rows_;
};

// Walks over the entries that one server answers for, in the order of the wire.
class ResidualCursor {
 public:
  // All must outlive this. `slices` say which entries; `subnet`: they are in its indices; nullptr: in
  // the whole model's.
  ResidualCursor(Residual* residual, const ShardSlices& slices, const Subnet* subnet);

  // The next `count` entries, which must be left; the cursor stays.
  void Read(int64_t count, float* out) const;
  // Sets them, and goes on behind them.
  void Write(int64_t count, const float* in);

 private:
  struct Place {
    size_t slice = 0;
    int64_t row = 0;  // of the slice
    int64_t column = 0;
  };
  template <typename Move>
  Place Walk(int64_t count, Move move) const;

  Residual* const residual_;
  const ShardSlices& slices_;
  const Subnet* const subnet_;
  Place place_;
};

}  // namespace tessera

#endif  // TESSERA_COMMON_CODEC_RESIDUAL_H_
