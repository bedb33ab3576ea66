"""What the scripts of bench/papers share: the programs, results that are kept as files, and what is drawn from them.

A script measures, keeps what it found in bench/papers/results/NAME.json with date, machine and command, and draws from
that file alone: tables for docs/papers.md, and pictures by `tessera plot --table`. Whoever redraws needs no machine.
"""
import argparse
import concurrent.futures
import datetime
import hashlib
import json
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PAGE = os.path.join(ROOT, "docs/papers.md")
PICTURES = os.path.join(ROOT, "docs/papers")
RESULTS = os.path.join(ROOT, "bench/papers/results")
GIGABIT = 1e9 / 8
# Half of 3.8 GB/s (docs/design/transfer.md): both ends work on a copy within a node.
SHARED_MEMORY = "1900MB"

sys.path.insert(0, os.path.join(ROOT, "bench/training"))
from runs import crossing  # noqa: E402, F401


def machine():
    """The processor in words."""
    with open("/proc/cpuinfo") as file:
        for line in file:
            if line.startswith("model name"):
                return "%s, %d CPUs" % (line.split(":", 1)[1].strip(), os.cpu_count())
    return os.uname().machine


class Programs:
    """`tessera plan` and `tessera simulate`. Reports are kept by what was asked: a run can be taken up again."""

    def __init__(self, tessera, reports=None):
        self.tessera = tessera
        self.scratch = None if reports else tempfile.TemporaryDirectory()
        self.folder = reports or self.scratch.name
        os.makedirs(self.folder, exist_ok=True)

    def call(self, *words):
        done = subprocess.run([self.tessera, *map(str, words)], capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit("%s\n%s" % (" ".join(map(str, words)), done.stderr))
        return done.stdout

    def plan(self, job, *flags):
        """method -> what is planned for it."""
        return {row["method"]: row for row in json.loads(self.call("plan", job, "--json", *flags))["methods"]}

    def simulate(self, job, *flags):
        """The report of a simulated job."""
        asked = [os.path.relpath(job, ROOT), *map(str, flags)]
        path = os.path.join(self.folder, hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:16] + ".json")
        if not os.path.exists(path):
            self.call("simulate", job, "--quiet", "--report", path + ".part", *flags)
            os.rename(path + ".part", path)
        with open(path) as file:
            return json.load(file)

    def simulate_all(self, asked, at_once):
        """The reports of simulated jobs [(job, flags)], in this order, so many computed at a time: what they say does
        not depend on the machine's load."""
        with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
            return list(pool.map(lambda each: self.simulate(each[0], *each[1]), asked))


def sets(keys):
    """--set flags."""
    return [word for key, value in keys.items() for word in ("--set", "%s=%s" % (key, value))]


def mean(values):
    return sum(values) / len(values)


def table(header, rows):
    """A table in Markdown whose first column is words."""
    lines = [header, ["---"] + ["---:"] * (len(header) - 1)] + rows
    return "\n".join("| %s |" % " | ".join(map(str, line)) for line in lines)


def seconds(value):
    return "%.0f ms" % (1e3 * value) if value < 1 else "%.2f s" % value


def megabytes(value):
    return "{:,.0f}".format(value / 1e6) if value >= 1e7 else "%.2g" % (value / 1e6)


def redraw_page(text, tables):
    """The page with each table in the place of the one with the same line of titles."""
    for drawn in tables:
        lines = text.split("\n")
        title = drawn.split("\n", 1)[0]
        if title not in lines:
            sys.exit("docs/papers.md: has no line \"%s\", want one: a table of these titles is drawn there" % title)
        begin = end = lines.index(title)
        while end < len(lines) and lines[end].startswith("|"):
            end += 1
        text = "\n".join(lines[:begin] + drawn.split("\n") + lines[end:])
    return text


class Picture:
    """Lines over x, and how `tessera plot` is to draw them."""

    def __init__(self, name, x_title, labels, rows, *flags):
        assert not any("," in text for text in [x_title] + labels), "a table's fields have no commas"
        self.name = name
        self.csv = "\n".join([",".join([x_title] + labels)] + [
            ",".join("" if value is None else "%.6g" % value for value in row) for row in rows]) + "\n"
        self.flags = flags

    def svg(self, programs):
        with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
            file.write(self.csv)
            file.flush()
            return programs.call("plot", "--table", file.name, *self.flags)


def run(name, description, measure, draw, add_flags=None):
    """The command of a script. `measure(options, programs)` returns what is kept, `draw(results)` tables and
    pictures."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="seconds in place of minutes: few cells, none is kept")
    parser.add_argument("--redraw", action="store_true",
                        help="measure nothing: draw what is kept into docs/papers.md and docs/papers/")
    parser.add_argument("--out", help="where results are kept; with --quick nowhere without it")
    parser.add_argument("--tessera", default=os.path.join(ROOT, "bazel-bin/deploy/cli/tessera"))
    parser.add_argument("--reports", help="a folder that keeps reports, so that a run can be taken up again")
    if add_flags:
        add_flags(parser)
    options = parser.parse_args()
    programs = Programs(os.path.abspath(options.tessera), options.reports)
    kept = options.out or os.path.join(RESULTS, name + ".json")
    if not options.redraw:
        results = {"date": datetime.date.today().isoformat(), "machine": machine(),
                   "command": " ".join(["bench/papers/%s.py" % name] + ["--quick"] * options.quick)}
        results.update(measure(options, programs))
        if options.out or not options.quick:
            with open(kept, "w") as file:
                file.write(json.dumps(results, indent=1) + "\n")
        tables, pictures = draw(results)
        print("\n\n".join(tables))
        for picture in pictures:
            picture.svg(programs)
        return
    with open(kept) as file:
        tables, pictures = draw(json.load(file))
    with open(PAGE) as file:
        text = redraw_page(file.read(), tables)
    with open(PAGE, "w") as file:
        file.write(text)
    os.makedirs(PICTURES, exist_ok=True)
    for picture in pictures:
        with open(os.path.join(PICTURES, picture.name + ".svg"), "w") as file:
            file.write(picture.svg(programs))
