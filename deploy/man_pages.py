#!/usr/bin/env python3
"""Writes man pages: section 1 of the programs and of each command, from their --help, and section 7 of docs/.

usage: deploy/man_pages.py [--programs DIR; default bazel-bin] FOLDER

tessera-run.1 is `tessera run --help`; tessera-watching.7 is docs/operating/watching.md, the page that `tessera help
watching` shows. FOLDER gets man1 and man7.
"""
import argparse
import datetime
import glob
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "cli", "help"))
from command_help import help_of  # noqa: E402
from completions import ROOT, programs_in  # noqa: E402
from embed_pages import lines_of, topic  # noqa: E402

# Pages for those who run jobs; those for who changes the code stay in the tree.
PAGES = ["docs/*.md", "docs/operating/*.md", "docs/operating/reference/*.md"]
LEFT_OUT = ["docs/performance.md", "docs/testing.md"]
EXIT_STATUS = [("0", "Success."), ("2", "The job, a flag or the data are wrong; nothing was begun."),
               ("1", "Anything else that failed.")]


def version():
    with open(os.path.join(ROOT, "common/base/process.h"), encoding="utf-8") as file:
        return re.search(r'kVersion\[\] = "(.*)";', file.read()).group(1)


def date():
    """The day of SOURCE_DATE_EPOCH, so that the same tree gives the same pages, or today."""
    seconds = os.environ.get("SOURCE_DATE_EPOCH")
    day = datetime.datetime.fromtimestamp(int(seconds), datetime.timezone.utc) if seconds else datetime.datetime.now()
    return day.strftime("%Y-%m-%d")


def roff(text):
    """Text as roff shows it. Long paths and names may be broken at their slashes."""
    for character, shown in (("\\", "\\e"), ("-", "\\-"), ("'", "\\(aq"), ("^", "\\(ha"), ("~", "\\(ti")):
        text = text.replace(character, shown)
    text = re.sub(r"`([^`]+)`", r"\\fB\1\\fR", text)
    text = re.sub(r"(?<![\w*])\*(\w[\w ]*\.?)\*(?![\w*])", r"\\fI\1\\fR", text)
    text = re.sub(r"\S{30,}", lambda word: re.sub(r"([/,|=_.])(?=\w)", r"\1\\:", word.group(0)), text)
    return "\\&" + text if text.startswith(".") else text


def title(name, section, what):
    return [".TH %s %d %s \"Tessera %s\" \"%s\"" % (roff(name.upper()), section, date(), version(), what),
            ".nh", ".ad l"]


def entry(names, text):
    return [".TP", names, roff(text) if text else "\\&"]


def command_page(name, help_, others):
    """`name` is as it is called: "tessera run". `others`: the pages of SEE ALSO."""
    page = title(name.replace(" ", "-"), 1, "Tessera's commands")
    page += [".SH NAME", "%s \\- %s" % (roff(name.replace(" ", "-")), roff(help_.about.rstrip(".")))]
    page += [".SH SYNOPSIS", ".B %s" % roff(name)]
    synopsis = ["[OPTION...]"] + (["COMMAND [ARGUMENT...]"] if help_.commands else [])
    for each in help_.positionals:
        words = each.name + ("..." if each.is_list else "")
        synopsis.append(words if each.is_required else "[%s]" % words)
    page.append(roff(" ".join(synopsis)))
    if help_.positionals:
        page.append(".SH ARGUMENTS")
        for each in help_.positionals:
            page += entry("\\fI%s\\fR" % roff(each.name), each.about)
    if help_.commands:
        page.append(".SH COMMANDS")
        for command, about in sorted(help_.commands.items()):
            page += entry("\\fB%s\\fR(1)" % roff("%s-%s" % (name, command)), about)
    page.append(".SH OPTIONS")
    for option in help_.options:
        names = ", ".join("\\fB%s\\fR" % roff(each) for each in option.names)
        page += entry(names + (" \\fI%s\\fR" % roff(option.value) if option.value else ""),
                      option.about + (" (required)" if option.is_required else ""))
    page.append(".SH EXIT STATUS")
    for code, meaning in EXIT_STATUS:
        page += entry(code, meaning)
    page += [".SH SEE ALSO", ",\n".join("\\fB%s\\fR(%d)" % (roff(each), section) for each, section in others)]
    return "\n".join(page) + "\n"


def document_page(path):
    """A page of docs/."""
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        lines = lines_of(re.sub(r"<!--.*?-->", "", file.read(), flags=re.S).strip())
    name = page_name(path)
    heading = lines[0][1:].replace("`", "")
    page = title(name, 7, "Tessera's documentation") + [".SH NAME", "%s \\- %s" % (roff(name), roff(heading))]
    kind, is_first = "", True
    for line in lines[1:]:
        before, kind, text = kind, line[:1], line[1:]
        # Code is one block, and its blank lines are part of it.
        if before == "c" and kind != "c":
            page += [".EE", ".RE"]
        if kind and kind != "h" and is_first:
            page.append(".SH DESCRIPTION")
        is_first = is_first and not kind
        if kind == "h":
            page.append(".SH %s" % roff(text))
        elif kind == "c":
            page += [] if before == "c" else [".PP", ".RS 4", ".EX"]
            page.append(roff(text) if text else "\\&")
        elif kind == "l":
            number = re.match(r"(\d+\.) (.*)", text)
            page += [".IP %s 4" % (number.group(1) if number else "\\(bu"), roff(number.group(2) if number else text)]
        elif kind == "t" and before == "t":  # the first row says what the columns are
            first, _, rest = text.partition("\t")
            page += entry(roff(first) or "\\&", rest)
        elif kind == "p":
            page += [".PP", roff(text)]
    if kind == "c":
        page += [".EE", ".RE"]
    page += [".SH SEE ALSO", "\\fBtessera\\fR(1)"]
    return "\n".join(page) + "\n"


def page_name(path):
    return "tessera-" + topic(path).replace("reference/", "").replace("/", "-")


def pages():
    found = [os.path.relpath(path, ROOT) for each in PAGES for path in glob.glob(os.path.join(ROOT, each))]
    return sorted(set(found) - set(LEFT_OUT))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--programs", metavar="DIR", default=os.path.join(ROOT, "bazel-bin"))
    parser.add_argument("folder", metavar="FOLDER")
    arguments = parser.parse_args()
    programs = programs_in(arguments.programs)
    written = {}
    for name, path in programs.items():
        if not os.access(path, os.X_OK):
            print("man_pages.py: %s: not there, want the program %s; build it with deploy/build.sh, or name its "
                  "folder with --programs" % (path, name), file=sys.stderr)
            return 2
        help_ = help_of(path)
        others = [(each, 1) for each in programs if each != name]
        if help_.commands:
            others = others + [(page_name(each), 7) for each in pages()]
        written["man1/%s.1" % name] = command_page(name, help_, others)
        for command in help_.commands:
            written["man1/%s-%s.1" % (name, command)] = command_page(
                "%s %s" % (name, command), help_of(path, command), [(name, 1)])
    for path in pages():
        written["man7/%s.7" % page_name(path)] = document_page(path)
    for name, text in written.items():
        path = os.path.join(arguments.folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
