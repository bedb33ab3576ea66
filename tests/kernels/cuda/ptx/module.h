// PTX, as nvcc writes it, made ready to be run: "Parallel Thread Execution ISA", version 9.0. Only what kernels here
// use is known; anything else is refused with its line.
#ifndef TESSERA_TESTS_KERNELS_CUDA_PTX_MODULE_H_
#define TESSERA_TESTS_KERNELS_CUDA_PTX_MODULE_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace tessera::ptx {

enum class Kind : uint8_t {
  kRegisters,
  kLoad,
  kStore,
  kBranch,
  kReturn,
  kBarrier,
  kShuffleDown,
  kProduct
};
enum class Space : uint8_t { kGlobal, kShared, kParam };

constexpr int kWarp = 32;

// Operands are numbers of slots: 64 bits of each lane of a warp for each register, constant, and special register.
struct Instruction {
  // For the lanes of a mask.
  using Run = void (*)(uint64_t (*slots)[kWarp], uint32_t lanes, const Instruction& instruction);

  Run run = nullptr;  // of kRegisters
  // Operands in their order, and a vector's elements; the values of a load or store.
  int16_t o[14] = {};
  int16_t predicate = -1;  // not done unless that slot holds 1, or 0 where `negated`
  bool negated = false;
  Kind kind = Kind::kRegisters;
  int8_t count = 0;  // of operands
  int8_t bytes = 0;  // of an element
  bool extends_sign = false;
  Space space = Space::kGlobal;
  int16_t base = 0;    // holds the address, less the offset
  int32_t target = 0;  // the instruction that a branch goes to
  int64_t offset = 0;
  int line = 0;  // of the module's text
  int cost = 0;  // CostOf() of it
};

struct Entry {
  // Of the special registers, of which every entry has all.
  enum Special { kThread, kBlock, kThreads, kBlocks, kSpecials };
  struct Parameter {
    int64_t offset;
    int64_t bytes;
  };

  std::string name;
  std::vector<Parameter> parameters;
  int64_t parameter_bytes = 0;
  int64_t shared_bytes = 0;
  int threads_max = 1024;
  std::vector<uint64_t> slots;  // as a thread begins: specials, constants, registers
  std::vector<Instruction> code;
  std::vector<std::string> texts;  // of the code
};

// Where shared memory begins, so that nobody takes 0 for an address of it.
constexpr int64_t kSharedBegin = 1024;

// By name. Throws std::runtime_error: the line, and what is not known about it.
std::map<std::string, Entry> ParseModule(const std::string& text);

}  // namespace tessera::ptx

#endif  // TESSERA_TESTS_KERNELS_CUDA_PTX_MODULE_H_
