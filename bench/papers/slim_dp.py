#!/usr/bin/python3
"""Sun, Chen, Bian, Liu, Liu, Slim-DP, AAAI 2018 (arXiv 1709.09393): its two tables' form on networks of ours.

    bench/papers/slim_dp.py --data data [--at-once 2] [--reports FOLDER]    measures, and keeps what it found
    bench/papers/slim_dp.py --redraw                                        draws what is kept

--data is a folder with fashion_mnist and speech (deploy/fetch_data.sh). Every row is a job of `tessera simulate` with
real gradients, one local step between exchanges, and as many machines, each with a worker and a server, as workers.
Accuracies, bytes and simulated seconds depend on no machine. *Plain* is the paper's Plain-DP: local_sgd, whose first
step of a plain SGD is data_parallel's. *Quantised* is its Quant-DP, whose gradients and parameters have 8 bits.
"""
import math
import os
import statistics

import paper

# What a network is trained on, by name: the job, its keys, the link and a step's time (so that plain spends about three
# quarters of its time exchanging with 8 workers, as the paper's networks do), and seeds by workers.
DATA = {
    "Fashion-MNIST": {
        "job": "fashion_mnist.yaml", "folder": "fashion_mnist",
        "keys": {"train.batch_size": 64, "train.epochs": 6},
        "network": ["--bandwidth", "1Gbit", "--latency", "100us", "--step-time", "10ms"],
        "seeds": {4: (1, 2), 8: (1, 2)},
    },
    "speech": {
        "job": "speech.yaml", "folder": "speech",
        "keys": {"train.batch_size": 64, "train.epochs": 12},
        "network": ["--bandwidth", "10Gbit", "--latency", "100us", "--step-time", "30ms"],
        "seeds": {4: (1,), 8: (1,)},
    },
}
QUICK = {
    "Fashion-MNIST": {
        "job": "digits.yaml", "folder": "optdigits", "keys": {"train.batch_size": 16, "train.epochs": 2},
        "network": ["--bandwidth", "100Mbit", "--latency", "100us", "--step-time", "2ms"],
        "seeds": {4: (1, 2)},
    },
}
PLAIN = "plain"
HELD = {"error_feedback": "true"}


def slim(alpha, beta, every, codec=None):
    return ("{slim_dp: {alpha: %g, beta: %g, local_steps: 1, core_every: %d}}" % (alpha, beta, every), codec or {})


# The method of each row, and its codec.
ROWS = {
    PLAIN: ("{local_sgd: {local_steps: 1}}", {}),
    "quantised, up": ("{quant_dp: {}}", {}),
    "quantised, both ways": ("{quant_dp: {}}", {"push": "qsgd", "pull": "qsgd"}),
    "0.2, 0.1, a core in 50": slim(0.2, 0.1, 50),
    "0.2, 0.1, in 200": slim(0.2, 0.1, 200),
    "0.2, 0.1, in 2,000": slim(0.2, 0.1, 2000),
    "0.3, 0.15, in 50": slim(0.3, 0.15, 50),
    "0.5, 0.25, in 50": slim(0.5, 0.25, 50),
    "no exploration: 0.2, 0.2, in 50": slim(0.2, 0.2, 50),
    "no exploration: 0.2, 0.2, in 2,000": slim(0.2, 0.2, 2000),
    "no core: 0.2, 0, in 50": slim(0.2, 0, 50),
    "no core: 0.2, 0, in 2,000": slim(0.2, 0, 2000),
    "held back: 0.2, 0.1, in 50": slim(0.2, 0.1, 50, HELD),
    "held back: 0.2, 0.1, in 2,000": slim(0.2, 0.1, 2000, HELD),
    "held back, no exploration: 0.2, 0.2, in 2,000": slim(0.2, 0.2, 2000, HELD),
    "held back, no core: 0.2, 0, in 2,000": slim(0.2, 0, 2000, HELD),
}
# The rows that speech is trained with, whose exchanges take long to compute, by workers.
SPEECH_ROWS = {
    4: (PLAIN, "quantised, both ways", "0.2, 0.1, a core in 50", "0.2, 0.1, in 2,000", "0.3, 0.15, in 50",
        "no exploration: 0.2, 0.2, in 50", "no core: 0.2, 0, in 50", "held back: 0.2, 0.1, in 50"),
    8: (PLAIN, "quantised, both ways", "0.2, 0.1, a core in 50", "held back: 0.2, 0.1, in 50"),
}
# The share of plain's accuracy that a row is timed to.
SHARE = 0.99


def flags(data, folder, row, workers, seed):
    method, codec = ROWS[row]
    keys = dict(data["keys"], method=method, seed=seed)
    keys["data.directory"] = os.path.abspath(os.path.join(folder, data["folder"]))
    if codec:
        keys["codec"] = "{%s}" % ", ".join("%s: %s" % each for each in codec.items())
    return paper.sets(keys) + ["--workers", workers, "--servers", workers, "--machines", workers] + data["network"]


def cell(reports, plain):
    """What is kept of one row: means over the seeds of `reports`, beside plain's of the same seeds."""
    workers = len(reports[0]["phases"])
    scores, plains = ([report["final"]["test_accuracy"] for report in each] for each in (reports, plain))
    differences = [a - b for a, b in zip(scores, plains)]

    def phase(*names):
        return paper.mean([sum(worker[name + "_seconds"] for name in names) for report in reports
                           for worker in report["phases"]])

    reached = [paper.crossing(report["history"], SHARE * score) for report, score in zip(reports, plains)]
    error = statistics.stdev(differences) / math.sqrt(len(differences)) if len(differences) > 1 else None
    return {"accuracy": paper.mean(scores), "difference": paper.mean(differences), "error": error,
            "seconds": paper.mean([report["train_seconds"] for report in reports]),
            "computing": phase("compute"), "exchanging": phase("pull", "push", "wait"),
            "reached": None if None in reached else paper.mean(reached),
            "push": paper.mean([report["traffic"]["push_payload_bytes"] for report in reports]) / workers,
            "pull": paper.mean([report["traffic"]["pull_payload_bytes"] for report in reports]) / workers}


def rows_of(name, workers):
    return SPEECH_ROWS[workers] if name == "speech" else tuple(ROWS)


def measure(options, programs):
    found = {"cells": []}
    if options.sets != list(DATA):
        found["command"] = "bench/papers/slim_dp.py --sets %s" % " ".join(options.sets)
    sets = QUICK if options.quick else {name: DATA[name] for name in options.sets}
    if not options.data:
        raise SystemExit("slim_dp.py: --data: is absent, want the folder that deploy/fetch_data.sh fills")
    for name, data in sets.items():
        job = os.path.join(paper.ROOT, "deploy/jobs", data["job"])
        for workers, seeds in data["seeds"].items():
            rows = rows_of(name, workers)
            asked = [(job, flags(data, options.data, row, workers, seed)) for row in rows for seed in seeds]
            reports = programs.simulate_all(asked, options.at_once)
            by_row = {row: reports[i * len(seeds):(i + 1) * len(seeds)] for i, row in enumerate(rows)}
            for row in rows:
                found["cells"].append(dict(cell(by_row[row], by_row[PLAIN]), data=name, workers=workers, row=row,
                                           seeds=len(seeds)))
            print("%s, %d workers" % (name, workers), file=paper.sys.stderr, flush=True)
    return found


def groups(results):
    """(what a table is of, its cells, plain's)."""
    cells = results["cells"]
    for name, workers in dict.fromkeys((each["data"], each["workers"]) for each in cells):
        own = [each for each in cells if (each["data"], each["workers"]) == (name, workers)]
        yield "%s, %d workers" % (name, workers), own, next(each for each in own if each["row"] == PLAIN)


def points(each):
    text = "%+.2f" % (100 * each["difference"])
    return text if each["error"] is None else "%s ± %.2f" % (text, 100 * each["error"])


def tables(results):
    for title, cells, plain in groups(results):
        rows = []
        for each in cells:
            moved = (each["push"] + each["pull"]) / (plain["push"] + plain["pull"])
            reached = each["reached"]
            rows.append([each["row"], "%.2f" % (100 * each["accuracy"]), "" if each is plain else points(each),
                         "%.3f" % moved, "%.1f" % each["computing"], "%.1f" % each["exchanging"],
                         "%+.0f %%" % (100 * (each["exchanging"] / plain["exchanging"] - 1)),
                         "%.1f" % (plain["reached"] / reached) if reached else "never"])
        yield paper.table([title, "accuracy", "points", "bytes", "s computing", "s exchanging",
                           "exchanging, against plain", "times as fast to plain's"], rows)


def draw(results):
    return list(tables(results)), []


def add_flags(parser):
    parser.add_argument("--data", help="the folder of the data sets")
    parser.add_argument("--sets", nargs="+", default=list(DATA), choices=list(DATA), help="of these alone")
    parser.add_argument("--at-once", type=int, default=os.cpu_count(), help="jobs that are computed at a time")


if __name__ == "__main__":
    paper.run("slim_dp", __doc__, measure, draw, add_flags)
