#!/usr/bin/python3
"""What exchanging a core and an explorer costs in accuracy and saves in bytes, against local_sgd with the same steps.

    bench/training/slim.py FOLDER [--sets fashion speech cifar] [--rows slim wide ...] [--seeds 1 2 3 4 5]

FOLDER holds the data sets, as deploy/fetch_data.sh puts them. Every row is a
slim_dp beside local_sgd with as many steps between exchanges, over the same rows: the same seeds, the same order of
data. Prints accuracies (means over the seeds, with the standard error of the difference), payload bytes both ways as a
share of local_sgd's, and seconds of training. A row holds when it loses half a point at most and moves 0.30 at most.
"""
import argparse
import json
import math
import os
import statistics
import subprocess
import tempfile

import runs

SETS = {
    "fashion": ("fashion_mnist.yaml",
                {"model.layers.0.linear.units": 1024, "train.epochs": 10}),
    "speech": ("speech_local_sgd.yaml", {"train.epochs": 10}),
    "cifar": ("cifar.yaml", {"train.epochs": 20}),
}
ROWS = {
    "slim": {"alpha": 0.2, "beta": 0.1},
    "wide": {"alpha": 0.3, "beta": 0.15},
    "asynchronous": {"alpha": 0.2, "beta": 0.1, "asynchronous": "true"},
    "held back": {"alpha": 0.2, "beta": 0.1},
    "held back, int8": {"alpha": 0.2, "beta": 0.1},
    "held back, asynchronous": {"alpha": 0.2, "beta": 0.1, "asynchronous": "true"},
    "core alone": {"alpha": 0.2, "beta": 0.2},
    "explorer alone": {"alpha": 0.2, "beta": 0},
}
# What an exchange does not move is sent with a later one.
CODECS = {
    "held back": "{error_feedback: true}",
    "held back, int8": "{error_feedback: true, push: int8}",
    "held back, asynchronous": "{error_feedback: true}",
}
POINTS_LOST_MAX = 0.5
PAYLOAD_MAX = 0.30


def train(options, name, method, codec, seed):
    job, settings = SETS[name]
    keys = dict(settings)
    keys.update({"data.directory": runs.set_folder(options.folder, name), "method": method,
                 "seed": seed, "train.evaluate_every": 0, "cluster.workers": options.workers,
                 "cluster.servers": options.servers,
                 "cluster.lease_timeout": "60s"})
    if codec:
        keys["codec"] = codec
    if options.epochs:
        keys["train.epochs"] = options.epochs
    flags = [word for key, value in keys.items() for word in ("--set", "%s=%s" % (key, value))]
    with tempfile.TemporaryDirectory() as scratch:
        report = os.path.join(scratch, "report.json")
        subprocess.run([options.tessera, "run", os.path.join(runs.ROOT, "deploy/jobs", job), "--quiet",
                        "--report", report] + flags, check=True, preexec_fn=runs.die_with_parent)
        with open(report) as file:
            return json.load(file)


def row_of(options, keys):
    keys = dict(keys, local_steps=options.local_steps, core_every=options.core_every)
    return "{slim_dp: {%s}}" % ", ".join("%s: %s" % pair for pair in keys.items())


def points(report):
    return 100 * report["final"]["test_accuracy"]


def line(name, row, base, reports):
    lost = [points(b) - points(r) for b, r in zip(base, reports)]
    error = statistics.stdev(lost) / math.sqrt(len(lost)) if len(lost) > 1 else 0
    share = statistics.mean(runs.payload(r) / runs.payload(b) for b, r in zip(base, reports))
    seconds = [statistics.mean(r["train_seconds"] for r in rs) for rs in (base, reports)]
    holds = statistics.mean(lost) <= POINTS_LOST_MAX and share <= PAYLOAD_MAX
    return "| %s | %s | %.2f | %.2f | %+.2f ± %.2f | %.3f | %.1f | %.1f | %s |" % (
        name, row, statistics.mean(map(points, base)), statistics.mean(map(points, reports)),
        -statistics.mean(lost), error, share, seconds[0], seconds[1], "yes" if holds else "no")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="the data sets")
    parser.add_argument("--sets", nargs="+", choices=list(SETS), default=list(SETS))
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), default=["slim", "wide", "asynchronous"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3, 4, 5])
    parser.add_argument("--local-steps", type=int, default=1)
    parser.add_argument("--core-every", type=int, default=50)
    parser.add_argument("--epochs", type=int, default=0, help="instead of those of the set")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--servers", type=int, default=2)
    parser.add_argument("--tessera", default=os.path.join(runs.ROOT, "bazel-bin/deploy/cli/tessera"))
    options = parser.parse_args()
    lines = []
    for name in options.sets:
        runs.set_folder(options.folder, name)  # Before hours of training on those that are there.
    for name in options.sets:
        found = {}
        # Rows take turns, so that a machine that gets slower does so for all.
        for seed in options.seeds:
            base = "{local_sgd: {local_steps: %d}}" % options.local_steps
            for row in ["local_sgd"] + options.rows:
                method = base if row == "local_sgd" else row_of(options, ROWS[row])
                report = train(options, name, method, CODECS.get(row), seed)
                found.setdefault(row, []).append(report)
                print("%s, %s, seed %d: %.2f%%, %s, %.1f s" % (
                    name, row, seed, points(report), runs.size(runs.payload(report)), report["train_seconds"]),
                    flush=True)
        lines += [line(name, row, found["local_sgd"], found[row]) for row in options.rows]
    print("\n| data | row | local_sgd, % | slim_dp, % | difference | payload | s, local_sgd | s, slim_dp | holds |")
    print("|---|---|---|---|---|---|---|---|---|")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
