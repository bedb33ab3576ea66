// A histogram of staleness in one line:
//
//   0 ##### 31%  1 ######## 52%  2 # 5%  3 ## 12%
//   0-7 ######## 96%  8-15 # 4%
#ifndef TESSERA_DEPLOY_CLI_STALENESS_BARS_H_
#define TESSERA_DEPLOY_CLI_STALENESS_BARS_H_

#include <string>

#include "common/metrics/staleness.h"

namespace tessera {

// From the least staleness that was seen to the greatest, each with its share of all pushes. What
// does not fit into `width` columns is told with shorter bars, then in groups of 2, 4, 8, ... ;
// empty if nothing fits, or without pushes.
std::string StalenessBars(const Staleness& staleness, int width);

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_STALENESS_BARS_H_
