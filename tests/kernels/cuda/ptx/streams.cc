#include "tests/kernels/cuda/ptx/streams.h"

#include <algorithm>
#include <utility>

namespace tessera::ptx {

namespace {

uint32_t NextKind() {
  static uint32_t streams = 0;
  return streams++ % 2;
}

}  // namespace

Stream::Stream() : kind_(NextKind()), line_(NewLine(kind_)) {}

void Stream::Queue(Work work) {
  const bool is_captured = captures();
  const Line line = is_captured ? capture_->members[this].line : line_;
  Clock& clock = is_captured ? capture_->members[this].clock : clock_;
  if (!is_captured) clock.Join(HostClock());
  Operation operation{line, clock.Known(line) + 1, clock};
  clock.Raise(line, operation.number);
  if (is_captured) {
    capture_->recording->nodes.push_back({std::move(work), std::move(operation)});
    return;
  }
  queue_.Queue(
      [operation = std::move(operation), work = std::move(work)] { DoAs(operation, work); });
}

cudaError_t Stream::Synchronize() {
  if (captures()) return cudaErrorStreamCaptureUnsupported;
  queue_.RunTo(queue_.end());
  HostClock().Join(clock_);
  return cudaSuccess;
}

void Stream::Record(Event* event) {
  if (capture_ == nullptr) {
    *event = {&queue_, queue_.end(), nullptr, clock_};
  } else {
    *event = {nullptr, 0, capture_, capture_->members[this].clock};
  }
}

cudaError_t Stream::Wait(const Event& event) {
  if (event.capture != nullptr) {
    if (event.capture->over) return cudaErrorCapturedEvent;
    if (capture_ == nullptr) {
      capture_ = event.capture;
      capture_->members[this].line = NewLine(kind_);
    }
    if (capture_ != event.capture) return cudaErrorStreamCaptureMerge;
    capture_->members[this].clock.Join(event.clock);
    return cudaSuccess;
  }
  // An event that was never recorded is over, but not a part of the capture either.
  if (captures()) return cudaErrorStreamCaptureIsolation;
  if (event.stream == nullptr) return cudaSuccess;
  clock_.Join(event.clock);
  queue_.Queue([stream = event.stream, end = event.end] { stream->RunTo(end); });
  return cudaSuccess;
}

cudaError_t Stream::BeginCapture() {
  if (captures()) return cudaErrorIllegalState;
  capture_ = std::make_shared<Capture>();
  capture_->origin = this;
  capture_->members[this].line = NewLine(kind_);
  return cudaSuccess;
}

cudaError_t Stream::EndCapture(std::shared_ptr<Recording>* recording) {
  if (!captures() || capture_->origin != this) return cudaErrorStreamCaptureUnmatched;
  const std::shared_ptr<Capture> capture = capture_;
  capture->over = true;
  const Clock& own = capture->members[this].clock;
  bool joined = true;
  for (const auto& [stream, member] : capture->members) {
    const uint64_t total = member.clock.Known(member.line);
    joined = joined && own.Known(member.line) >= total;
    capture->recording->totals[member.line] = total;
    stream->capture_ = nullptr;
  }
  if (!joined) return cudaErrorStreamCaptureUnjoined;
  *recording = capture->recording;
  return cudaSuccess;
}

void Stream::Launch(const std::shared_ptr<Recording>& recording) {
  const uint64_t launch = recording->launches++;
  Clock before = clock_;
  before.Join(HostClock());
  Queue([recording, launch, before = std::move(before)] {
    for (const Recording::Node& node : recording->nodes) {
      Operation operation{node.operation.line, 0, before};
      for (const auto& [line, total] : recording->totals) {
        operation.before.Raise(line, launch * total + node.operation.before.Known(line));
      }
      operation.number = launch * recording->totals.at(operation.line) + node.operation.number;
      DoAs(operation, node.work);
    }
  });
  for (const auto& [line, total] : recording->totals) clock_.Raise(line, (launch + 1) * total);
}

cudaError_t Synchronize(const Event& event) {
  if (event.capture != nullptr) return cudaErrorCapturedEvent;
  if (event.stream == nullptr) return cudaSuccess;
  event.stream->RunTo(event.end);
  HostClock().Join(event.clock);
  return cudaSuccess;
}

}  // namespace tessera::ptx
