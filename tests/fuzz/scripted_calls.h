// A server of any services whose answers are bytes that a target has chosen.
#ifndef TESSERA_TESTS_FUZZ_SCRIPTED_CALLS_H_
#define TESSERA_TESTS_FUZZ_SCRIPTED_CALLS_H_

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace tessera {

// The messages of one call, and how it ends.
struct ScriptedAnswer {
  std::vector<std::string> messages;
  grpc::StatusCode code = grpc::StatusCode::OK;
};

// Any thread.
class ScriptedCalls final : public grpc::CallbackGenericService {
 public:
  // On loopback, for as long as this lives.
  ScriptedCalls();
  ~ScriptedCalls() override;

  const std::string& address() const { return address_; }
  // Calls of `method` ("/package.Service/Method") get them in this order; what was left of earlier ones is dropped. A
  // call for which there is none is refused as INTERNAL.
  void Set(const std::string& method, std::vector<ScriptedAnswer> answers);

 private:
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override;

  absl::Mutex mutex_;
  std::map<std::string, std::deque<ScriptedAnswer>> answers_ ABSL_GUARDED_BY(mutex_);
  std::string address_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace tessera

#endif  // TESSERA_TESTS_FUZZ_SCRIPTED_CALLS_H_
