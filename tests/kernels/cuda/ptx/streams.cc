#include "tests/kernels/cuda/ptx/streams.h"

#include <algorithm>
#include <utility>

namespace tessera::ptx {

void Stream::Queue(Work work) {
  if (capture_ == nullptr) return queue_.Queue(std::move(work));
  capture_->work->push_back(std::move(work));
  ++capture_->clocks[this][this];
}

cudaError_t Stream::Synchronize() {
  if (captures()) return cudaErrorStreamCaptureUnsupported;
  queue_.RunTo(queue_.end());
  return cudaSuccess;
}

void Stream::Record(Event* event) {
  if (capture_ == nullptr) {
    *event = {&queue_, queue_.end(), nullptr, {}};
  } else {
    *event = {nullptr, 0, capture_, capture_->clocks[this]};
  }
}

cudaError_t Stream::Wait(const Event& event) {
  if (event.capture != nullptr) {
    if (event.capture->over) return cudaErrorCapturedEvent;
    if (capture_ == nullptr) {
      capture_ = event.capture;
      capture_->members.push_back(this);
    }
    if (capture_ != event.capture) return cudaErrorStreamCaptureMerge;
    for (const auto& [stream, count] : event.clock) {
      uint64_t& known = capture_->clocks[this][stream];
      known = std::max(known, count);
    }
    return cudaSuccess;
  }
  // An event that was never recorded is over, but not a part of the capture either.
  if (captures()) return cudaErrorStreamCaptureIsolation;
  if (event.stream == nullptr) return cudaSuccess;
  queue_.Queue([stream = event.stream, end = event.end] { stream->RunTo(end); });
  return cudaSuccess;
}

cudaError_t Stream::BeginCapture() {
  if (captures()) return cudaErrorIllegalState;
  capture_ = std::make_shared<Capture>();
  capture_->origin = this;
  capture_->members = {this};
  return cudaSuccess;
}

cudaError_t Stream::EndCapture(std::shared_ptr<std::vector<Work>>* work) {
  if (!captures() || capture_->origin != this) return cudaErrorStreamCaptureUnmatched;
  const std::shared_ptr<Capture> capture = capture_;
  capture->over = true;
  bool joined = true;
  for (Stream* const each : capture->members) {
    joined = joined && capture->clocks[this][each] >= capture->clocks[each][each];
    each->capture_ = nullptr;
  }
  if (!joined) return cudaErrorStreamCaptureUnjoined;
  *work = capture->work;
  return cudaSuccess;
}

cudaError_t Synchronize(const Event& event) {
  if (event.capture != nullptr) return cudaErrorCapturedEvent;
  if (event.stream != nullptr) event.stream->RunTo(event.end);
  return cudaSuccess;
}

}  // namespace tessera::ptx
