// A shard's log on its way to the standby: what is to be sent, in order, and what becomes of it. Replicator
// sends it over gRPC, tests/sim over a simulated network.
#ifndef TESSERA_SERVER_RPC_LOG_QUEUE_H_
#define TESSERA_SERVER_RPC_LOG_QUEUE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "common/base/ids.h"
#include "common/codec/payload.h"
#include "proto/replication.pb.h"
#include "server/shard/shard_event.h"

namespace tessera {

// The queue of one stream, in one term. One thread at a time.
class LogQueue {
 public:
  struct Entry {
    v1::LogEntry entry;
    Payload payload;
  };
  // One chunk of the log: its values follow the last of its entries.
  struct Message {
    v1::LogChunk head;
    Payload values;
  };

  // `header` has digest, shard, term and layout. Values that wait to be sent may be of so many bytes; past
  // that the standby is too slow. For silence_max it may take nothing of what is there for it, and say nothing.
  LogQueue(v1::LogHeader header, int64_t bytes_max, absl::Duration silence_max);

  static Entry ToEntry(uint64_t position, Version version, ShardEvent event);

  // The stream begins: LogSink::Begin.
  void Begin(bool copies, absl::Time now);
  // It may break because of it.
  void Add(Entry entry, absl::Time now);
  // The standby has taken a message, or all up to `position`.
  void OnWritten(absl::Time now) { moved_ = now; }
  // False: it is none that a standby can have given, of what was not sent or less than the last one, and the queue
  // is broken because of it. Nobody is to be told anything.
  bool OnAcknowledged(uint64_t position, absl::Time now);
  // Gives a standby up that has stood still for too long: the network between may carry nothing although
  // the coordinator hears both. Every now and then, before report(); after a pause of half that time this
  // process may have stood still itself, and the standby has its time anew. True: it was broken just now.
  bool CheckProgress(absl::Time now);
  void SetInSync() { report_.set_in_sync(true); }
  // Nothing more is sent. False: it was broken before.
  bool Break(const std::string& why);
  bool broken() const { return broken_; }

  // What is to be sent next, with up to `room` bytes of values; nullopt: nothing yet.
  std::optional<Message> Next(int64_t room);

  // What the coordinator is told of this standby.
  const v1::LeaderReport& report() const { return report_; }
  const v1::LogHeader& header() const { return header_; }

 private:
  bool IsOwed() const { return begun_ && (!has_answered_ || acknowledged_ < added_); }

  const v1::LogHeader header_;
  const int64_t bytes_max_;
  const absl::Duration silence_max_;
  bool begun_ = false;
  bool broken_ = false;
  std::optional<v1::LogHeader> unsent_header_;
  std::deque<Entry> entries_;
  int64_t bytes_ = 0;
  std::shared_ptr<const Payload> sending_;  // of the last entry that was sent
  size_t piece_ = 0;
  int64_t offset_ = 0;  // in that piece
  bool has_answered_ = false;
  uint64_t added_ = 0;         // positions
  uint64_t sent_ = 0;          // of the last entry that was sent, in part at least
  uint64_t acknowledged_ = 0;  // so
  // When it last took or said something, or began to owe an answer.
  absl::Time moved_ = absl::InfiniteFuture();
  absl::Time checked_ = absl::InfinitePast();
  v1::LeaderReport report_;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_RPC_LOG_QUEUE_H_
