"""The commands that README and docs show: each line of an indented block that begins with a program."""
import glob
import os
import re

from cluster import ROOT

PAGES = ["README.md"] + sorted(os.path.relpath(page, ROOT)
                               for page in glob.glob(ROOT + "/docs/**/*.md", recursive=True))
# After what is set for it alone: a program by name, or by a path.
PROGRAM = re.compile(r"(?:[A-Z_]+=\S+ )*(?:tessera(?:-server|-worker)?|bazel|curl|docker|echo|etcd|git|ip|kubectl|"
                     r"openssl|podman|promtool|python3?|sh|sudo|systemctl|tar|useradd|[\w.$-]*/[\w./-]+)(?: |$)")


def text_of(page):
    with open(os.path.join(ROOT, page)) as file:
        return file.read()


def blocks(page, after=""):
    """The indented blocks of a page, from `after` on, without the indentation."""
    lines = text_of(page).split(after, 1)[1].split("\n") if after else text_of(page).split("\n")
    found, block = [], []
    for before, line in zip([""] + lines, lines + [""]):
        begins = not block and line.startswith("    ") and not before.strip()
        if begins or (block and line.startswith("    ")):
            block.append(line[4:])
        elif block:
            found.append("\n".join(block))
            block = []
    return found


def commands_of(page):
    """In their order, without what the page says of them behind."""
    found = []
    for block in blocks(page):
        for line in re.sub(r"\s*\\\n\s*", " ", block).split("\n"):
            command = re.split(r"\s{2,}#|\s#\s|\s{3,}", line)[0].rstrip()
            command = re.sub(r"\s+", " ", command)
            if PROGRAM.match(command):
                found.append(command)
    return found
