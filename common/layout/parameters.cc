#include "common/layout/parameters.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/philox.h"
#include "common/layout/layers/block.h"
#include "common/layout/layers/layer_kinds.h"

namespace tessera {

namespace {

using LayerList = google::protobuf::RepeatedPtrField<v1::Layer>;

constexpr size_t kLayersMax = 4096;

// Writes out the layers of a model, with the shapes between them.
class ShapeMaker {
 public:
  ShapeMaker(const Image& input, ModelShape* shape) : shape_(*shape) {
    shape_.images.push_back(input);
    flattened_by_.push_back("");
  }

  // Adds `layers`, the first of which reads layer `*at`, and sets `*at` to the last of them. `name` and `key` are those
  // of the list, without a layer's index.
  absl::Status AddAll(const LayerList& layers, const std::string& name, const std::string& key,
                      int* at) {
    for (int i = 0; i < layers.size(); ++i) {
      const std::string layer_name = absl::StrCat(name, ".", i);
      const std::string layer_key = absl::StrCat(key, "[", i, "]");
      const absl::Status status = PartsOf(layers[i]).empty()
                                      ? Add(layers[i], layer_name, layer_key, at)
                                      : AddBlock(layers[i], layer_name, layer_key, at);
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

  // Some layer has weights to train.
  bool learns() const { return learns_; }

 private:
  static absl::Status Refused(absl::string_view key, absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat(key, ": ", why));
  }

  absl::Status AddBlock(const v1::Layer& block, const std::string& name, const std::string& key,
                        int* at) {
    const int before = *at;
    std::vector<int> reads;
    std::vector<Image> images;
    for (const BlockPart& part : PartsOf(block)) {
      if (!block.has_repeat()) *at = before;
      TESSERA_RETURN_IF_ERROR(AddAll(*part.layers, absl::StrCat(name, ".", part.name),
                                     absl::StrCat(key, ".", part.key), at));
      reads.push_back(*at);
      images.push_back(shape_.images[*at + 1]);
    }
    if (block.has_repeat()) return absl::OkStatus();
    v1::Layer kind_alone;
    if (block.has_residual()) kind_alone.mutable_residual();
    if (block.has_concat()) kind_alone.mutable_concat();
    const absl::StatusOr<Image> image = LayerKindOf(block).join(images);
    if (!image.ok()) return Refused(key, image.status().message());
    std::string flattened_by;
    for (const int read : reads) {
      if (flattened_by.empty()) flattened_by = flattened_by_[read + 1];
    }
    return Append({name, std::move(kind_alone), &LayerKindOf(block), std::move(reads)}, *image,
                  std::move(flattened_by), key, at);
  }

  absl::Status Add(const v1::Layer& layer, const std::string& name, const std::string& key,
                   int* at) {
    const LayerKind* const kind = FindLayerKind(layer);
    if (kind == nullptr || kind->shape == nullptr) {
      return Refused(key, absl::StrCat("no kind is set, want ", LayerNames()));
    }
    std::string flattened_by = flattened_by_[*at + 1];
    if (kind->reads == LayerReads::kImages && !flattened_by.empty()) {
      return Refused(key, absl::StrCat("convolutions and pooling read images, and ", flattened_by,
                                       " makes none; want it in front of that"));
    }
    absl::StatusOr<LayerShape> made = kind->shape(layer, shape_.images[*at + 1]);
    if (!made.ok()) return Refused(key, made.status().message());
    for (ParameterSpec& spec : made->parameters) {
      spec.name = absl::StrCat(name, ".", spec.name);
      spec.layer = static_cast<int>(shape_.layers.size());
      shape_.size += spec.size();
      shape_.parameters.push_back(std::move(spec));
    }
    if (shape_.size > kModelSizeMax) return Refused("model.layers", "more than 2^40 entries");
    if (kind->reads == LayerReads::kFeatures && flattened_by.empty()) {
      flattened_by = absl::StrCat(name, ", which is ", LayerName(layer), ",");
    }
    learns_ = learns_ || kind->learns;
    return Append({name, layer, kind, {*at}}, made->map.to, std::move(flattened_by), key, at);
  }

  absl::Status Append(ModelLayer layer, const Image& output, std::string flattened_by,
                      const std::string& key, int* at) {
    if (shape_.layers.size() == kLayersMax) {
      return Refused(key, absl::StrCat("is one layer more than the ", kLayersMax,
                                       " that a model may have with blocks written out"));
    }
    *at = static_cast<int>(shape_.layers.size());
    shape_.layers.push_back(std::move(layer));
    shape_.images.push_back(output);
    flattened_by_.push_back(std::move(flattened_by));
    return absl::OkStatus();
  }

  ModelShape& shape_;
  // By activation, as ModelShape::images: the layer that made features of an image, in words; empty: none did.
  std::vector<std::string> flattened_by_;
  bool learns_ = false;
};

}  // namespace

absl::StatusOr<ModelShape> ShapeOf(const v1::Model& model) {
  int64_t width = 1;
  for (const int64_t extent : model.input()) {
    if (extent < 1 || extent > kModelSizeMax / width) {
      return absl::InvalidArgumentError(
          absl::StrCat("model.input: extent is ", extent, ", want at least 1"));
    }
    width *= extent;
  }
  Image input{width, 1, 1};
  if (ReadsImages(model)) {
    if (model.input_size() != 3) {
      return absl::InvalidArgumentError(
          absl::StrCat("model.input: got ", model.input_size(),
                       " numbers, want three, [channels, height, width]: convolutions and "
                       "pooling read images"));
    }
    input = {model.input(0), model.input(1), model.input(2)};
  }
  ModelShape shape;
  ShapeMaker maker(input, &shape);
  int last = kModelInput;
  TESSERA_RETURN_IF_ERROR(maker.AddAll(model.layers(), "layers", "model.layers", &last));
  for (const Image& each : shape.images) shape.widths.push_back(each.size());
  if (!maker.learns()) {
    return absl::InvalidArgumentError(
        "model.layers: no linear layer and no convolution, want at least one linear or conv2d: "
        "there is nothing to train");
  }
  return shape;
}

void FillInitialRows(const ParameterSpec& spec, int index, uint64_t seed, int64_t row_begin,
                     int64_t row_end, float* out) {
  if (spec.initial_bound == 0) {
    std::fill(out, out + (row_end - row_begin) * spec.columns, spec.initial_constant);
    return;
  }
  const uint64_t blocks_per_row = (spec.columns + 3) / 4;
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t column = 0; column < spec.columns; column += 4) {
      const PhiloxBlock block =
          Philox(seed, Stream::kInitialValues, index, row * blocks_per_row + column / 4);
      const int64_t count = std::min<int64_t>(4, spec.columns - column);
      for (int64_t k = 0; k < count; ++k) {
        *out++ = spec.initial_bound * (2 * UnitFloat(block[k]) - 1);
      }
    }
  }
}

}  // namespace tessera
