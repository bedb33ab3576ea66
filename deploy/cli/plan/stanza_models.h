// The two performance models of Stanza (Wu, Xu, Li, Xiong 2018, arXiv 1812.10624), as they stand in its section 4: of
// layer separation, whose convolutions' gradients are averaged by an all-reduce and whose linear layers stay where they
// are, and of a parameter server. `exchange_time.h` has what our own programs do.
#ifndef TESSERA_DEPLOY_CLI_PLAN_STANZA_MODELS_H_
#define TESSERA_DEPLOY_CLI_PLAN_STANZA_MODELS_H_

#include <cstdint>

namespace tessera {

struct StanzaQuantities {
  // T_c and T_f: seconds of a worker's minibatch in the layers in front of the cut, and behind it.
  double front_seconds = 0;
  double linear_seconds = 0;
  // A S: values at the cut of a worker's minibatch.
  double activations = 0;
  // P_c and P: parameters in front of the cut, and all.
  double front_parameters = 0;
  double parameters = 0;
  // R: parameters that a link carries in a second; 0: it takes no time.
  double rate = 0;
};

// The rounds of the all-reduce among n_c workers: log2 of a power of two, else floor(log2) + 2 (section 4.1.2).
int64_t AllReduceRounds(int64_t workers);
// t: seconds of a step of n_c workers in front and n_f linear ones, each at least 1.
double StanzaStepSeconds(const StanzaQuantities& of, int64_t front_workers, int64_t linear_workers);
// t_ps: seconds of a step of n_w workers with the whole network and n_s servers, each at least 1.
double ServerStepSeconds(const StanzaQuantities& of, int64_t workers, int64_t servers);
// The number of linear workers, of so many workers in all, with which t gives most rows a second; at most half of the
// workers, of which there are 2 or more (section 4.2). Of several such numbers the least.
int64_t BestLinearByStanza(const StanzaQuantities& of, int64_t workers);

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_PLAN_STANZA_MODELS_H_
