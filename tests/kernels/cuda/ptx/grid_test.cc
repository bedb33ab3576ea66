#include "tests/kernels/cuda/ptx/grid.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/kernels/cuda/ptx/memory.h"
#include "tests/kernels/cuda/ptx/module.h"

namespace tessera::ptx {
namespace {

constexpr int64_t kMemory = 1 << 20;

// An entry with one parameter, the address of `values`, in %rd1, and its thread in %r1.
std::string EntryOf(const std::string& body) {
  return R"(.version 9.0
.target sm_90
.address_size 64
.entry kernel(
 .param .u64 values
)
.maxntid 256, 1, 1
{
 .reg .pred %p<9>;
 .reg .b32 %r<9>;
 .reg .b64 %rd<9>;
 .shared .align 8 .b8 area[1024];
 ld.param.u64 %rd1, [values];
 mov.u32 %r1, %tid.x;
 mul.wide.u32 %rd2, %r1, 4;
 add.s64 %rd3, %rd1, %rd2;
 mov.u32 %r2, area;
 shl.b32 %r3, %r1, 2;
 add.s32 %r4, %r2, %r3;
)" + body +
         " ret;\n}\n";
}

struct Ran {
  std::string wrong;
  std::vector<uint32_t> values;
  Usage usage;
};

// Over `values`, which the device holds, followed by 64 bytes that nobody has written.
Ran Run(const std::string& body, std::vector<uint32_t> values, int64_t blocks, int threads) {
  const auto entries = ParseModule(EntryOf(body));
  DeviceMemory memory(kMemory);
  const auto bytes = static_cast<int64_t>(4 * values.size());
  char* const address = static_cast<char*>(memory.Allocate(bytes + 64));
  memory.shadow().Set(memory.OffsetOf(address), bytes, Shadow::kWritten);
  std::memcpy(memory.Reach(address), values.data(), static_cast<size_t>(bytes));
  Grid grid{&entries.at("kernel"), blocks, threads, std::vector<char>(8)};
  std::memcpy(grid.parameters.data(), &address, 8);
  Ran ran;
  try {
    RunGrid(grid, &memory, &ran.usage);
  } catch (const std::runtime_error& error) {
    ran.wrong = error.what();
  }
  std::memcpy(values.data(), memory.Reach(address), static_cast<size_t>(bytes));
  ran.values = values;
  return ran;
}

std::string WrongWith(const std::string& body, int64_t blocks = 1, int threads = 32) {
  return Run(body, std::vector<uint32_t>(256, 7), blocks, threads).wrong;
}

bool Says(const std::string& text, const std::string& what) {
  UNSCOPED_INFO(text);
  return text.find(what) != std::string::npos;
}

TEST_CASE("threads compute, part and meet again") {
  // Odd threads go one way, even ones another; all add 100 behind.
  const Ran ran = Run(R"( and.b32 %r5, %r1, 1;
 setp.eq.s32 %p1, %r5, 0;
 @%p1 bra $EVEN;
 mul.lo.s32 %r6, %r1, 3;
 bra.uni $END;
$EVEN:
 neg.s32 %r6, %r1;
$END:
 add.s32 %r6, %r6, 100;
 st.global.u32 [%rd3], %r6;
)",
                      std::vector<uint32_t>(48, 0), 1, 48);
  CHECK(ran.wrong == "");
  for (uint32_t t = 0; t < 48; ++t) CHECK(ran.values[t] == (t % 2 == 0 ? 100 - t : 100 + 3 * t));
}

TEST_CASE("lanes take the values of those above them") {
  const Ran ran = Run(R"( mov.u32 %r5, 31;
 mov.u32 %r6, -1;
 shfl.sync.down.b32 %r7|%p1, %r1, 3, %r5, %r6;
 selp.b32 %r8, %r7, 99, %p1;
 st.global.u32 [%rd3], %r8;
)",
                      std::vector<uint32_t>(64, 0), 1, 64);
  CHECK(ran.wrong == "");
  for (uint32_t t = 0; t < 64; ++t) CHECK(ran.values[t] == (t % 32 < 29 ? t + 3 : 99));
}

TEST_CASE("vectors, bytes and signs are loaded and stored as they lie") {
  const Ran ran = Run(R"( setp.ne.s32 %p1, %r1, 0;
 @%p1 bra $END;
 ld.global.v2.u32 {%r5, %r6}, [%rd1+8];
 st.global.v2.b32 [%rd1], {%r6, %r5};
 ld.global.s8 %r7, [%rd1+13];
 st.global.u32 [%rd1+8], %r7;
 st.global.u8 [%rd1+12], %r7;
 mov.b64 %rd4, {%r5, %r6};
 shr.u64 %rd5, %rd4, 16;
 mov.b64 {%r5, %r6}, %rd5;
 st.global.u32 [%rd1+16], %r5;
 st.global.u32 [%rd1+20], %r6;
$END:
)",
                      {1, 2, 0x11223344, 0x5566f788, 0, 0}, 1, 32);
  CHECK(ran.wrong == "");
  CHECK(ran.values ==
        std::vector<uint32_t>{0x5566f788, 0x11223344, 0xfffffff7, 0x5566f7f7, 0xf7881122, 0x5566});
}

TEST_CASE("numbers at the edge are what PTX says of them") {
  const auto of = [](const std::string& instruction, uint32_t a, uint32_t b) {
    const Ran ran =
        Run(" setp.ne.s32 %p1, %r1, 0;\n @%p1 bra $END;\n" +
                std::string(" ld.global.u32 %r5, [%rd1];\n ld.global.u32 %r6, [%rd1+4];\n ") +
                instruction + ";\n st.global.u32 [%rd1], %r7;\n$END:\n",
            {a, b}, 1, 32);
    CHECK(ran.wrong == "");
    return ran.values[0];
  };
  constexpr uint32_t kNan = 0x7fc00000, kOne = 0x3f800000, kMinusZero = 0x80000000;
  CHECK(of("max.f32 %r7, %r5, %r6", kNan, kOne) == kOne);
  CHECK(of("min.f32 %r7, %r5, %r6", kOne, kNan) == kOne);
  CHECK(of("max.f32 %r7, %r5, %r6", kMinusZero, 0) == 0);
  CHECK(of("min.f32 %r7, %r5, %r6", 0, kMinusZero) == kMinusZero);
  CHECK(of("setp.ne.f32 %p2, %r5, %r6;\n selp.u32 %r7, 1, 0, %p2", kNan, kOne) == 0);
  CHECK(of("setp.neu.f32 %p2, %r5, %r6;\n selp.u32 %r7, 1, 0, %p2", kNan, kOne) == 1);
  CHECK(of("setp.leu.f32 %p2, %r5, %r6;\n selp.u32 %r7, 1, 0, %p2", kNan, kOne) == 1);
  CHECK(of("cvt.rzi.s32.f32 %r7, %r5", 0x4f800000, 0) == 0x7fffffff);  // 2^32
  CHECK(of("cvt.rzi.s32.f32 %r7, %r5", 0xcf800000, 0) == 0x80000000);
  CHECK(of("cvt.rzi.s32.f32 %r7, %r5", kNan, 0) == 0);
  CHECK(of("cvt.rzi.s32.f32 %r7, %r5", 0xbfe00000, 0) == 0xffffffff);  // -1.75
  CHECK(of("shl.b32 %r7, %r5, %r6", 3, 32) == 0);
  CHECK(of("shr.s32 %r7, %r5, %r6", 0x80000000, 77) == 0xffffffff);
  CHECK(of("shr.u32 %r7, %r5, %r6", 0x80000000, 77) == 0);
  CHECK(of("div.s32 %r7, %r5, %r6", 0x80000000, 0xffffffff) == 0x80000000);
  CHECK(of("rem.s32 %r7, %r5, %r6", 0xfffffff9, 3) == 0xffffffff);
  CHECK(of("mul.lo.s32 %r7, %r5, %r6", 0x10001, 0x10001) == 0x20001);
  CHECK(of("prmt.b32 %r7, %r5, %r6, 0x9540", 0x11228344, 0x55667788) == 0xff778844);
  CHECK(of("bfi.b32 %r7, %r5, %r6, 8, 12", 0xabcd1234, 0xffffffff) == 0xfff234ff);
  CHECK(of("bfi.b32 %r7, %r5, %r6, 24, 12", 0xabcd1234, 0x55667788) == 0x34667788);
  CHECK(of("bfi.b32 %r7, %r5, %r6, 0, 32", 0xabcd1234, 0x55667788) == 0xabcd1234);
  CHECK(of("bfi.b32 %r7, %r5, %r6, 4, 0", 0xabcd1234, 0x55667788) == 0x55667788);
  CHECK(of("bfi.b32 %r7, %r5, %r6, 32, 8", 0xabcd1234, 0x55667788) == 0x55667788);
  const auto of_wide = [&of](const std::string& places, const std::string& words) {
    return of(
        " mov.b64 %rd5, {%r5, %r6};\n mov.b64 %rd6, {%r6, %r6};\n bfi.b64 %rd5, %rd5, %rd6, " +
            places + ";\n mov.b64 " + words + ", %rd5",
        0xabcd1234, 0x55667788);
  };
  CHECK(of_wide("32, 32", "{%r6, %r7}") == 0xabcd1234);
  CHECK(of_wide("32, 32", "{%r7, %r6}") == 0x55667788);
  CHECK(of_wide("24, 48", "{%r6, %r7}") == 0x88abcd12);
  CHECK(of_wide("64, 8", "{%r6, %r7}") == 0x55667788);
  CHECK(of("popc.b32 %r7, %r5", 0xf0f0, 0) == 8);
  CHECK(of("mov.pred %p2, -1;\n not.pred %p3, %p2;\n selp.u32 %r7, 1, 0, %p3", 0, 0) == 0);
  CHECK(of("mov.pred %p2, 0;\n not.pred %p3, %p2;\n selp.u32 %r7, 1, 0, %p3", 0, 0) == 1);
  CHECK(of("div.rn.f32 %r7, %r5, %r6", kOne, 0x40400000) == 0x3eaaaaab);
}

TEST_CASE("what lies in shared memory behind a barrier is every thread's") {
  const std::string turns = R"( st.shared.u32 [%r4], %r1;
 bar.sync 0;
 sub.s32 %r5, 127, %r1;
 shl.b32 %r6, %r5, 2;
 add.s32 %r7, %r2, %r6;
 ld.shared.u32 %r8, [%r7];
 st.global.u32 [%rd3], %r8;
)";
  const Ran ran = Run(turns, std::vector<uint32_t>(128, 0), 1, 128);
  CHECK(ran.wrong == "");
  for (uint32_t t = 0; t < 128; ++t) CHECK(ran.values[t] == 127 - t);

  std::string without = turns;
  without.erase(without.find(" bar"), std::string(" bar.sync 0;\n").size());
  CHECK(Says(Run(without, std::vector<uint32_t>(128, 0), 1, 128).wrong, "never written"));
}

TEST_CASE("threads that touch the same bytes are found") {
  CHECK(Says(WrongWith(" st.global.u32 [%rd1], %r1;\n"), "written by another thread"));
  CHECK(Says(WrongWith(" ld.global.u32 %r5, [%rd1];\n st.global.u32 [%rd3], %r5;\n"),
             "read by another thread"));
  // A byte each, of the same words: nobody's business.
  CHECK(WrongWith(" cvt.u64.u32 %rd4, %r1;\n add.s64 %rd5, %rd1, %rd4;\n st.global.u8 "
                  " [%rd5], %r1;\n") == "");
  // Two blocks, which no barrier parts.
  CHECK(Says(WrongWith(" st.global.u32 [%rd3], %r1;\n", 2), "written by another thread"));
  CHECK(Says(WrongWith(" bar.sync 0;\n st.global.u32 [%rd3], %r1;\n", 2),
             "written by another thread"));
  // A neighbour's word, before a barrier and behind it.
  const std::string neighbour =
      " xor.b32 %r5, %r1, 1;\n mul.wide.u32 %rd4, %r5, 4;\n add.s64 %rd5, "
      "%rd1, %rd4;\n";
  const std::string reads = neighbour + " ld.global.u32 %r6, [%rd5];\n",
                    writes = " st.global.u32 [%rd3], %r6;\n";
  CHECK(Says(WrongWith(reads + writes), "by another thread"));
  CHECK(WrongWith(reads + " bar.sync 0;\n" + writes, 1, 64) == "");
  CHECK(Says(WrongWith(reads + " bar.sync 0;\n" + writes + reads, 1, 64),
             "written by another thread"));
}

TEST_CASE("memory that is none, was never written or is not aligned is found") {
  CHECK(Says(WrongWith(" ld.global.u32 %r5, [%rd3+1024];\n"), "never written"));
  CHECK(WrongWith(" setp.gt.s32 %p1, %r1, 15;\n @%p1 bra $END;\n st.global.u32  "
                  "[%rd3+1024], %r1;\n$END:\n") == "");
  CHECK(Says(WrongWith(" st.global.u32 [%rd3+1024], %r1;\n"), "not allocated"));
  CHECK(Says(WrongWith(" st.global.u32 [%rd2], %r1;\n"), "no memory of the device"));
  CHECK(Says(WrongWith(" st.global.u32 [%rd3+2], %r1;\n"), "not aligned"));
  CHECK(Says(WrongWith(" ld.global.v2.u32 {%r5, %r6}, [%rd3];\n"), "not aligned"));
  CHECK(Says(WrongWith(" st.shared.u32 [%r4+1000], %r1;\n"), "outside of shared memory"));
  CHECK(Says(WrongWith(" st.shared.u32 [%r4+-4], %r1;\n"), "outside of shared memory"));
  CHECK(Says(WrongWith(" st.shared.u32 [%r3], %r1;\n"), "outside of shared memory"));
  CHECK(Says(WrongWith(" ld.shared.u32 %r5, [%r4];\n"), "never written"));
  CHECK(Says(WrongWith(" st.global.u32 [%rd3+1024], %r1;\n"),
             "kernel, block 0 of 1, thread 16 of 32, PTX line 20"));
}

TEST_CASE("barriers and shuffles that not all threads come to are found") {
  const std::string half = " setp.gt.s32 %p1, %r1, 31;\n @%p1 bra $END;\n";
  CHECK(Says(WrongWith(half + " bar.sync 0;\n$END:\n", 1, 64), "not all come to the same barrier"));
  CHECK(Says(WrongWith(" setp.gt.s32 %p1, %r1, 31;\n @%p1 bar.sync 0;\n", 1, 64), "not all come"));
  const std::string shuffle = " shfl.sync.down.b32 %r7|%p1, %r1, 1, 31, -1;\n";
  CHECK(WrongWith(half + shuffle + "$END:\n", 1, 64) == "");
  CHECK(Says(WrongWith(shuffle, 1, 48), "fewer than 32 threads"));
  CHECK(Says(WrongWith(" setp.gt.s32 %p1, %r1, 20;\n @%p1 bra $END;\n" + shuffle + "$END:\n"),
             "it waits for thread 21"));
  CHECK(Says(WrongWith(" shfl.sync.down.b32 %r7|%p1, %r1, 1, 31, 255;\n"), "some lanes only"));
}

TEST_CASE("only grids that a GPU would take are run") {
  CHECK(Says(WrongWith("", 0), "0 blocks"));
  CHECK(Says(WrongWith("", 1, 257), "257 threads"));
  const auto refused = [](const std::string& body) {
    try {
      ParseModule(EntryOf(body));
    } catch (const std::runtime_error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(refused("") == "");
  CHECK(Says(refused(" sin.approx.f32 %r5, %r6;\n"),
             "line 20: an instruction that is not known: sin.approx.f32"));
  CHECK(Says(refused(" bra $NOWHERE;\n"), "no such label"));
  CHECK(Says(refused(" st.local.u32 [%rd1], %r1;\n"), "a space that is not known"));
  CHECK(Says(refused(" mov.u32 %r5, nobody;\n"), "no such operand"));
}

TEST_CASE("what a kernel asks of memory and of a warp is counted") {
  // Side by side, every 32 bytes, and all at one place.
  CHECK(Run(" ld.global.u32 %r5, [%rd3];\n", std::vector<uint32_t>(64), 2, 32).usage.loaded ==
        2 * 4);
  const std::string apart = " mul.wide.u32 %rd4, %r1, 32;\n add.s64 %rd5, %rd1, %rd4;\n";
  CHECK(Run(apart + " st.global.u32 [%rd5], %r1;\n", std::vector<uint32_t>(256), 1, 32)
            .usage.stored == 32);
  CHECK(Run(" ld.global.u32 %r5, [%rd1];\n", std::vector<uint32_t>(64), 1, 32).usage.loaded == 1);
  // Half a warp counts as one: four at the beginning, that come to mul, add (2), shl and add; then setp, bra, add, ret.
  const Usage usage =
      Run(" setp.gt.s32 %p1, %r1, 15;\n @%p1 bra $END;\n add.s64 %rd4, %rd1, 1;\n$END:\n", {1}, 1,
          32)
          .usage;
  const auto entries = ParseModule(
      EntryOf(" setp.gt.s32 %p1, %r1, 15;\n @%p1 bra $END;\n add.s64 %rd4, %rd1, 1;\n$END:\n"));
  CHECK(usage.Issued(entries.at("kernel")) == 5 + 1 + 1 + 2 + 1);
  CHECK(usage.launches == 1);
}

TEST_CASE("instructions that nobody comes to are told") {
  const Ran ran =
      Run(" setp.gt.s32 %p1, %r1, 100;\n @%p1 bra $FAR;\n ret;\n$FAR:\n add.s32 "
          " %r5, %r1, 1;\n",
          {1}, 1, 32);
  CHECK(ran.wrong == "");
  // Seven at the beginning, setp, bra and ret; add, the last ret and the end.
  CHECK(ran.usage.times == std::vector<int64_t>{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0});
}

}  // namespace
}  // namespace tessera::ptx
