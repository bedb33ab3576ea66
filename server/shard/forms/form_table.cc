#include "server/shard/forms/form_table.h"

#include <algorithm>

#include "common/base/check.h"
#include "server/shard/forms/form_entry.h"

namespace tessera {

// Each is defined in the source of its name.
extern const FormEntry kCoreForm, kDenseForm, kFragmentForm, kLayerForm, kSubnetForm;

namespace {

// The first that is for the options counts; the last is for all.
constexpr const FormEntry* kForms[] = {&kSubnetForm, &kCoreForm, &kLayerForm, &kFragmentForm,
                                       &kDenseForm};

const FormEntry& FormOf(const ShardOptions& options) {
  // A cut into halves goes with neither subnets nor a core: the table would take the first that fits.
  TESSERA_CHECK(!options.cut || (!options.groups && !options.core));
  return **std::find_if(std::begin(kForms), std::end(kForms),
                        [&](const FormEntry* entry) { return entry->is_for(options); });
}

}  // namespace

ShardTraits TraitsOf(const ShardOptions& options) {
  const ShardSlices slices = SlicesOf(options.shape, options.shard, options.sharding);
  return {options.shape, slices,         LayoutHash(options.shape, options.sharding),
          options.seed,  options.codecs, FormOf(options).make_keys(options, slices)};
}

std::unique_ptr<ExchangeForm> MakeForm(const FormContext& context, const ShardOptions& options) {
  return FormOf(options).make(context, options);
}

}  // namespace tessera
