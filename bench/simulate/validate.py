#!/usr/bin/env python3
"""Predicted against measured: the same jobs by `tessera simulate` and by `tessera run` on this machine.

    bench/simulate/validate.py --data data/fashion_mnist

The simulation is told of this machine: how many cores it has, and how fast a core moves bytes between two processes:
half of what `bench/exchange` measures, since both ends work on a transfer (--loopback-bandwidth). The time of a
minibatch it measures itself. Prints training seconds, medians over the rounds, and their ratio.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
METHODS = {
    "data_parallel": "data_parallel: {}",
    "local_sgd(20)": "local_sgd: {local_steps: 20}",
    "async_sgd": "async_sgd: {}",
    "ssp(2)": "ssp: {bound: 2}",
}


def report_of(command, prefix):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "report.json")
        done = subprocess.run(prefix + command + ["--quiet", "--report", path], capture_output=True, text=True,
                              timeout=600)
        if done.returncode != 0:
            sys.exit(done.stderr)
        with open(path) as file:
            return json.load(file)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=os.path.join(ROOT, "data/fashion_mnist"), help="the folder with the files")
    parser.add_argument("--tessera", default=os.path.join(ROOT, "bazel-bin/deploy/cli/tessera"))
    parser.add_argument("--cores", type=int, default=os.cpu_count())
    parser.add_argument("--loopback-bandwidth", default="1GB")
    parser.add_argument("--workers", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--prefix", default="", help="of every command: 'chrt -f 10' on a busy machine")
    options = parser.parse_args()
    prefix = options.prefix.split()
    print("%-14s %7s %10s %10s %7s" % ("method", "workers", "measured", "predicted", "ratio"))
    for name, method in METHODS.items():
        for workers in options.workers:
            job = [os.path.join(ROOT, "deploy/jobs/fashion_mnist.yaml"), "--set", "method={%s}" % method,
                   "--set", "data.directory=" + os.path.abspath(options.data), "--set",
                   "train={batch_size: %d, steps: %d, evaluate_every: 0, optimizer: {sgd: {learning_rate: 0.05}}}" % (
                       options.batch, options.steps), "--set", "cluster={servers: 2, workers: %d}" % workers]
            measured, predicted = [], []
            for _ in range(options.rounds):
                measured.append(report_of([options.tessera, "run"] + job, prefix)["train_seconds"])
                predicted.append(report_of(
                    [options.tessera, "simulate"] + job + [
                        "--machines", "1", "--cores-per-machine", str(options.cores), "--loopback-bandwidth",
                        options.loopback_bandwidth], prefix)["train_seconds"])
            real, simulated = statistics.median(measured), statistics.median(predicted)
            print("%-14s %7d %9.2fs %9.2fs %7.2f" % (name, workers, real, simulated, simulated / real), flush=True)


if __name__ == "__main__":
    main()
