#!/usr/bin/env python3
"""Writes compile_commands.json into the root of the tree, for clangd and other editors' language servers.

usage: deploy/compile_commands.py [Bazel targets; default //...]

Bazel is asked for the commands; nothing is compiled. Sources that Bazel compiles in groups (library.bzl) have a command
each. Editors find generated headers, those of proto/ among them, once the targets have been built. Run it again when
files or targets have been added.
"""
import json
import os
import re
import subprocess
import sys


# Options of g++ that clang refuses.
NOT_CLANGS = {"-fno-canonical-system-headers"}
# What library.bzl makes a group's source with.
GROUPED = re.compile(r"for source in (.*); do .* > (\S+)$")


def groups_of(actions):
    """{source that was made: the sources that it is made of}"""
    made = {}
    for action in actions:
        found = GROUPED.search(action["arguments"][-1])
        if found:
            made[found.group(2)] = found.group(1).split()
    return made


def main(arguments):
    if arguments and arguments[0].startswith("-"):
        print(__doc__.strip())
        return 0 if arguments[0] in ("-h", "--help") else 2
    root = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
    query = 'mnemonic("CppCompile|Genrule", %s)' % " + ".join(arguments or ["//..."])
    asked = subprocess.run(["bazel", "aquery", query, "--output=jsonproto"], cwd=root, capture_output=True, text=True)
    if asked.returncode != 0:
        sys.stderr.write(asked.stderr)
        print("compile_commands.py: bazel aquery failed; its words are above", file=sys.stderr)
        return 1
    actions = json.loads(asked.stdout).get("actions", [])
    groups = groups_of(actions)
    commands = []
    for action in actions:
        if action["mnemonic"] == "CppCompile":
            words = [word for word in action["arguments"] if word not in NOT_CLANGS]
            compiled = words[words.index("-c") + 1]
            for source in groups.get(compiled, [compiled]):
                commands.append({"directory": root, "file": source,
                                 "arguments": [source if word == compiled else word for word in words]})
    path = os.path.join(root, "compile_commands.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(commands, file, indent=1)
    print("compile_commands.py: %d commands in %s" % (len(commands), path))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
