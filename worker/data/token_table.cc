#include "worker/data/token_table.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/data/limits.h"

namespace tessera {

TokenTable::TokenTable(const TableSpec& spec)
    : spec_(spec),
      windows_{spec.features, spec.trains, spec.seed},
      held_(spec.classes),
      sum_(XXH3_createState()) {
  XXH3_64bits_reset(sum_.get());
}

void TokenTable::Count(absl::Span<const uint32_t> units) {
  count_ += static_cast<int64_t>(units.size());
  // Summed as 32-bit numbers, however they are stored.
  XXH3_64bits_update(sum_.get(), units.data(), units.size() * sizeof(uint32_t));
}

absl::Status TokenTable::Hold(const std::string& path, absl::Span<const uint32_t> tokens) {
  const int64_t bytes =
      held_.bytes() + static_cast<int64_t>(tokens.size()) * TokenValues::TokenBytes(spec_.classes);
  // Tokens are counted before they are stored, as text says nothing about its length.
  if (bytes > spec_.bytes_max) {
    return absl::ResourceExhaustedError(
        absl::StrCat(path, ": needs more than ", spec_.bytes_max, " bytes of memory"));
  }
  held_.Append(tokens);
  return absl::OkStatus();
}

absl::StatusOr<Table> TokenTable::Finish(const std::vector<std::string>& paths,
                                         StoredValues stored) {
  const std::string files =
      paths.size() == 1
          ? absl::StrCat(paths[0], ": has ")
          : absl::StrCat(paths[0], ": with the ", paths.size() - 1, " behind it it has ");
  Table table;
  table.rows = windows_.RowsOf(count_);
  table.features = spec_.features;
  if (table.rows < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        files, count_, count_ == 1 ? " token" : " tokens", ", want at least ", windows_.TokensMin(),
        " for one row",
        windows_.trains ? " that trains: twice model.input.tokens.context, as windows shift by up "
                          "to one of it from epoch to epoch"
                        : ": model.input.tokens.context and the token behind them"));
  }
  if (table.rows > kRowsMax) {
    return absl::ResourceExhaustedError(
        absl::StrCat(files, table.rows, " rows of ", spec_.features, " tokens, want at most ",
                     kRowsMax, "; raise model.input.tokens.context, or name fewer files"));
  }
  table.labels = NextTokens();
  // 0 would say that there is no sum.
  table.content_sum = std::max<uint64_t>(1, XXH3_64bits_digest(sum_.get()));
  if (stored != nullptr) {
    table.values = std::move(stored);
  } else {
    held_.shrink_to_fit();
    table.values = std::make_shared<const TokenRows>(TokenRows{windows_, std::move(held_)});
  }
  return table;
}

}  // namespace tessera
