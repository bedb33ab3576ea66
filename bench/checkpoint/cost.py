#!/usr/bin/env python3
"""What checkpoints cost a job: the share of its training time that is lost to them.

    bench/checkpoint/cost.py [--units 3400] [--steps 60] [--every 10] [--repeat 3]

Trains one model of about 50 MB (64 inputs, two hidden layers of --units, 10 outputs) on the built-in digits with 2
servers and 2 workers, without and with a checkpoint every so many steps, in turns, and compares the medians of
train_seconds. The last checkpoint, which is written when training is over, is no part of that. Checkpoints go to
TMPDIR: its disk is what is measured. Uses the programs of bazel-bin.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TESSERA = os.path.join(ROOT, "bazel-bin/deploy/cli/tessera")


def job(units, steps, method, optimizer):
    return {
        "name": "checkpoint-cost",
        "seed": 1,
        "data": {
            "format": "idx",
            "directory": os.path.join(ROOT, "deploy/data/optdigits"),
            "train": {"features": "train-images-idx3-ubyte.gz", "labels": "train-labels-idx1-ubyte.gz"},
            "test": {"features": "test-images-idx3-ubyte.gz", "labels": "test-labels-idx1-ubyte.gz"},
            "normalize": {"mean": 0.0192, "stddev": 0.0236},
        },
        "model": {"input": [64], "layers": [{"linear": {"units": units}}, "relu", {"linear": {"units": units}}, "relu",
                                            {"linear": {"units": 10}}]},
        "train": {"batch_size": 64, "steps": steps, "evaluate_every": 0, "optimizer": optimizer},
        "method": method,
        "cluster": {"servers": 2, "workers": 2},
    }


def run(folder, text, name):
    path, report = os.path.join(folder, name + ".json"), os.path.join(folder, name + ".report")
    with open(path, "w") as file:
        json.dump(text, file)
    done = subprocess.run([TESSERA, "run", path, "--report", report, "--quiet"], stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit("cost.py: %s" % done.stderr.strip())
    with open(report) as file:
        return json.load(file)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--units", type=int, default=3400)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--every", type=int, default=10)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    momentum = {"sgd": {"learning_rate": 0.01, "momentum": 0.9}}
    methods = (("data_parallel, momentum", {"data_parallel": {}}, momentum),
               ("data_parallel, adamw", {"data_parallel": {}}, {"adamw": {"learning_rate": 0.001}}),
               ("local_sgd 5, adamw", {"local_sgd": {"local_steps": 5}}, {"adamw": {"learning_rate": 0.001}}))
    print("%-26s %9s %9s %7s %12s %9s %9s" % ("", "without", "with", "lost", "checkpoints", "bytes", "each"))
    folder = tempfile.mkdtemp(prefix="checkpoint-cost-")
    try:
        for name, method, optimizer in methods:
            seconds, last = {False: [], True: []}, None
            for _ in range(options.repeat):
                for with_checkpoints in (False, True):
                    text = job(options.units, options.steps, method, optimizer)
                    kept = os.path.join(folder, "kept")
                    if with_checkpoints:
                        text["checkpoint"] = {"directory": kept, "every_steps": options.every, "keep": 2}
                    report = run(folder, text, "job")
                    seconds[with_checkpoints].append(report["train_seconds"])
                    if with_checkpoints:
                        last = report["checkpoint"]
                        if last["failure"]:
                            sys.exit("cost.py: %s" % last["failure"])
                        shutil.rmtree(kept)
            without, having = statistics.median(seconds[False]), statistics.median(seconds[True])
            print("%-26s %7.2f s %7.2f s %5.1f %% %12d %6.1f MB %7.3f s" %
                  (name, without, having, 100 * (having - without) / having, last["count"], last["bytes"] / 1e6,
                   last["write_seconds"]))
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
