// One training step of a GPT: forward, backward and AdamW, against the matrix products that it has at least, by
// dnnl_sgemm: those of its linear layers, and those of the scores and results of attention, all of them without a
// causal mask.
//
//   bazel-bin/bench/step/text_step [--blocks 6] [--heads 6] [--units 384] [--context 256] [--batch 64] [--threads 1]
//       [--dropout 0] [--seconds 30] [--tiny]
//
// Prints medians in milliseconds and their share of what the products alone take in f32; the candidates take turns, so
// that a slow moment of the machine hits all.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "bench/step/head_products.h"
#include "bench/step/products.h"
#include "bench/timing/timing.h"
#include "common/base/check.h"
#include "kernels/devices.h"
#include "worker/model/local_optimizer.h"
#include "worker/model/network.h"

namespace tessera {
namespace {

struct Flags {
  int blocks = 6;
  int heads = 6;
  int64_t units = 384;
  int64_t context = 256;
  int64_t vocabulary = 65;
  int64_t batch = 64;
  double dropout = 0;
  int threads = 1;
  double seconds = 30;
  bool tiny = false;
};

v1::Model Gpt(const Flags& flags) {
  v1::Model model;
  model.set_loss("softmax_cross_entropy");
  model.mutable_tokens()->set_vocabulary(flags.vocabulary);
  model.mutable_tokens()->set_context(flags.context);
  v1::Embedding* const embedding = model.add_layers()->mutable_embedding();
  embedding->set_units(flags.units);
  embedding->set_positions("learned");
  embedding->set_stddev(0.02);
  for (int block = 0; block < flags.blocks; ++block) {
    const auto norm = [](v1::Layer* layer) {
      layer->mutable_layer_norm()->set_affine(true);
      layer->mutable_layer_norm()->set_epsilon(1e-5);
    };
    const auto drop = [&flags](auto* block_of) {
      if (flags.dropout > 0) {
        block_of->add_layers()->mutable_dropout()->set_probability(flags.dropout);
      }
    };
    v1::Residual* const attends = model.add_layers()->mutable_residual();
    norm(attends->add_layers());
    v1::Attention* const attention = attends->add_layers()->mutable_attention();
    attention->set_heads(flags.heads);
    attention->set_causal(true);
    attention->set_dropout(flags.dropout);
    drop(attends);
    v1::Residual* const computes = model.add_layers()->mutable_residual();
    norm(computes->add_layers());
    computes->add_layers()->mutable_linear()->set_units(4 * flags.units);
    computes->add_layers()->mutable_gelu()->set_approximate("none");
    computes->add_layers()->mutable_linear()->set_units(flags.units);
    drop(computes);
  }
  v1::Linear* const last = model.add_layers()->mutable_linear();
  last->set_units(flags.vocabulary);
  last->set_tied(true);
  return model;
}

struct Candidate {
  std::string name;
  std::unique_ptr<Network> network;
  std::unique_ptr<LocalOptimizer> optimizer;
  std::vector<double> seconds;
};

absl::Status Run(const Flags& flags) {
  TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<Backend> backend,
                           CreateBackend("cpu", flags.threads));
  std::mt19937 random(7);
  const auto token = [&] { return static_cast<int32_t>(random() % flags.vocabulary); };
  std::vector<float> inputs(flags.batch * flags.context);
  std::vector<int32_t> labels(flags.batch * flags.context);
  for (float& input : inputs) input = static_cast<float>(token());
  for (int32_t& label : labels) label = token();
  const Batch batch{flags.batch, inputs.data(), labels.data(), nullptr};

  v1::Optimizer adamw;
  adamw.mutable_adamw()->set_learning_rate(1e-3);
  adamw.mutable_adamw()->set_beta1(0.9);
  adamw.mutable_adamw()->set_beta2(0.99);
  adamw.mutable_adamw()->set_epsilon(1e-8);
  std::vector<Candidate> candidates;
  for (const Precision precision : {Precision::kF32, Precision::kBf16}) {
    if (precision == Precision::kBf16 && !backend->linear_bf16().ok()) continue;
    Candidate candidate;
    candidate.name = precision == Precision::kF32 ? "f32" : "bf16";
    TESSERA_ASSIGN_OR_RETURN(candidate.network,
                             Network::Create(Gpt(flags), {flags.batch, precision}, *backend));
    TESSERA_ASSIGN_OR_RETURN(candidate.optimizer,
                             LocalOptimizer::Create(adamw, *candidate.network, *backend));
    candidate.network->arrays().SetInitialValues(1);
    candidates.push_back(std::move(candidate));
  }

  const int64_t rows = flags.batch * flags.context, d = flags.units;
  std::vector<LinearShape> shapes;
  for (int block = 0; block < flags.blocks; ++block) {
    for (const LinearShape& shape : {LinearShape{rows, d, 3 * d}, LinearShape{rows, d, d},
                                     LinearShape{rows, d, 4 * d}, LinearShape{rows, 4 * d, d}}) {
      shapes.push_back(shape);
    }
  }
  shapes.push_back({rows, d, flags.vocabulary});
  StepProducts products(shapes, /*has_first_gradient=*/true);
  HeadProducts head_products({flags.batch, flags.context, flags.heads, d / flags.heads, true});
  std::vector<double> linear_seconds, head_seconds;
  double elapsed = 0;
  for (int round = 0; round < 3 || elapsed < flags.seconds; ++round) {
    const double linear = Seconds([&] { products.Run(flags.threads); });
    const double heads = flags.blocks * Seconds([&] {
                           head_products.Forward(flags.threads);
                           head_products.Backward(flags.threads);
                         });
    elapsed += linear + heads;
    if (round >= 1) {
      linear_seconds.push_back(linear);
      head_seconds.push_back(heads);
    }
    for (Candidate& candidate : candidates) {
      absl::Status status;
      const double seconds = Seconds([&] {
        status = candidate.network->steps()
                     .TrainStep(batch, {0, static_cast<uint64_t>(round), 0})
                     .status();
        status.Update(candidate.optimizer->Step({}));
      });
      TESSERA_RETURN_IF_ERROR(status);
      elapsed += seconds;
      if (round >= 1) candidate.seconds.push_back(seconds);
    }
  }
  const double linear = Median(linear_seconds), heads = Median(head_seconds);
  std::printf("%s, batch %ld, %zu rounds, medians\n", backend->description().c_str(), flags.batch,
              linear_seconds.size());
  std::printf("sgemm %9.1f ms  %.1f of linear layers (%.1f GFLOP/s), %.1f of attention\n",
              (linear + heads) * 1e3, linear * 1e3, products.flops() / linear * 1e-9, heads * 1e3);
  for (const Candidate& candidate : candidates) {
    const double seconds = Median(candidate.seconds);
    std::printf("%-5s %9.1f ms  %.2f of sgemm's rate  (forward, backward, AdamW)\n",
                candidate.name.c_str(), seconds * 1e3, (linear + heads) / seconds);
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  tessera::Flags flags;
  CLI::App app("Times one training step of a GPT against oneDNN's matrix products.");
  app.add_option("--blocks", flags.blocks, "of attention and two linear layers");
  app.add_option("--heads", flags.heads, "of each block");
  app.add_option("--units", flags.units, "the width");
  app.add_option("--context", flags.context, "tokens of a row");
  app.add_option("--batch", flags.batch, "rows");
  app.add_option("--dropout", flags.dropout, "of weights and of what blocks add");
  app.add_option("--threads", flags.threads, "OpenMP threads");
  app.add_option("--seconds", flags.seconds, "time to measure for");
  app.add_flag("--tiny", flags.tiny, "a small network for a moment, as a test");
  CLI11_PARSE(app, argc, argv);
  if (flags.tiny) {
    flags.blocks = flags.heads = 2;
    flags.units = 16;
    flags.context = 9;
    flags.batch = 3;
    flags.seconds = 0.1;
  }
  const absl::Status status = tessera::Run(flags);
  if (!status.ok()) std::fprintf(stderr, "text_step: %s\n", std::string(status.message()).c_str());
  return status.ok() ? 0 : 1;
}
