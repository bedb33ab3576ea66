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
# Names of methods that are words of the field or of English besides: softsync and ssp are policies, too.
WORDS_TOO = {"softsync", "ssp", "ist", "ensemble", "diloco", "decentralized"}
ASKS_METHOD = r"method\(\)\.(?!kind_case|empty|GetReflection)(\w+)\(\)"
# What each table of files of docs/adding/ has: product files at most, BUILD and docs apart; the word in its files, and
# the real one that stands for it; and how code names the real one.
ADDED = {
    "codec": [(5, "f24", "f16", r"\bF16Codec\b|v1::Codec::kF16\b|F16 f16\b|name = \"f16\"|^\| .f16. \|")],
    "data_format": [(3, "arff", "xc", r"\bkXcFormat\b|\"xc\",|name = \"xc\"|^\| .xc. \|")],
    "key_set": [(7, "stripe", "layer", r"\bkLayerForm\b|v1::KeySet::kLayers|LayerKeys layers|\"some layers'\","
                 r"|ParameterRange, RowRange,|optional<LayerCut> cut;|name = \"layer_form\"")],
    "layer": [(6, "pixel_shuffle", "batch_norm", r"\bBatchNormStageKind\b|\bBatchNormKind\(\),|BatchNorm batch_norm = "
               r"|== \"batch_norm\"|name = \"batch_norm_stage\"|^## Batch norm"),
              (6, "softsign", "silu", r"\bkSilu\b|SiluFunction|Silu silu|\"silu\"|`silu`")],
    "method": [(4, "gossip", "slim_dp", r"\bkSlimDp\b|SlimDp slim_dp|\"slim_dp\.cc|slim_dp\.yaml\"|^## slim_dp")],
    "status_field": [(4, "", "", r"set_refused_pushes|status\.refused_pushes\(\)\)|uint64 refused_pushes"
                      r"|^\| `refused_pushes`")],
}
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


def files_to_touch(root):
    """({page: [(product files of a table, all of its files, product files at most)]}, what is wrong with the tables).

    Files of a table that are not there are wrong, and files that name the real one and are in no table.
    """
    counts, wrong = {}, []
    for page, tables in ADDED.items():
        with open(os.path.join(root, "docs/adding", page + ".md"), encoding="utf-8") as file:
            parts = re.split(r"(?m)^\| # \| file .*$", file.read())[1:]
        if len(parts) != len(tables):
            wrong.append("%s.md has %d tables of files, want %d" % (page, len(parts), len(tables)))
        counts[page] = []
        for part, (most, made_up, real, names) in zip(parts, tables):
            listed = [path.replace(made_up, real) if made_up else path
                      for path in re.findall(r"(?m)^\| \d+ \| `([^`]+)`", part)]
            wrong += ["%s.md has %s, which is not there" % (page, path) for path in listed
                      if not os.path.isfile(os.path.join(root, path))]
            naming = subprocess.run(
                ["git", "grep", "-lP", "--untracked", names, "--", *ROOMS, "proto", "docs/methods.md",
                 "docs/operating/data.md", "docs/operating/report.md"],
                cwd=root, capture_output=True, text=True, check=True).stdout.split()
            wrong += ["%s names what %s.md adds, and is not in its table" % (path, page) for path in naming
                      if path not in listed]
            product = [path for path in listed if path.endswith((".h", ".cc", ".proto", ".py"))]
            counts[page].append((len(product), len(listed), most))
    return counts, wrong


def training_methods(root):
    """The names of the training methods, by proto/job.proto."""
    with open(os.path.join(root, "proto/job.proto"), encoding="utf-8") as file:
        kinds = re.search(r"message Method \{.*?\n  \}", file.read(), re.S).group(0)
    return set(re.findall(r"(?m)^    \w+ (\w+) = \d+;", kinds))


def method_names(texts, names):
    """Lines of code outside of common/method that name a training method, out of `names`."""
    named = r"\b(%s)\b" % "|".join(sorted(names - WORDS_TOO))
    asks = r"\bhas_(%s)\(\)|%s" % ("|".join(sorted(names)), ASKS_METHOD)
    found = []
    for path, text in texts.items():
        if path.startswith("common/method/"):
            continue
        for number, line in enumerate(text.splitlines(), 1):
            code = line.split("//")[0]
            if re.search(named, code) or re.search(asks, code):
                found.append("%s:%d" % (path, number))
    return found


def large_classes(texts, methods_max=25, fields_max=20):
    """[(class, path, public methods, fields, whether the comment in front gives a reason)] of classes in headers above
    either number."""
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
                first = start
                while lines[first - 1].startswith("//"):
                    first -= 1
                has_reason = re.search(r"more (public )?(methods|fields) than other",
                                       " ".join(line.lstrip("/ ") for line in lines[first:start]))
                large.append((found[1], path, methods, fields, bool(has_reason)))
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
    counts, wrong = files_to_touch(tree())
    print("files to touch (and with BUILD, docs and job files): " + ", ".join(
        "%s %s" % (page, " or ".join("%d (%d)" % each[:2] for each in tables)) for page, tables in counts.items()))
    for each in wrong:
        print("  " + each)
    names = method_names(texts, training_methods(tree()))
    print("lines that name a method outside of common/method: %d" % len(names))
    for place in names:
        print("  " + place)
    large = large_classes(texts)
    print("classes above 25 public methods or 20 fields: %d" % len(large))
    for name, path, methods, fields, has_reason in large:
        print("  %s (%s): %d public methods, %d fields%s"
              % (name, path, methods, fields, "" if has_reason else ", without a reason"))
    blocks, leaning, lines, all_lines = comments(texts)
    print("comment blocks that begin with %s: %d of %d, %.1f %%"
          % (", ".join(LEANING), leaning, blocks, 100 * leaning / blocks))
    print("comment lines in sources: %.1f %%" % (100 * lines / all_lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
