#!/usr/bin/python3
"""Wu, Xu, Li, Xiong, Stanza, arXiv 1812.10624, in the form of its table 6: accuracy with and without, on CIFAR-10.

    bench/papers/stanza_cifar.py --data data [--at-once 2] [--reports FOLDER]    measures, and keeps what it found
    bench/papers/stanza_cifar.py --redraw                                        draws what is kept

--data is a folder with cifar10 (deploy/fetch_data.sh). A network of three convolutions and two linear layers trains
with real gradients by `tessera simulate`: with a parameter server on a node of its own, as the paper compares, with a
server beside each worker, and with its layers separated, where one more node has the linear layers and their server.
Workers with data are as many in all three, so that each step has the same rows.
"""
import os

import paper

BATCH = 64
LINEAR = 1024
LAYERS = ", ".join("{conv2d: {channels: %d, kernel: 3, padding: 1, bias: false}}, batch_norm, relu, "
                   "{max_pool: {kernel: 2}}" % channels for channels in (32, 64, 128))
LAYERS = "[%s, {linear: {units: %d}}, relu, {linear: {units: 10}}]" % (LAYERS, LINEAR)
OPTIMIZER = "{sgd: {learning_rate: 0.05, momentum: 0.9, weight_decay: 0.0005}}"
EPOCHS = 10
SEEDS = (1, 2)
WORKERS = (2, 4)
TARGET = 0.6
NETWORK = ["--bandwidth", "1Gbit", "--latency", "100us", "--step-time", "20ms"]
SHARED_MEMORY = ["--loopback-bandwidth", paper.SHARED_MEMORY]
WAYS = {"a server": "{data_parallel: {}}", "a server each": "{data_parallel: {}}",
        "Stanza": "{layer_separation: {linear_workers: 1, linear_servers: 1}}"}


def asked(way, workers, seed, options):
    """A job and the flags of its simulation."""
    job, data = ("digits.yaml", "optdigits") if options.quick else ("cifar_conv.yaml", "cifar10")
    keys = {"data.directory": os.path.abspath(os.path.join(options.data, data)), "model.layers": LAYERS,
            "model.input": "[1, 8, 8]" if options.quick else "[3, 32, 32]", "method": WAYS[way], "seed": seed,
            "train": "{batch_size: %d, epochs: %d, evaluate_every: 1, optimizer: %s}" % (
                BATCH, 1 if options.quick else EPOCHS, OPTIMIZER)}
    nodes = workers + (way == "Stanza")
    flags = ["--workers", nodes, "--servers", 1 if way == "a server" else nodes]
    if way != "a server":
        flags += ["--machines", nodes]
    return os.path.join(paper.ROOT, "deploy/jobs", job), paper.sets(keys) + flags + NETWORK + SHARED_MEMORY


def measure(options, programs):
    if not options.data:
        raise SystemExit("stanza_cifar.py: --data: is absent, want the folder that deploy/fetch_data.sh fills")
    seeds, counts = (SEEDS[:1], WORKERS[:1]) if options.quick else (SEEDS, WORKERS)
    cells = [(workers, way) for workers in counts for way in WAYS]
    reports = programs.simulate_all([asked(way, workers, seed, options) for workers, way in cells for seed in seeds],
                                    options.at_once)
    rows = []
    for i, (workers, way) in enumerate(cells):
        of = reports[i * len(seeds):(i + 1) * len(seeds)]
        reached = [paper.crossing(report["history"], TARGET) for report in of]
        rows.append({"workers": workers, "way": way, "steps": of[0]["steps"],
                     "accuracies": [report["final"]["test_accuracy"] for report in of],
                     "seconds": paper.mean([report["train_seconds"] for report in of]),
                     "reached": None if None in reached else paper.mean(reached),
                     "link_bytes": of[0]["simulation"]["link_bytes"]})
    return {"batch": BATCH, "seeds": list(seeds), "rows": rows}


def draw(results):
    by_workers = {}
    for row in results["rows"]:
        by_workers.setdefault(row["workers"], {})[row["way"]] = row
    lines = []
    for workers, ways in sorted(by_workers.items()):
        for way, row in ways.items():
            percent = [100 * accuracy for accuracy in row["accuracies"]]
            lines.append(["%d workers%s, %s" % (workers, " + 1" if way == "Stanza" else "", way),
                          "%.2f" % paper.mean(percent), "%.2f to %.2f" % (min(percent), max(percent)),
                          "%.1f" % row["seconds"], "%.1f" % row["reached"] if row["reached"] else "never",
                          "%.1f" % (row["link_bytes"] / row["steps"] / 1e6),
                          "%.1f" % (ways["a server"]["seconds"] / row["seconds"])])
    return [paper.table(["table 6, CIFAR-10", "accuracy", "seeds", "s", "s to %.2f" % TARGET, "MB a step over links",
                         "times as fast as a server"], lines)], []


def add_flags(parser):
    parser.add_argument("--data", help="the folder of the data sets")
    parser.add_argument("--at-once", type=int, default=os.cpu_count(), help="jobs that are computed at a time")


if __name__ == "__main__":
    paper.run("stanza_cifar", __doc__, measure, draw, add_flags)
