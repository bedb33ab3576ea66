#!/usr/bin/python3
"""Wu, Xu, Li, Xiong, Stanza, arXiv 1812.10624: its table 7, an MLP, on real processes behind limited links.

    sudo bench/papers/stanza_mlp.py [--rate 100mbit] [--nodes 3 5] [--quick]     measures, and keeps what it found
    bench/papers/stanza_mlp.py --redraw                                          draws what is kept

The MLP has hidden layers of 1024, 1024 and 4096 and is cut behind the second. Each node is a network namespace with a
link of its own (bench/network/limited.py), and N nodes train in three ways: N - 1 workers and a parameter server, as
the paper compares; N workers with a server beside each, our own data_parallel at its best; and layer separation, where
N - 1 workers have the layers in front and share them among servers beside them, and the last one has the others and a
server beside it. Seconds of a step are the difference of two jobs that begin and end alike. Wants root.
"""
import os
import sys

import numpy as np

import paper

sys.path.insert(0, os.path.join(paper.ROOT, "bench/network"))
import limited  # noqa: E402: it lies in another folder

BATCH = 64
INPUTS = 784
HIDDEN = (1024, 1024, 4096)
CLASSES = 10
LAYERS = ", ".join("{linear: {units: %d}}, relu" % units for units in HIDDEN) + ", {linear: {units: %d}}" % CLASSES
CUT = "layers.4"
# What the paper has of its table 7, over a parameter server.
PAPER = (3.1, 4.2)
JOB = "deploy/jobs/digits.yaml"
STEPS = (4, 12)
WAYS = ("server", "shared", "stanza")


def sizes():
    """Parameters in front of the cut, and behind it."""
    widths = (INPUTS,) + HIDDEN + (CLASSES,)
    layers = [(inputs + 1) * outputs for inputs, outputs in zip(widths, widths[1:])]
    return sum(layers[:2]), sum(layers[2:])


def data(folder):
    """Pictures of noise: what they show changes no time."""
    os.makedirs(folder, exist_ok=True)
    dice = np.random.RandomState(1)
    np.save(os.path.join(folder, "x.npy"), dice.randint(0, 256, (2048, INPUTS)).astype(np.uint8))
    np.save(os.path.join(folder, "y.npy"), dice.randint(0, CLASSES, 2048))
    return ("{format: npy, directory: %s, train: {features: x.npy, labels: y.npy}, "
            "test: {features: x.npy, labels: y.npy}}" % folder)


def crossing(way, nodes):
    """Bytes of values that cross links in a step, all links together."""
    front, behind = sizes()
    n = nodes - 1
    if way == "server":
        return 4 * 2 * n * (front + behind)
    if way == "shared":
        # Of N workers each has a part on its own node; parts differ by rows, so that this is exact in sum.
        return 4 * 2 * n * (front + behind)
    return 4 * 2 * (n - 1) * front + 4 * n * BATCH * (2 * HIDDEN[1] + 1)


def measured(options, network, found, way, nodes):
    """Seconds, and bytes over links, of a step."""
    workers = nodes - 1 if way == "server" else nodes
    links = [nodes - 1] if way == "server" else list(range(nodes))
    method = "{data_parallel: {}}"
    if way == "stanza":
        method = "{layer_separation: {linear_workers: 1, linear_servers: 1, cut: %s}}" % CUT
    reports = []
    for steps in options.steps:
        keys = {"data": found["data"], "model.input": "[%d]" % INPUTS, "model.layers": "[%s]" % LAYERS,
                "method": method, "cluster.workers": workers, "train.epochs": 0, "train.steps": steps,
                "train.batch_size": BATCH, "train.evaluate_every": 1000000,
                "train.optimizer": "{sgd: {learning_rate: 0.001}}"}
        reports.append(limited.run(options, network, os.path.join(paper.ROOT, JOB), paper.sets(keys), workers, links))
    few, many = reports
    count = options.steps[1] - options.steps[0]

    def bytes_of(report):
        traffic = report["traffic"]
        all_values = sum(traffic[key] for key in ("pull_payload_bytes", "push_payload_bytes", "other_payload_bytes"))
        return all_values - traffic["shared_memory_bytes"]

    rows = BATCH * (nodes if way == "shared" else nodes - 1)
    step = (many["train_seconds"] - few["train_seconds"]) / count
    row = {"way": way, "nodes": nodes, "seconds": step, "rows_per_second": rows / step,
           "link_bytes": (bytes_of(many) - bytes_of(few)) / count, "formula_bytes": crossing(way, nodes)}
    print("%(nodes)d nodes, %(way)s: %(seconds).3f s a step, %(rows_per_second).0f rows/s, %(link_bytes).0f bytes over "
          "links, %(formula_bytes)d by the formula" % row, file=sys.stderr, flush=True)
    return row


def measure(options, programs):
    options.tessera = programs.tessera
    options.steps = (2, 4) if options.quick else STEPS
    counts = options.nodes[:1] if options.quick else options.nodes
    network = limited.network_of(options, max(counts))
    rate = min(min(network.probe(upwards)) for upwards in (True, False))
    found = {"rate": options.rate, "measured_mbit": round(rate, 1), "batch": BATCH,
             "data": data(os.path.join(programs.folder, "noise")), "rows": []}
    for nodes in counts:
        for way in WAYS:
            found["rows"].append(measured(options, network, found, way, nodes))
    del found["data"]
    return found


def draw(results):
    by_nodes = {}
    for row in results["rows"]:
        by_nodes.setdefault(row["nodes"], {})[row["way"]] = row
    rows = []
    for nodes, ways in sorted(by_nodes.items()):
        stanza = ways["stanza"]
        rows.append([
            "%d + 1" % (nodes - 1)] + [paper.seconds(ways[way]["seconds"]) for way in WAYS] +
            ["%.1f" % (stanza["rows_per_second"] / ways[way]["rows_per_second"]) for way in WAYS[:2]] +
            ["%.1f to %.1f" % PAPER] +
            ["%.1f" % (ways[way]["link_bytes"] / 1e6) for way in WAYS] +
            ["%.4f" % (stanza["link_bytes"] / stanza["formula_bytes"])])
    return [paper.table(["table 7, nodes", "a step: a server", "a server each", "Stanza", "rows/s: over a server",
                         "over a server each", "paper", "MB a step over links: a server", "a server each", "Stanza",
                         "over the formula"], rows)], []


def add_flags(parser):
    parser.add_argument("--rate", default="100mbit", help="of each node's link, each way, as tc writes it")
    parser.add_argument("--nodes", nargs="+", type=int, default=[3, 5])
    parser.add_argument("--seconds-max", type=float, default=600, help="of one job by the wall clock")


if __name__ == "__main__":
    paper.run("stanza_mlp", __doc__, measure, draw, add_flags)
