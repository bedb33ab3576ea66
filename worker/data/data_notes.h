// What is no fault of a data set, and may yet not be what its owner thinks it is.
#ifndef TESSERA_WORKER_DATA_DATA_NOTES_H_
#define TESSERA_WORKER_DATA_DATA_NOTES_H_

#include <string>
#include <vector>

#include "worker/data/table.h"

namespace tessera {

// A sentence each. Both tables are what `spec` wants, and have rows. Where other workers read other files there is
// nothing to say: they may have the classes that are missing here.
std::vector<std::string> NotesOn(const Table& train, const Table& test, const TableSpec& spec);

}  // namespace tessera

#endif  // TESSERA_WORKER_DATA_DATA_NOTES_H_
