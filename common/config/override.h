// `--set a.b.c=v`: changes to a job's YAML tree before it is read.
//
// v is YAML: 5, "a text", [1, 2], {local_sgd: {local_steps: 5}}; nothing or null is as if the key
// were absent. A command line has no comments: text without quotes is what was typed, # and blanks included, and
// elsewhere what would be a comment is refused.
// A path goes through keys and list indices: model.layers.0.linear.units. Parents that
// are missing are made. Naming another member of a choice (method.local_sgd, train.steps) takes the
// present one's place. An index equal to the list's length adds an item. The last override of a key
// holds.
#ifndef TESSERA_COMMON_CONFIG_OVERRIDE_H_
#define TESSERA_COMMON_CONFIG_OVERRIDE_H_

#include <google/protobuf/descriptor.h>

#include <string>
#include <vector>

#include "common/config/job_error.h"
#include "common/config/yaml_tree.h"

namespace tessera {

// Applies the overrides in order to `root`, the tree of a message of type `type`. Paths that the schema does not
// know are added to `errors`. What v holds is left to whoever reads the tree.
void ApplyOverrides(const std::vector<std::string>& overrides,
                    const google::protobuf::Descriptor& type, YamlNode* root, JobErrors* errors);

}  // namespace tessera

#endif  // TESSERA_COMMON_CONFIG_OVERRIDE_H_
