// A job's evaluations as rows of numbers: what plots, CSV files and event files are made of.
#ifndef TESSERA_DEPLOY_CLI_CURVES_CURVE_H_
#define TESSERA_DEPLOY_CLI_CURVES_CURVE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "proto/status.pb.h"

namespace tessera {

// One evaluation. What the job has not, or nobody knows, is not a number.
struct CurvePoint {
  // The job clock: seconds of training before it.
  double seconds = 0;
  // Minibatches of each worker before it.
  uint64_t step = 0;
  // Passes over the training rows before it.
  double epoch = 0;
  // Rows that all workers together had trained on.
  double examples = 0;
  // Bytes of values that all workers together had pulled and pushed.
  double bytes = 0;
  // Rows per second since the evaluation before.
  double rate = 0;
  double train_loss = 0;
  double test_loss = 0;
  double test_accuracy = 0;
  double perplexity = 0;
};

struct Curve {
  std::string job;
  std::string method;
  // One for each evaluation, in their order.
  std::vector<CurvePoint> points;
};

// The curve of a running job's status, or of a report's (report_status.h). A status has sums of rows and bytes, and not
// how many of them came before each evaluation: both are dealt out in proportion to the steps, which is exact where
// each step trains on as many rows and moves as many bytes as any other.
Curve CurveOf(const v1::JobStatus& status);

// The curve as CSV: a line of names, then one line for each evaluation. Numbers have the digits that tell doubles
// apart, and what is not a number is empty.
std::string CurveCsv(const Curve& curve);

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_CURVES_CURVE_H_
