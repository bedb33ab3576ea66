#include "worker/replica/minibatch_steps.h"

#include <optional>

#include "common/base/check.h"

namespace tessera {

absl::Span<const uint32_t> MinibatchSteps::RowsOf(const Piece& piece) const {
  return piece.minibatch.subspan(piece.first, rows_.piece_rows());
}

Batch MinibatchSteps::Fill(const Piece& piece, Network* network) {
  const BatchPlace place =
      network->input().Room(static_cast<int64_t>(RowsOf(piece).size()), piece.data->has_classes());
  Batch batch = rows_.FillPiece(*piece.data, piece.minibatch, piece.first, piece.epoch, place);
  batch.holds_gradients = clip_ != nullptr;
  return batch;
}

bool MinibatchSteps::IsAhead(const Piece& piece) const {
  return ahead_data_ == piece.data && ahead_first_ == piece.first && ahead_epoch_ == piece.epoch &&
         ahead_minibatch_rows_ == piece.minibatch.size() &&
         absl::MakeConstSpan(ahead_) == RowsOf(piece);
}

absl::Status MinibatchSteps::SendAhead(const Piece& piece, Network* network) {
  const absl::Span<const uint32_t> wanted = RowsOf(piece);
  ahead_data_ = piece.data;
  ahead_first_ = piece.first;
  ahead_epoch_ = piece.epoch;
  ahead_minibatch_rows_ = piece.minibatch.size();
  ahead_.assign(wanted.begin(), wanted.end());
  return network->input().SendNext(Fill(piece, network));
}

absl::Status MinibatchSteps::EndAllBut(int begun, Network* network, Losses* losses) {
  while (network->steps().begun() > begun) {
    TESSERA_ASSIGN_OR_RETURN(const std::optional<LossAndCount> ended, network->steps().EndPiece());
    if (ended.has_value()) losses->push_back(ended->loss);
  }
  return absl::OkStatus();
}

absl::StatusOr<Losses> MinibatchSteps::End(Network* network) {
  Losses losses;
  TESSERA_RETURN_IF_ERROR(EndAllBut(0, network, &losses));
  return losses;
}

absl::StatusOr<Losses> MinibatchSteps::Run(Network* network, LocalOptimizer* optimizer,
                                           const Dataset& data, absl::Span<const uint32_t> rows,
                                           const TrainPoint& point, const StepKey& key,
                                           const Update& update, GradientWork* work) {
  TESSERA_CHECK(work == nullptr || clip_ == nullptr);
  if (work != nullptr) optimizer->Begin(update);
  if (optimizer != nullptr && point.continues) network->pass().KeepRounded();
  Losses losses;
  Piece piece{&data, rows, 0, point.epoch};
  while (true) {
    if (network->input().holds_next() && IsAhead(piece)) {
      TESSERA_RETURN_IF_ERROR(network->steps().BeginStepOnNext(key, work));
    } else {
      TESSERA_RETURN_IF_ERROR(network->steps().BeginStep(Fill(piece, network), key, work));
    }
    Piece next{&data, rows, piece.first + RowsOf(piece).size(), point.epoch};
    const bool is_last = next.first == rows.size();
    if (is_last) {
      next = {&data, point.next, 0, point.epoch};
      if (clip_ != nullptr) clip_->Queue(network);
      if (optimizer != nullptr && work == nullptr) {
        TESSERA_RETURN_IF_ERROR(optimizer->Step(update));
      }
    }
    if (network->input().wants_next() && !next.minibatch.empty()) {
      TESSERA_RETURN_IF_ERROR(SendAhead(next, network));
    }
    TESSERA_RETURN_IF_ERROR(EndAllBut(network->input().runs_ahead() ? 1 : 0, network, &losses));
    if (is_last) return losses;
    piece = next;
  }
}

}  // namespace tessera
