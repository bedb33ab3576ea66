// One site's part of a shard in one round: which rows and columns, and where they lie.
//
// Its entries are ordered as on the wire (common/keyset/subnet.h): by parameter, the site's rows that
// this server owns, of each the site's columns.
#ifndef TESSERA_SERVER_SHARD_FORMS_SITE_SUBNET_H_
#define TESSERA_SERVER_SHARD_FORMS_SITE_SUBNET_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/codec/coded_keys.h"
#include "common/keyset/gather.h"
#include "common/keyset/subnet.h"
#include "common/layout/shard_map.h"
#include "server/shard/block_store.h"
#include "server/shard/forms/exchanged_entries.h"

namespace tessera {

// "site 1 of 3 (shares 1, 1, 2), seed 7", for messages.
std::string DescribeSite(const SubnetPlace& place);

// Constant after construction; any thread.
class SiteSubnet final : public ExchangedEntries {
 public:
  // `place` of `full`, of which the server owns `slices`. Cuts every group: a fraction of a
  // millisecond for thousands of neurons.
  SiteSubnet(const ModelShape& full, const NeuronGroups& groups, SubnetPlace place,
             const ShardSlices& slices, const CodecChoice& codecs = {});
  SiteSubnet(const SiteSubnet&) = delete;
  SiteSubnet& operator=(const SiteSubnet&) = delete;

  // The site's rows of one parameter.
  struct Part {
    int parameter = 0;
    // Their numbers among the whole parameter's, ascending.
    const int32_t* rows = nullptr;
    int64_t row_count = 0;
    // nullptr: a vector, with one entry in each row.
    const ColumnSet* columns = nullptr;
    const int32_t* column_list = nullptr;
    int64_t row_size = 1;  // entries
    // Row r of the whole parameter begins at base + r * width of the shard's dense order.
    int64_t base = 0;
    int64_t width = 1;
    // Every site has all of it: where it begins among the shard's shared entries; -1: not shared.
    int64_t shared_offset = -1;

    int64_t size() const { return row_count * row_size; }
    int64_t position(int64_t row) const { return base + rows[row] * width; }
  };

  NamedKeys name() const override { return place_; }
  int64_t count() const override { return size_; }
  const CodedForms& forms() const override { return *forms_; }
  std::string Describe(const ModelShape& full, const ShardSlices& slices,
                       int64_t entry) const override;
  std::unique_ptr<EntrySource> Source(std::shared_ptr<const Snapshot> snapshot) const override;

  const SubnetPlace& place() const { return place_; }
  const std::vector<Part>& parts() const { return parts_; }
  int64_t size() const { return size_; }
  int64_t bytes() const { return size_ * static_cast<int64_t>(sizeof(float)); }
  int64_t shared_size() const { return shared_size_; }

 private:
  const SubnetPlace place_;
  const Subnet subnet_;
  // By group, where it indexes columns.
  std::vector<std::unique_ptr<ColumnSet>> columns_;
  std::vector<Part> parts_;
  std::unique_ptr<const CodedForms> forms_;
  int64_t size_ = 0;
  int64_t shared_size_ = 0;
};

// Takes a site's entries out of a snapshot, in order. One thread at a time.
class SubnetGather {
 public:
  SubnetGather(std::shared_ptr<const SiteSubnet> site, std::shared_ptr<const Snapshot> snapshot);

  // Entries that are left.
  int64_t left() const { return left_; }
  // The next `count` of them, which must be left.
  void Next(int64_t count, float* out);

 private:
  const float* RowAt(int64_t position);

  const std::shared_ptr<const SiteSubnet> site_;
  const std::shared_ptr<const Snapshot> snapshot_;
  int64_t left_;
  size_t part_ = 0;
  int64_t row_ = 0;     // of the part
  int64_t column_ = 0;  // of the row
  size_t block_ = 0;
  int64_t block_begin_ = 0;  // in the dense order
};

}  // namespace tessera

#endif  // TESSERA_SERVER_SHARD_FORMS_SITE_SUBNET_H_
