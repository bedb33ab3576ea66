#include "deploy/cli/plan/stanza_models.h"

namespace tessera {
namespace {

double Moving(double values, double rate) { return rate > 0 ? values / rate : 0; }

}  // namespace

int64_t AllReduceRounds(int64_t workers) {
  int64_t rounds = 0;
  while ((int64_t{2} << rounds) <= workers) ++rounds;
  return workers == int64_t{1} << rounds ? rounds : rounds + 2;
}

double StanzaStepSeconds(const StanzaQuantities& of, int64_t front_workers,
                         int64_t linear_workers) {
  const auto n_c = static_cast<double>(front_workers), n_f = static_cast<double>(linear_workers);
  const double computing = of.front_seconds + n_c / n_f * of.linear_seconds;
  const auto rounds = static_cast<double>(AllReduceRounds(front_workers));
  return computing + Moving(2 * n_c * of.activations / n_f, of.rate) +
         Moving(of.front_parameters * rounds, of.rate);
}

double ServerStepSeconds(const StanzaQuantities& of, int64_t workers, int64_t servers) {
  const double each = static_cast<double>(workers) / static_cast<double>(servers);
  return Moving(2 * each * of.parameters, of.rate) + of.front_seconds + of.linear_seconds;
}

int64_t BestLinearByStanza(const StanzaQuantities& of, int64_t workers) {
  int64_t best = 1;
  double best_rate = 0;
  for (int64_t linear = 1; linear <= workers / 2; ++linear) {
    const double seconds = StanzaStepSeconds(of, workers - linear, linear);
    const double rate = seconds > 0 ? static_cast<double>(workers - linear) / seconds : 0;
    if (rate <= best_rate) continue;
    best = linear;
    best_rate = rate;
  }
  return best;
}

}  // namespace tessera
