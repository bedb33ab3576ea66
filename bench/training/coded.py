#!/usr/bin/python3
"""What coded and overlapped exchanges cost in accuracy, and save in bytes and time, against the same method in f32.

    bench/training/coded.py FOLDER [--sets fashion speech cifar] [--rows quant threshold ...] [--seeds 1 2 3 4 5]

FOLDER holds the data sets, as deploy/fetch_data.sh puts them (speech and cifar10: with --from). Every row is a
method with a codec, or with exchanges that overlap with training, beside the same steps over the same rows in f32
without: the same seeds, the same order of data. Prints a table of accuracies (means over the seeds, with the standard
error of the difference), of payload bytes up and down as shares of the base's, and of seconds of training. Two workers
and two servers.
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
    "speech": ("speech.yaml", {"train.epochs": 8, "train.optimizer.sgd.learning_rate": 0.03}),
    "cifar": ("cifar.yaml", {"train.epochs": 20}),
}
# row: (method, its keys; the base's method). The base is in f32.
DATA_PARALLEL = {"method": "{data_parallel: {}}"}
# What a push of the largest entries holds back takes the outer momentum's place (arXiv 2508.15706).
DILOCO = {"method": "{diloco: {local_steps: 10, outer_learning_rate: 1, outer_momentum: 0}}"}
LOCAL_SGD = {"method": "{local_sgd: {local_steps: 4}}"}


def local_sgd(steps, overlap):
    return {"method": "{local_sgd: {local_steps: %d, overlap: %s}}" % (steps, str(overlap).lower())}


ROWS = {
    "quant": ({"method": "{quant_dp: {}}"}, DATA_PARALLEL),
    "quant4": ({"method": "{quant_dp: {bits: 4}}"}, DATA_PARALLEL),
    "int8": ({"method": "{data_parallel: {}}", "codec.push": "int8", "codec.pull": "bf16"}, DATA_PARALLEL),
    "feedback": ({"method": "{data_parallel: {}}", "codec.push": "int8", "codec.pull": "bf16",
                  "codec.error_feedback": "true"}, DATA_PARALLEL),
    "threshold": ({"method": "{data_parallel: {}}", "codec.push": "threshold"}, DATA_PARALLEL),
    "threshold_local": ({"method": "{local_sgd: {local_steps: 4}}", "codec.push": "threshold"}, LOCAL_SGD),
    "topk": (dict(DILOCO, **{"codec.push": "topk"}), DILOCO),
    "slim": ({"method": "{slim_dp: {alpha: 0.2, beta: 0.1, local_steps: 1}}"}, DATA_PARALLEL),
    "slim_held": ({"method": "{slim_dp: {alpha: 0.2, beta: 0.1, local_steps: 1}}", "codec.error_feedback": "true"},
                  DATA_PARALLEL),
    **{"overlap_%d" % steps: (local_sgd(steps, True), local_sgd(steps, False)) for steps in (5, 20, 50, 100)},
    "bf16_local": ({"method": "{local_sgd: {local_steps: 4}}", "codec.push": "bf16", "codec.pull": "bf16"}, LOCAL_SGD),
}


def job_of(options, name, keys, seed):
    """The job file and the --set flags, but for the servers."""
    job, settings = SETS[name]
    merged = dict(settings, **keys)
    merged.update({"data.directory": runs.set_folder(options.folder, name), "seed": seed,
                   "train.evaluate_every": 0, "cluster.workers": options.workers})
    if options.epochs:
        merged["train.epochs"] = options.epochs
    return (os.path.join(runs.ROOT, "deploy/jobs", job),
            [word for key, value in merged.items() for word in ("--set", "%s=%s" % (key, value))])


def train(options, name, keys, seed):
    job, flags = job_of(options, name, keys, seed)
    with tempfile.TemporaryDirectory() as scratch:
        report = os.path.join(scratch, "report.json")
        command = [options.tessera, "run", job, "--quiet", "--report", report,
                   "--set", "cluster.servers=%d" % options.servers]
        subprocess.run(command + flags, check=True, preexec_fn=runs.die_with_parent)
        with open(report) as file:
            return json.load(file)


def standard_error(values):
    return statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else float("nan")


def communication(report):
    """Seconds that a worker's loop spent on exchanges, the mean over the workers: pull, push, and waiting in them."""
    phases = report["phases"]
    return statistics.mean(p["pull_seconds"] + p["push_seconds"] + p["wait_seconds"] for p in phases)


def line(name, row, base, coded):
    accuracy = [r["final"]["test_accuracy"] for r in coded]
    difference = [a - r["final"]["test_accuracy"] for a, r in zip(accuracy, base)]
    share = lambda key: (statistics.mean(r["traffic"][key] for r in coded) /
                         statistics.mean(r["traffic"][key] for r in base))
    return "| %s | %s | %.2f | %+.2f (%.2f) | %.4f | %.4f | %.1f s, %.1f s | %.1f s, %.1f s |" % (
        name, row, 100 * statistics.mean(accuracy), 100 * statistics.mean(difference),
        100 * standard_error(difference), share("push_payload_bytes"), share("pull_payload_bytes"),
        statistics.median(r["train_seconds"] for r in coded), statistics.median(r["train_seconds"] for r in base),
        statistics.median(map(communication, coded)), statistics.median(map(communication, base)))


def parser_of(description, rows):
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--sets", nargs="+", choices=list(SETS), default=list(SETS))
    parser.add_argument("--rows", nargs="+", choices=list(rows), default=list(rows))
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3, 4, 5])
    parser.add_argument("--epochs", type=int, default=0, help="0: the set's own")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--tessera", default=os.path.join(runs.ROOT, "bazel-bin/deploy/cli/tessera"))
    return parser


HEADER = ("| data | row | accuracy, % | less the base's (standard error) | push | pull | training, base's | "
          "exchanging, base's |\n|---|---|---|---|---|---|---|---|")


def tabulate(options, rows, train):
    """Prints the table. train(name, keys, seed) gives a report; a base is trained once for all its rows."""
    for name in options.sets:
        runs.set_folder(options.folder, name)  # Before hours of training on those that are there.
    print(HEADER, flush=True)
    for name in options.sets:
        found = {}

        def reports(keys):
            label = json.dumps(keys)
            if label not in found:
                found[label] = [train(name, keys, seed) for seed in options.seeds]
            return found[label]

        for row in options.rows:
            keys, base = rows[row]
            print(line(name, row, reports(base), reports(keys)), flush=True)


def main():
    parser = parser_of(__doc__, ROWS)
    parser.add_argument("--servers", type=int, default=2)
    options = parser.parse_args()
    tabulate(options, ROWS, lambda name, keys, seed: train(options, name, keys, seed))


if __name__ == "__main__":
    main()
