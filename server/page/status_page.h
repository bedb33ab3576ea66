// A job's status as the content of a page: what it does and for whom it waits, curves, workers, servers, checkpoints
// and events. It can be read without scripts, on a telephone and in the dark.
//
// However large the job, the content stays below kPageContentMax: of long lists the first rows are shown, and how many
// there are.
#ifndef TESSERA_SERVER_PAGE_STATUS_PAGE_H_
#define TESSERA_SERVER_PAGE_STATUS_PAGE_H_

#include <cstddef>
#include <string>
#include <vector>

#include "proto/status.pb.h"
#include "server/page/rate_samples.h"

namespace tessera {

constexpr size_t kPageContentMax = 80 << 10;
// The most rows of the tables of workers, servers and events.
constexpr int kPageWorkersMax = 64;
constexpr int kPageServersMax = 32;
constexpr int kPageEventsMax = 40;

// The content, in one line. `events`: the newest, oldest first.
std::string PageContent(const v1::JobStatus& status, const std::vector<RateSample>& samples,
                        const std::vector<v1::JobEvent>& events);

}  // namespace tessera

#endif  // TESSERA_SERVER_PAGE_STATUS_PAGE_H_
