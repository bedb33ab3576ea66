#include "common/layout/parameters.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/philox.h"
#include "common/layout/layers/block.h"
#include "common/layout/layers/layer_kinds.h"
#include "common/layout/layers/sequence.h"
#include "common/layout/normal.h"
#include "common/layout/tensor_layout.h"

namespace tessera {

namespace {

using LayerList = google::protobuf::RepeatedPtrField<v1::Layer>;

constexpr size_t kLayersMax = 4096;

constexpr char kWantsTokens[] =
    "reads a sequence of tokens, want model.input: {tokens: {...}} and an embedding in front";

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
      TESSERA_RETURN_IF_ERROR(AddOne(layers[i], layer_name, layer_key, at));
    }
    return absl::OkStatus();
  }

  // Some layer has weights to train.
  bool learns() const { return learns_; }

 private:
  static absl::Status Refused(absl::string_view key, absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat(key, ": ", why));
  }

  absl::Status AddOne(const v1::Layer& layer, const std::string& name, const std::string& key,
                      int* at) {
    if (!PartsOf(layer).empty()) return AddBlock(layer, name, key, at);
    if (layer.has_attention()) return AddAttention(layer, name, key, at);
    const LayerKind* const kind = FindLayerKind(layer);
    if (kind == nullptr || kind->shape == nullptr) {
      return Refused(key, absl::StrCat("no kind is set, want ", LayerNames()));
    }
    ModelLayer made{name, layer, kind, {*at}};
    TESSERA_RETURN_IF_ERROR(Tie(key, *at, &made));
    return Add(std::move(made), key, at);
  }

  absl::Status AddAttention(const v1::Layer& layer, const std::string& name, const std::string& key,
                            int* at) {
    const Image before = shape_.images[*at + 1];
    if (!before.is_sequence) return Refused(key, kWantsTokens);
    const absl::StatusOr<AttentionParts> parts = PartsOfAttention(layer, before);
    if (!parts.ok()) return Refused(key, parts.status().message());
    for (const AttentionParts::Part& part : parts->parts) {
      ModelLayer made{absl::StrCat(name, part.name), part.settings, part.kind, {*at}};
      made.unit_times = std::max<int64_t>(1, part.unit_times);
      made.unit_each = std::max<int64_t>(1, part.unit_each);
      TESSERA_RETURN_IF_ERROR(Add(std::move(made), key, at));
    }
    return absl::OkStatus();
  }

  // Gives a linear layer that says so the model's number of tokens as units, and the embedding's weight.
  absl::Status Tie(const std::string& key, int at, ModelLayer* layer) const {
    if (!layer->settings.has_linear()) return absl::OkStatus();
    v1::Linear& linear = *layer->settings.mutable_linear();
    if (linear.units() == 0 && shape_.vocabulary > 0) linear.set_units(shape_.vocabulary);
    if (linear.units() == 0) {
      return Refused(key, "units is vocabulary, want a number: only models of tokens have one");
    }
    if (!linear.tied()) return absl::OkStatus();
    const bool has_embedding = !shape_.layers.empty() && shape_.layers[0].settings.has_embedding();
    if (!has_embedding) {
      return Refused(key, "tied is true, want false: there is no embedding whose weight it has");
    }
    const int64_t units = shape_.layers[0].settings.embedding().units();
    if (linear.units() != shape_.vocabulary || shape_.images[at + 1].channels != units) {
      return Refused(key, absl::StrCat("makes ", linear.units(), " units of ",
                                       shape_.images[at + 1].channels, ", want ", shape_.vocabulary,
                                       " of ", units, ", as it is tied to the embedding's weight"));
    }
    for (const ModelLayer& other : shape_.layers) {
      if (other.tied_to >= 0) {
        return Refused(key, absl::StrCat("is tied, as ", other.name, " is, want one such layer"));
      }
    }
    layer->tied_to = 0;
    return absl::OkStatus();
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

  absl::Status Add(ModelLayer layer, const std::string& key, int* at) {
    const LayerKind& kind = *layer.kind;
    const Image before = shape_.images[*at + 1];
    std::string flattened_by = flattened_by_[*at + 1];
    if (kind.reads == LayerReads::kImages && before.is_sequence) {
      return Refused(key, absl::StrCat(LayerName(layer.settings),
                                       " reads images, and a model of tokens has none"));
    }
    if (kind.reads == LayerReads::kImages && !flattened_by.empty()) {
      return Refused(key, absl::StrCat(LayerName(layer.settings), " reads images, and ",
                                       flattened_by, " makes none; want it in front of that"));
    }
    if (kind.reads == LayerReads::kSequence && !before.is_sequence) {
      return Refused(key, kWantsTokens);
    }
    absl::StatusOr<LayerShape> made = kind.shape(layer.settings, before, shape_.vocabulary);
    if (!made.ok()) return Refused(key, made.status().message());
    for (ParameterSpec& spec : made->parameters) {
      spec.name = absl::StrCat(layer.name, ".", spec.name);
      spec.layer = static_cast<int>(shape_.layers.size());
      shape_.size += spec.size();
      shape_.parameters.push_back(std::move(spec));
    }
    if (shape_.size > kModelSizeMax) return Refused("model.layers", "more than 2^40 entries");
    if (kind.reads == LayerReads::kFeatures && flattened_by.empty()) {
      flattened_by = absl::StrCat(layer.name, ", which is ", LayerName(layer.settings), ",");
    }
    learns_ = learns_ || kind.learns;
    return Append(std::move(layer), made->map.to, std::move(flattened_by), key, at);
  }

  absl::Status Append(ModelLayer layer, const Image& output, std::string flattened_by,
                      const std::string& key, int* at) {
    if (shape_.layers.size() == kLayersMax) {
      return Refused(key, absl::StrCat("is one layer more than the ", kLayersMax,
                                       " that a model may have with blocks written out"));
    }
    const bool is_embedding = layer.settings.has_embedding();
    if (is_embedding && !shape_.layers.empty()) {
      return Refused(key, "is an embedding, want it as the first layer of the model and no other");
    }
    const bool reads_input = std::count(layer.reads.begin(), layer.reads.end(), kModelInput) > 0;
    if (shape_.vocabulary > 0 && reads_input && !is_embedding) {
      return Refused(key, absl::StrCat("reads tokens, which are numbers of words and no values, "
                                       "want an embedding as the first layer"));
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

absl::StatusOr<ModelShape> ShapeOfTensors(const v1::Model& model) {
  ModelShape shape;
  TESSERA_ASSIGN_OR_RETURN(shape.parameters, ParametersOf(model.tensor_layout()));
  TESSERA_ASSIGN_OR_RETURN(shape.groups, TensorGroupsOf(model, shape.parameters));
  for (const ParameterSpec& spec : shape.parameters) shape.size += spec.size();
  return shape;
}

}  // namespace

absl::StatusOr<ModelShape> ShapeOf(const v1::Model& model) {
  if (IsOfTensors(model)) return ShapeOfTensors(model);
  int64_t width = 1;
  for (const int64_t extent : model.input()) {
    if (extent < 1 || extent > kModelSizeMax / width) {
      return absl::InvalidArgumentError(
          absl::StrCat("model.input: extent is ", extent, ", want at least 1"));
    }
    width *= extent;
  }
  Image input{width, 1, 1};
  if (!model.has_tokens() && ReadsImages(model)) {
    if (model.input_size() != 3) {
      return absl::InvalidArgumentError(
          absl::StrCat("model.input: got ", model.input_size(),
                       " numbers, want three, [channels, height, width]: convolutions, pooling "
                       "and local_response_norm read images"));
    }
    input = {model.input(0), model.input(1), model.input(2)};
  }
  ModelShape shape;
  if (model.has_tokens()) {
    const int64_t context = model.tokens().context();
    shape.vocabulary = model.tokens().vocabulary();
    if (context < 1 || shape.vocabulary < 2) {
      return absl::InvalidArgumentError(absl::StrCat("model.input: tokens have a context of ",
                                                     context, " and a vocabulary of ",
                                                     shape.vocabulary, ", want at least 1 and 2"));
    }
    input = {1, context, 1, true};
  }
  ShapeMaker maker(input, &shape);
  int last = kModelInput;
  TESSERA_RETURN_IF_ERROR(maker.AddAll(model.layers(), "layers", "model.layers", &last));
  for (const Image& each : shape.images) {
    if (each.channels > kModelSizeMax / each.positions()) {
      return absl::InvalidArgumentError("model.layers: a row has more than 2^40 values");
    }
  }
  for (const Image& each : shape.images) shape.widths.push_back(each.size());
  if (!maker.learns()) {
    return absl::InvalidArgumentError(
        "model.layers: no linear layer and no convolution, want at least one linear or conv2d: "
        "there is nothing to train");
  }
  if (shape.vocabulary > 0 && shape.outputs() != shape.vocabulary) {
    return absl::InvalidArgumentError(absl::StrCat(
        "model.layers: the last layer makes ", shape.outputs(), " scores in each place, want ",
        shape.vocabulary, ", one for each token: linear: {units: vocabulary}"));
  }
  return shape;
}

void FillInitialRows(const ParameterSpec& spec, int index, uint64_t seed, int64_t row_begin,
                     int64_t row_end, float* out) {
  const bool is_normal = spec.initial_stddev > 0;
  if (spec.initial_bound == 0 && !is_normal) {
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
        *out++ = is_normal ? spec.initial_stddev * NormalOf(block[k])
                           : spec.initial_bound * (2 * UnitFloat(block[k]) - 1);
      }
    }
  }
}

}  // namespace tessera
