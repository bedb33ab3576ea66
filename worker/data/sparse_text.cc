#include "worker/data/sparse_text.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "worker/data/field.h"

namespace tessera {
namespace {

constexpr absl::string_view kZeroBasedAdvice =
    "; where indices count from 0, let the file begin with the line \"# Column indices are "
    "zero-based\", as "
    "scikit-learn writes it with a comment";

Complaint AppendEntry(absl::string_view field, int64_t base, int64_t features, int64_t& last_index,
                      SparseValues& out) {
  const size_t colon = field.find(':');
  if (colon == absl::string_view::npos) {
    return absl::StrCat("entry is ", QuotedField(field), ", want index:value");
  }
  const std::optional<int64_t> index = ParseIntegerField(field.substr(0, colon));
  if (!index.has_value() || *index < base || *index >= base + features) {
    return absl::StrCat("index is ", QuotedField(field.substr(0, colon)), ", want ", base, " to ",
                        base + features - 1, " (the product of model.input",
                        base == 0 ? " - 1)" : ")", index == 0 && base == 1 ? kZeroBasedAdvice : "");
  }
  // Ascending indices tell columns that are there twice, and kernels read rows front to back.
  if (*index <= last_index) {
    return absl::StrCat("index is ", *index, " after ", last_index, ", want ascending ones");
  }
  const std::optional<float> value = ParseFloatField(field.substr(colon + 1));
  if (!value.has_value()) {
    return absl::StrCat("value at index ", *index, " is ", QuotedField(field.substr(colon + 1)),
                        ", want a finite number");
  }
  last_index = *index;
  // A zero that is written says nothing: it is not stored.
  if (*value != 0) {
    out.feature.push_back(static_cast<uint32_t>(*index - base));
    out.value.push_back(*value);
  }
  return std::nullopt;
}

}  // namespace

absl::string_view NextTextField(absl::string_view& rest) {
  rest = absl::StripLeadingAsciiWhitespace(rest);
  const size_t end = std::min(rest.find_first_of(" \t\r\v\f"), rest.size());
  const absl::string_view field = rest.substr(0, end);
  rest.remove_prefix(end);
  return field;
}

bool EndsWithEntry(absl::string_view line) {
  line = absl::StripTrailingAsciiWhitespace(line);
  const size_t blank = line.find_last_of(" \t");
  const absl::string_view field = line.substr(blank == absl::string_view::npos ? 0 : blank + 1);
  const size_t colon = field.find(':');
  if (colon == absl::string_view::npos || colon == 0) return false;
  const absl::string_view index = field.substr(0, colon);
  return std::all_of(index.begin(), index.end(), absl::ascii_isdigit) &&
         ParseFloatField(field.substr(colon + 1)).has_value();
}

Complaint AppendSparseRow(absl::string_view rest, int64_t index_base, int64_t features,
                          SparseValues& out) {
  // The index in front of the first one that there may be.
  int64_t last_index = index_base - 1;
  for (absl::string_view field = NextTextField(rest); !field.empty(); field = NextTextField(rest)) {
    if (auto wrong = AppendEntry(field, index_base, features, last_index, out)) return wrong;
  }
  out.begin.push_back(static_cast<int64_t>(out.value.size()));
  return std::nullopt;
}

}  // namespace tessera
