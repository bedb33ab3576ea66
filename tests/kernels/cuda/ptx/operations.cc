#include "tests/kernels/cuda/ptx/operations.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <type_traits>
#include <utility>

#include "kernels/bf16.h"

namespace tessera::ptx {
namespace {

// What an instruction does with the values of one lane. A predicate is a bool.

// Integers wrap around.
template <typename T>
using Wrapping = std::conditional_t<std::is_integral_v<T>, uint64_t, T>;

template <typename T>
T Add(T a, T b) {
  return static_cast<T>(static_cast<Wrapping<T>>(a) + static_cast<Wrapping<T>>(b));
}
template <typename T>
T Subtract(T a, T b) {
  return static_cast<T>(static_cast<Wrapping<T>>(a) - static_cast<Wrapping<T>>(b));
}
template <typename T>
T Multiply(T a, T b) {
  return static_cast<T>(static_cast<Wrapping<T>>(a) * static_cast<Wrapping<T>>(b));
}
template <typename To, typename From>
To MultiplyWide(From a, From b) {
  return Multiply<To>(a, b);
}
template <typename T>
T MultiplyAdd(T a, T b, T c) {
  return Add(Multiply(a, b), c);
}
template <typename T>
T Fused(T a, T b, T c) {
  return std::fma(a, b, c);
}
template <typename T>
T Negate(T a) {
  if constexpr (std::is_integral_v<T>) return Subtract<T>(0, a);
  return -a;
}
// By 0: whatever the GPU does, nobody may count on it.
template <typename T>
T Divide(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    if (b == 0) return static_cast<T>(0x5a5a5a5a);
    if (std::is_signed_v<T> && b == static_cast<T>(-1)) return Negate(a);
  }
  return a / b;
}
template <typename T>
T Remainder(T a, T b) {
  return Subtract(a, Multiply(Divide(a, b), b));
}
template <typename T>
T Absolute(T a) {
  return std::fabs(a);
}
template <typename T>
T Root(T a) {
  return std::sqrt(a);
}
template <typename T>
T Reciprocal(T a) {
  return T{1} / a;
}
// Off by a unit in the last place, up or down, as it may be.
float Near(float exact) {
  uint32_t bits;
  std::memcpy(&bits, &exact, sizeof(bits));
  if ((bits & 0x7f800000u) == 0 || (bits & 0x7f800000u) == 0x7f800000u) return exact;
  bits += (bits & 4u) != 0 ? 1u : ~0u;
  float near;
  std::memcpy(&near, &bits, sizeof(near));
  return near;
}
// Ties to even, the second operand in the lower half.
uint32_t PackBf16(float upper, float lower) {
  return static_cast<uint32_t>(RoundToBf16(upper).bits) << 16 | RoundToBf16(lower).bits;
}
float NearReciprocal(float a) { return Near(1 / a); }
float NearPower(float a) { return a == 0 ? 1 : Near(std::exp2(a)); }
// Some 20 bits of it.
double RoughReciprocal(double a) {
  if (std::fabs(a) < std::numeric_limits<double>::min()) a = std::copysign(0.0, a);
  const double exact = 1 / a;
  uint64_t bits;
  std::memcpy(&bits, &exact, sizeof(bits));
  bits &= ~uint64_t{0xffffffff};
  double rough;
  std::memcpy(&rough, &bits, sizeof(rough));
  return rough;
}
// One that is no number loses, and -0 is less than 0.
template <typename T>
T Smaller(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (a != a) return b;
    if (b != b) return a;
    if (a == b) return std::signbit(a) ? a : b;
  }
  return b < a ? b : a;
}
template <typename T>
T Larger(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (a != a) return b;
    if (b != b) return a;
    if (a == b) return std::signbit(a) ? b : a;
  }
  return a < b ? b : a;
}
template <typename T>
T And(T a, T b) {
  return a & b;
}
template <typename T>
T Or(T a, T b) {
  return a | b;
}
template <typename T>
T Xor(T a, T b) {
  return a ^ b;
}
template <typename T>
T Not(T a) {
  if constexpr (std::is_same_v<T, bool>) {
    return !a;
  } else {
    return static_cast<T>(~a);
  }
}
template <typename T>
T ShiftLeft(T a, uint32_t by) {
  return by >= 8 * sizeof(T) ? T{0} : static_cast<T>(a << by);
}
template <typename T>
T ShiftRight(T a, uint32_t by) {
  return by >= 8 * sizeof(T) ? static_cast<T>(a < 0 ? -1 : 0) : static_cast<T>(a >> by);
}
template <typename T>
uint32_t CountBits(T a) {
  return static_cast<uint32_t>(__builtin_popcountll(a));
}
// Bytes of a and b, each chosen by four bits of c; the fourth asks for its sign instead.
uint32_t Permute(uint32_t a, uint32_t b, uint32_t c) {
  const uint64_t bytes = a | uint64_t{b} << 32;
  uint32_t result = 0;
  for (int k = 0; k < 4; ++k) {
    const uint32_t selector = c >> 4 * k & 15u;
    uint32_t byte = bytes >> 8 * (selector & 7u) & 255u;
    if ((selector & 8u) != 0) byte = (byte & 128u) != 0 ? 255u : 0u;
    result |= byte << 8 * k;
  }
  return result;
}
// The lowest `length` bits of a in the place of b's from `at` on.
template <typename T>
T InsertBits(T a, T b, uint32_t at, uint32_t length) {
  constexpr uint32_t kBits = 8 * sizeof(T);
  at &= 255u;
  length &= 255u;
  if (at >= kBits) return b;
  const T all = length >= kBits ? ~T{0} : (T{1} << length) - 1;
  const T field = all << at;
  return (b & ~field) | (a << at & field);
}
template <typename T>
T Same(T a) {
  return a;
}
template <typename T>
T Select(T a, T b, bool first) {
  return first ? a : b;
}
template <typename To, typename From>
To Convert(From a) {
  return static_cast<To>(a);
}
// Towards zero; what is too large becomes the largest, and a NaN 0.
template <typename To, typename From>
To Truncate(From a) {
  if (a != a) return 0;
  if (a <= static_cast<From>(std::numeric_limits<To>::min())) return std::numeric_limits<To>::min();
  if (a >= static_cast<From>(std::numeric_limits<To>::max())) return std::numeric_limits<To>::max();
  return static_cast<To>(a);
}

template <typename T>
bool Equal(T a, T b) {
  return a == b;
}
template <typename T>
bool Unequal(T a, T b) {
  return a != b;
}
template <typename T>
bool Less(T a, T b) {
  return a < b;
}
template <typename T>
bool AtMost(T a, T b) {
  return a <= b;
}
template <typename T>
bool More(T a, T b) {
  return a > b;
}
template <typename T>
bool AtLeast(T a, T b) {
  return a >= b;
}
template <typename T>
bool Unordered(T a, T b) {
  return a != a || b != b;
}
template <typename T>
bool Ordered(T a, T b) {
  return !Unordered(a, b);
}
template <typename T>
bool OrderedUnequal(T a, T b) {
  return Ordered(a, b) && a != b;
}
template <typename T, bool (*f)(T, T)>
bool OrUnordered(T a, T b) {
  return Unordered(a, b) || f(a, b);
}

// The same for the lanes of a mask.
using Slots = uint64_t (*)[kWarp];

template <typename T>
T Get(const uint64_t* slot, int lane) {
  if constexpr (std::is_same_v<T, bool>) return slot[lane] != 0;  // A constant may be -1.
  T value;
  std::memcpy(&value, slot + lane, sizeof(T));
  return value;
}

template <auto f>
struct Lanes;
template <typename R, typename... A, R (*f)(A...)>
struct Lanes<f> {
  static void Run(Slots slots, uint32_t lanes, const Instruction& i) {
    Run(slots, lanes, i, std::index_sequence_for<A...>());
  }

 private:
  template <size_t... k>
  static void Run(Slots slots, uint32_t lanes, const Instruction& i, std::index_sequence<k...>) {
    uint64_t* const to = slots[i.o[0]];
    const uint64_t* const from[] = {slots[i.o[1 + k]]...};
    const auto run = [&](int lane) {
      const R value = f(Get<A>(from[k], lane)...);
      uint64_t bits = 0;
      std::memcpy(&bits, &value, sizeof(R));
      to[lane] = bits;
    };
    if (lanes == ~0u) {
#pragma GCC ivdep
      for (int lane = 0; lane < kWarp; ++lane) run(lane);
    } else {
      for (; lanes != 0; lanes &= lanes - 1) run(__builtin_ctz(lanes));
    }
  }
};

using Table = std::map<std::string, Instruction::Run>;

template <typename T>
void AddMoves(Table& table, const std::string& type) {
  table["mov." + type] = Lanes<Same<T>>::Run;
  table["selp." + type] = Lanes<Select<T>>::Run;
}

template <typename T>
void AddBits(Table& table, const std::string& type) {
  AddMoves<T>(table, type);
  table["and." + type] = Lanes<And<T>>::Run;
  table["or." + type] = Lanes<Or<T>>::Run;
  table["xor." + type] = Lanes<Xor<T>>::Run;
  table["not." + type] = Lanes<Not<T>>::Run;
  table["shl." + type] = Lanes<ShiftLeft<T>>::Run;
  table["setp.eq." + type] = Lanes<Equal<T>>::Run;
  table["setp.ne." + type] = Lanes<Unequal<T>>::Run;
}

template <typename T>
void AddNumbers(Table& table, const std::string& type) {
  AddMoves<T>(table, type);
  table["neg." + type] = Lanes<Negate<T>>::Run;
  table["min." + type] = Lanes<Smaller<T>>::Run;
  table["max." + type] = Lanes<Larger<T>>::Run;
  table["setp.eq." + type] = Lanes<Equal<T>>::Run;
  table["setp.lt." + type] = Lanes<Less<T>>::Run;
  table["setp.le." + type] = Lanes<AtMost<T>>::Run;
  table["setp.gt." + type] = Lanes<More<T>>::Run;
  table["setp.ge." + type] = Lanes<AtLeast<T>>::Run;
}

template <typename T>
void AddIntegers(Table& table, const std::string& type) {
  AddNumbers<T>(table, type);
  table["add." + type] = Lanes<Add<T>>::Run;
  table["sub." + type] = Lanes<Subtract<T>>::Run;
  table["mul.lo." + type] = Lanes<Multiply<T>>::Run;
  table["mad.lo." + type] = Lanes<MultiplyAdd<T>>::Run;
  table["div." + type] = Lanes<Divide<T>>::Run;
  table["rem." + type] = Lanes<Remainder<T>>::Run;
  table["shr." + type] = Lanes<ShiftRight<T>>::Run;
  table["setp.ne." + type] = Lanes<Unequal<T>>::Run;
}

template <typename T>
void AddFloats(Table& table, const std::string& type) {
  AddNumbers<T>(table, type);
  table["add.rn." + type] = Lanes<Add<T>>::Run;
  table["sub.rn." + type] = Lanes<Subtract<T>>::Run;
  table["mul.rn." + type] = Lanes<Multiply<T>>::Run;
  table["div.rn." + type] = Lanes<Divide<T>>::Run;
  table["fma.rn." + type] = Lanes<Fused<T>>::Run;
  table["sqrt.rn." + type] = Lanes<Root<T>>::Run;
  table["rcp.rn." + type] = Lanes<Reciprocal<T>>::Run;
  table["abs." + type] = Lanes<Absolute<T>>::Run;
  table["setp.ne." + type] = Lanes<OrderedUnequal<T>>::Run;
  table["setp.equ." + type] = Lanes<OrUnordered<T, Equal<T>>>::Run;
  table["setp.neu." + type] = Lanes<Unequal<T>>::Run;
  table["setp.ltu." + type] = Lanes<OrUnordered<T, Less<T>>>::Run;
  table["setp.leu." + type] = Lanes<OrUnordered<T, AtMost<T>>>::Run;
  table["setp.gtu." + type] = Lanes<OrUnordered<T, More<T>>>::Run;
  table["setp.geu." + type] = Lanes<OrUnordered<T, AtLeast<T>>>::Run;
  table["setp.num." + type] = Lanes<Ordered<T>>::Run;
  table["setp.nan." + type] = Lanes<Unordered<T>>::Run;
}

template <typename To>
void AddConversions(Table& table, const std::string& prefix) {
  table[prefix + "u8"] = Lanes<Convert<To, uint8_t>>::Run;
  table[prefix + "s8"] = Lanes<Convert<To, int8_t>>::Run;
  table[prefix + "u16"] = Lanes<Convert<To, uint16_t>>::Run;
  table[prefix + "s16"] = Lanes<Convert<To, int16_t>>::Run;
  table[prefix + "u32"] = Lanes<Convert<To, uint32_t>>::Run;
  table[prefix + "s32"] = Lanes<Convert<To, int32_t>>::Run;
  table[prefix + "u64"] = Lanes<Convert<To, uint64_t>>::Run;
  table[prefix + "s64"] = Lanes<Convert<To, int64_t>>::Run;
}

Table MakeTable() {
  Table table;
  AddBits<bool>(table, "pred");
  AddBits<uint16_t>(table, "b16");
  AddBits<uint32_t>(table, "b32");
  AddBits<uint64_t>(table, "b64");
  AddIntegers<uint16_t>(table, "u16");
  AddIntegers<int16_t>(table, "s16");
  AddIntegers<uint32_t>(table, "u32");
  AddIntegers<int32_t>(table, "s32");
  AddIntegers<uint64_t>(table, "u64");
  AddIntegers<int64_t>(table, "s64");
  AddFloats<float>(table, "f32");
  AddFloats<double>(table, "f64");
  table["mul.wide.u16"] = Lanes<MultiplyWide<uint32_t, uint16_t>>::Run;
  table["mul.wide.s16"] = Lanes<MultiplyWide<int32_t, int16_t>>::Run;
  table["mul.wide.u32"] = Lanes<MultiplyWide<uint64_t, uint32_t>>::Run;
  table["mul.wide.s32"] = Lanes<MultiplyWide<int64_t, int32_t>>::Run;
  table["popc.b32"] = Lanes<CountBits<uint32_t>>::Run;
  table["popc.b64"] = Lanes<CountBits<uint64_t>>::Run;
  table["bfi.b32"] = Lanes<InsertBits<uint32_t>>::Run;
  table["bfi.b64"] = Lanes<InsertBits<uint64_t>>::Run;
  table["cvt.rn.bf16x2.f32"] = Lanes<PackBf16>::Run;
  table["prmt.b32"] = Lanes<Permute>::Run;
  table["rcp.approx.ftz.f32"] = Lanes<NearReciprocal>::Run;
  table["ex2.approx.ftz.f32"] = Lanes<NearPower>::Run;
  table["rcp.approx.ftz.f64"] = Lanes<RoughReciprocal>::Run;
  // Addresses of global memory are the same in the space of all.
  table["cvta.to.global.u64"] = Lanes<Same<uint64_t>>::Run;
  AddConversions<uint8_t>(table, "cvt.u8.");
  AddConversions<int8_t>(table, "cvt.s8.");
  AddConversions<uint16_t>(table, "cvt.u16.");
  AddConversions<int16_t>(table, "cvt.s16.");
  AddConversions<uint32_t>(table, "cvt.u32.");
  AddConversions<int32_t>(table, "cvt.s32.");
  AddConversions<uint64_t>(table, "cvt.u64.");
  AddConversions<int64_t>(table, "cvt.s64.");
  AddConversions<float>(table, "cvt.rn.f32.");
  AddConversions<double>(table, "cvt.rn.f64.");
  table["cvt.f64.f32"] = Lanes<Convert<double, float>>::Run;
  table["cvt.rn.f32.f64"] = Lanes<Convert<float, double>>::Run;
  table["cvt.rzi.s32.f32"] = Lanes<Truncate<int32_t, float>>::Run;
  table["cvt.rzi.s64.f64"] = Lanes<Truncate<int64_t, double>>::Run;
  return table;
}

bool BeginsWith(const std::string& name, const char* with) { return name.rfind(with, 0) == 0; }

bool EndsWith(const std::string& name, const std::string& with) {
  return name.size() >= with.size() &&
         name.compare(name.size() - with.size(), with.size(), with) == 0;
}

}  // namespace

int CostOf(const std::string& name) {
  static const std::map<std::string, int> kLong = {
      {"div.rn.f32", 9},   {"sqrt.rn.f32", 8},        {"rcp.rn.f64", 20},      {"div.rn.f64", 40},
      {"sqrt.rn.f64", 40}, {"div.s64", 80},           {"rem.s64", 80},         {"div.u32", 16},
      {"rem.u32", 16},     {"mul.lo.s64", 5},         {"mul.lo.u64", 5},       {"min.s64", 4},
      {"max.s64", 4},      {"rcp.approx.ftz.f64", 1}, {"cvt.rn.bf16x2.f32", 2}};
  if (const auto found = kLong.find(name); found != kLong.end()) return found->second;
  if (BeginsWith(name, "mov.") || BeginsWith(name, "cvta.") || BeginsWith(name, "ld.param.")) {
    return 0;
  }
  if (BeginsWith(name, "cvt.") || BeginsWith(name, "ld.") || BeginsWith(name, "st.")) return 1;
  return EndsWith(name, "64") && !BeginsWith(name, "mul.wide") ? 2 : 1;
}

Instruction::Run FindOperation(const std::string& name) {
  static const Table table = MakeTable();
  const auto found = table.find(name);
  return found == table.end() ? nullptr : found->second;
}

}  // namespace tessera::ptx
