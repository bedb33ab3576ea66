#!/usr/bin/python3
"""A model that no process may hold: trains it under a memory limit and compares every process's peak with it.

    bench/large/large.py FOLDER [--limit BYTES] [--set KEY=VALUE]...
    bench/large/large.py FOLDER --widths 512:0.2,2048:0.3,8192:0.3 [--epochs 5] [--workers 8]

FOLDER holds the EURLEX57K data (deploy/fetch_data.sh --from DIR eurlex). The first form runs
deploy/jobs/eurlex_wide.yaml with cluster.memory_limit at a quarter of the parameters' bytes, if no other limit is
given: two rounds, then an evaluation in blocks. It prints each process's peak (VmHWM) and the limit, and shows that
data_parallel refuses the same limit. Exit code 1: a process is over the limit, or data_parallel was not refused.

The second form trains hidden layers of several widths by independent subnets, each for the same number of epochs and
with the learning rate behind the colon, and prints precision at 1, 3 and 5. No limit there.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
JOB = os.path.join(ROOT, "deploy/jobs/eurlex_wide.yaml")
INPUTS, OUTPUTS = 32365, 4271
MIB = 1 << 20


def parameter_bytes(width):
    """Two matrices, scale and shift of the norm, and the last bias."""
    return 4 * (INPUTS * width + width * OUTPUTS + 2 * width + OUTPUTS)


def run(arguments, settings):
    """(exit code, report or None, stderr) of one job."""
    with tempfile.TemporaryDirectory() as folder:
        report = os.path.join(folder, "report.json")
        command = [arguments.binary, "run", JOB, "--quiet", "--report", report,
                   "--set", "data.directory=" + os.path.abspath(arguments.folder)]
        for setting in settings + arguments.settings:
            command += ["--set", setting]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0 or not os.path.exists(report):
            return done.returncode, None, done.stderr
        with open(report) as file:
            return 0, json.load(file), done.stderr


def layers(width):
    return ("model.layers=[linear: {units: %d, bias: false}, batch_norm: {}, relu: {}, linear: {units: %d}]"
            % (width, OUTPUTS))


def show_limit(arguments):
    limit = arguments.limit or parameter_bytes(8192) // 4
    settings = ["train.steps=40", "train.evaluate_every=0", "cluster.memory_limit=%d" % limit]
    code, report, error = run(arguments, settings)
    if report is None:
        print("eurlex_wide ended with %d\n%s" % (code, error), file=sys.stderr)
        return 1
    memory = report["memory"]
    print("parameters %.1f MB, limit %.1f MB for each process, %d rounds, P@1 %.3f, train %.1f s, wall %.1f s"
          % (memory["parameter_bytes"] / 1e6, limit / 1e6, report["rounds"],
             report["final"]["precision_at"]["1"], report["train_seconds"], report["wall_seconds"]))
    print("%-10s %12s %8s" % ("process", "peak MB", "of limit"))
    over = 0
    for kind in ("server", "worker"):
        for rank, peak in enumerate(memory[kind + "_peak_rss_bytes"]):
            if peak is None:
                print("%-10s %12s" % ("%s %d" % (kind, rank), "not told"))
                continue
            over += peak > limit
            print("%-10s %12.1f %7.1f%%%s" % ("%s %d" % (kind, rank), peak / 1e6, 100 * peak / limit,
                                             "   OVER" if peak > limit else ""))
    refused, _, error = run(arguments, settings + ["method={data_parallel: {}}"])
    print("data_parallel under the same limit: exit code %d\n%s" % (refused, error.strip()))
    return 1 if over or refused != 2 else 0


def show_widths(arguments):
    print("%8s %6s %14s %8s %8s %8s %10s %10s"
          % ("width", "rate", "parameters", "P@1", "P@3", "P@5", "train s", "wall s"))
    for word in arguments.widths.split(","):
        width, _, rate = word.partition(":")
        width, rate = int(width), float(rate or 0.3)
        settings = [layers(width), "train.epochs=%d" % arguments.epochs, "train.evaluate_every=0",
                    "train.optimizer.sgd.learning_rate=%g" % rate, "cluster.workers=%d" % arguments.workers,
                    "cluster.servers=%d" % arguments.servers, "cluster.memory_limit=0"]
        code, report, error = run(arguments, settings)
        if report is None:
            print("width %d ended with %d\n%s" % (width, code, error), file=sys.stderr)
            return 1
        precision = report["final"]["precision_at"]
        print("%8d %6g %11.1f MB %8.4f %8.4f %8.4f %10.1f %10.1f"
              % (width, rate, report["memory"]["parameter_bytes"] / 1e6, precision["1"], precision["3"], precision["5"],
                 report["train_seconds"], report["wall_seconds"]), flush=True)
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder")
    parser.add_argument("--limit", type=int, default=0)
    parser.add_argument("--widths", default="")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--servers", type=int, default=2)
    parser.add_argument("--set", dest="settings", action="append", default=[])
    parser.add_argument("--binary", default=os.path.join(ROOT, "bazel-bin/deploy/cli/tessera"))
    arguments = parser.parse_args()
    return show_widths(arguments) if arguments.widths else show_limit(arguments)


if __name__ == "__main__":
    sys.exit(main())
