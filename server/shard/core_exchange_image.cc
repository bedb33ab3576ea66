// CoreExchange: all of it, for a standby.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "server/shard/core_exchange.h"

namespace tessera {
namespace {

constexpr int64_t kFloat = sizeof(float);

absl::Status Contradicts(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("image of a core: ", what));
}

Payload::Piece PieceOf(const float* values, int64_t count) {
  return {reinterpret_cast<const char*>(values), count * kFloat};
}

// What a selection that is taken from an image reads.
struct Searched {
  // One of the two.
  std::shared_ptr<const Snapshot> snapshot;
  std::vector<float> values;
  std::shared_ptr<const std::vector<float>> gradient;
};

}  // namespace

CoresImage CoreExchange::TakeImage(const Snapshot& now, Payload* values) const {
  CoresImage image;
  image.pushed_all.assign(pushed_all_.begin(), pushed_all_.end());
  std::sort(image.pushed_all.begin(), image.pushed_all.end());
  image.has_gradient = !gradient_.empty();
  image.magnitudes = magnitudes_;
  image.moved_since = moved_since_;
  if (image.has_gradient) {
    const auto copy = std::make_shared<const std::vector<float>>(gradient_);
    values->Append(PieceOf(copy->data(), options_.slices->size), copy);
  }
  if (search_.has_value()) {
    const CoreSearch::Options& from = search_->options();
    SelectionImage& selection = image.selection.emplace();
    selection.core = search_number_;
    selection.sums = from.sums;
    selection.questions = questions_;
    for (size_t i = 0; i < from.runs.size(); ++i) {
      selection.has_values |= from.runs[i].w != now.blocks()[i]->data();
      selection.has_gradient |= from.runs[i].g != nullptr;
    }
    for (size_t i = 0; selection.has_values && i < from.runs.size(); ++i) {
      values->Append(PieceOf(from.runs[i].w, from.runs[i].size), from.owner);
    }
    for (size_t i = 0; selection.has_gradient && i < from.runs.size(); ++i) {
      values->Append(PieceOf(from.runs[i].g, from.runs[i].size), from.owner);
    }
  }
  for (const std::shared_ptr<const Core>& core : known_) {
    EncodedKeys keys = EncodeKeys(core->keys);
    image.known.push_back(
        {core->name, static_cast<int>(keys.form), static_cast<int64_t>(keys.bytes.size())});
    const auto bytes = std::make_shared<const std::string>(std::move(keys.bytes));
    values->Append({bytes->data(), static_cast<int64_t>(bytes->size())}, bytes);
  }
  return image;
}

absl::Status CoreExchange::SetImage(const CoresImage& image, ImageReader* values,
                                    BlockStore* store) {
  const int64_t size = options_.slices->size;
  if (values->left() < image.arrays() * size * kFloat) return Contradicts("values are missing");
  if (image.known.size() > kKnownMax) return Contradicts("has too many cores");
  search_.reset();
  searched_gradient_.reset();
  pushed_all_.clear();
  pushed_all_.insert(image.pushed_all.begin(), image.pushed_all.end());
  gradient_.resize(image.has_gradient ? size : 0);
  values->Read(static_cast<int64_t>(gradient_.size()), gradient_.data());
  magnitudes_ = image.magnitudes;
  moved_since_ = image.moved_since;
  const auto searched = std::make_shared<Searched>();
  if (image.selection.has_value()) {
    if (!image.selection->has_values) searched->snapshot = store->TakeSnapshot();
    searched->values.resize(image.selection->has_values ? size : 0);
    values->Read(static_cast<int64_t>(searched->values.size()), searched->values.data());
    std::vector<float> gradient(image.selection->has_gradient ? size : 0);
    values->Read(static_cast<int64_t>(gradient.size()), gradient.data());
    searched->gradient = std::make_shared<const std::vector<float>>(std::move(gradient));
  }
  known_.clear();
  latest_.reset();
  for (const CoresImage::Known& known : image.known) {
    if (known.keys_bytes < 0 || known.keys_bytes > values->left()) {
      return Contradicts("keys are missing");
    }
    std::string bytes(static_cast<size_t>(known.keys_bytes), '\0');
    values->Read(known.keys_bytes, static_cast<void*>(&bytes[0]));
    NamedCore named{known.name, known.key_form, std::move(bytes)};
    TESSERA_ASSIGN_OR_RETURN(std::shared_ptr<const Core> core, Read("image of a core", named));
    Remember(std::move(core));
  }
  questions_.clear();
  if (!image.selection.has_value()) return absl::OkStatus();
  if (image.selection->core < cores()) return Contradicts("selects a core that was selected");
  std::vector<SignificanceRun> runs;
  const float* w = searched->values.empty() ? nullptr : searched->values.data();
  const float* g = searched->gradient->empty() ? nullptr : searched->gradient->data();
  for (int i = 0; i < store->block_count(); ++i) {
    const int64_t count = store->block(i).size();
    runs.push_back({w == nullptr ? searched->snapshot->blocks()[i]->data() : w, g, count});
    if (w != nullptr) w += count;
    if (g != nullptr) g += count;
  }
  searched_gradient_ = searched->gradient;
  Search(image.selection->core, std::move(runs), image.selection->sums, searched);
  for (const CoreQuestion& question : image.selection->questions) {
    const size_t asked = questions_.size();
    Ask(question);
    if (questions_.size() == asked) return Contradicts("has a question that nobody asks");
  }
  return absl::OkStatus();
}

}  // namespace tessera
