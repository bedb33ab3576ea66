#include "tests/worker/train/subnet_reference.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <memory>
#include <numeric>
#include <tuple>

#include "common/base/philox.h"
#include "common/method/train_rows.h"
#include "worker/data/order.h"

namespace tessera {
namespace {

std::vector<int> All(int count) {
  std::vector<int> all(count);
  std::iota(all.begin(), all.end(), 0);
  return all;
}

using Layers = google::protobuf::RepeatedPtrField<v1::Layer>;

// The layers with repeats written out.
Layers Expanded(const Layers& layers) {
  Layers result;
  for (const v1::Layer& layer : layers) {
    if (layer.has_repeat()) {
      const Layers once = Expanded(layer.repeat().layers());
      for (int i = 0; i < layer.repeat().times(); ++i) result.MergeFrom(once);
      continue;
    }
    v1::Layer* const copy = result.Add();
    *copy = layer;
    if (layer.has_residual()) {
      *copy->mutable_residual()->mutable_layers() = Expanded(layer.residual().layers());
      *copy->mutable_residual()->mutable_shortcut() = Expanded(layer.residual().shortcut());
    }
    if (layer.has_concat()) {
      for (v1::Branch& branch : *copy->mutable_concat()->mutable_branches()) {
        *branch.mutable_layers() = Expanded(branch.layers());
      }
    }
  }
  return result;
}

v1::Job Expanded(v1::Job job) {
  *job.mutable_model()->mutable_layers() = Expanded(job.model().layers());
  return job;
}

// Whether units that come to layer `from` of the list are read by weights alone, and reach no sum, no concat and no
// output.
bool IsRead(const Layers& layers, int from) {
  for (int i = from; i < layers.size(); ++i) {
    const v1::Layer& layer = layers[i];
    if (layer.has_linear() || layer.has_conv2d()) return true;
    if (layer.has_layer_norm() || layer.has_attention()) return false;
    if (layer.has_residual()) {
      return IsRead(layer.residual().layers(), 0) && IsRead(layer.residual().shortcut(), 0);
    }
    if (layer.has_concat()) {
      return std::all_of(layer.concat().branches().begin(), layer.concat().branches().end(),
                         [](const v1::Branch& branch) { return IsRead(branch.layers(), 0); });
    }
  }
  return false;
}

}  // namespace

SubnetReference::SubnetReference(const v1::Job& job, const Dataset* train, int workers,
                                 Backend* backend)
    : job_(Expanded(job)),
      train_(*train),
      workers_(workers),
      backend_(*backend),
      shape_(*ShapeOf(job.model())) {
  for (size_t p = 0; p < shape_.parameters.size(); ++p) {
    const ParameterSpec& spec = shape_.parameters[p];
    values_.emplace_back(spec.size());
    FillInitialRows(spec, static_cast<int>(p), job.seed(), 0, spec.rows, values_.back().data());
  }
}

std::vector<int> SubnetReference::Part(uint64_t round, int group, int width,
                                       const std::vector<int>& shares, int site) const {
  const bool rolls = job_.method().ist().order() == "rolling";
  const uint64_t drawn_in = rolls ? 0 : round;
  std::vector<std::tuple<uint32_t, uint32_t, int>> order;
  for (int neuron = 0; neuron < width; ++neuron) {
    const PhiloxBlock block =
        Philox(job_.seed(), Stream::kSubnet, drawn_in + (uint64_t{1} << 40) * group, neuron);
    order.emplace_back(block[1], block[0], neuron);
  }
  std::sort(order.begin(), order.end());
  if (rolls) {
    const int sites = static_cast<int>(shares.size());
    const int parts = static_cast<int>(group * round % sites);
    std::rotate(order.begin(), order.begin() + width * parts / sites, order.end());
  }
  const int all = std::accumulate(shares.begin(), shares.end(), 0);
  const int before = std::accumulate(shares.begin(), shares.begin() + site, 0);
  std::vector<int> part;
  for (int i = width * before / all; i < width * (before + shares[site]) / all; ++i) {
    part.push_back(std::get<2>(order[i]));
  }
  std::sort(part.begin(), part.end());
  return part;
}

// The next parameter. Each unit of `columns` has as many of its columns as there are for each unit.
void SubnetReference::AddPiece(const Units& rows, const Units& columns, Cut* cut) const {
  const ParameterSpec& spec = shape_.parameters[cut->pieces.size()];
  Piece piece;
  const int of_unit = static_cast<int>(spec.rows) / rows.times / rows.all;
  for (int time = 0; time < rows.times; ++time) {
    for (const int unit : rows.mine) {
      for (int k = 0; k < of_unit; ++k) {
        piece.rows.push_back((time * rows.all + unit) * of_unit + k);
      }
    }
  }
  piece.shared = rows.whole() && columns.whole();
  const int each = static_cast<int>(spec.columns) / columns.all;
  for (const int unit : columns.mine) {
    for (int k = 0; k < each; ++k) piece.columns.push_back(unit * each + k);
  }
  cut->pieces.push_back(std::move(piece));
}

SubnetReference::Units SubnetReference::Walk(const Layers& layers, Units units, Cut* cut) const {
  const auto whole = [](int count) { return Units{All(count), count}; };
  const Units one = whole(1);
  for (int i = 0; i < layers.size(); ++i) {
    const v1::Layer& layer = layers[i];
    if (layer.linear().tied()) {
      // It ends the model, and has no weight of its own.
      REQUIRE(!layer.linear().bias());
    } else if (layer.has_linear() || layer.has_conv2d()) {
      const bool dealt = layer.has_linear() || job_.method().ist().cut() == "all";
      const bool bias = layer.has_linear() ? layer.linear().bias() : layer.conv2d().bias();
      Units made = whole(static_cast<int>(layer.has_linear() ? layer.linear().units()
                                                             : layer.conv2d().channels()));
      if (dealt && IsRead(layers, i + 1)) {
        made.mine = Part(cut->round, ++cut->groups, made.all, cut->shares, cut->site);
      }
      AddPiece(made, units, cut);
      if (bias) AddPiece(made, one, cut);
      units = made;
    } else if ((layer.has_batch_norm() && layer.batch_norm().affine()) ||
               (layer.has_layer_norm() && layer.layer_norm().affine())) {
      AddPiece(units, one, cut);
      AddPiece(units, one, cut);
    } else if (layer.has_embedding()) {
      units = whole(static_cast<int>(layer.embedding().units()));
      AddPiece(whole(static_cast<int>(job_.model().tokens().vocabulary())), units, cut);
      AddPiece(whole(static_cast<int>(job_.model().tokens().context())), units, cut);
    } else if (layer.has_attention()) {
      Units heads = whole(static_cast<int>(layer.attention().heads()));
      if (job_.method().ist().cut() == "all") {
        heads.mine = Part(cut->round, ++cut->groups, heads.all, cut->shares, cut->site);
      }
      Units in_rows = heads;
      in_rows.times = 3;
      AddPiece(in_rows, units, cut);
      AddPiece(in_rows, one, cut);
      AddPiece(units, heads, cut);
      AddPiece(units, one, cut);
    } else if (layer.has_residual()) {
      const Units sum = Walk(layer.residual().layers(), units, cut);
      Walk(layer.residual().shortcut(), units, cut);
      units = sum;
    } else if (layer.has_concat()) {
      int all = 0;
      for (const v1::Branch& branch : layer.concat().branches()) {
        all += Walk(branch.layers(), units, cut).all;
      }
      units = whole(all);
    }
  }
  return units;
}

std::vector<SubnetReference::Piece> SubnetReference::PiecesOf(uint64_t round,
                                                              const std::vector<int>& shares,
                                                              int site) const {
  Cut cut;
  cut.round = round;
  cut.shares = shares;
  cut.site = site;
  const int inputs = static_cast<int>(shape_.images[0].channels);
  Walk(job_.model().layers(), {All(inputs), inputs}, &cut);
  REQUIRE(cut.pieces.size() == shape_.parameters.size());
  return cut.pieces;
}

namespace {

// Takes the units of each layer from the rows of its weight, parameter *p.
template <typename Pieces>
void SetUnits(const Pieces& pieces, Layers* layers, size_t* p) {
  for (v1::Layer& layer : *layers) {
    if (layer.has_linear() && !layer.linear().tied()) {
      layer.mutable_linear()->set_units(static_cast<int64_t>(pieces[*p].rows.size()));
      *p += layer.linear().bias() ? 2 : 1;
    } else if (layer.has_conv2d()) {
      layer.mutable_conv2d()->set_channels(static_cast<int64_t>(pieces[*p].rows.size()));
      *p += layer.conv2d().bias() ? 2 : 1;
    } else if ((layer.has_batch_norm() && layer.batch_norm().affine()) ||
               (layer.has_layer_norm() && layer.layer_norm().affine()) || layer.has_embedding()) {
      *p += 2;
    } else if (layer.has_attention()) {
      v1::Attention& keys = *layer.mutable_attention();
      const auto units = static_cast<int64_t>(pieces[*p].columns.size());
      const int64_t head_size = units / keys.heads();
      keys.set_heads(static_cast<int64_t>(pieces[*p].rows.size()) / 3 / head_size);
      keys.set_head_size(head_size);
      *p += 4;
    } else if (layer.has_residual()) {
      SetUnits(pieces, layer.mutable_residual()->mutable_layers(), p);
      SetUnits(pieces, layer.mutable_residual()->mutable_shortcut(), p);
    } else if (layer.has_concat()) {
      for (v1::Branch& branch : *layer.mutable_concat()->mutable_branches()) {
        SetUnits(pieces, branch.mutable_layers(), p);
      }
    }
  }
}

}  // namespace

v1::Model SubnetReference::SmallModel(const std::vector<Piece>& pieces) const {
  v1::Model model = job_.model();
  size_t p = 0;
  SetUnits(pieces, model.mutable_layers(), &p);
  return model;
}

std::vector<uint32_t> SubnetReference::Rows(int rank, uint64_t step) const {
  const int64_t batch = job_.train().batch_size();
  EpochOrder order({Partition::kGlobal, job_.seed(), train_.rows(), batch, nullptr});
  const auto steps = static_cast<uint64_t>(*EpochSteps(train_.rows(), workers_, batch));
  REQUIRE(order.Begin({step / steps, Rank(rank), rank, workers_, 0}).ok());
  const absl::Span<const uint32_t> rows = order.Rows(step % steps);
  return {rows.begin(), rows.end()};
}

void SubnetReference::Step(Local* local, int rank, uint64_t step) {
  std::vector<float> inputs(job_.train().batch_size() * train_.inputs());
  std::vector<int32_t> labels(job_.train().batch_size() * shape_.places());
  const std::vector<uint32_t> rows = Rows(rank, step);
  BatchView view;
  view.features = inputs.data();
  view.classes = labels.data();
  const auto steps = *EpochSteps(train_.rows(), workers_, job_.train().batch_size());
  train_.FillBatch(rows, view, 1, step / static_cast<uint64_t>(steps));
  Batch batch;
  batch.rows = static_cast<int64_t>(rows.size());
  batch.inputs = inputs.data();
  batch.labels = labels.data();
  REQUIRE(local->network->steps()
              .TrainStep(batch, {job_.seed(), step, static_cast<uint64_t>(rank)})
              .ok());
  Update update;
  update.number = ++local->steps;
  REQUIRE(local->optimizer->Step(update).ok());
}

std::vector<std::vector<float>> SubnetReference::Train(const std::vector<Piece>& pieces, int site,
                                                       uint64_t first_step, int64_t steps) {
  Local local;
  local.network = *Network::Create(SmallModel(pieces), {job_.train().batch_size()}, backend_);
  local.optimizer = *LocalOptimizer::Create(job_.train().optimizer(), *local.network, backend_);
  for (size_t p = 0; p < pieces.size(); ++p) {
    float* to = local.network->arrays().parameter(static_cast<int>(p)).data();
    for (const int row : pieces[p].rows) {
      for (const int column : pieces[p].columns) {
        *to++ = values_[p][row * shape_.parameters[p].columns + column];
      }
    }
  }
  for (int64_t i = 0; i < steps; ++i) Step(&local, site, first_step + i);
  std::vector<std::vector<float>> trained;
  for (size_t p = 0; p < pieces.size(); ++p) {
    const absl::Span<float> values = local.network->arrays().parameter(static_cast<int>(p));
    trained.emplace_back(values.begin(), values.end());
  }
  return trained;
}

void SubnetReference::Round(uint64_t round, uint64_t first_step, int64_t steps,
                            const std::vector<bool>& returns, const std::vector<int>& given) {
  const int sites = static_cast<int>(returns.size());
  const std::vector<int> shares = given.empty() ? std::vector<int>(sites, 1) : given;
  std::vector<std::vector<float>> next = values_;
  std::vector<std::vector<double>> sums;
  for (const auto& value : values_) sums.emplace_back(value.size());
  int returned = 0;
  for (int site = 0; site < sites; ++site) {
    if (!returns[site]) continue;
    ++returned;
    const std::vector<Piece> pieces = PiecesOf(round, shares, site);
    const std::vector<std::vector<float>> trained = Train(pieces, site, first_step, steps);
    for (size_t p = 0; p < pieces.size(); ++p) {
      const float* from = trained[p].data();
      for (const int row : pieces[p].rows) {
        for (const int column : pieces[p].columns) {
          const int64_t at = row * shape_.parameters[p].columns + column;
          sums[p][at] += *from;
          next[p][at] = *from++;
        }
      }
    }
  }
  const std::vector<Piece> any = PiecesOf(round, shares, 0);
  for (size_t p = 0; p < any.size(); ++p) {
    if (!any[p].shared) continue;
    for (size_t i = 0; i < next[p].size(); ++i) {
      next[p][i] = static_cast<float>(sums[p][i] / returned);
    }
  }
  values_ = next;
}

void SubnetReference::Whole(uint64_t first_step, int64_t steps, const std::vector<bool>& returns) {
  std::vector<std::vector<float>> sums;
  for (size_t rank = 0; rank < returns.size(); ++rank) {
    if (!returns[rank]) continue;
    Local& local = locals_[static_cast<int>(rank)];
    if (local.network == nullptr) {
      local.network = *Network::Create(job_.model(), {job_.train().batch_size()}, backend_);
      local.optimizer = *LocalOptimizer::Create(job_.train().optimizer(), *local.network, backend_);
    }
    for (size_t p = 0; p < values_.size(); ++p) {
      std::copy(values_[p].begin(), values_[p].end(),
                local.network->arrays().parameter(static_cast<int>(p)).begin());
    }
    for (int64_t i = 0; i < steps; ++i) Step(&local, static_cast<int>(rank), first_step + i);
    const bool is_first = sums.empty();
    for (size_t p = 0; p < values_.size(); ++p) {
      const absl::Span<float> after = local.network->arrays().parameter(static_cast<int>(p));
      if (is_first) sums.emplace_back(values_[p].size(), 0.0f);
      for (size_t i = 0; i < values_[p].size(); ++i) sums[p][i] += after[i] - values_[p][i];
    }
  }
  const float scale = 1.0f / static_cast<float>(std::count(returns.begin(), returns.end(), true));
  for (size_t p = 0; p < values_.size(); ++p) {
    for (size_t i = 0; i < values_[p].size(); ++i) values_[p][i] += scale * sums[p][i];
  }
}

std::vector<float> SubnetReference::Parameters() const {
  std::vector<float> all;
  for (const auto& value : values_) all.insert(all.end(), value.begin(), value.end());
  return all;
}

int64_t SubnetReference::SubnetSize(uint64_t round, const std::vector<int>& shares,
                                    int site) const {
  int64_t size = 0;
  for (const Piece& piece : PiecesOf(round, shares, site)) {
    size += static_cast<int64_t>(piece.rows.size() * piece.columns.size());
  }
  return size;
}

}  // namespace tessera
