// Memory that knows, of each byte, whether there is one, whether anybody wrote it, and who touched it last.
#ifndef TESSERA_TESTS_KERNELS_CUDA_PTX_MEMORY_H_
#define TESSERA_TESTS_KERNELS_CUDA_PTX_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <map>

namespace tessera::ptx {

// A thread between two barriers of its block.
struct Toucher {
  uint32_t launch;
  uint32_t block;
  uint16_t thread;
  uint8_t epoch;  // barriers before
};

// Of so many bytes. Zeroed pages of the system's, so that what nobody uses costs nothing.
class Shadow {
 public:
  explicit Shadow(int64_t bytes);
  ~Shadow();
  Shadow(const Shadow&) = delete;
  Shadow& operator=(const Shadow&) = delete;

  enum State : uint8_t { kAbsent, kRaw, kWritten };
  void Set(int64_t offset, int64_t bytes, State state);
  // Null, or what is wrong with reading or writing that.
  const char* Check(int64_t offset, int64_t bytes, bool writes) const;
  // The same of a kernel's thread, which leaves its traces. Bytes: 1, 2, 4, 8 or 16 of whole words or within one.
  const char* Touch(int64_t offset, int bytes, bool writes, const Toucher& by);

 private:
  static constexpr int kWordBytes = 4;
  static constexpr uint8_t kThreads = 0x10, kBlocks = 0x20;  // several of them
  struct Trace {
    Toucher by;
    uint8_t mask;  // bytes of the word, and flags
  };
  struct Word {
    Trace read;
    Trace written;
  };

  static bool Collides(const Trace& before, const Toucher& by, uint8_t mask);
  static void Leave(const Toucher& by, uint8_t mask, Trace* trace);

  const int64_t bytes_;
  uint8_t* const states_;
  Word* const words_;
};

// A device's memory. Where its addresses are, a host that touches it faults.
class DeviceMemory {
 public:
  explicit DeviceMemory(int64_t bytes);
  ~DeviceMemory();

  // Aligned to 256 bytes, never beside another one. Null: no room.
  void* Allocate(int64_t bytes);
  bool Free(void* address);
  int64_t used() const { return used_; }
  int64_t total() const { return bytes_; }

  bool Holds(const void* address) const {
    const int64_t offset = OffsetOf(address);
    return offset >= 0 && offset < bytes_;
  }
  int64_t OffsetOf(const void* address) const {
    return static_cast<int64_t>(reinterpret_cast<uintptr_t>(address) -
                                reinterpret_cast<uintptr_t>(memory_));
  }
  char* bytes() const { return bytes_of_; }
  // Where the bytes of an address that it holds are.
  char* Reach(const void* address) const { return bytes_of_ + OffsetOf(address); }
  Shadow& shadow() { return shadow_; }
  // Null, or what is wrong with touching whole words of 4 bytes of that by what is AtWork().
  const char* Follow(int64_t offset, int64_t bytes, bool writes);

 private:
  const int64_t bytes_;
  char* memory_ = nullptr;    // the same pages twice: as addresses,
  char* bytes_of_ = nullptr;  // and to be read and written
  Shadow shadow_;
  // Who touched a word last: a line in the highest 24 bits, a number in it in the others. Readers by their line's kind.
  struct Last {
    uint64_t written;
    uint64_t read[2];
  };
  Last* last_ = nullptr;
  std::map<int64_t, int64_t> taken_;  // offset -> bytes
  int64_t used_ = 0;
};

}  // namespace tessera::ptx

#endif  // TESSERA_TESTS_KERNELS_CUDA_PTX_MEMORY_H_
