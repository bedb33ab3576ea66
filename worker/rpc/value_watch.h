// Which parameters have come from all servers, while a pull is under way.
#ifndef TESSERA_WORKER_RPC_VALUE_WATCH_H_
#define TESSERA_WORKER_RPC_VALUE_WATCH_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/layout/shard_map.h"
#include "worker/exchange/parameter_client.h"

namespace tessera {

// Watches answers in f32, in which each server's values are in the order of the parameters. One thread.
class ValueWatch {
 public:
  // From now on `sink` is told, of parameter `first` and those behind it; nullptr: nobody. `parts` are what the
  // answers are of.
  void Begin(ValueSink* sink, absl::Span<const ShardSlices> parts, size_t first,
             size_t parameters) {
    sink_ = sink;
    first_ = first;
    told_ = first;
    ends_.assign(sink == nullptr ? 0 : parts.size(), {});
    for (size_t part = 0; part < ends_.size(); ++part) {
      int64_t end = 0;
      size_t next = 0;
      const std::vector<Slice>& slices = parts[part].slices;
      for (int p = 0; p < static_cast<int>(parameters); ++p) {
        for (; next < slices.size() && slices[next].parameter == p; ++next) {
          end += slices[next].size() * static_cast<int64_t>(sizeof(float));
        }
        ends_[part].push_back(end);
      }
    }
  }
  void End() { sink_ = nullptr; }
  bool is_on() const { return sink_ != nullptr; }

  // An answer begins anew, with values that may be others.
  void Restart() { told_ = first_; }
  // Tells how many bytes of each part are there.
  void Tell(absl::Span<const int64_t> written) {
    while (!ends_.empty() && told_ < ends_.front().size()) {
      for (size_t part = 0; part < ends_.size(); ++part) {
        if (written[part] < ends_[part][told_]) return;
      }
      sink_->Take(told_++);
    }
  }

 private:
  ValueSink* sink_ = nullptr;
  size_t first_ = 0;
  size_t told_ = 0;
  std::vector<std::vector<int64_t>> ends_;  // by part: the bytes up to each parameter's end
};

}  // namespace tessera

#endif  // TESSERA_WORKER_RPC_VALUE_WATCH_H_
