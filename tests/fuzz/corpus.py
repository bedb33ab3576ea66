#!/usr/bin/env python3
"""The kept corpora of the fuzz targets: one text file for each target, tests/fuzz/corpus/TARGET.inputs.

Each line is one input: a name, a blank, and the input's bytes in base64. Lines are sorted by name, so that changes of
two people merge as text does.

  corpus.py unpack TARGET FOLDER      writes each input as a file of FOLDER, which libFuzzer reads
  corpus.py add TARGET FILE...        adds files, each under the first 12 digits of its SHA-1; what is there is left out
  corpus.py replace TARGET FOLDER     makes the files of FOLDER the whole corpus
"""

import base64
import hashlib
import os
import sys

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "corpus")


def path_of(target):
    return os.path.join(FOLDER, target + ".inputs")


def read(target):
    with open(path_of(target), encoding="ascii") as file:
        lines = [line.split() for line in file]
    return {name: base64.b64decode(text[0] if text else "") for name, *text in lines}


def write(target, inputs):
    with open(path_of(target), "w", encoding="ascii") as file:
        for name, data in sorted(inputs.items()):
            file.write("%s %s\n" % (name, base64.b64encode(data).decode()))


def load(paths):
    inputs = {}
    for path in paths:
        with open(path, "rb") as file:
            data = file.read()
        inputs[hashlib.sha1(data).hexdigest()[:12]] = data
    return inputs


def unpack(target, folder):
    os.makedirs(folder, exist_ok=True)
    for name, data in read(target).items():
        with open(os.path.join(folder, name), "wb") as file:
            file.write(data)


def add(target, *paths):
    inputs = read(target) if os.path.exists(path_of(target)) else {}
    kept = set(inputs.values())
    inputs.update({name: data for name, data in load(paths).items() if data not in kept})
    write(target, inputs)


def replace(target, folder):
    write(target, load(sorted(os.path.join(folder, name) for name in os.listdir(folder))))


def main(arguments):
    commands = {"unpack": (unpack, 2, 2), "add": (add, 2, None), "replace": (replace, 2, 2)}
    if len(arguments) < 3 or arguments[0] not in commands:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    command, least, most = commands[arguments[0]]
    if len(arguments) - 1 < least or (most is not None and len(arguments) - 1 > most):
        print(__doc__.strip(), file=sys.stderr)
        return 2
    try:
        command(*arguments[1:])
    except OSError as error:
        print("corpus.py: %s: %s" % (error.filename, error.strerror), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
