// Which form a shard has, by its options: the one place that chooses.
#ifndef TESSERA_SERVER_SHARD_FORMS_FORM_TABLE_H_
#define TESSERA_SERVER_SHARD_FORMS_FORM_TABLE_H_

#include <memory>

#include "server/shard/forms/exchange_form.h"
#include "server/shard/shard_options.h"
#include "server/shard/shard_traits.h"

namespace tessera {

// The traits of the shard that `options` would make.
ShardTraits TraitsOf(const ShardOptions& options);

// The form of the shard that `options` make, whose traits the context has.
std::unique_ptr<ExchangeForm> MakeForm(const FormContext& context, const ShardOptions& options);

}  // namespace tessera

#endif  // TESSERA_SERVER_SHARD_FORMS_FORM_TABLE_H_
