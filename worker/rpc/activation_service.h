// A linear worker's door: other workers' batches come in, and gradients go out (proto/activations.proto).
#ifndef TESSERA_WORKER_RPC_ACTIVATION_SERVICE_H_
#define TESSERA_WORKER_RPC_ACTIVATION_SERVICE_H_

#include <cstdint>
#include <memory>
#include <string>

#include <grpcpp/impl/codegen/service_type.h>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/rpc/call_limit.h"
#include "worker/activations/activation_inbox.h"

namespace tessera {

// Calls of one member. It makes one at a time; one that it began anew may still be here.
constexpr size_t kCallsPerSenderMax = 4;

// Serves whichever inbox it has: a worker that joins again has another one. Any thread.
class ActivationService {
 public:
  // At most `half_open_per_host` calls of one host may have no header yet; the oldest makes place for another one.
  ActivationService(std::string job_digest, size_t half_open_per_host);
  ~ActivationService();

  // nullptr: nobody is served. Calls that have begun go on with the inbox that they found.
  void Serve(std::shared_ptr<ActivationInbox> inbox);
  std::shared_ptr<ActivationInbox> inbox() const;
  const std::string& job_digest() const { return job_digest_; }
  CallLimit& half_open() { return half_open_; }
  CallLimit& senders() { return senders_; }

  // Lives as long as this.
  grpc::Service* service();

 private:
  class Service;

  const std::string job_digest_;
  CallLimit half_open_;
  CallLimit senders_{kCallsPerSenderMax};
  mutable absl::Mutex mutex_;
  std::shared_ptr<ActivationInbox> inbox_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<Service> service_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_RPC_ACTIVATION_SERVICE_H_
