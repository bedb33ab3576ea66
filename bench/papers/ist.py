#!/usr/bin/python3
"""Yuan et al., Independent Subnet Training, VLDB 2022: traffic, arithmetic and table 1's times, ours beside theirs.

    bench/papers/ist.py [--quick] [--data data/speech] [--reports FOLDER]    measures, and keeps what it found
    bench/papers/ist.py --redraw                                             draws what is kept

Traffic and arithmetic are the paper's formulas beside `tessera plan`. Seconds of a step come from `tessera simulate`
without mathematics at the paper's sizes, on K machines with a worker and a server each at 10 Gb/s. The time of a step
of the whole model is what the paper's own table implies: with n steps of c in both, an exchange of all parameters that
takes m = 2 (K-1)/K P / B, and every 20th one in local SGD, n (c + m) = D and n (c + m/20) = L. With --data the
network of two layers is trained to 0.75 with real gradients.
"""
import os

import numpy as np

import paper

SIZES = {"2 layers": (4096, 4096, 35), "3 layers": (4096, 8192, 8192, 35)}
# Seconds to 0.75 on Google Speech with 2, 4 and 8 nodes at 10 Gb/s.
TABLE1 = {
    "2 layers": {"data_parallel": (759, 1708, 2417), "local_sgd": (444, 742, 1110), "ist": (231, 167, 192)},
    "3 layers": {"data_parallel": (4534, 9340, 14886), "local_sgd": (2032, 4107, 6539), "ist": (812, 664, 1161)},
}
NODES = (2, 4, 8)
LOCAL_STEPS = 20
BATCH = 128
METHODS = {"data_parallel": "data_parallel: {}", "local_sgd": "local_sgd: {local_steps: %d}" % LOCAL_STEPS,
           "ist": "ist: {local_steps: %d}" % LOCAL_STEPS}
NETWORK = ["--bandwidth", "10Gbit", "--latency", "100us"]
LINK = 10 * paper.GIGABIT
SHARED_MEMORY = ["--loopback-bandwidth", paper.SHARED_MEMORY]
JOB = os.path.join(paper.ROOT, "deploy/jobs/speech.yaml")
ACCURACY = 0.75
SCALING = (1, 2, 4, 8, 16, 32, 64)


def layers(sizes):
    """The job's layers: a norm after each linear one makes biases useless, and the last one's has no vectors."""
    words = []
    for units in sizes[1:-1]:
        words.append("{linear: {units: %d, bias: false}}, batch_norm, relu" % units)
    words.append("{linear: {units: %d, bias: false}}, {batch_norm: {affine: false}}" % sizes[-1])
    return "[%s]" % ", ".join(words)


def products(sizes):
    return [a * b for a, b in zip(sizes, sizes[1:])]


def traffic(sizes, workers):
    """Floats that all workers together push in a gradient step, by the paper's formulas: data parallel, local SGD,
    IST."""
    of = products(sizes)
    whole = workers * sum(of)
    ist = (of[0] + of[-1]) / LOCAL_STEPS + sum(of[1:-1]) / (workers * LOCAL_STEPS)
    return {"data_parallel": whole, "local_sgd": whole / LOCAL_STEPS, "ist": ist}


def vectors(sizes):
    """Floats of the norms' vectors, which follow their neurons, in a step of all workers with subnets."""
    return 2 * sum(sizes[1:-1]) / LOCAL_STEPS


def arithmetic(sizes, workers):
    """Multiply-adds of all workers together in a step, forward, of a row: of whole models, and of subnets."""
    of = products(sizes)
    return {"data_parallel": workers * sum(of), "ist": of[0] + of[-1] + sum(of[1:-1]) / workers}


def implied(name, column):
    """What the paper's table says of a step: {its seconds, and how many of them data parallel and local SGD take}."""
    nodes = NODES[column]
    exchange = 2 * (nodes - 1) / nodes * 4 * sum(products(SIZES[name])) / LINK
    whole, local = (TABLE1[name][method][column] for method in ("data_parallel", "local_sgd"))
    steps = (whole - local) / (exchange * (1 - 1 / LOCAL_STEPS))
    return {"nodes": nodes, "exchange": exchange, "steps": steps, "step": whole / steps - exchange}


class Simulated:
    def __init__(self, programs, sizes, batch=BATCH):
        self.programs = programs
        folder = os.path.join(programs.folder, "zeros-%d" % sizes[0])
        os.makedirs(folder, exist_ok=True)
        rows = batch * max(NODES)
        np.save(os.path.join(folder, "x.npy"), np.zeros((rows, sizes[0]), np.uint8))
        np.save(os.path.join(folder, "y.npy"), (np.arange(rows) % sizes[-1]).astype(np.uint8))
        self.keys = {"data": "{format: npy, directory: %s, train: {features: x.npy, labels: y.npy}, "
                             "test: {features: x.npy, labels: y.npy}}" % folder,
                     "model": "{input: [%d], layers: %s}" % (sizes[0], layers(sizes)), "train.batch_size": batch}

    def step(self, method, nodes, seconds):
        """Seconds of a step, with its part of the exchange: the difference of two jobs."""
        every = 1 if method == "data_parallel" else LOCAL_STEPS
        lengths = (every, 3 * every)
        took = []
        for steps in lengths:
            keys = dict(self.keys, method="{%s}" % METHODS[method])
            keys["train"] = ("{batch_size: %s, steps: %d, evaluate_every: 1000000, "
                             "optimizer: {sgd: {learning_rate: 0.01}}}" % (keys.pop("train.batch_size"), steps))
            report = self.programs.simulate(
                JOB, *paper.sets(keys), "--workers", nodes, "--servers", nodes, "--machines", nodes, *NETWORK,
                *SHARED_MEMORY, "--step-time", "%dus" % round(1e6 * seconds), "--stub-gradients")
            took.append(report["train_seconds"])
        return (took[1] - took[0]) / (lengths[1] - lengths[0])


def planned(programs, sizes, workers):
    """Bytes that all workers push in a step of subnets, by `tessera plan`: exact where all parts have one size."""
    keys = {"model": "{input: [%d], layers: %s}" % (sizes[0], layers(sizes)), "method": "{%s}" % METHODS["ist"]}
    row = programs.plan(JOB, *paper.sets(keys), "--nodes", workers, "--servers", workers, *NETWORK, "--step-time",
                        "10ms")["ist"]
    return workers * row["push_bytes"] / LOCAL_STEPS


def trained(programs, data, method, nodes, seconds):
    """Minibatches of each worker and seconds to the accuracy, with real gradients, of the network of two layers. The
    data have 40 classes, where the paper's have 35."""
    sizes = SIZES["2 layers"][:-1] + (40,)
    keys = {"data.directory": os.path.abspath(data), "model.layers": layers(sizes), "method": "{%s}" % METHODS[method],
            "train.epochs": 60, "train.evaluate_every": 1, "train.target_accuracy": ACCURACY, "seed": 1}
    report = programs.simulate(JOB, *paper.sets(keys), "--workers", nodes, "--servers", nodes, "--machines", nodes,
                               *NETWORK, *SHARED_MEMORY, "--step-time", "%dus" % round(1e6 * seconds))
    return {value: paper.crossing(report["history"], ACCURACY, key)
            for value, key in (("steps", "step"), ("seconds", "seconds"))}


def measure(options, programs):
    found = {"traffic": [], "implied": {}, "steps": {}, "trained": {}}
    scaling, nodes = (SCALING, NODES)
    if options.quick:
        scaling, nodes = (1, 2), (2,)
    for name, sizes in SIZES.items():
        for workers in scaling:
            row = {"layers": name, "workers": workers, "formula": traffic(sizes, workers),
                   "arithmetic": arithmetic(sizes, workers), "planned": planned(programs, sizes, workers)}
            want = 4 * (row["formula"]["ist"] + vectors(sizes))
            assert abs(row["planned"] - want) < 1e-6 * want, (row, want)
            found["traffic"].append(row)
    small = {"2 layers": (64, 32, 10)} if options.quick else SIZES
    for name, sizes in small.items():
        found["implied"][name] = [implied(name, column) for column in range(len(NODES))]
        simulated = Simulated(programs, sizes, 8 if options.quick else BATCH)
        found["steps"][name] = {}
        for method in METHODS:
            found["steps"][name][method] = [
                simulated.step(method, k, found["implied"][name][NODES.index(k)]["step"]) for k in nodes]
            print("%s, %s: %s" % (name, method, found["steps"][name][method]), file=paper.sys.stderr, flush=True)
    if options.data:
        found["command"] = "bench/papers/ist.py --data data/speech"
        for method in METHODS:
            found["trained"][method] = [
                trained(programs, options.data, method, k, found["implied"]["2 layers"][i]["step"])
                for i, k in enumerate(nodes)]
            print("%s, trained: %s" % (method, found["trained"][method]), file=paper.sys.stderr, flush=True)
    return found


def traffic_table(results):
    rows = []
    for row in results["traffic"]:
        of = row["formula"]
        rows.append(["%s, %d" % (row["layers"], row["workers"])] +
                    [paper.megabytes(4 * of[method]) for method in METHODS] +
                    [paper.megabytes(row["planned"]), "%.0f" % (4 * of["data_parallel"] / row["planned"]),
                     "%.1f" % (row["arithmetic"]["data_parallel"] / row["arithmetic"]["ist"])])
    return paper.table(["MB a step of all workers, each way", "data parallel", "local SGD", "IST", "IST, by `plan`",
                        "times less than data parallel", "times less arithmetic"], rows)


def implied_table(results):
    rows = []
    for name, columns in results["implied"].items():
        # Forward, its gradient, and that of its inputs, which the first layer does not need.
        of = products(SIZES[name])
        work = 2 * BATCH * (3 * sum(of) - of[0])
        for each in columns:
            rows.append(["%s, %d" % (name, each["nodes"]), paper.seconds(each["exchange"]),
                         paper.seconds(each["step"]), "{:,.0f}".format(each["steps"]),
                         "%.0f" % (work / each["step"] / 1e9)])
    return paper.table(["what table 1 implies, nodes", "an exchange", "a step", "steps", "GFLOP/s in a step"], rows)


def table1(results):
    rows = []
    for name, by_method in results["steps"].items():
        for i, nodes in enumerate(NODES):
            said = [TABLE1[name][method][i] for method in METHODS]
            ours = [by_method[method][i] for method in METHODS]
            count = results["implied"][name][i]["steps"]
            cells = [paper.seconds(value) for value in ours]
            cells += ["%.1f" % (ours[0] / value) for value in ours[1:]]
            cells += ["%.1f" % (said[0] / value) for value in said[1:]]
            # So many times the others' steps IST may take, and reach the paper's time here.
            cells += ["%.1f" % (said[2] / ours[2] / count)]
            rows.append(["%s, %d" % (name, nodes)] + cells)
    return paper.table(["table 1, a step", "data parallel", "local SGD", "IST", "local SGD, times as fast",
                        "IST, times as fast", "the paper to 0.75: local SGD", "the paper: IST",
                        "steps that IST may need of each of theirs"], rows)


def trained_table(results):
    if not results["trained"]:
        return []
    rows = []
    for i, nodes in enumerate(NODES):
        ours = [results["trained"][method][i] for method in METHODS]
        said = [TABLE1["2 layers"][method][i] for method in METHODS]
        cells = ["%.0f" % each["steps"] if each["steps"] else "never" for each in ours]
        cells += ["%.3g s" % each["seconds"] if each["seconds"] else "never" for each in ours]
        cells += ["%.1f" % (ours[0]["seconds"] / each["seconds"]) if each["seconds"] else "" for each in ours[1:]]
        cells += ["%.1f" % (said[0] / value) for value in said[1:]]
        rows.append(["2 layers, %d" % nodes] + cells)
    return [paper.table(["table 1, trained to 0.75", "steps: data parallel", "local SGD", "IST",
                         "seconds: data parallel", "local SGD", "IST", "local SGD, times as fast",
                         "IST, times as fast", "the paper: local SGD", "IST"], rows)]


def pictures(results):
    labels, rows = [], []
    names = list(SIZES)
    for name in names:
        labels += ["%s: %s" % (name, each) for each in ("data parallel", "local SGD", "IST", "IST by plan")]
    by = {(row["layers"], row["workers"]): row for row in results["traffic"]}
    for workers in SCALING:
        rows.append([workers])
        for name in names:
            row = by[name, workers]
            rows[-1] += [4e-6 * row["formula"][method] for method in METHODS] + [1e-6 * row["planned"]]
    first = paper.Picture("ist_traffic", "workers", labels, rows, "--y", "MB a step of all workers, each way",
                          "--log-x", "--log-y")
    labels = ["%s: %s" % (name, each) for name in names for each in ("data parallel", "IST")]
    rows = [[workers] + [6e-9 * BATCH * by[name, workers]["arithmetic"][method] for name in names
                         for method in ("data_parallel", "ist")] for workers in SCALING]
    second = paper.Picture("ist_arithmetic", "workers", labels, rows, "--y", "GFLOP a step of all workers", "--log-x",
                           "--log-y")
    return [first, second]


def draw(results):
    if len(results["traffic"]) < len(SIZES) * len(SCALING):
        return [traffic_table(results)], []
    tables = [traffic_table(results), implied_table(results), table1(results)] + trained_table(results)
    return tables, pictures(results)


def add_flags(parser):
    parser.add_argument("--data", help="the speech data (deploy/fetch_data.sh --from DIR speech): train, too")


if __name__ == "__main__":
    paper.run("ist", __doc__, measure, draw, add_flags)
