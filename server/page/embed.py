"""Writes page_files.cc: the files of the page as texts of the program."""
import sys

NAMES = {"page.html": "PageFrame", "actions.html": "PageActions", "page.css": "PageStyle", "page.js": "PageScript"}


def main():
    print('#include "server/page/page_files.h"\n\nnamespace tessera {\n')
    for path in sys.argv[1:]:
        with open(path, encoding="utf-8") as file:
            text = file.read()
        if ')page"' in text or len(text) > 60000:
            sys.exit("%s: cannot be a text of the program" % path)
        # Compilers take only so long a text at once.
        pieces = [text[i:i + 8000] for i in range(0, len(text), 8000)]
        body = "\n      ".join('R"page(%s)page"' % piece for piece in pieces)
        print("absl::string_view %s() {\n  return %s;\n}\n" % (NAMES[path.rsplit("/", 1)[1]], body))
    print("}  // namespace tessera")


main()
