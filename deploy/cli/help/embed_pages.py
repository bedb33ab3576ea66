#!/usr/bin/env python3
"""Makes a C++ source of Markdown pages, for `tessera help`.

  embed_pages.py PAGE.md ... > pages.cc

Each page is a text of lines. A line's first character says what it is: h heading, p paragraph, l item of a list,
t row of a table, c code as it stands, or nothing, where a blank line was. Links are their words; pictures and
comments are left out.
"""
import re
import sys


def plain(text):
    text = re.sub(r"!\[[^\]]*\]\([^)]*\)", "", text)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"\*\*([^*]+)\*\*", r"\1", text)
    return re.sub(r"\s+", " ", text).replace("\\|", "|").strip()


def lines_of(page):
    """The page's lines, each with what it is."""
    found, words, kind = [], [], ""

    def end():
        nonlocal words, kind
        if words:
            found.append(kind + plain(" ".join(words)))
        words, kind = [], ""

    fenced = False
    for line in page.split("\n"):
        if line.startswith("```"):
            end()
            fenced = not fenced
        elif fenced or (line.startswith("    ") and not words):
            found.append("c" + (line if fenced else line[4:]))
        elif not line.strip():
            end()
            found.append("")
        elif line.startswith("#"):
            end()
            found.append("h" + plain(line.lstrip("#")))
        elif line.startswith("|"):
            end()
            cells = [plain(cell) for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]
            if not all(re.fullmatch(r"[-:]*", cell) for cell in cells):
                found.append("t" + cells[0] + "\t" + "; ".join(cell for cell in cells[1:] if cell))
        elif re.match(r"\s*(?:[-*]|\d+\.) ", line):
            end()
            words, kind = [re.sub(r"^\s*[-*] ", "", line)], "l"
        else:
            kind = kind or "p"
            words.append(line)
    end()
    return found


def topic(path):
    """docs/operating/watching.md is `watching`, docs/design/shard.md is `design/shard`."""
    name = path.split("docs/", 1)[1][:-len(".md")]
    return re.sub(r"^operating/", "", name).replace("adding/README", "adding")


def literal(text):
    return '"%s"' % text.replace("\\", "\\\\").replace('"', '\\"').replace("\t", "\\t").replace("?", "\\?")


def main(paths):
    print('#include "deploy/cli/help/pages.h"\n\nnamespace tessera {\n')
    print("std::vector<HelpPage> HelpPages() {\n  return {")
    for path in sorted(paths, key=topic):
        with open(path, encoding="utf-8") as file:
            lines = lines_of(re.sub(r"<!--.*?-->", "", file.read(), flags=re.S).strip())
        print("      {%s," % literal(topic(path)))
        print("\n".join("       %s" % literal(line)[:-1] + '\\n"' for line in lines) + "},")
    print("  };\n}\n\n}  // namespace tessera")


if __name__ == "__main__":
    main(sys.argv[1:])
