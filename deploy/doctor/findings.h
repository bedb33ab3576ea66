// What an examination of a job found, and what to do about it.
#ifndef TESSERA_DEPLOY_DOCTOR_FINDINGS_H_
#define TESSERA_DEPLOY_DOCTOR_FINDINGS_H_

#include <string>
#include <vector>

namespace tessera {

struct Finding {
  enum class Kind { kGood, kNote, kProblem };
  Kind kind = Kind::kGood;
  // "server 1 at 10.0.0.2:7000: refuses connections".
  std::string what;
  // What to do; empty where nothing need be done.
  std::string advice;
};

using Findings = std::vector<Finding>;

}  // namespace tessera

#endif  // TESSERA_DEPLOY_DOCTOR_FINDINGS_H_
