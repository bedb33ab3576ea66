#include "server/shard/forms/site_subnet.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace tessera {
namespace {

// Shares that a message quotes.
constexpr size_t kSharesQuoted = 8;

class SubnetSource final : public EntrySource {
 public:
  SubnetSource(std::shared_ptr<const SiteSubnet> site, std::shared_ptr<const Snapshot> snapshot)
      : gather_(std::move(site), std::move(snapshot)) {}

  const float* Next(int64_t count, float* scratch) override {
    // The entries of a subnet lie scattered, so there is no place to point into.
    gather_.Next(count, scratch);
    return scratch;
  }

 private:
  SubnetGather gather_;
};

}  // namespace

std::string DescribeSite(const SubnetPlace& place) {
  std::string text = absl::StrCat("site ", place.site, " of ", place.sites(), " (shares");
  for (size_t i = 0; i < place.shares.size() && i < kSharesQuoted; ++i) {
    absl::StrAppend(&text, i == 0 ? " " : ", ", place.shares[i]);
  }
  if (place.shares.size() > kSharesQuoted) text += ", ...";
  absl::StrAppend(&text, "), seed ", place.seed);
  return text;
}

SiteSubnet::SiteSubnet(const ModelShape& full, const NeuronGroups& groups, SubnetPlace place,
                       const ShardSlices& slices, const CodecChoice& codecs)
    : place_(std::move(place)),
      subnet_(SubnetOf(full, groups, place_)),
      columns_(groups.widths.size() + subnet_.index_lists.size()) {
  const ShardSlices own = SubnetSlices(subnet_, slices);
  for (const Slice& slice : own.slices) {
    // A subnet has slices only of parameters of which this server has rows.
    const auto whole = std::find_if(slices.slices.begin(), slices.slices.end(),
                                    [&](const Slice& s) { return s.parameter == slice.parameter; });
    Part part;
    part.parameter = slice.parameter;
    part.rows = subnet_.rows(slice.parameter).data() + slice.row_begin;
    part.row_count = slice.row_end - slice.row_begin;
    part.width = whole->columns;
    // The position of row r is base + r * width, though the server's rows do not begin with row 0.
    part.base = whole->offset - whole->row_begin * whole->columns;
    const int group = groups.uses[slice.parameter].columns;
    if (group >= 0) {
      const int list = subnet_.column_list_of[slice.parameter];
      const std::vector<int32_t>& own_columns = subnet_.columns(slice.parameter);
      // Parameters that are cut alike share one set of columns, which takes memory by the width of the model.
      std::unique_ptr<ColumnSet>& set =
          columns_[list < 0 ? group : static_cast<int>(groups.widths.size()) + list];
      if (set == nullptr) set = std::make_unique<ColumnSet>(own_columns, whole->columns);
      part.columns = set.get();
      part.column_list = own_columns.data();
      part.row_size = set->size();
    }
    // Parameters that are not cut are trained by every site, and their sum is kept to take the mean.
    if (subnet_.is_shared(slice.parameter)) {
      part.shared_offset = shared_size_;
      shared_size_ += part.size();
    }
    parts_.push_back(part);
  }
  size_ = own.size;
  // Whether a parameter is small is asked of the whole one, so that all sites code it alike.
  forms_ = std::make_unique<const CodedForms>(codecs, own, full);
}

std::string SiteSubnet::Describe(const ModelShape& full, const ShardSlices&, int64_t entry) const {
  // The entry's number counts the site's own entries, part after part.
  for (const Part& part : parts_) {
    if (entry >= part.size()) {
      entry -= part.size();
      continue;
    }
    const int64_t row = entry / part.row_size;
    const int64_t column = entry % part.row_size;
    return absl::StrCat(full.parameters[part.parameter].name, "[", part.rows[row], ", ",
                        part.column_list == nullptr ? 0 : part.column_list[column], "]");
  }
  return absl::StrCat("entry ", entry);
}

std::unique_ptr<EntrySource> SiteSubnet::Source(std::shared_ptr<const Snapshot> snapshot) const {
  return std::make_unique<SubnetSource>(
      std::static_pointer_cast<const SiteSubnet>(shared_from_this()), std::move(snapshot));
}

SubnetGather::SubnetGather(std::shared_ptr<const SiteSubnet> site,
                           std::shared_ptr<const Snapshot> snapshot)
    : site_(std::move(site)), snapshot_(std::move(snapshot)), left_(site_->size()) {}

// Positions only grow, and a row lies in one block.
const float* SubnetGather::RowAt(int64_t position) {
  const auto& blocks = snapshot_->blocks();
  while (position >= block_begin_ + blocks[block_]->size()) {
    block_begin_ += blocks[block_++]->size();
  }
  return blocks[block_]->data() + (position - block_begin_);
}

void SubnetGather::Next(int64_t count, float* out) {
  TESSERA_CHECK(count <= left_);
  left_ -= count;
  while (count > 0) {
    // A row is gathered in pieces where a caller asks for less than it has.
    const SiteSubnet::Part& part = site_->parts()[part_];
    const float* const row = RowAt(part.position(row_));
    const int64_t taken = std::min(count, part.row_size - column_);
    if (part.columns == nullptr) {
      *out = *row;
    } else {
      part.columns->Gather(row, column_, column_ + taken, out);
    }
    out += taken;
    count -= taken;
    column_ += taken;
    // The next row, and after the last one the next parameter.
    if (column_ < part.row_size) continue;
    column_ = 0;
    if (++row_ < part.row_count) continue;
    row_ = 0;
    ++part_;
  }
}

}  // namespace tessera
