// In a job of subnets that ends on the whole model: which exchanges are of subnets, and which of all
// entries.
//
// Every push says what it is of and what its sender's next one will be of. All pushes of an exchange must
// say the same, and once one was of all entries all are.
#ifndef TESSERA_SERVER_SHARD_FORMS_WHOLE_TAIL_H_
#define TESSERA_SERVER_SHARD_FORMS_WHOLE_TAIL_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/base/ids.h"

namespace tessera {

class WholeTail {
 public:
  struct Push {
    Exchange exchange;
    bool is_whole = false;
    // The sender's next exchange is of the whole model.
    bool is_whole_next = false;
  };

  // A push, `where` in words, of the exchange that is being collected. kFailedPrecondition: others say
  // otherwise.
  absl::Status Check(absl::string_view where, const Push& push) const;
  // Notes a push that was accepted.
  void Take(const Push& push);
  // It is known that `exchange` is of all entries.
  bool IsWhole(Exchange exchange) const {
    return whole_from_ != Exchange(0) && exchange >= whole_from_;
  }

  // 0: not known. With it, at the end of an exchange, another one can go on.
  Exchange whole_from() const { return whole_from_; }
  void SetWholeFrom(Exchange first) { whole_from_ = first; }

 private:
  Push last_;
  Exchange whole_from_;  // 0: not known
};

}  // namespace tessera

#endif  // TESSERA_SERVER_SHARD_FORMS_WHOLE_TAIL_H_
