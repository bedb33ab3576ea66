// The loops of every form in which a codec of the table writes entries.
#include "common/codec/entry_form.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <set>
#include <vector>

#include "tests/common/codec/coded_bytes.h"
#include "tests/common/codec/paths.h"

namespace tessera {
namespace {

// One segment for each form.
std::vector<Segment> Forms() {
  std::set<const EntryForm*> seen;
  std::vector<Segment> segments;
  for (const Codec& codec : AllCodecs()) {
    const CodedKeys keys = KeysOf(codec, ShapeWith({{20, 801}, {10, 20}}));
    for (const Segment& segment : keys.segments()) {
      if (seen.insert(segment.form).second) segments.push_back(segment);
    }
  }
  return segments;
}

TEST_CASE("all paths write the same bytes", "[codec][paths]") {
  for (const Segment& segment : Forms()) {
    if (segment.has_headers()) continue;
    for (const int64_t size : kSizes) {
      for (int offset = 0; offset < 3; ++offset) {
        const std::vector<float> any = AllKinds(size + offset, static_cast<int>(size));
        SameBytesOnAllPaths(BytesOfEntries(size, segment.bits), [&](CodecPath path, char* out) {
          segment.form->at(path).encode(any.data() + offset, size, out);
        });
      }
    }
  }
}

TEST_CASE("all paths read the same numbers", "[codec][paths]") {
  for (const Segment& segment : Forms()) {
    for (const int64_t size : kSizes) {
      const std::vector<float> bytes = AllKinds(size + 1, 5);
      for (int offset = 0; offset < 4; ++offset) {
        const char* const in = reinterpret_cast<const char*>(bytes.data()) + offset;
        SameBytesOnAllPaths(4 * size, [&](CodecPath path, char* out) {
          const EntryLoops& loops = segment.form->at(path);
          std::vector<float> sum(size, 1);
          loops.assign(in, size, 0.1f, 0.3f, sum.data());
          loops.accumulate(in, size, 0.1f, 0.7f, sum.data());
          // A NaN's bits depend on which of two was first.
          for (float& x : sum) x = x == x ? x : 0;
          if (size > 0) std::memcpy(out, sum.data(), 4 * size);
        });
      }
    }
  }
}

TEST_CASE("all paths agree on what is not finite", "[codec][paths]") {
  for (const Segment& segment : Forms()) {
    if (segment.has_headers()) continue;
    for (const int64_t size : kSizes) {
      for (int seed = 0; seed < 20; ++seed) {
        const std::vector<float> values = seed % 2 == 0 ? Normal(size, seed) : AllKinds(size, seed);
        const char* const bytes = reinterpret_cast<const char*>(values.data());
        const bool wanted = segment.form->at(CodecPath::kScalar).any_not_finite(bytes, size);
        for (const CodecPath path : PathsHere()) {
          REQUIRE(segment.form->at(path).any_not_finite(bytes, size) == wanted);
        }
      }
    }
  }
}

}  // namespace
}  // namespace tessera
