// The files of server/page/files, which are part of the program.
#ifndef TESSERA_SERVER_PAGE_PAGE_FILES_H_
#define TESSERA_SERVER_PAGE_PAGE_FILES_H_

#include "absl/strings/string_view.h"

namespace tessera {

// The page around its content: {{title}}, {{style}}, {{content}}, {{actions}} and {{script}} are to be filled in.
absl::string_view PageFrame();
// The buttons.
absl::string_view PageActions();
absl::string_view PageStyle();
absl::string_view PageScript();

}  // namespace tessera

#endif  // TESSERA_SERVER_PAGE_PAGE_FILES_H_
