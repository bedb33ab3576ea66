// How a line of a table says whether what it aims at was reached, and that what was timed is wrong.
#ifndef TESSERA_BENCH_GPU_VERDICT_H_
#define TESSERA_BENCH_GPU_VERDICT_H_

#include <cstdio>
#include <string>

namespace tessera {

inline const char* Verdict(bool has_aim, bool met) {
  return !has_aim ? "" : met ? "  met" : "  MISSED";
}

// Beside the lines of a table, which goes on: results that are not the CPU's. Adds to `count`.
inline void TellWrong(const std::string& what, int* count) {
  std::printf("WRONG: %s\n", what.c_str());
  ++*count;
}

}  // namespace tessera

#endif  // TESSERA_BENCH_GPU_VERDICT_H_
