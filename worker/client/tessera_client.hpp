// The C++17 face of tessera_client.h, which says what each call does and how long memory must stay valid.
//
// Errors are exceptions (tessera::client::Error); a Job closes itself. Header only: it has no ABI of its own.
#ifndef TESSERA_CLIENT_HPP_
#define TESSERA_CLIENT_HPP_

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera_client.h"

namespace tessera {
namespace client {

// A call that did not succeed. DEADLINE_EXCEEDED leaves it in progress: Job::Wait.
class Error : public std::runtime_error {
 public:
  Error(tessera_status status, const std::string& message)
      : std::runtime_error(message), status_(status) {}
  tessera_status status() const { return status_; }

 private:
  tessera_status status_;
};

inline void Check(tessera_status status) {
  if (status != TESSERA_OK) throw Error(status, tessera_last_message());
}

struct Options {
  std::string job_file;
  std::vector<std::string> overrides;  // "a.b=value"
  std::string coordinator;             // host:port of server 0; empty: as the job file has it
  int64_t rank = -1;                   // -1: the lowest free one
  std::string description = "a C++ program";
  std::string log_level = "warning";
  double timeout_seconds = 0;  // of joining; 0: none
};

struct Tensor {
  std::string name;
  std::vector<int64_t> dims;
  int64_t size = 0;       // floats
  int64_t parameter = 0;  // its own index, or that of the parameter that it is a state of
  std::string state;      // of an optimizer's state, what it is; empty: a parameter
};

struct Group {
  std::string name;
  int64_t units = 0;  // in the whole model
};

// One membership. Calls come from one thread at a time, but for Leave.
class Job {
 public:
  // Joins; waits until the job has admitted this worker.
  explicit Job(const Options& options) {
    std::vector<const char*> overrides;
    for (const std::string& one : options.overrides) overrides.push_back(one.c_str());
    tessera_options c = {};
    c.struct_size = sizeof(c);
    c.job_file = options.job_file.c_str();
    c.overrides = overrides.data();
    c.override_count = overrides.size();
    c.coordinator = options.coordinator.empty() ? nullptr : options.coordinator.c_str();
    c.rank = options.rank;
    c.description = options.description.c_str();
    c.log_level = options.log_level.c_str();
    c.timeout_seconds = options.timeout_seconds;
    const tessera_status status = tessera_join(&c, &job_);
    if (status == TESSERA_OK) return;
    const std::string why = tessera_last_message();
    tessera_close(std::exchange(job_, nullptr));
    throw Error(status, why);
  }
  ~Job() { tessera_close(job_); }
  Job(Job&& other) noexcept : job_(std::exchange(other.job_, nullptr)) {}
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  tessera_info info() const {
    tessera_info info = {};
    info.struct_size = sizeof(info);
    Check(tessera_get_info(job_, &info));
    return info;
  }
  std::vector<Tensor> tensors() const {
    std::vector<Tensor> tensors;
    const int64_t count = info().tensor_count;
    for (int64_t i = 0; i < count; ++i) {
      tessera_tensor c = {};
      c.struct_size = sizeof(c);
      Check(tessera_tensor_at(job_, i, &c));
      tensors.push_back({c.name, {c.dims, c.dims + c.dim_count}, c.size, c.parameter, c.state});
    }
    return tensors;
  }
  // With subnets: what is cut, and of this round the extents of a tensor and the units of a group.
  std::vector<Group> groups() const {
    std::vector<Group> groups;
    const int32_t count = info().group_count;
    for (int32_t i = 0; i < count; ++i) {
      tessera_group c = {};
      c.struct_size = sizeof(c);
      Check(tessera_group_at(job_, i, &c));
      groups.push_back({c.name, c.units});
    }
    return groups;
  }
  tessera_round round() const {
    tessera_round round = {};
    round.struct_size = sizeof(round);
    Check(tessera_get_round(job_, &round));
    return round;
  }
  std::vector<int64_t> DimsNow(int64_t tensor) const {
    tessera_tensor c = {};
    c.struct_size = sizeof(c);
    Check(tessera_tensor_now(job_, tensor, &c));
    return {c.dims, c.dims + c.dim_count};
  }
  std::vector<uint32_t> Subnet(const std::string& group) const {
    const uint32_t* indices = nullptr;
    size_t count = 0;
    Check(tessera_subnet(job_, group.c_str(), &indices, &count));
    return {indices, indices + count};
  }
  void SetTimeout(double seconds) { Check(tessera_set_timeout(job_, seconds)); }

  // Each returns what the job wants next.
  tessera_verdict Wait() {
    return Next([&](tessera_verdict* next) { return tessera_wait(job_, next); });
  }
  tessera_verdict Pull(const std::vector<float*>& values) {
    return Next([&](tessera_verdict* next) {
      return tessera_pull(job_, values.data(), values.size(), next);
    });
  }
  tessera_verdict Step(uint64_t examples, double loss) {
    return Next([&](tessera_verdict* next) { return tessera_step(job_, examples, loss, next); });
  }
  tessera_verdict Exchange(const std::vector<float*>& values,
                           const std::vector<const float*>& gradients = {}) {
    return Next([&](tessera_verdict* next) {
      return tessera_exchange(job_, gradients.empty() ? nullptr : gradients.data(),
                              gradients.size(), values.data(), values.size(), next);
    });
  }
  tessera_verdict Evaluate(double loss, double score, uint64_t rows) {
    const tessera_scores scores = {sizeof(scores), loss, score, rows};
    return Next([&](tessera_verdict* next) { return tessera_evaluate(job_, &scores, next); });
  }
  tessera_verdict SaveState(std::string_view bytes) {
    return Next([&](tessera_verdict* next) {
      return tessera_save_state(job_, bytes.data(), bytes.size(), next);
    });
  }

  // After Pull; empty: there is none.
  std::string LoadState() const {
    const void* bytes = nullptr;
    size_t size = 0;
    Check(tessera_load_state(job_, &bytes, &size));
    return std::string(static_cast<const char*>(bytes), size);
  }
  // While a minibatch is wanted; its rows are valid until the next call.
  tessera_minibatch_info minibatch() const {
    tessera_minibatch_info minibatch = {};
    minibatch.struct_size = sizeof(minibatch);
    Check(tessera_minibatch(job_, &minibatch));
    return minibatch;
  }

  // Any thread.
  void Leave() { Check(tessera_leave(job_)); }
  // Ends the membership, and throws where it did not end well.
  void Close() { Check(tessera_close(std::exchange(job_, nullptr))); }

 private:
  template <typename Call>
  static tessera_verdict Next(Call call) {
    tessera_verdict next = TESSERA_STOP;
    Check(call(&next));
    return next;
  }

  tessera_job* job_ = nullptr;
};

}  // namespace client
}  // namespace tessera

#endif  // TESSERA_CLIENT_HPP_
