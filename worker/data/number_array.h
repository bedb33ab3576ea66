// An array of numbers that a reader appends to, with std::vector's names.
//
// Growing and shrink_to_fit() go through realloc, which moves a large block by its page tables. A
// std::vector copies: while it grows or fits, twice the values lie in memory, and a data set that
// takes half of a machine cannot be read there.
#ifndef TESSERA_WORKER_DATA_NUMBER_ARRAY_H_
#define TESSERA_WORKER_DATA_NUMBER_ARRAY_H_

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <initializer_list>
#include <limits>
#include <new>
#include <type_traits>
#include <utility>
#include <vector>

namespace tessera {

// Throws std::bad_alloc where there is no memory; its values stay as they were.
template <typename T>
class NumberArray {
 public:
  static_assert(std::is_arithmetic_v<T>, "moved by their bytes, destroyed by nothing");
  using value_type = T;

  NumberArray() = default;
  // `size` zeros.
  explicit NumberArray(size_t size) { resize(size); }
  NumberArray(std::initializer_list<T> values) { append(values.begin(), values.size()); }
  explicit NumberArray(const std::vector<T>& values) { append(values.data(), values.size()); }
  NumberArray(const NumberArray& other) { append(other.data_, other.size_); }
  NumberArray(NumberArray&& other) noexcept { swap(other); }
  NumberArray& operator=(NumberArray other) noexcept {
    swap(other);
    return *this;
  }
  ~NumberArray() { std::free(data_); }

  size_t size() const { return size_; }
  size_t capacity() const { return capacity_; }
  bool empty() const { return size_ == 0; }
  T* data() { return data_; }
  const T* data() const { return data_; }
  T* begin() { return data_; }
  const T* begin() const { return data_; }
  T* end() { return data_ + size_; }
  const T* end() const { return data_ + size_; }
  T& operator[](size_t i) { return data_[i]; }
  const T& operator[](size_t i) const { return data_[i]; }
  const T& front() const { return data_[0]; }
  const T& back() const { return data_[size_ - 1]; }

  void push_back(T value) {
    if (size_ == capacity_) Grow(size_ + 1);
    data_[size_++] = value;
  }
  // `values` must not lie in this array, which may move.
  void append(const T* values, size_t count) {
    if (count > capacity_ - size_) Grow(size_ + count);
    std::copy_n(values, count, end());
    size_ += count;
  }
  void resize(size_t size) {
    if (size > capacity_) Grow(size);
    if (size > size_) std::fill(end(), data_ + size, T{});
    size_ = size;
  }
  void clear() { size_ = 0; }
  void reserve(size_t capacity) {
    if (capacity > capacity_) Reallocate(capacity);
  }
  void shrink_to_fit() {
    if (size_ < capacity_) Reallocate(size_);
  }

 private:
  static constexpr size_t kCapacityMax = std::numeric_limits<ptrdiff_t>::max() / sizeof(T);

  void swap(NumberArray& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
  }
  void Grow(size_t least) { Reallocate(std::max(least, capacity_ + capacity_ / 2)); }
  void Reallocate(size_t capacity) {
    if (capacity > kCapacityMax) throw std::bad_alloc();
    // realloc of nothing may be nullptr, which means something else here.
    void* const moved = std::realloc(data_, std::max<size_t>(1, capacity) * sizeof(T));
    if (moved == nullptr) throw std::bad_alloc();
    data_ = static_cast<T*>(moved);
    capacity_ = capacity;
  }

  T* data_ = nullptr;
  size_t size_ = 0;
  size_t capacity_ = 0;
};

// Compares with any list of numbers, such as a std::vector.
template <typename T, typename Values>
bool operator==(const NumberArray<T>& a, const Values& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

}  // namespace tessera

#endif  // TESSERA_WORKER_DATA_NUMBER_ARRAY_H_
