#!/usr/bin/python3
"""Seconds of training to an accuracy on a simulated cluster, beside the figures of the paper on independent subnets.

    bench/training/simulated_table.py FOLDER [--step-time 1ms 70ms] [--workers 2 4 8] [--seeds 1] [--reports FOLDER]

FOLDER holds the speech data (deploy/fetch_data.sh --from DIR speech). Each of K machines has a worker and a server, and
links of 10 Gb/s, as in that paper. What the workers learn is computed for real, once for each method, K and seed; it
does not depend on how long things take, so that a simulation without mathematics gives the seconds for each step time.
Prints Markdown tables. Takes about a quarter of an hour of one core for each seed.
"""
import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
METHODS = {"data_parallel": "data_parallel: {}", "local_sgd(20)": "local_sgd: {local_steps: 20}",
           "ist(20)": "ist: {local_steps: 20}"}
# Yuan et al., VLDB 2022, table 1: seconds to 0.75 on Google Speech with 2, 4 and 8 nodes.
PAPER = {
    "2 layers": {"data_parallel": (759, 1708, 2417), "local_sgd(20)": (444, 742, 1110),
                 "ist(20)": (231, 167, 192)},
    "3 layers": {"data_parallel": (4534, 9340, 14886), "local_sgd(20)": (2032, 4107, 6539),
                 "ist(20)": (812, 664, 1161)},
}
PAPER_WORKERS = (2, 4, 8)


class Simulator:
    def __init__(self, options):
        self.options = options
        self.scratch = tempfile.TemporaryDirectory()
        self.folder = options.reports or self.scratch.name
        os.makedirs(self.folder, exist_ok=True)

    def report(self, method, workers, seed, step_time, epochs, stub):
        """The report of one simulated job; made once where --reports keeps them."""
        options = self.options
        settings = {"data.directory": os.path.abspath(options.folder), "method": "{%s}" % METHODS[method],
                    "seed": seed, "train.epochs": epochs, "train.evaluate_every": 1}
        if not stub:
            settings["train.target_accuracy"] = options.accuracy
        network = [options.bandwidth, options.latency]
        # Another question has another report.
        asked = hashlib.sha256(json.dumps([settings, network]).encode()).hexdigest()[:12]
        name = "%s-%d-%d-%s-%s-%s.json" % (method.split("(")[0], workers, seed, step_time, "stub" if stub else "real",
                                           asked)
        path = os.path.join(self.folder, name)
        if not os.path.exists(path):
            command = [options.tessera, "simulate", os.path.join(ROOT, "deploy/jobs/speech.yaml"), "--quiet",
                       "--workers", workers, "--servers", workers, "--machines", workers, "--bandwidth",
                       options.bandwidth, "--latency", options.latency, "--step-time", step_time, "--report",
                       path + ".part"] + ["--stub-gradients"] * stub
            for key, value in settings.items():
                command += ["--set", "%s=%s" % (key, value)]
            subprocess.run([str(word) for word in command], check=True)
            os.rename(path + ".part", path)
        with open(path) as file:
            return json.load(file)


def crossing(accuracies, values, accuracy):
    """The value at which the accuracy is first reached, linear between evaluations; None if never."""
    before = (0.0, 0.0)
    for now in zip(values, accuracies):
        if now[1] >= accuracy:
            return before[0] + (now[0] - before[0]) * (accuracy - before[1]) / (now[1] - before[1])
        before = now
    return None


def measure(simulator, method, workers):
    """Medians over the seeds: minibatches of each worker to the accuracy, and seconds by step time."""
    options = simulator.options
    steps, seconds = [], {time: [] for time in options.step_time}
    for seed in options.seeds:
        learned = simulator.report(method, workers, seed, options.step_time[0], options.epochs, False)["history"]
        accuracies = [entry["test_accuracy"] for entry in learned]
        steps.append(crossing(accuracies, [entry["step"] for entry in learned], options.accuracy))
        # Beyond where that one ended: the last epoch ends with a shorter exchange.
        epochs = int(learned[-1]["epoch"]) + 2
        for time in options.step_time:
            timed = simulator.report(method, workers, seed, time, epochs, True)["history"][:len(learned)]
            if [entry["step"] for entry in timed] != [entry["step"] for entry in learned]:
                sys.exit("%s, %d workers: the evaluations of the two simulations are not at the same steps" %
                         (method, workers))
            seconds[time].append(crossing(accuracies, [entry["seconds"] for entry in timed], options.accuracy))
    return median(steps), {time: median(values) for time, values in seconds.items()}


def median(values):
    known = [value for value in values if value is not None]
    return statistics.median(known) if len(known) * 2 > len(values) else None


def row(name, cells):
    print("| %s | %s |" % (name, " | ".join(cells)))


def header(title, workers):
    row(title, ["%d workers" % k for k in workers])
    print("|---|%s" % ("---:|" * len(workers)))


def ratios(values, base):
    """Seconds, and of others the factor that they are faster than `base`."""
    cells = []
    for value, reference in zip(values, base):
        text = "never" if value is None else ("%.3g" % value if value < 1000 else "%.0f" % value)
        if value is not None and reference is not None and values is not base:
            text += " (%.1f x)" % (reference / value)
        cells.append(text)
    return cells


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="the speech data")
    parser.add_argument("--tessera", default=os.path.join(ROOT, "bazel-bin/deploy/cli/tessera"))
    parser.add_argument("--step-time", nargs="+", default=["1ms", "70ms"], help="of the whole model")
    parser.add_argument("--workers", type=int, nargs="+", default=list(PAPER_WORKERS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--accuracy", type=float, default=0.75)
    parser.add_argument("--epochs", type=int, default=100, help="at most")
    parser.add_argument("--bandwidth", default="10Gbit")
    parser.add_argument("--latency", default="100us")
    parser.add_argument("--reports", help="a folder that keeps the reports, so that a run can be taken up again")
    options = parser.parse_args()
    simulator = Simulator(options)
    results = {}
    for workers in options.workers:
        for method in METHODS:
            results[method, workers] = measure(simulator, method, workers)
            print("%s, %d workers: %s" % (method, workers, results[method, workers]), file=sys.stderr, flush=True)
    header("minibatches of each worker to %g" % options.accuracy, options.workers)
    for method in METHODS:
        steps = [results[method, k][0] for k in options.workers]
        row(method, ["never" if s is None else "%.0f" % s for s in steps])
    for time in options.step_time:
        print()
        header("seconds, %s a step" % time, options.workers)
        base = None
        for method in METHODS:
            values = [results[method, k][1][time] for k in options.workers]
            base = base or values
            row(method, ratios(values, base))
    for name, figures in PAPER.items():
        print()
        header("seconds, the paper, " + name, PAPER_WORKERS)
        for method in METHODS:
            row(method, ratios(figures[method], figures["data_parallel"]))


if __name__ == "__main__":
    main()
