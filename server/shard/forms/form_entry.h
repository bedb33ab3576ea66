// One kind of exchange, as the table of forms has it. Each is defined in the source of its form.
#ifndef TESSERA_SERVER_SHARD_FORMS_FORM_ENTRY_H_
#define TESSERA_SERVER_SHARD_FORMS_FORM_ENTRY_H_

#include <memory>

#include "common/layout/shard_map.h"
#include "server/shard/forms/exchange_form.h"
#include "server/shard/forms/job_keys.h"
#include "server/shard/shard_options.h"

namespace tessera {

struct FormEntry {
  // Whether the shard that `options` make exchanges so.
  bool (*is_for)(const ShardOptions& options);
  // The keys of its pushes and reads. `slices` are all that the shard owns.
  std::shared_ptr<const JobKeys> (*make_keys)(const ShardOptions& options,
                                              const ShardSlices& slices);
  // The form itself, for a context whose traits have these keys.
  std::unique_ptr<ExchangeForm> (*make)(const FormContext& context, const ShardOptions& options);
};

}  // namespace tessera

#endif  // TESSERA_SERVER_SHARD_FORMS_FORM_ENTRY_H_
