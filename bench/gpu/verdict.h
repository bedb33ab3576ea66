// How a line of a table says whether what it aims at was reached.
#ifndef TESSERA_BENCH_GPU_VERDICT_H_
#define TESSERA_BENCH_GPU_VERDICT_H_

namespace tessera {

inline const char* Verdict(bool has_aim, bool met) {
  return !has_aim ? "" : met ? "  met" : "  MISSED";
}

}  // namespace tessera

#endif  // TESSERA_BENCH_GPU_VERDICT_H_
