#include "worker/replica/minibatch_steps.h"

#include "common/base/check.h"

namespace tessera {

absl::Span<const uint32_t> MinibatchSteps::RowsOf(const Piece& piece) const {
  return piece.minibatch.subspan(piece.first, rows_.piece_rows());
}

Batch MinibatchSteps::Fill(const Piece& piece, Network* network) {
  const BatchPlace place =
      network->Room(static_cast<int64_t>(RowsOf(piece).size()), piece.data->has_classes());
  return rows_.FillPiece(*piece.data, piece.minibatch, piece.first, place);
}

bool MinibatchSteps::IsAhead(const Piece& piece) const {
  return ahead_data_ == piece.data && ahead_first_ == piece.first &&
         ahead_minibatch_rows_ == piece.minibatch.size() &&
         absl::MakeConstSpan(ahead_) == RowsOf(piece);
}

absl::Status MinibatchSteps::SendAhead(const Piece& piece, Network* network) {
  const absl::Span<const uint32_t> wanted = RowsOf(piece);
  ahead_data_ = piece.data;
  ahead_first_ = piece.first;
  ahead_minibatch_rows_ = piece.minibatch.size();
  ahead_.assign(wanted.begin(), wanted.end());
  return network->SendNext(Fill(piece, network));
}

absl::StatusOr<double> MinibatchSteps::Run(Network* network, LocalOptimizer* optimizer,
                                           const Dataset& data, absl::Span<const uint32_t> rows,
                                           const TrainPoint& point, const StepKey& key,
                                           const Update& update, GradientWork* work) {
  if (work != nullptr) optimizer->Begin(update);
  Piece piece{&data, rows, 0};
  while (true) {
    if (network->holds_next() && IsAhead(piece)) {
      TESSERA_RETURN_IF_ERROR(network->BeginStepOnNext(key, work));
    } else {
      TESSERA_RETURN_IF_ERROR(network->BeginStep(Fill(piece, network), key, work));
    }
    Piece next{&data, rows, piece.first + RowsOf(piece).size()};
    const bool is_last = next.first == rows.size();
    if (is_last) {
      next = {&data, point.next, 0};
      if (optimizer != nullptr && work == nullptr) {
        TESSERA_RETURN_IF_ERROR(optimizer->Step(update));
      }
    }
    if (network->wants_next() && !next.minibatch.empty()) {
      TESSERA_RETURN_IF_ERROR(SendAhead(next, network));
    }
    if (is_last) break;
    TESSERA_RETURN_IF_ERROR(network->EndPiece());
    piece = next;
  }
  TESSERA_ASSIGN_OR_RETURN(const LossAndCount result, network->EndStep());
  return result.loss;
}

}  // namespace tessera
