#include "worker/replica/minibatch_steps.h"

#include <optional>

#include "common/base/check.h"

namespace tessera {

absl::Span<const uint32_t> MinibatchSteps::RowsOf(const Piece& piece) const {
  return piece.minibatch.subspan(piece.first, rows_.PieceOf(piece.minibatch.size(), piece.first));
}

Batch MinibatchSteps::Fill(const Piece& piece, Network* network) {
  const BatchPlace place =
      network->input().Room(static_cast<int64_t>(RowsOf(piece).size()), piece.data->has_classes());
  Batch batch = rows_.FillPiece(*piece.data, piece.minibatch, piece.first, piece.epoch, place);
  // Gradients that are clipped must be complete before anybody takes them.
  batch.holds_gradients = clip_ != nullptr;
  return batch;
}

bool MinibatchSteps::IsAhead(const Piece& piece) const {
  // Everything that makes a batch is compared, as the loop may have been told to go elsewhere.
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
  // A copy of the numbers, whose memory the caller may reuse.
  ahead_.assign(wanted.begin(), wanted.end());
  return network->input().SendNext(Fill(piece, network));
}

absl::Status MinibatchSteps::EndAllBut(int begun, Network* network, Losses* losses) {
  // Pieces that are not their minibatch's last have no loss.
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
  // A clipped gradient is known only behind the whole backward pass, too late for work that follows single gradients.
  TESSERA_CHECK(work == nullptr || clip_ == nullptr);
  // The numbers of the step must be on the device before its kernels.
  if (work != nullptr) optimizer->Begin(update);
  // Weights have not been exchanged since the optimizer rounded them.
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
      // The next minibatch's first piece may be sent while this one's last is computed.
      next = {&data, point.next, 0, point.epoch};
      if (clip_ != nullptr) clip_->Queue(network);
      if (optimizer != nullptr && work == nullptr) {
        TESSERA_RETURN_IF_ERROR(optimizer->Step(update));
      }
    }
    // Behind the kernels of this piece, beside which it is sent.
    if (network->input().wants_next() && !next.minibatch.empty()) {
      TESSERA_RETURN_IF_ERROR(SendAhead(next, network));
    }
    // A device has one piece to compute while the host waits for the one before.
    TESSERA_RETURN_IF_ERROR(EndAllBut(network->input().runs_ahead() ? 1 : 0, network, &losses));
    if (is_last) return losses;
    piece = next;
  }
}

}  // namespace tessera
