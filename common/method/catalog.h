// The methods of this build.
//
// A method is one file of this folder, which holds all that the program knows of it by name: its recipe, what it
// refuses in a job file, and what it says about jobs that are right and yet may do less than their authors expect.
#ifndef TESSERA_COMMON_METHOD_CATALOG_H_
#define TESSERA_COMMON_METHOD_CATALOG_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/config/key_errors.h"
#include "common/method/recipe.h"
#include "proto/job.pb.h"

namespace tessera {

// A number of the method that is right by itself and has no sense in a job of this length.
struct LengthNote {
  // The path of the key, and its value.
  std::string key;
  int64_t value = 0;
  // Empty where `value` counts the job's steps, else what it is compared with, as "the job has 3 exchanges".
  std::string length;
  // What happens in this job, as "the core stays what it is at the start".
  std::string consequence;
};

struct Method {
  v1::Method::KindCase kind;
  // The recipe of a job without errors, before the job's codecs are taken into it. RecipeFor has the status codes.
  absl::StatusOr<Recipe> (*recipe)(const v1::Job& job);
  // Adds an error for each key that contradicts the method. Any key of `job` may be unsound. Null: nothing is refused.
  void (*check)(const v1::Job& job, KeyErrors* errors) = nullptr;
  // What a job of `steps` minibatches for each worker makes of the method's numbers. Null: nothing is said.
  std::vector<LengthNote> (*length_notes)(const v1::Job& job, int64_t steps) = nullptr;
  // Whether the job gives a number of steps that should be compared with the job's length. Where that is given in
  // epochs only the training rows tell. Null: no.
  bool (*counts_steps)(const v1::Job& job) = nullptr;
  // Sentences on what the method makes of `job` that its writer may not expect, such as keys that have no effect. Null:
  // none.
  std::vector<std::string> (*notes)(const v1::Job& job) = nullptr;
  // An exchange moves some of the entries, so that error feedback has something to hold back even where the codec
  // loses nothing.
  bool moves_some_entries = false;
  // Why a job of tensors, which has no layers, cannot have the method; null: it can.
  const char* why_layers = nullptr;
};

absl::Span<const Method* const> Methods();

// What is wrong with the method of a job of tensors, as an error of the key: "got ist, want ...". The method has
// `why_layers`.
std::string WhyNoTensors(const v1::Job& job);

// The method that `job` names; null where it names none.
const Method* MethodOf(const v1::Job& job);

}  // namespace tessera

#endif  // TESSERA_COMMON_METHOD_CATALOG_H_
