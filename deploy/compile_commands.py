#!/usr/bin/env python3
"""Writes compile_commands.json into the root of the tree, for clangd and other editors' language servers.

usage: deploy/compile_commands.py [Bazel targets; default //...]

Bazel is asked for the commands; nothing is compiled. Editors find generated headers, those of proto/ among them, once
the targets have been built. Run it again when files or targets have been added.
"""
import json
import os
import subprocess
import sys


# Options of g++ that clang refuses.
NOT_CLANGS = {"-fno-canonical-system-headers"}


def main(arguments):
    if arguments and arguments[0].startswith("-"):
        print(__doc__.strip())
        return 0 if arguments[0] in ("-h", "--help") else 2
    root = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
    query = 'mnemonic("CppCompile", %s)' % " + ".join(arguments or ["//..."])
    asked = subprocess.run(["bazel", "aquery", query, "--output=jsonproto"], cwd=root, capture_output=True, text=True)
    if asked.returncode != 0:
        sys.stderr.write(asked.stderr)
        print("compile_commands.py: bazel aquery failed; its words are above", file=sys.stderr)
        return 1
    commands = []
    for action in json.loads(asked.stdout).get("actions", []):
        words = action["arguments"]
        commands.append({"directory": root,
                         "file": words[words.index("-c") + 1],
                         "arguments": [word for word in words if word not in NOT_CLANGS]})
    path = os.path.join(root, "compile_commands.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(commands, file, indent=1)
    print("compile_commands.py: %d commands in %s" % (len(commands), path))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
