#include "server/shard/forms/form_table.h"

#include <algorithm>

#include "common/base/check.h"
#include "server/shard/forms/core_form.h"
#include "server/shard/forms/dense_form.h"
#include "server/shard/forms/layer_form.h"
#include "server/shard/forms/layer_parts.h"
#include "server/shard/forms/subnet_form.h"

namespace tessera {
namespace {

// One kind of exchange.
struct Entry {
  bool (*is_for)(const ShardOptions& options);
  std::shared_ptr<const JobKeys> (*make_keys)(const ShardOptions& options,
                                              const ShardSlices& slices);
  std::unique_ptr<ExchangeForm> (*make)(const FormContext& context, const ShardOptions& options);
};

// The first that is for the options counts; the last is for all.
constexpr Entry kForms[] = {
    {[](const ShardOptions& o) { return o.groups.has_value(); },
     [](const ShardOptions& o, const ShardSlices& slices) -> std::shared_ptr<const JobKeys> {
       return std::make_shared<const SubnetJobKeys>(o.shape, slices, o.codecs,
                                                    o.whole_kind.has_value());
     },
     [](const FormContext& context, const ShardOptions& o) -> std::unique_ptr<ExchangeForm> {
       return std::make_unique<SubnetForm>(context, *o.groups);
     }},
    {[](const ShardOptions& o) { return o.core.has_value(); },
     [](const ShardOptions& o, const ShardSlices& slices) -> std::shared_ptr<const JobKeys> {
       return std::make_shared<const CoreJobKeys>(o.shape, slices, o.codecs);
     },
     [](const FormContext& context, const ShardOptions& o) -> std::unique_ptr<ExchangeForm> {
       return std::make_unique<CoreForm>(context, *o.core);
     }},
    {[](const ShardOptions& o) { return o.cut.has_value(); },
     [](const ShardOptions& o, const ShardSlices& slices) -> std::shared_ptr<const JobKeys> {
       return std::make_shared<const LayerParts>(*o.cut, slices, o.shape, o.codecs);
     },
     [](const FormContext& context, const ShardOptions&) -> std::unique_ptr<ExchangeForm> {
       return std::make_unique<LayerForm>(context,
                                          static_cast<const LayerParts&>(*context.traits->keys));
     }},
    {[](const ShardOptions&) { return true; },
     [](const ShardOptions& o, const ShardSlices& slices) -> std::shared_ptr<const JobKeys> {
       return std::make_shared<const JobKeys>(o.shape, slices, o.codecs);
     },
     [](const FormContext& context, const ShardOptions&) -> std::unique_ptr<ExchangeForm> {
       return std::make_unique<DenseForm>(context, /*is_tail=*/false);
     }},
};

const Entry& FormOf(const ShardOptions& options) {
  // A cut into halves goes with neither subnets nor a core: the table would take the first that fits.
  TESSERA_CHECK(!options.cut || (!options.groups && !options.core));
  return *std::find_if(std::begin(kForms), std::end(kForms),
                       [&](const Entry& entry) { return entry.is_for(options); });
}

}  // namespace

ShardTraits TraitsOf(const ShardOptions& options) {
  const ShardSlices slices = SlicesOf(options.shape, options.shard, options.shard_count);
  return {options.shape, slices,         LayoutHash(options.shape, options.shard_count),
          options.seed,  options.codecs, FormOf(options).make_keys(options, slices)};
}

std::unique_ptr<ExchangeForm> MakeForm(const FormContext& context, const ShardOptions& options) {
  return FormOf(options).make(context, options);
}

}  // namespace tessera
