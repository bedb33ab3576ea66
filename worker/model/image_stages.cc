#include "worker/model/image_stages.h"

namespace tessera {

void MaxPoolStage::Forward(int64_t rows, const float* x, float* y) {
  backend_.pooling().Max({rows, map_}, x, y);
}

void MaxPoolStage::Backward(int64_t rows, const float* x, const float*, const float* dy,
                            const StageGradients&, float* dx) {
  backend_.pooling().MaxBackward({rows, map_}, x, dy, dx);
}

void MaxPoolStage::Evaluate(int64_t rows, const float* x, const float*, float* y) {
  Forward(rows, x, y);
}

void AveragePoolStage::Forward(int64_t rows, const float* x, float* y) {
  backend_.pooling().Average({rows, map_}, x, y);
}

void AveragePoolStage::Backward(int64_t rows, const float*, const float*, const float* dy,
                                const StageGradients&, float* dx) {
  backend_.pooling().AverageBackward({rows, map_}, dy, dx);
}

void AveragePoolStage::Evaluate(int64_t rows, const float* x, const float*, float* y) {
  Forward(rows, x, y);
}

void TransposeStage::Forward(int64_t rows, const float* x, float* y) {
  backend_.vector().Transpose(rows, shape_, x, y);
}

void TransposeStage::Backward(int64_t rows, const float*, const float*, const float* dy,
                              const StageGradients&, float* dx) {
  backend_.vector().Transpose(rows, {shape_.columns, shape_.rows}, dy, dx);
}

void TransposeStage::Evaluate(int64_t rows, const float* x, const float*, float* y) {
  Forward(rows, x, y);
}

}  // namespace tessera
