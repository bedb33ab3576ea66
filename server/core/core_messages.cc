#include "server/core/core_messages.h"

#include <algorithm>

namespace tessera {
namespace {

// An unknown stage counts as the last one, which no report may have.
CoreStage StageOf(uint32_t stage) {
  return static_cast<CoreStage>(std::min(stage, static_cast<uint32_t>(CoreStage::kDone)));
}

}  // namespace

v1::CoreReport ToMessage(const CoreReport& report) {
  v1::CoreReport message;
  message.set_core(report.core);
  message.set_stage(static_cast<uint32_t>(report.stage));
  message.set_weight_sum(report.weight_sum);
  message.set_gradient_sum(report.gradient_sum);
  message.mutable_buckets()->Add(report.buckets.begin(), report.buckets.end());
  message.mutable_counts()->Add(report.counts.begin(), report.counts.end());
  message.set_above(report.above);
  message.mutable_ties()->Add(report.ties.begin(), report.ties.end());
  return message;
}

v1::CoreQuestion ToMessage(const CoreQuestion& question) {
  v1::CoreQuestion message;
  message.set_core(question.core);
  message.set_stage(static_cast<uint32_t>(question.stage));
  message.set_gradient_weight(question.gradient_weight);
  message.set_bucket_first(question.buckets.first);
  message.set_bucket_last(question.buckets.last);
  message.set_fine(question.fine);
  message.set_all_ties(question.all_ties);
  message.mutable_ties()->Add(question.ties.begin(), question.ties.end());
  return message;
}

CoreReport FromMessage(const v1::CoreReport& message) {
  CoreReport report;
  report.core = message.core();
  report.stage = StageOf(message.stage());
  report.weight_sum = message.weight_sum();
  report.gradient_sum = message.gradient_sum();
  report.buckets.assign(message.buckets().begin(), message.buckets().end());
  report.counts.assign(message.counts().begin(), message.counts().end());
  report.above = message.above();
  report.ties.assign(message.ties().begin(), message.ties().end());
  return report;
}

CoreQuestion FromMessage(const v1::CoreQuestion& message) {
  CoreQuestion question;
  question.core = message.core();
  question.stage = StageOf(message.stage());
  question.gradient_weight = message.gradient_weight();
  question.buckets = {message.bucket_first(), message.bucket_last()};
  question.fine = message.fine();
  question.all_ties = message.all_ties();
  question.ties.assign(message.ties().begin(), message.ties().end());
  return question;
}

}  // namespace tessera
