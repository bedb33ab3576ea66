// Gather and scatter alone, out of and into a shard's blocks, one thread: against memcpy of as many
// bytes, and against reading one word of each cache line that the gather touches.
//
// Before each run the caches are filled with other memory: a server's parameters are not in them.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <numeric>
#include <vector>

#include "bench/subnet/matrix.h"
#include "bench/timing/timing.h"
#include "common/base/check.h"
#include "common/codec/payload.h"
#include "common/layout/shard_map.h"
#include "server/shard/block_store.h"
#include "server/shard/forms/site_subnet.h"
#include "server/shard/forms/subnet_rounds.h"

namespace tessera {
namespace {

constexpr int64_t kLineEntries = 16;

// For each row of the site, the cache lines with one of its columns.
struct TouchedLines {
  explicit TouchedLines(const SiteSubnet::Part& part) {
    for (int64_t i = 0; i < part.row_size; ++i) {
      const int64_t line = part.column_list[i] / kLineEntries;
      if (lines.empty() || lines.back() != line) lines.push_back(line);
    }
  }
  std::vector<int64_t> lines;
};

// Four sums, so that loads do not wait for each other.
float ReadLines(const float* row, const std::vector<int64_t>& lines) {
  float sums[4] = {};
  for (size_t i = 0; i < lines.size(); ++i) sums[i % 4] += row[lines[i] * kLineEntries];
  return sums[0] + sums[1] + sums[2] + sums[3];
}

class Bench {
 public:
  Bench(int64_t width, int sites)
      : shape_(SquareMatrix(width)),
        slices_(SlicesOf(shape_, ShardId(0), 1)),
        store_(slices_, slices_.bytes()),
        rounds_(shape_, slices_, BothCut(width), 1) {
    int64_t row = 0;
    for (int i = 0; i < store_.block_count(); ++i) {
      const BlockStore::Rewrite block = store_.BeginRewrite(i);
      const int64_t rows = block.size / width;
      FillInitialRows(shape_.parameters[0], 0, 1, row, row + rows, block.out);
      row += rows;
    }
    std::vector<MemberId> members;
    for (int i = 1; i <= sites; ++i) members.push_back(MemberId(i));
    rounds_.Open(Exchange(1), members, std::vector<uint32_t>(members.size(), 1));
    for (const MemberId member : members) sites_.push_back(rounds_.Of(member));
    memory_ = std::shared_ptr<float>(new float[shape_.size](), std::default_delete<float[]>());
  }

  int64_t Bytes(int site) const { return sites_[site]->bytes(); }

  // Fills the caches with other memory.
  void Forget() {
    for (float& x : other_) x += 1;
  }

  void Gather(int site) {
    SubnetGather gather(sites_[site], store_.TakeSnapshot());
    gather.Next(gather.left(), memory_.get());
  }
  // Values that Gather() left.
  void Scatter(int site) {
    Payload payload;
    payload.Append({reinterpret_cast<const char*>(memory_.get()), Bytes(site)}, memory_);
    rounds_.Fold(*sites_[site], *sites_[site]->forms().Find(Codec()), payload, 1.0f, &store_);
  }
  // Copies as many bytes as the site has, from all over the matrix.
  void Copy(int site) {
    int64_t left = Bytes(site);
    char* out = reinterpret_cast<char*>(memory_.get());
    const int64_t count = store_.block_count();
    const int64_t first = count * site / static_cast<int64_t>(sites_.size());
    for (int64_t i = 0; left > 0; ++i) {
      const Block& block = store_.block(static_cast<int>((first + i) % count));
      const int64_t bytes = std::min<int64_t>(left, block.size() * sizeof(float));
      std::memcpy(out, block.data(), bytes);
      out += bytes;
      left -= bytes;
    }
  }
  void Read(int site) {
    const SiteSubnet::Part& part = sites_[site]->parts()[0];
    const TouchedLines touched(part);
    float sum = 0;
    int block = 0;
    for (int64_t i = 0; i < part.row_count; ++i) {
      const int64_t position = part.position(i);
      while (position >= store_.offset(block) + store_.block(block).size()) ++block;
      sum +=
          ReadLines(store_.block(block).data() + (position - store_.offset(block)), touched.lines);
    }
    sink_ = sum;
  }

  // Entry by entry, with one site's values changed in between.
  void Verify() {
    const SubnetPlace place = sites_[0]->place();
    const int64_t width = shape_.parameters[0].columns;
    const std::vector<int32_t> rows = PartOf(place, 2, width);
    const std::vector<int32_t> columns = PartOf(place, 1, width);
    std::vector<float> want(shape_.size);
    FillInitialRows(shape_.parameters[0], 0, 1, 0, width, want.data());
    for (int pass = 0; pass < 2; ++pass) {
      Gather(0);
      const float* got = memory_.get();
      for (const int32_t row : rows) {
        for (const int32_t column : columns) {
          TESSERA_CHECK(*got++ == want[row * width + column]);
        }
      }
      for (int64_t i = 0; i < sites_[0]->size(); ++i) memory_.get()[i] += 1;
      for (const int32_t row : rows) {
        for (const int32_t column : columns) want[row * width + column] += 1;
      }
      Scatter(0);
    }
    for (int i = 0; i < store_.block_count(); ++i) {
      const Block& block = store_.block(i);
      TESSERA_CHECK(std::memcmp(block.data(), want.data() + store_.offset(i),
                                block.size() * sizeof(float)) == 0);
    }
  }

 private:
  const ModelShape shape_;
  const ShardSlices slices_;
  BlockStore store_;
  SubnetRounds rounds_;
  std::vector<std::shared_ptr<const SiteSubnet>> sites_;
  std::shared_ptr<float> memory_;
  std::vector<float> other_ = std::vector<float>(int64_t{16} << 20);
  volatile float sink_ = 0;
};

}  // namespace

void RunGather(int64_t width, int sites, int repetitions) {
  Bench bench(width, sites);
  bench.Verify();
  std::vector<double> gather, scatter, copy, read;
  for (int i = -2; i < repetitions; ++i) {
    const int site = (i + sites) % sites;
    const auto rate = [&](auto run) {
      bench.Forget();
      return static_cast<double>(bench.Bytes(site)) / Seconds([&] { run(); });
    };
    const double copied = rate([&] { bench.Copy(site); });
    const double lines = rate([&] { bench.Read(site); });
    const double gathered = rate([&] { bench.Gather(site); });
    const double scattered = rate([&] { bench.Scatter(site); });
    if (i < 0) continue;
    copy.push_back(1e-9 * copied);
    gather.push_back(1e-9 * gathered);
    read.push_back(1e-9 * lines);
    scatter.push_back(1e-9 * scattered);
  }
  std::printf(
      "1/%-4d %6.2f %8.2f   %6.2f (%.2f of memcpy, %.2f of lines)   %6.2f (%.2f of memcpy)\n",
      sites, Median(copy), Median(read), Median(gather), Median(gather) / Median(copy),
      Median(gather) / Median(read), Median(scatter), Median(scatter) / Median(copy));
  std::fflush(stdout);
}

}  // namespace tessera
