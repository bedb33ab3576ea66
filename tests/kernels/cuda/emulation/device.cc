// A GPU that the host plays. Its memory lies where the host faults when it touches it, but for the
// time in which queued work is done.
#include "kernels/cuda/device.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "kernels/bf16.h"
#include "kernels/cuda/plain_sgd.h"
#include "tests/kernels/cuda/emulation/convolve.h"
#include "tests/kernels/cuda/emulation/faults.h"
#include "tests/kernels/cuda/emulation/stream.h"

namespace tessera::cuda {
namespace {

constexpr int64_t kMemoryBytes = int64_t{2} << 30;
constexpr int64_t kAlignment = 256;
constexpr int64_t kPage = 4096;

double FactorAt(const void* factors, Product::Factors type, int64_t i) {
  if (type == Product::Factors::kBf16) return Widen(static_cast<const Bf16*>(factors)[i]);
  const float value = static_cast<const float*>(factors)[i];
  return type == Product::Factors::kTf32 ? RoundToTf32(value) : value;
}

void Compute(const Product& p) {
  std::vector<double> a(p.terms), sums(p.columns), b(p.terms * p.columns);
  for (int64_t k = 0; k < p.terms; ++k) {
    for (int64_t j = 0; j < p.columns; ++j) {
      b[k * p.columns + j] =
          FactorAt(p.b, p.factors, p.b_transposed ? j * p.row_of_b() + k : k * p.row_of_b() + j);
    }
  }
  for (int64_t i = 0; i < p.rows; ++i) {
    for (int64_t j = 0; j < p.columns; ++j) {
      sums[j] = p.beta == 0 ? 0.0 : double{p.beta} * p.c[i * p.row_of_c() + j];
    }
    for (int64_t k = 0; k < p.terms; ++k) {
      const double factor =
          FactorAt(p.a, p.factors, p.a_transposed ? k * p.row_of_a() + i : i * p.row_of_a() + k);
      const double* const row = &b[k * p.columns];
      for (int64_t j = 0; j < p.columns; ++j) sums[j] += factor * row[j];
    }
    for (int64_t j = 0; j < p.columns; ++j) p.c[i * p.row_of_c() + j] = static_cast<float>(sums[j]);
  }
}

void Compute(const WeightStep& s) {
  const Rates rates = RatesOf(*s.numbers, s.learning_rate);
  std::vector<float> x(s.rows * s.inputs), sums(s.inputs);
  for (int64_t i = 0; i < s.rows * s.inputs; ++i) x[i] = Widen(s.x[i]);
  for (int64_t o = 0; o < s.outputs; ++o) {
    std::fill(sums.begin(), sums.end(), 0.0f);
    for (int64_t row = 0; row < s.rows; ++row) {
      const float factor = Widen(s.dy[row * s.outputs + o]);
      const float* const values = &x[row * s.inputs];
      for (int64_t i = 0; i < s.inputs; ++i) sums[i] += factor * values[i];
    }
    for (int64_t i = 0; i < s.inputs; ++i) {
      const int64_t at = o * s.inputs + i;
      s.weight[at] = PlainSgd(rates, s.decay, sums[i], s.weight[at]);
      s.rounded[at] = RoundToBf16(s.weight[at]);
    }
  }
}

}  // namespace

EmulatedFaults& Faults() {
  static EmulatedFaults faults;
  return faults;
}

struct Device::State {
  struct Moment {
    EmulatedStream* stream = nullptr;  // null: never recorded
    uint64_t end = 0;
  };

  std::string name = "emulated GPU";
  char* memory = nullptr;
  std::map<int64_t, int64_t> taken;  // offset -> bytes, each with a gap behind it
  int64_t used = 0;
  int64_t end = 0;  // in whole pages: nothing was ever allocated behind it
  EmulatedStream streams[2];
  std::vector<Moment> events;
  bool broken = false;
  bool convolutions_sought = false;
  bool steps_weights = false;
  using Record = std::vector<std::function<void()>>;
  struct Recorded {
    Record record;
    int64_t launches = 0;
  };
  std::vector<std::unique_ptr<Recorded>> graphs;
  Recorded* recording = nullptr;

  EmulatedStream& stream(Stream which) { return streams[static_cast<int>(which)]; }
  void Run(const Moment& moment) {
    TESSERA_CHECK(recording == nullptr);  // Nobody waits for what is not done.
    if (moment.stream == nullptr) return;
    TESSERA_CHECK(mprotect(memory, end, PROT_READ | PROT_WRITE) == 0);
    moment.stream->RunTo(moment.end);
    TESSERA_CHECK(mprotect(memory, end, PROT_NONE) == 0);
  }
  void RunAll() {
    for (EmulatedStream& each : streams) Run({&each, each.end()});
  }
};

absl::StatusOr<std::unique_ptr<Device>> Device::Open(int ordinal, bool) {
  TESSERA_RETURN_IF_ERROR(CheckMachine(ordinal, Faults().machine));
  TESSERA_RETURN_IF_ERROR(CheckGpu(ordinal, Faults().gpu));
  auto state = std::make_unique<State>();
  state->steps_weights = StepsWeights(Faults().gpu.major, Faults().gpu.minor);
  void* const memory =
      mmap(nullptr, kMemoryBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  TESSERA_CHECK(memory != MAP_FAILED);
  state->memory = static_cast<char*>(memory);
  return std::unique_ptr<Device>(new Device(std::move(state)));
}

Device::Device(std::unique_ptr<State> state) : state_(std::move(state)) {}

Device::~Device() {
  state_->RunAll();
  TESSERA_CHECK(state_->taken.empty());  // Somebody kept memory of a GPU that is gone.
  munmap(state_->memory, kMemoryBytes);
}

const std::string& Device::name() const { return state_->name; }
int64_t Device::memory_total() const { return kMemoryBytes; }
int64_t Device::memory_free() {
  return std::min<int64_t>(kMemoryBytes, Faults().memory_bytes) - state_->used;
}

absl::StatusOr<void*> Device::Allocate(int64_t bytes) {
  TESSERA_CHECK(bytes > 0 && state_->recording == nullptr);
  int64_t offset = 0;
  for (const auto& [begin, size] : state_->taken) {
    if (begin - offset >= bytes) break;
    offset = (begin + size + kAlignment - 1) / kAlignment * kAlignment;
  }
  if (bytes > kMemoryBytes - offset || state_->used + bytes > Faults().memory_bytes) {
    return absl::ResourceExhaustedError(absl::StrCat("cuda:0: no room for ", bytes, " bytes, ",
                                                     memory_free(), " of ", kMemoryBytes,
                                                     " are free"));
  }
  state_->taken[offset] = bytes;
  state_->used += bytes;
  state_->end = std::max(state_->end, (offset + bytes + kPage - 1) / kPage * kPage);
  char* const address = state_->memory + offset;
  state_->stream(Stream::kCompute).Queue([address, bytes] { std::memset(address, 0xa5, bytes); });
  return address;
}

void Device::Free(void* address) {
  state_->RunAll();
  const auto found = state_->taken.find(static_cast<char*>(address) - state_->memory);
  TESSERA_CHECK(found != state_->taken.end());
  state_->used -= found->second;
  state_->taken.erase(found);
  // The pages go, so that the next lock and unlock need not walk through them.
  if (state_->taken.empty()) {
    madvise(state_->memory, state_->end, MADV_DONTNEED);
    state_->end = 0;
  }
}

absl::StatusOr<void*> Device::AllocateHost(int64_t bytes) {
  TESSERA_CHECK(bytes > 0);
  void* const address =
      std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
  TESSERA_CHECK(address != nullptr);
  std::memset(address, 0, bytes);
  return address;
}

void Device::FreeHost(void* address) {
  state_->RunAll();
  std::free(address);
}

void Device::Copy(Stream stream, const void* from, int64_t from_stride, int64_t rows, int64_t bytes,
                  void* to, int64_t to_stride) {
  state_->stream(stream).Queue([=] {
    for (int64_t row = 0; row < rows; ++row) {
      std::memcpy(static_cast<char*>(to) + row * to_stride,
                  static_cast<const char*>(from) + row * from_stride, bytes);
    }
  });
  if (stream == Stream::kCopy && Faults().eager_copies && state_->recording == nullptr) {
    EmulatedStream& copies = state_->stream(stream);
    state_->Run({&copies, copies.end()});
  }
}

void Device::Zero(Stream stream, void* address, int64_t bytes) {
  if (bytes == 0) return;
  state_->stream(stream).Queue([=] { std::memset(address, 0, bytes); });
}

void Device::Multiply(const Product& product) {
  TESSERA_CHECK(product.rows > 0 && product.columns > 0 && product.terms > 0);
  state_->stream(Stream::kCompute).Queue([product] { Compute(product); });
}

bool Device::StepWeight(const WeightStep& step) {
  if (!state_->steps_weights || !FitsTma(step)) return false;
  if (Admits(1)) state_->stream(Stream::kCompute).Queue([step] { Compute(step); });
  return true;
}

bool Device::HasConvolutions() {
  state_->convolutions_sought = true;
  return Faults().convolutions;
}

const std::string& Device::convolutions_name() const {
  static const auto* const name = new std::string("emulated convolutions");
  static const auto* const none = new std::string;
  return state_->convolutions_sought && Faults().convolutions ? *name : *none;
}

absl::optional<int64_t> Device::ConvolutionWorkspace(const ConvolutionPass& pass) {
  TESSERA_CHECK(Faults().convolutions && pass.shape.rows > 0);
  if (Faults().convolution_unknown == static_cast<int>(pass.kind)) return absl::nullopt;
  if (Faults().convolution_rows_unknown == pass.shape.rows) return absl::nullopt;
  return Faults().convolution_workspace;
}

bool Device::Convolve(const ConvolutionPass& pass, void* workspace) {
  for (const float* const address : {pass.a, pass.b, static_cast<const float*>(pass.c)}) {
    TESSERA_CHECK(reinterpret_cast<uintptr_t>(address) % ConvolutionPass::kAlignment == 0);
  }
  if (Faults().convolution_refused == static_cast<int>(pass.kind)) return false;
  ++Faults().convolutions_done;
  const auto bytes = static_cast<size_t>(Faults().convolution_workspace);
  state_->stream(Stream::kCompute).Queue([pass, workspace, bytes] {
    std::memset(workspace, 0x5a, bytes);
    ConvolveInF64(pass);
  });
  return true;
}

bool Device::Admits(int64_t blocks) {
  TESSERA_CHECK(blocks > 0 && blocks <= kBlocksMax);
  if (state_->recording != nullptr) {
    ++state_->recording->launches;
    return !state_->broken;
  }
  if (Faults().launches_left >= 0 && Faults().launches_left-- == 0) state_->broken = true;
  return !state_->broken;
}

void* Device::compute() { return &state_->stream(Stream::kCompute); }

void Device::NoteLaunch(int error, const char*) { TESSERA_CHECK(error == 0); }

Device::Event Device::MakeEvent() {
  state_->events.emplace_back();
  return static_cast<Event>(state_->events.size()) - 1;
}

void Device::Record(Event event, Stream stream) {
  if (state_->recording != nullptr) {
    state_->recording->record.push_back([this, event, stream] { Record(event, stream); });
    return;
  }
  EmulatedStream& recorded = state_->stream(stream);
  state_->events[event] = {&recorded, recorded.end()};
}

void Device::StreamWait(Stream stream, Event event) {
  if (state_->recording != nullptr) {
    state_->recording->record.push_back([this, event, stream] { StreamWait(stream, event); });
    return;
  }
  const State::Moment moment = state_->events[event];
  if (moment.stream == nullptr) return;
  state_->stream(stream).Queue([moment] { moment.stream->RunTo(moment.end); });
}

void Device::HostWait(Event event) { state_->Run(state_->events[event]); }

bool Device::BeginRecording() {
  TESSERA_CHECK(state_->recording == nullptr);
  if (Faults().begins_no_record || state_->broken) return false;
  state_->graphs.push_back(std::make_unique<State::Recorded>());
  state_->recording = state_->graphs.back().get();
  for (EmulatedStream& stream : state_->streams) stream.record = &state_->recording->record;
  return true;
}

Device::Graph Device::EndRecording() {
  TESSERA_CHECK(state_->recording != nullptr);
  state_->recording = nullptr;
  for (EmulatedStream& stream : state_->streams) stream.record = nullptr;
  if (Faults().records_nothing) {
    state_->graphs.pop_back();
    return kNoGraph;
  }
  return static_cast<Graph>(state_->graphs.size()) - 1;
}

void Device::Replay(Graph graph) {
  const State::Recorded& recorded = *state_->graphs[graph];
  for (int64_t i = 0; i < recorded.launches; ++i) {
    if (!Admits(1)) return;
  }
  ++Faults().replays;
  for (const std::function<void()>& work : recorded.record) work();
}

void Device::Drop(Graph graph) {
  TESSERA_CHECK(state_->graphs[graph] != nullptr);
  state_->graphs[graph] = nullptr;
}

absl::Status Device::Synchronize() {
  state_->RunAll();
  return TakeStatus();
}

absl::Status Device::TakeStatus() {
  if (!state_->broken) return absl::OkStatus();
  return absl::InternalError("cuda:0: a kernel: an illegal memory access was encountered");
}

}  // namespace tessera::cuda
