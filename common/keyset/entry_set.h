// Some of a server's entries: which places of its dense order, a bit for each.
//
// A bit costs a thirty-second of the entry that it stands for, whatever part of the entries is in the
// set, and keeps the set in order. Values of a set are taken out and put back a word of 64 places
// at a time:
//   AVX-512     16 places at a time: compressed (gather) or expanded (scatter) by the word's bits
//   otherwise   bit by bit, as are words with few bits
#ifndef TESSERA_COMMON_KEYSET_ENTRY_SET_H_
#define TESSERA_COMMON_KEYSET_ENTRY_SET_H_

#include <cstdint>
#include <vector>

#include "common/keyset/gather.h"

namespace tessera {

// Any thread may read it. All paths give the same bits.
class EntrySet {
 public:
  // The set of no entries among none.
  EntrySet() = default;
  // The empty set among `size` entries.
  explicit EntrySet(int64_t size) : size_(size), words_((size + 63) / 64) {}
  // Place i is in where bit i % 64 of words[i / 64] is set. There are (size + 63) / 64 words; bits
  // beyond `size` are 0.
  EntrySet(int64_t size, std::vector<uint64_t> words);
  static EntrySet All(int64_t size);
  // Returns the set of the places that are in either. Both have the same size and no place in common.
  static EntrySet Joined(const EntrySet& a, const EntrySet& b);

  // Places that there are, and those in the set.
  int64_t size() const { return size_; }
  int64_t count() const { return count_; }
  bool is_whole() const { return count_ == size_; }
  bool Contains(int64_t place) const { return (words_[place / 64] >> place % 64 & 1) != 0; }
  const std::vector<uint64_t>& words() const { return words_; }
  // The number of places in [begin, end) that are in the set.
  int64_t CountIn(int64_t begin, int64_t end) const;
  // Ascending.
  std::vector<int64_t> places() const;

  friend bool operator==(const EntrySet& a, const EntrySet& b) {
    return a.size_ == b.size_ && a.words_ == b.words_;
  }

 private:
  int64_t size_ = 0;
  int64_t count_ = 0;
  std::vector<uint64_t> words_;
};

// The values of the places [begin, end) of a set, from and to arrays of all these places, whose
// first element is that of `begin`. Returns how many there are.
int64_t GatherEntries(const EntrySet& set, int64_t begin, int64_t end, const float* all, float* out,
                      GatherPath path = BestGatherPath());
// Other places are neither read nor written.
int64_t ScatterEntries(const EntrySet& set, int64_t begin, int64_t end, const float* values,
                       float* all, GatherPath path = BestGatherPath());
// all[place] += value.
int64_t AddEntries(const EntrySet& set, int64_t begin, int64_t end, const float* values, float* all,
                   GatherPath path = BestGatherPath());

// Walks a set from front to back in runs of places that hold a number of its entries. One thread.
class EntryWalk {
 public:
  // `set` must outlive this.
  explicit EntryWalk(const EntrySet& set) : set_(&set), left_(set.count()) {}

  // Entries that are left.
  int64_t left() const { return left_; }
  // The first place that was not passed.
  int64_t place() const { return place_; }

  struct Run {
    int64_t begin = 0;
    int64_t end = 0;
    int64_t count = 0;  // entries of the set
  };
  // Passes places up to `end` at most, and entries up to `count_max` at most: as many places as
  // that allows.
  Run Next(int64_t end, int64_t count_max);

 private:
  const EntrySet* set_;
  int64_t place_ = 0;
  int64_t left_;
};

}  // namespace tessera

#endif  // TESSERA_COMMON_KEYSET_ENTRY_SET_H_
