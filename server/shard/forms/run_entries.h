// Entries that are one run of the shard's dense order: all that it owns, one half of the layers, or rows of a
// parameter.
#ifndef TESSERA_SERVER_SHARD_FORMS_RUN_ENTRIES_H_
#define TESSERA_SERVER_SHARD_FORMS_RUN_ENTRIES_H_

#include <memory>
#include <string>
#include <utility>

#include "server/shard/forms/exchanged_entries.h"

namespace tessera {

class RunEntries : public ExchangedEntries {
 public:
  RunEntries(NamedKeys name, EntryRun run, CodedForms forms)
      : name_(std::move(name)), run_(run), forms_(std::move(forms)) {}

  NamedKeys name() const override { return name_; }
  int64_t count() const override { return run_.end - run_.begin; }
  const CodedForms& forms() const override { return forms_; }
  std::optional<EntryRun> run() const override { return run_; }
  std::string Describe(const ModelShape& shape, const ShardSlices& slices,
                       int64_t entry) const override;
  std::unique_ptr<EntrySource> Source(std::shared_ptr<const Snapshot> snapshot) const override;

 private:
  const NamedKeys name_;
  const EntryRun run_;
  const CodedForms forms_;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_SHARD_FORMS_RUN_ENTRIES_H_
