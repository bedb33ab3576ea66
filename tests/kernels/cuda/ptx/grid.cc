#include "tests/kernels/cuda/ptx/grid.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>

#include "kernels/bf16.h"

namespace tessera::ptx {
namespace {

constexpr uint64_t kSector = 32;
constexpr int64_t kSharedMax = int64_t{228} << 10;
constexpr int64_t kJumpsMax = int64_t{1} << 32;  // back, of a grid's warps

std::string Readable(const std::string& mangled) {
  int status = 0;
  char* const name = abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status);
  const std::string readable = status == 0 ? name : mangled;
  std::free(name);
  return readable;
}

// 1, 2, 4 or 8 bytes.
void CopyBytes(const void* from, int bytes, void* to) {
  switch (bytes) {
    case 1:
      std::memcpy(to, from, 1);
      break;
    case 2:
      std::memcpy(to, from, 2);
      break;
    case 4:
      std::memcpy(to, from, 4);
      break;
    default:
      std::memcpy(to, from, 8);
  }
}

uint64_t Load(const char* from, int bytes, bool extends_sign) {
  uint64_t value = 0;
  CopyBytes(from, bytes, &value);
  const int unused = 64 - 8 * bytes;
  if (extends_sign) value = static_cast<uint64_t>(static_cast<int64_t>(value << unused) >> unused);
  return value;
}

// The threads of a block, warp by warp; those of a warp at one instruction together where they are at the same.
class BlockRunner {
 public:
  BlockRunner(const Grid& grid, DeviceMemory* memory, Usage* usage)
      : grid_(grid),
        entry_(*grid.entry),
        memory_(*memory),
        usage_(*usage),
        times_(usage->times.data()),
        shared_(static_cast<size_t>(entry_.shared_bytes)),
        shared_shadow_(std::max<int64_t>(entry_.shared_bytes, 1)),
        warps_(static_cast<size_t>((grid.threads + kWarp - 1) / kWarp)),
        slots_(warps_.size() * entry_.slots.size() * kWarp) {
    for (int w = 0; w < static_cast<int>(warps_.size()); ++w) {
      const auto slots = SlotsOf(w);
      for (size_t k = 0; k < entry_.slots.size(); ++k) {
        std::fill_n(slots[k], kWarp, entry_.slots[k]);
      }
      for (int lane = 0; lane < kWarp; ++lane) {
        slots[Entry::kThread][lane] = static_cast<uint64_t>(w * kWarp + lane);
        slots[Entry::kThreads][lane] = static_cast<uint64_t>(grid.threads);
        slots[Entry::kBlocks][lane] = static_cast<uint64_t>(grid.blocks);
      }
    }
  }

  static uint32_t NextLaunch() {
    static uint32_t last = 0;
    return ++last;
  }

  void Run(uint32_t launch, int64_t block) {
    launch_ = launch;
    block_ = block;
    epoch_ = 0;
    launch_of_shared_ = NextLaunch();
    std::fill(shared_.begin(), shared_.end(), '\xff');
    shared_shadow_.Set(0, entry_.shared_bytes, Shadow::kRaw);
    const int warps = static_cast<int>(warps_.size());
    for (int w = 0; w < warps; ++w) {
      std::fill_n(SlotsOf(w)[Entry::kBlock], kWarp, static_cast<uint64_t>(block));
      warps_[w] = {};
      const int threads = std::min(kWarp, grid_.threads - w * kWarp);
      warps_[w].lanes = warps_[w].running = ~0u >> (kWarp - threads);
    }
    // Warps may run in any order between two barriers: from the last to the first in every other block.
    do {
      for (int k = 0; k < warps; ++k) RunWarp(block % 2 == 0 ? k : warps - 1 - k);
    } while (PassesBarrier());
  }

 private:
  struct Warp {
    uint32_t lanes = 0;    // that it has
    uint32_t running = 0;  // others are done, or at a barrier or shuffle
    uint32_t done = 0;
    int at[kWarp] = {};  // the next instruction of each lane
  };
  using Slots = uint64_t (*)[kWarp];

  Slots SlotsOf(int warp) {
    return reinterpret_cast<Slots>(slots_.data() +
                                   static_cast<size_t>(warp) * entry_.slots.size() * kWarp);
  }

  [[noreturn]] void Refuse(int thread, int at, const std::string& what) const {
    throw std::runtime_error(Readable(entry_.name) + ", block " + std::to_string(block_) + " of " +
                             std::to_string(grid_.blocks) + ", thread " + std::to_string(thread) +
                             " of " + std::to_string(grid_.threads) + ", PTX line " +
                             std::to_string(entry_.code[at].line) + " `" + entry_.texts[at] +
                             "`: " + what);
  }

  // Until each lane is done or waits for other warps.
  void RunWarp(int w) {
    Warp& warp = warps_[w];
    do {
      while (warp.running != 0) RunLanes(w);
    } while (DoesTogether(w));
  }

  // The lanes that are furthest behind, until they part, stop, or come to where others are.
  void RunLanes(int w) {
    Warp& warp = warps_[w];
    const Slots slots = SlotsOf(w);
    int at = std::numeric_limits<int>::max(), limit = at;
    uint32_t lanes = 0;
    for (uint32_t rest = warp.running; rest != 0; rest &= rest - 1) {
      const int lane = __builtin_ctz(rest);
      if (warp.at[lane] < at) {
        limit = at;
        at = warp.at[lane];
        lanes = 0;
      }
      if (warp.at[lane] == at) {
        lanes |= 1u << lane;
      } else {
        limit = std::min(limit, warp.at[lane]);
      }
    }
    const auto move = [&warp](uint32_t of, int to) {
      for (; of != 0; of &= of - 1) warp.at[__builtin_ctz(of)] = to;
    };
    for (; at < limit; ++at) {
      const Instruction& i = entry_.code[at];
      ++times_[at];
      if (i.run != nullptr && i.predicate < 0) {  // most
        i.run(slots, lanes, i);
        continue;
      }
      const uint32_t chosen = i.predicate < 0 ? lanes : Chosen(slots, lanes, i);
      switch (i.kind) {
        case Kind::kRegisters:
          i.run(slots, chosen, i);
          break;
        case Kind::kLoad:
        case Kind::kStore:
          if (i.space == Space::kGlobal) CountSectors(slots, chosen, i);
          for (uint32_t rest = chosen; rest != 0; rest &= rest - 1) {
            Access(w, __builtin_ctz(rest), at);
          }
          break;
        case Kind::kBranch:
          if (chosen == 0) break;
          if (i.target <= at && ++jumps_ > kJumpsMax) {
            Refuse(w * kWarp, at, "its warps have jumped back so often that they will not end");
          }
          move(lanes & ~chosen, at + 1);
          move(chosen, i.target);
          return;
        case Kind::kReturn:
          warp.done |= chosen;
          [[fallthrough]];
        case Kind::kBarrier:
        case Kind::kShuffleDown:
        case Kind::kProduct:
          if (chosen == 0) break;
          move(lanes & ~chosen, at + 1);
          move(chosen, at);
          warp.running &= ~chosen;
          return;
      }
    }
    move(lanes, at);
  }

  static uint32_t Chosen(Slots slots, uint32_t lanes, const Instruction& i) {
    uint32_t chosen = 0;
    for (uint32_t rest = lanes; rest != 0; rest &= rest - 1) {
      const int lane = __builtin_ctz(rest);
      if ((slots[i.predicate][lane] != 0) != i.negated) chosen |= 1u << lane;
    }
    return chosen;
  }

  // Lanes whose pieces are the same, or follow each other, are next to each other in all that is worth counting.
  void CountSectors(Slots slots, uint32_t lanes, const Instruction& i) {
    int64_t& count = i.kind == Kind::kLoad ? usage_.loaded : usage_.stored;
    uint64_t last = 0;
    for (; lanes != 0; lanes &= lanes - 1) {
      const uint64_t address =
          slots[i.base][__builtin_ctz(lanes)] + static_cast<uint64_t>(i.offset);
      if (address / kSector != last) ++count;
      last = address / kSector;
    }
  }

  // A lane's load or store.
  void Access(int w, int lane, int at) {
    const Instruction& i = entry_.code[at];
    const Slots slots = SlotsOf(w);
    const bool writes = i.kind == Kind::kStore;
    const uint64_t address = slots[i.base][lane] + static_cast<uint64_t>(i.offset);
    const int bytes = i.bytes * i.count;
    const char* wrong = nullptr;
    char* memory = nullptr;
    int64_t offset = 0;
    Toucher by{launch_, static_cast<uint32_t>(block_), static_cast<uint16_t>(w * kWarp + lane),
               epoch_};
    if (i.space == Space::kGlobal) {
      const auto* const there = reinterpret_cast<const char*>(address);
      memory = memory_.bytes();
      offset = memory_.OffsetOf(there);
      wrong = memory_.Holds(there) ? memory_.shadow().Touch(offset, bytes, writes, by)
                                   : "is no memory of the device";
      if (wrong == nullptr) wrong = memory_.Follow(offset, bytes, writes);
    } else if (i.space == Space::kShared) {
      memory = shared_.data();
      offset = static_cast<int64_t>(static_cast<uint32_t>(address)) - kSharedBegin;
      by.launch = launch_of_shared_;
      wrong = offset < 0 || offset + bytes > entry_.shared_bytes
                  ? "is outside of shared memory"
                  : shared_shadow_.Touch(offset, bytes, writes, by);
    } else {
      memory = const_cast<char*>(grid_.parameters.data());
      offset = static_cast<int64_t>(address);
      if (offset < 0 || offset + bytes > static_cast<int64_t>(grid_.parameters.size())) {
        wrong = "is outside of the parameters";
      } else if ((offset & (bytes - 1)) != 0) {
        wrong = "is not aligned";
      }
    }
    if (wrong != nullptr) {
      char text[32];
      std::snprintf(text, sizeof(text), "0x%llx", static_cast<unsigned long long>(address));
      Refuse(by.thread, at, std::to_string(bytes) + " bytes at " + text + ": " + wrong);
    }
    char* const place = memory + offset;
    for (int k = 0; k < i.count; ++k) {
      if (writes) {
        CopyBytes(&slots[i.o[k]][lane], i.bytes, place + k * i.bytes);
      } else {
        slots[i.o[k]][lane] = Load(place + k * i.bytes, i.bytes, i.extends_sign);
      }
    }
  }

  // Whether all lanes were at the same shuffle or product.
  bool DoesTogether(int w) {
    Warp& warp = warps_[w];
    for (int lane = 0; lane < kWarp; ++lane) {
      const int at = warp.at[lane];
      const Kind kind = entry_.code[at].kind;
      if (kind != Kind::kShuffleDown && kind != Kind::kProduct) continue;
      for (int other = 0; other < kWarp; ++other) {
        if ((warp.lanes >> other & 1u) == 0) {
          Refuse(w * kWarp + lane, at, "this warp has fewer than 32 threads");
        }
        if (warp.at[other] != at) {
          Refuse(w * kWarp + lane, at,
                 "it waits for thread " + std::to_string(w * kWarp + other) + ", which is at `" +
                     entry_.texts[warp.at[other]] + "`");
        }
      }
      if (kind == Kind::kProduct) {
        Multiply(w, at);
      } else {
        Shuffle(w, at);
      }
      return true;
    }
    return false;
  }

  void Shuffle(int w, int at) {
    const Instruction& i = entry_.code[at];
    const Slots slots = SlotsOf(w);
    uint32_t values[kWarp];
    for (int lane = 0; lane < kWarp; ++lane) {
      values[lane] = static_cast<uint32_t>(slots[i.o[1]][lane]);
    }
    for (int lane = 0; lane < kWarp; ++lane) {
      if (static_cast<uint32_t>(slots[i.o[4]][lane]) != ~0u) {
        Refuse(w * kWarp + lane, at, "a shuffle of some lanes only");
      }
      const int by = static_cast<int>(slots[i.o[2]][lane] & 31u);
      const auto clamp = static_cast<uint32_t>(slots[i.o[3]][lane]);
      const uint32_t segment = clamp >> 8 & 31u;
      const int last =
          static_cast<int>((static_cast<uint32_t>(lane) & segment) | (clamp & 31u & ~segment));
      const bool within = lane + by <= last;
      slots[i.o[5]][lane] = within ? 1 : 0;
      slots[i.o[0]][lane] = values[within ? lane + by : lane];
      warps_[w].at[lane] = at + 1;
    }
    warps_[w].running = ~0u;
  }

  // [16, 16] by [16, 8] of bf16 with sums in f32: operands are the four results, the four words of the left factor, the
  // two of the right one, and the four sums, which kernels/cuda/warp_product.h deals out to lanes in the same way.
  void Multiply(int w, int at) {
    const Instruction& i = entry_.code[at];
    const Slots slots = SlotsOf(w);
    const auto half = [&](int operand, int lane, int which) {
      const auto word = static_cast<uint32_t>(slots[i.o[operand]][lane]);
      return Widen(Bf16{static_cast<uint16_t>(word >> 16 * which)});
    };
    float left[16][16], right[16][8], sums[16][8];
    for (int lane = 0; lane < kWarp; ++lane) {
      const int row = lane / 4, pair = 2 * (lane % 4);
      for (int k = 0; k < 4; ++k) {
        for (int which = 0; which < 2; ++which) {
          left[row + k % 2 * 8][pair + k / 2 * 8 + which] = half(4 + k, lane, which);
          if (k < 2) right[pair + k * 8 + which][row] = half(8 + k, lane, which);
        }
        std::memcpy(&sums[row + k / 2 * 8][pair + k % 2], &slots[i.o[10 + k]][lane], sizeof(float));
      }
    }
    for (int row = 0; row < 16; ++row) {
      for (int column = 0; column < 8; ++column) {
        // Tensor cores add in an order of their own.
        for (int k = 15; k >= 0; --k) sums[row][column] += left[row][k] * right[k][column];
      }
    }
    for (int lane = 0; lane < kWarp; ++lane) {
      for (int k = 0; k < 4; ++k) {
        uint64_t& to = slots[i.o[k]][lane];
        to = 0;
        std::memcpy(&to, &sums[lane / 4 + k / 2 * 8][2 * (lane % 4) + k % 2], sizeof(float));
      }
      warps_[w].at[lane] = at + 1;
    }
    warps_[w].running = ~0u;
  }

  // False when all threads are done.
  bool PassesBarrier() {
    const int first = warps_[0].at[0];
    for (int t = 1; t < grid_.threads; ++t) {
      const int at = warps_[t / kWarp].at[t % kWarp];
      const bool both_done =
          (warps_[0].done & 1u) != 0 && (warps_[t / kWarp].done >> t % kWarp & 1u) != 0;
      if (at == first || both_done) continue;
      Refuse(0, first,
             "here is thread 0 when thread " + std::to_string(t) + " is at `" + entry_.texts[at] +
                 "`: not all come to the same barrier");
    }
    if ((warps_[0].done & 1u) != 0) return false;
    ++epoch_;
    for (Warp& warp : warps_) {
      warp.running = warp.lanes;
      for (int& at : warp.at) at = first + 1;
    }
    return true;
  }

  const Grid& grid_;
  const Entry& entry_;
  DeviceMemory& memory_;
  Usage& usage_;
  int64_t* const times_;
  std::vector<char> shared_;
  Shadow shared_shadow_;
  std::vector<Warp> warps_;
  std::vector<uint64_t> slots_;
  int64_t block_ = 0;
  int64_t jumps_ = 0;
  uint8_t epoch_ = 0;
  uint32_t launch_ = 0;
  uint32_t launch_of_shared_ = 0;
};

}  // namespace

int64_t Usage::Issued(const Entry& entry) const {
  int64_t issued = 0;
  for (size_t i = 0; i < times.size(); ++i) issued += times[i] * entry.code[i].cost;
  return issued;
}

void RunGrid(const Grid& grid, DeviceMemory* memory, Usage* usage) {
  const Entry& entry = *grid.entry;
  const auto refuse = [&entry](const std::string& what) {
    throw std::runtime_error(Readable(entry.name) + ": " + what);
  };
  if (grid.blocks < 1 || grid.blocks > (int64_t{1} << 31) - 1) {
    refuse("a grid of " + std::to_string(grid.blocks) + " blocks");
  }
  if (grid.threads < 1 || grid.threads > entry.threads_max) {
    refuse("blocks of " + std::to_string(grid.threads) + " threads");
  }
  if (entry.shared_bytes > kSharedMax) refuse("too much shared memory");
  if (static_cast<int64_t>(grid.parameters.size()) != entry.parameter_bytes) {
    refuse("other parameters than it has");
  }
  usage->times.resize(entry.code.size());
  ++usage->launches;
  BlockRunner runner(grid, memory, usage);
  const uint32_t launch = BlockRunner::NextLaunch();
  // Nor may a block wait for another.
  for (int64_t k = 0; k < grid.blocks; ++k) {
    runner.Run(launch, launch % 2 == 0 ? k : grid.blocks - 1 - k);
  }
}

}  // namespace tessera::ptx
