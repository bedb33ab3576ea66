// The limit that the exchange is measured against: one blocking TCP socket and nothing else.
//
//   's'  send me the bytes                     answered by them
//   'r'  receive mine                          answered by one byte once all have come
//   'c'  how many were copied in your memory   answered by 8 bytes, host order
#ifndef TESSERA_BENCH_EXCHANGE_PLAIN_STREAM_H_
#define TESSERA_BENCH_EXCHANGE_PLAIN_STREAM_H_

#include <cstdint>
#include <vector>

namespace tessera {

// Bytes that memcpy and memmove have moved in this process; 0 unless copy_counter.so is preloaded.
uint64_t CopiedBytes();

// Listens on a free port of 127.0.0.1 and serves one client with `bytes` bytes, on a thread of its
// own. Returns the port.
int ServePlainStream(int64_t bytes);

class PlainStreamClient {
 public:
  PlainStreamClient(int port, int64_t bytes);
  ~PlainStreamClient();
  void Receive();
  void Send();
  uint64_t ServerCopiedBytes();

 private:
  void Request(char what);

  int fd_ = -1;
  std::vector<char> buffer_;
};

}  // namespace tessera

#endif  // TESSERA_BENCH_EXCHANGE_PLAIN_STREAM_H_
