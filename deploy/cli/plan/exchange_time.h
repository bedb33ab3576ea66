// How long steps and exchanges take on given machines, in closed form: what `tessera plan` tells.
//
// K workers and S servers, each at a link of B bytes per second each way and L from every other; a worker pushes
// P bytes and pulls Q in an exchange, of which the server that holds the most has the share s; a server folds the
// F bytes of a push in F s / R.
//
//   where all wait for all (J steps of c, then everybody's exchange)
//     push      max(P / B, K P s / B, K F s / R)      the links' and the servers' work goes on at once
//     exchange  L + push + F s / R + L + max(Q / B, K Q s / B)
//     cycle     J c + max(0, exchange - D c), where D steps go on beside it: J, or a fragment's delay
//   where nobody waits for anybody
//     alone     J c + L + P / B + F s / R + L + Q / B
//     cycle     alone, and the wait for the others at three queues that take s P / B, F s / R and s Q / B of each:
//               mean value analysis of a closed network (Reiser, Lavenberg, Journal of the ACM 27, 1980)
//   between workers, each with a server beside it, whose pulls stay on their machine at M bytes per second
//     cycle     max(J c + max(L + P / B + L, F / R + Q / M), K F / R)      alone: no links
//   where the layers are cut in two: the model of Stanza (Wu, Xu, Li, Xiong 2018, arXiv 1812.10624)
//     n_c workers have the data and the front, c_c of each minibatch; n_f = K - n_c linear ones the rest, c_f. A
//     minibatch has X bytes of activations and labels, and Y of their gradient.
//     computing    c_c + b c_f, with b = ceil(n_c / n_f) minibatches of the linear worker that has most, for which all
//                  wait; there n_c / n_f, the mean, which is nobody's where it is no whole number
//     activations  2 L + b (X + Y) / B; there 2 n_c A S / (n_f R), the mean again
//     exchange     there P_c log2(n_c) / R, an all-reduce; here of n_c workers the front's parameters and of n_f those
//                  behind, through the same servers at once:
//                  L + max(P_c / B, P_f / B, (n_c s_c P_c + n_f s_f P_f) / B, (n_c s_c F_c + n_f s_f F_f) / R)
//                  + max(s_c F_c, s_f F_f) / R + L + max(Q_c / B, Q_f / B, (n_c s_c Q_c + n_f s_f Q_f) / B)
//     cycle        the sum of the three, for n_c minibatches
//
// Left out: chance, differently fast machines, what messages have beside their payload. `tessera simulate` has them.
#ifndef TESSERA_DEPLOY_CLI_PLAN_EXCHANGE_TIME_H_
#define TESSERA_DEPLOY_CLI_PLAN_EXCHANGE_TIME_H_

#include <cstdint>

namespace tessera {

struct Machines {
  int64_t workers = 1;     // K
  double bandwidth = 0;    // B; 0: no limit
  double latency = 0;      // L, seconds
  double fold_rate = 0;    // R, bytes of parameters per second; 0: it takes no time
  double memory_rate = 0;  // M; 0: it takes no time
};

// What one worker does and moves.
struct ExchangeWork {
  double local_steps = 1;    // J
  double step_seconds = 0;   // c
  double push_bytes = 0;     // P
  double pull_bytes = 0;     // Q
  double fold_bytes = 0;     // F
  double busiest_share = 1;  // s
  bool waits_for_all = true;
  double overlapped_steps = 0;  // D
  bool between_workers = false;
};

// The part of a cycle that takes the most.
enum class Limit { kComputing, kLatency, kWorkerLinks, kServerLinks, kFolding, kMemory };
// The limit in words: "workers' links".
const char* Describe(Limit limit);

struct CycleTime {
  double seconds = 0;    // of J steps and their exchange
  double computing = 0;  // the part of it in which a worker computes, 0 to 1
  Limit limit = Limit::kComputing;
};

CycleTime TimeOf(const ExchangeWork& work, const Machines& machines);

// What one worker that has this half does and moves.
struct HalfWork {
  double batch_seconds = 0;  // c_c or c_f, of one minibatch
  double push_bytes = 0;
  double pull_bytes = 0;
  double fold_bytes = 0;
  double busiest_share = 1;
  // Servers that have this half's parameters alone, and run on the machines of its workers. 0 for both halves: servers
  // have a share of all, on machines of their own.
  int64_t servers_beside = 0;
};

struct HalvesWork {
  HalfWork front, linear;
  double activation_bytes = 0;  // X
  double gradient_bytes = 0;    // Y
};

// The time of one step, with so many of machines.workers linear ones, between 1 and all but one. `computing` is
// the mean over the workers.
CycleTime TimeOf(const HalvesWork& work, const Machines& machines, int64_t linear_workers);
// What of a worker's push and pull crosses links, of so many workers of its half.
double CrossingBytes(const HalfWork& half, double workers);
// The number of linear workers with which most minibatches are trained a second; of several such numbers the
// least. At most half of the workers, of which there are 2 or more, and at most `most`.
int64_t BestLinearWorkers(const HalvesWork& work, const Machines& machines, int64_t most);

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_PLAN_EXCHANGE_TIME_H_
