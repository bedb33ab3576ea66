#include "tests/kernels/cuda/ptx/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "tests/kernels/cuda/ptx/order.h"

namespace tessera::ptx {
namespace {

constexpr int64_t kAlignment = 256;
constexpr int64_t kPage = 4096;
constexpr int64_t kWord = 4;
constexpr int kNumberBits = 40;

void* Map(int64_t bytes, int protection = PROT_READ | PROT_WRITE,
          int flags = MAP_PRIVATE | MAP_ANONYMOUS, int file = -1) {
  void* const memory = mmap(nullptr, static_cast<size_t>(std::max(bytes, kPage)), protection,
                            flags | MAP_NORESERVE, file, 0);
  if (memory == MAP_FAILED) std::abort();
  return memory;
}

int64_t RoundUp(int64_t value, int64_t to) { return (value + to - 1) / to * to; }

}  // namespace

Shadow::Shadow(int64_t bytes)
    : bytes_(bytes),
      states_(static_cast<uint8_t*>(Map(bytes))),
      words_(
          static_cast<Word*>(Map((bytes / kWordBytes + 1) * static_cast<int64_t>(sizeof(Word))))) {}

Shadow::~Shadow() {
  munmap(words_,
         static_cast<size_t>(std::max<int64_t>((bytes_ / kWordBytes + 1) * sizeof(Word), kPage)));
  munmap(states_, static_cast<size_t>(std::max(bytes_, kPage)));
}

void Shadow::Set(int64_t offset, int64_t bytes, State state) {
  std::memset(states_ + offset, state, static_cast<size_t>(bytes));
}

const char* Shadow::Check(int64_t offset, int64_t bytes, bool writes) const {
  if (offset < 0 || offset + bytes > bytes_) return "is outside of all memory";
  if (bytes == 4) {  // most
    static constexpr uint8_t kAll[4] = {kWritten, kWritten, kWritten, kWritten};
    if (std::memcmp(states_ + offset, kAll, 4) == 0) return nullptr;
  }
  for (int64_t i = offset; i < offset + bytes; ++i) {
    if (states_[i] == kAbsent) return "is not allocated";
    if (!writes && states_[i] == kRaw) return "was never written";
  }
  return nullptr;
}

bool Shadow::Collides(const Trace& before, const Toucher& by, uint8_t mask) {
  if (before.by.launch != by.launch || (before.mask & mask) == 0) return false;
  if (before.by.block != by.block || (before.mask & kBlocks) != 0) return true;
  if (before.by.epoch != by.epoch) return false;
  return before.by.thread != by.thread || (before.mask & kThreads) != 0;
}

void Shadow::Leave(const Toucher& by, uint8_t mask, Trace* trace) {
  const Toucher& before = trace->by;
  const bool same_block = before.block == by.block && (trace->mask & kBlocks) == 0;
  if (trace->mask == 0 || before.launch != by.launch || (same_block && before.epoch != by.epoch)) {
    *trace = {by, mask};
    return;
  }
  trace->mask |= mask;
  if (!same_block) trace->mask |= kBlocks | kThreads;
  if (before.thread != by.thread) trace->mask |= kThreads;
  trace->by = by;
}

const char* Shadow::Touch(int64_t offset, int bytes, bool writes, const Toucher& by) {
  if (const char* const wrong = Check(offset, bytes, writes)) return wrong;
  if ((offset & (bytes - 1)) != 0) return "is not aligned";
  const int step = std::min(bytes, kWordBytes);
  const auto mask = static_cast<uint8_t>(((1u << step) - 1) << offset % kWordBytes);
  for (int64_t i = offset; i < offset + bytes; i += step) {
    Word& word = words_[i / kWordBytes];
    if (Collides(word.written, by, mask)) {
      return "was written by another thread, no barrier between";
    }
    if (writes) {
      if (Collides(word.read, by, mask)) return "was read by another thread, no barrier between";
      std::memset(states_ + i, kWritten, static_cast<size_t>(step));
    }
    Leave(by, mask, writes ? &word.written : &word.read);
  }
  return nullptr;
}

DeviceMemory::DeviceMemory(int64_t bytes) : bytes_(bytes), shadow_(bytes) {
  const int file = memfd_create("device memory", 0);
  if (file < 0 || ftruncate(file, bytes) != 0) std::abort();
  memory_ = static_cast<char*>(Map(bytes, PROT_NONE, MAP_SHARED, file));
  bytes_of_ = static_cast<char*>(Map(bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file));
  close(file);
  last_ = static_cast<Last*>(Map(bytes / kWord * static_cast<int64_t>(sizeof(Last))));
}

DeviceMemory::~DeviceMemory() {
  munmap(last_, static_cast<size_t>(bytes_ / kWord) * sizeof(Last));
  munmap(memory_, static_cast<size_t>(bytes_));
  munmap(bytes_of_, static_cast<size_t>(bytes_));
}

void* DeviceMemory::Allocate(int64_t bytes) {
  int64_t offset = 0;
  for (const auto& [begin, size] : taken_) {
    if (begin - offset >= bytes + kAlignment) break;
    offset = RoundUp(begin + size, kAlignment) + kAlignment;
  }
  if (offset + bytes > bytes_) return nullptr;
  taken_[offset] = bytes;
  used_ += bytes;
  shadow_.Set(offset, bytes, Shadow::kRaw);
  return memory_ + offset;
}

const char* DeviceMemory::Follow(int64_t offset, int64_t bytes, bool writes) {
  const Operation* const now = AtWork();
  if (now == nullptr) return nullptr;
  const uint64_t own = uint64_t{now->line} << kNumberBits | now->number;
  const auto follows = [now](uint64_t other) {
    return now->Follows(static_cast<Line>(other >> kNumberBits),
                        other & ((uint64_t{1} << kNumberBits) - 1));
  };
  for (int64_t word = (offset + kWord - 1) / kWord; (word + 1) * kWord <= offset + bytes; ++word) {
    Last& last = last_[word];
    if (last.written != own && !follows(last.written)) {
      return "was written by another stream, which it does not wait for";
    }
    if (!writes) {
      last.read[now->line % 2] = own;
      continue;
    }
    for (const uint64_t reader : last.read) {
      if (reader != own && !follows(reader)) {
        return "is read by another stream, which it does not wait for";
      }
    }
    last.written = own;
  }
  return nullptr;
}

bool DeviceMemory::Free(void* address) {
  const auto found = taken_.find(OffsetOf(address));
  if (found == taken_.end()) return false;
  shadow_.Set(found->first, found->second, Shadow::kAbsent);
  used_ -= found->second;
  taken_.erase(found);
  return true;
}

}  // namespace tessera::ptx
