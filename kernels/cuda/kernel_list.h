// Every kernel there is, for those who define LaunchOn.
#ifndef TESSERA_KERNELS_CUDA_KERNEL_LIST_H_
#define TESSERA_KERNELS_CUDA_KERNEL_LIST_H_

#include "kernels/cuda/activation_kernels.h"
#include "kernels/cuda/attention_kernels.h"
#include "kernels/cuda/attention_products.h"
#include "kernels/cuda/batch_norm_kernels.h"
#include "kernels/cuda/codec/bucket_kernels.h"
#include "kernels/cuda/codec/plain_kernels.h"
#include "kernels/cuda/codec/row_code_kernels.h"
#include "kernels/cuda/codec/topk_kernels.h"
#include "kernels/cuda/convolution_kernels.h"
#include "kernels/cuda/embedding_kernels.h"
#include "kernels/cuda/group_norm_kernels.h"
#include "kernels/cuda/linear_kernels.h"
#include "kernels/cuda/loss_kernels.h"
#include "kernels/cuda/pooling_kernels.h"
#include "kernels/cuda/response_norm_kernels.h"
#include "kernels/cuda/selection_kernels.h"
#include "kernels/cuda/sparse_linear_kernels.h"
#include "kernels/cuda/vector_kernels.h"

// X takes a type, which may hold commas.
#define TESSERA_FOR_EACH_KERNEL(X)                   \
  X(AddRows)                                         \
  X(AttentionForward)                                \
  X(AttentionForwardProducts<32>)                    \
  X(AttentionForwardProducts<64>)                    \
  X(AttentionKeyGradients)                           \
  X(AttentionKeyProducts<32>)                        \
  X(AttentionKeyProducts<64>)                        \
  X(AttentionQueryGradients)                         \
  X(AttentionQueryProducts<32>)                      \
  X(AttentionQueryProducts<64>)                      \
  X(AttentionShares)                                 \
  X(AveragePool<false>)                              \
  X(AveragePool<true>)                               \
  X(AveragePoolBackward<false>)                      \
  X(AveragePoolBackward<true>)                       \
  X(ClearColumns)                                    \
  X(ColumnFinish<BackwardSumsOp>)                    \
  X(ColumnFinish<GroupNormSumsOp>)                   \
  X(ColumnFinish<SampleStatisticsOp>)                \
  X(ColumnFinish<SampleSumsOp>)                      \
  X(ColumnFinish<StatisticsOp>)                      \
  X(ColumnFinish<SumOp>)                             \
  X(ColumnMap<BackwardValuesOp, false>)              \
  X(ColumnMap<BackwardValuesOp, true>)               \
  X(ColumnMap<BiasOp, false>)                        \
  X(ColumnMap<BiasOp, true>)                         \
  X(ColumnMap<NormalizeOp, false>)                   \
  X(ColumnMap<NormalizeOp, true>)                    \
  X(ColumnSums<BackwardSumsOp>)                      \
  X(ColumnSums<GroupNormSumsOp>)                     \
  X(ColumnSums<SampleSumsOp>)                        \
  X(ColumnSums<StatisticsOp>)                        \
  X(ColumnSums<SumOp>)                               \
  X(CopyTiles)                                       \
  X(DecodeBuckets)                                   \
  X(DecodePlain<AsBf16>)                             \
  X(DecodePlain<AsF16>)                              \
  X(Elementwise<AdagradOp>)                          \
  X(Elementwise<AdamOp>)                             \
  X(Elementwise<AddOp>)                              \
  X(Elementwise<ApplyBackwardOp<GeluFunction>>)      \
  X(Elementwise<ApplyBackwardOp<GeluTanhFunction>>)  \
  X(Elementwise<ApplyBackwardOp<LeakyReluFunction>>) \
  X(Elementwise<ApplyBackwardOp<SigmoidFunction>>)   \
  X(Elementwise<ApplyBackwardOp<SiluFunction>>)      \
  X(Elementwise<ApplyBackwardOp<TanhFunction>>)      \
  X(Elementwise<ApplyOp<GeluFunction>>)              \
  X(Elementwise<ApplyOp<GeluTanhFunction>>)          \
  X(Elementwise<ApplyOp<LeakyReluFunction>>)         \
  X(Elementwise<ApplyOp<SigmoidFunction>>)           \
  X(Elementwise<ApplyOp<SiluFunction>>)              \
  X(Elementwise<ApplyOp<TanhFunction>>)              \
  X(Elementwise<AxpyOp>)                             \
  X(Elementwise<BlendOp>)                            \
  X(Elementwise<DropoutOp>)                          \
  X(Elementwise<MomentumOp>)                         \
  X(Elementwise<NesterovOp>)                         \
  X(Elementwise<PlainSgdOp>)                         \
  X(Elementwise<ReluBackwardOp>)                     \
  X(Elementwise<ReluOp>)                             \
  X(Elementwise<RmsHeavyOp>)                         \
  X(Elementwise<RmsPropOp>)                          \
  X(Elementwise<RoundOp>)                            \
  X(Elementwise<RoundsToo<AdagradOp>>)               \
  X(Elementwise<RoundsToo<AdamOp>>)                  \
  X(Elementwise<RoundsToo<MomentumOp>>)              \
  X(Elementwise<RoundsToo<NesterovOp>>)              \
  X(Elementwise<RoundsToo<PlainSgdOp>>)              \
  X(Elementwise<RoundsToo<RmsHeavyOp>>)              \
  X(Elementwise<RoundsToo<RmsPropOp>>)               \
  X(Elementwise<ScaleByOp>)                          \
  X(Elementwise<SubtractOp>)                         \
  X(Elementwise<WidenOp>)                            \
  X(EmbedTokens)                                     \
  X(EmbeddingPlaceSums)                              \
  X(EmbeddingTokenSums)                              \
  X(EncodeBuckets<false, false>)                     \
  X(EncodeBuckets<false, true>)                      \
  X(EncodeBuckets<true, false>)                      \
  X(EncodeBuckets<true, true>)                       \
  X(EncodeLargest)                                   \
  X(EncodePlain<AsBf16>)                             \
  X(EncodePlain<AsF16>)                              \
  X(EncodePlain<AsF32>)                              \
  X(EncodeRows<2>)                                   \
  X(EncodeRows<4>)                                   \
  X(EncodeRows<8>)                                   \
  X(FindMarks)                                       \
  X(GatherColumns)                                   \
  X(GatherPlaces)                                    \
  X(GroupNormBackward)                               \
  X(GroupNormForward)                                \
  X(LayPatches<Bf16>)                                \
  X(LayPatches<float>)                               \
  X(LimitNorm)                                       \
  X(ListMarks)                                       \
  X(MaxPool<false>)                                  \
  X(MaxPool<true>)                                   \
  X(MaxPoolBackward<false>)                          \
  X(MaxPoolBackward<true>)                           \
  X(MaxPoolScatter<false>)                           \
  X(MaxPoolScatter<true>)                            \
  X(ResponseBackward)                                \
  X(ResponseForward)                                 \
  X(ResponseTerms)                                   \
  X(SampleEntries)                                   \
  X(ScaleBuckets)                                    \
  X(ScatterColumns<false>)                           \
  X(ScatterColumns<true>)                            \
  X(ScatterPlaces)                                   \
  X(SigmoidRows<false>)                              \
  X(SigmoidRows<true>)                               \
  X(SoftmaxRows<0, true>)                            \
  X(SoftmaxRows<0>)                                  \
  X(SoftmaxRows<4>)                                  \
  X(SoftmaxRows<16>)                                 \
  X(SoftmaxRows<32>)                                 \
  X(SquareRows<false>)                               \
  X(SquareRows<true>)                                \
  X(SumPatches)                                      \
  X(SumRuns)                                         \
  X(SumSquares)                                      \
  X(TransposeSquares)                                \
  X(TurnWeights<Bf16, false>)                        \
  X(TurnWeights<float, false>)                       \
  X(TurnWeights<float, true>)

#endif  // TESSERA_KERNELS_CUDA_KERNEL_LIST_H_
