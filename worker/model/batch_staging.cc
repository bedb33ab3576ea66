#include "worker/model/batch_staging.h"

#include <algorithm>

#include "common/base/check.h"

namespace tessera {

template <typename T>
absl::Status BatchStaging::MakeRoom(int64_t count, Place<T>* place) {
  if (place->device.size() >= count) return absl::OkStatus();
  // The old buffers are freed first, so that the old and the new room are never held together.
  place->host = Buffer<T>();
  place->device = Buffer<T>();
  TESSERA_ASSIGN_OR_RETURN(place->host, Buffer<T>::CreateHost(memory_, count));
  TESSERA_ASSIGN_OR_RETURN(place->device, Buffer<T>::Create(memory_, count));
  return absl::OkStatus();
}

BatchPlace BatchStaging::Room(int64_t rows, const RowWidths& widths, bool has_labels) {
  BatchPlace room;
  if (memory_.host_addressable()) return room;
  Places& places = places_[turn_];
  // A failure is no error here: the batch is then written elsewhere, and Stage meets the same failure and reports it.
  if (MakeRoom(rows * widths.inputs, &places.inputs).ok()) room.inputs = places.inputs.host.data();
  if (has_labels) {
    const absl::Status made = MakeRoom(rows * widths.labels, &places.labels);
    if (made.ok()) room.labels = places.labels.host.data();
  } else if (MakeRoom(rows * widths.outputs, &places.targets).ok()) {
    room.targets = places.targets.host.data();
  }
  return room;
}

template <typename T>
absl::StatusOr<const T*> BatchStaging::Send(const T* from, int64_t count, Place<T>* place) {
  if (from == nullptr) return nullptr;
  // A batch that was written to Room's place is there already.
  if (from != place->host.data()) {
    TESSERA_RETURN_IF_ERROR(MakeRoom(count, place));
    std::copy_n(from, count, place->host.data());
  }
  memory_.Send(place->host.data(), count * static_cast<int64_t>(sizeof(T)), place->device.data());
  return place->device.data();
}

absl::StatusOr<Batch> BatchStaging::Stage(const Batch& batch, const RowWidths& widths) {
  if (memory_.host_addressable()) return batch;
  Places& places = places_[turn_];
  turn_ = (turn_ + 1) % kPlaces;
  Batch staged = batch;
  TESSERA_ASSIGN_OR_RETURN(staged.inputs,
                           Send(batch.inputs, batch.rows * widths.inputs, &places.inputs));
  TESSERA_ASSIGN_OR_RETURN(staged.labels,
                           Send(batch.labels, batch.rows * widths.labels, &places.labels));
  TESSERA_ASSIGN_OR_RETURN(staged.targets,
                           Send(batch.targets, batch.rows * widths.outputs, &places.targets));
  return staged;
}

}  // namespace tessera
