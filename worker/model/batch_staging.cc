#include "worker/model/batch_staging.h"

#include <algorithm>

#include "common/base/check.h"

namespace tessera {

template <typename T>
absl::StatusOr<const T*> BatchStaging::Send(const T* from, int64_t count, Place<T>* place) {
  if (from == nullptr) return nullptr;
  if (place->device.size() < count) {
    place->host = Buffer<T>();
    place->device = Buffer<T>();
    TESSERA_ASSIGN_OR_RETURN(place->host, Buffer<T>::CreateHost(memory_, count));
    TESSERA_ASSIGN_OR_RETURN(place->device, Buffer<T>::Create(memory_, count));
  }
  std::copy_n(from, count, place->host.data());
  memory_.Send(place->host.data(), count * static_cast<int64_t>(sizeof(T)), place->device.data());
  return place->device.data();
}

absl::StatusOr<Batch> BatchStaging::Stage(const Batch& batch, int64_t inputs, int64_t outputs) {
  if (memory_.host_addressable()) return batch;
  Places& places = places_[turn_];
  turn_ = (turn_ + 1) % kPlaces;
  Batch staged = batch;
  TESSERA_ASSIGN_OR_RETURN(staged.inputs, Send(batch.inputs, batch.rows * inputs, &places.inputs));
  TESSERA_ASSIGN_OR_RETURN(staged.labels, Send(batch.labels, batch.rows, &places.labels));
  TESSERA_ASSIGN_OR_RETURN(staged.targets,
                           Send(batch.targets, batch.rows * outputs, &places.targets));
  return staged;
}

}  // namespace tessera
