#!/usr/bin/env python3
"""Figures about the structure of the product's C++ code, and the rules that tests/deploy/structure_test.py holds it to.

  tests/deploy/structure.py        prints the figures

The product is common, server, worker, kernels and deploy; headers and sources are .h, .cuh, .cc and .cu.
"""
import collections
import os
import re
import subprocess
import sys

ROOMS = ("common", "server", "worker", "kernels", "deploy")
LEANING = ("So", "Of", "The same", "As above", "Also")
# Names of methods that are no words of the field besides: barrier, softsync and ssp are policies, too.
METHODS = r"\b(data_parallel|local_sgd|async_sgd|quant_dp|slim_dp|layer_separation)\b"
ASKS_METHOD = (r"\bhas_(ist|ensemble|ssp|softsync|diloco|decentralized)\(\)"
               r"|method\(\)\.(?!kind_case|empty|GetReflection)(\w+)\(\)")
DEFINITION = re.compile(r"^(?:[A-Za-z_][\w:<>,&*\s\[\]]*?\b)?(\w+)::~?\w+\(")
CLASS = re.compile(r"^(?:class|struct) (\w+)[^;]*\{")


def tree():
    """The tree that this file lies in, not a copy of it."""
    here = os.path.dirname(os.path.realpath(__file__))
    while not os.path.exists(os.path.join(here, "WORKSPACE")):
        here = os.path.dirname(here)
    return here


def sources(root):
    """{path: text} of the product's headers and sources."""
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard", *ROOMS], cwd=root,
                            capture_output=True, text=True, check=True).stdout.splitlines()
    texts = {}
    for path in sorted(set(listed)):
        if path.endswith((".h", ".cuh", ".cc", ".cu")) and os.path.isfile(os.path.join(root, path)):
            with open(os.path.join(root, path), encoding="utf-8") as file:
                texts[path] = file.read()
    return texts


def sliced_classes(texts):
    """{class: files} of classes whose members are defined in more than one source."""
    where = collections.defaultdict(set)
    for path, text in texts.items():
        if not path.endswith((".cc", ".cu")):
            continue
        for line in text.splitlines():
            found = DEFINITION.match(line)
            if found and found[1][0].isupper():
                where[found[1]].add(path)
    return {name: sorted(paths) for name, paths in where.items() if len(paths) > 1 and name != "State"}


def method_names(texts):
    """Lines of code outside of common/method that name a training method."""
    found = []
    for path, text in texts.items():
        if path.startswith("common/method/"):
            continue
        for number, line in enumerate(text.splitlines(), 1):
            code = line.split("//")[0]
            if re.search(METHODS, code) or re.search(ASKS_METHOD, code):
                found.append("%s:%d" % (path, number))
    return found


def large_classes(texts, methods_max=25, fields_max=20):
    """[(class, path, public methods, fields)] of classes in headers above either number."""
    large = []
    for path, text in texts.items():
        if not path.endswith(".h"):
            continue
        lines = text.splitlines()
        for start, line in enumerate(lines):
            found = CLASS.match(line)
            if not found:
                continue
            methods = fields = depth = 0
            is_public = line.startswith("struct")
            statement = ""
            for body in lines[start:]:
                code = body.split("//")[0].rstrip()
                if depth == 1 and code.strip() in ("public:", "private:", "protected:"):
                    is_public = code.strip() == "public:"
                elif depth == 1 and code.strip():
                    statement += " " + code.strip()
                depth += code.count("{") - code.count("}")
                if depth == 1 and statement and statement.endswith((";", "}")):
                    if "(" in re.sub(r"ABSL_\w+\([^)]*\)|= .*|\{.*", "", statement):
                        methods += is_public
                    elif not re.match(r"^ (using|friend|enum|struct|class|static)\b", statement):
                        fields += 1
                    statement = ""
                if depth <= 0 and body.startswith("}"):
                    break
            if methods > methods_max or fields > fields_max:
                large.append((found[1], path, methods, fields))
    return large


def comments(texts):
    """(blocks, blocks that begin with a word that leans on another comment, comment lines and lines of sources)"""
    blocks = leaning = lines = all_lines = 0
    for path, text in texts.items():
        inside = False
        for line in text.splitlines():
            is_comment = line.lstrip().startswith("//")
            if is_comment and not inside:
                blocks += 1
                words = line.lstrip().lstrip("/").strip()
                leaning += any(re.match(re.escape(word) + r"\b", words) for word in LEANING)
            inside = is_comment
            if path.endswith((".cc", ".cu")):
                all_lines += 1
                lines += is_comment
    return blocks, leaning, lines, all_lines


def main():
    texts = sources(tree())
    count = sum(text.count("\n") for text in texts.values())
    code = sum(bool(line.strip()) and not line.lstrip().startswith("//") for text in texts.values()
               for line in text.splitlines())
    print("files %d, lines %d, of these neither blank nor a comment %d" % (len(texts), count, code))
    sliced = sliced_classes(texts)
    print("classes in more than one source: %d" % len(sliced))
    for name, paths in sorted(sliced.items()):
        print("  %s: %s" % (name, ", ".join(paths)))
    names = method_names(texts)
    print("lines that name a method outside of common/method: %d" % len(names))
    for place in names:
        print("  " + place)
    large = large_classes(texts)
    print("classes above 25 public methods or 20 fields: %d" % len(large))
    for name, path, methods, fields in large:
        print("  %s (%s): %d public methods, %d fields" % (name, path, methods, fields))
    blocks, leaning, lines, all_lines = comments(texts)
    print("comment blocks that begin with %s: %d of %d, %.1f %%"
          % (", ".join(LEANING), leaning, blocks, 100 * leaning / blocks))
    print("comment lines in sources: %.1f %%" % (100 * lines / all_lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
