#!/usr/bin/python3
"""Wu, Xu, Li, Xiong, Stanza, arXiv 1812.10624: its table 2 and its figures 6, 7 and 8, ours beside theirs.

    bench/papers/stanza.py [--quick] [--reports FOLDER]     measures, and keeps what it found
    bench/papers/stanza.py --redraw                         draws what is kept

Parameters come from `tessera plan`, times and bytes from `tessera simulate` without mathematics on N nodes: a
parameter server with n workers, and layer separation with n workers on convolutions, with servers in several places.
The paper's two models stand beside them. The paper's nodes have a V100 each; how long they take for a step is not in
our notes of it, so that two guesses are tried: half of the card's arithmetic, and what the paper's own speedups over a
parameter server imply by its own models.
"""
import os

import numpy as np
import yaml

import paper

BATCH = 64    # S: rows of a worker; our notes of the paper have none
LATENCY = "100us"
FOLD_RATE = "4GB"
# What the paper has of its figure 6: times a parameter server's rows a second, with 10 workers at 10 Gb/s.
PAPER_SPEEDUPS = {"alexnet": 13.9, "vgg16": 8.2}
PAPER_WORKERS, PAPER_BANDWIDTH = 10, 10
HALF_V100 = 15.7e12 / 2
NETWORKS = ("alexnet", "vgg16")
# Those of which the parameters are counted, too: convolutions have most of them.
OTHERS = ("googlenet", "inception3", "resnet50", "resnet152")
NAMES = {"alexnet": "AlexNet", "vgg16": "VGG-16", "googlenet": "GoogLeNet", "inception3": "Inception-v3",
         "resnet50": "ResNet-50", "resnet152": "ResNet-152"}
# Where a step's time is from: the paper's speedups by its own models, or the card's arithmetic.
KINDS = ("implied", "arithmetic")
STEPS = (1, 3)    # a step is the difference of two jobs, which begin and end alike
COPIES = ["--loopback-bandwidth", paper.SHARED_MEMORY]
NO_COPIES = ["--loopback-bandwidth", 0, "--message-cost", "0s"]
# Where servers are, and flags of the simulation: on nodes of their own, beside the linear workers, or beside each
# worker, of which those beside the linear workers have the linear layers alone (linear_servers).
PLACES = {
    "apart": ("apart", COPIES),
    "beside": ("beside", COPIES),
    "each": ("each", COPIES),
    "kept": ("each", NO_COPIES + ["--server-rate", 0]),
}

# What keeps "each" from "kept": each of its costs left out by itself, and both; and on nodes whose memory copies and
# folds at three times the rate of the cloud machine that the rates are of.
WITHOUT = {
    "each": PLACES["each"],
    "without folding": ("each", COPIES + ["--server-rate", 0]),
    "without copies": ("each", NO_COPIES),
    "kept": PLACES["kept"],
    "copies at 5.7 GB/s, folding at 12": ("each", ["--loopback-bandwidth", "5700MB", "--server-rate", "12GB"]),
}


def job_of(network):
    return os.path.join(paper.ROOT, "deploy/jobs/imagenet_%s.yaml" % network)


class Network:
    """A network whose layers follow each other: parameters, values at the cut, and multiply-adds of a row."""

    def __init__(self, name):
        with open(job_of(name)) as file:
            model = yaml.safe_load(file)["model"]
        channels, height, width = model["input"]
        self.parameters = {"conv": 0, "linear": 0}
        self.forward = {"conv": 0, "linear": 0}
        self.step = {"conv": 0, "linear": 0}
        self.cut = None
        places = 1
        for layer in model["layers"]:
            kind, keys = (layer, {}) if isinstance(layer, str) else next(iter(layer.items()))
            if kind in ("conv2d", "max_pool"):
                size = keys["kernel"]
                stride = keys.get("stride", 1 if kind == "conv2d" else size)
                height, width = ((side + 2 * keys.get("padding", 0) - size) // stride + 1 for side in (height, width))
            if kind == "conv2d":
                outputs, half, places = keys["channels"], "conv", height * width
                weights = outputs * channels * size * size
                channels = outputs
            elif kind == "linear":
                self.cut = self.cut or channels * height * width
                outputs, half, places = keys["units"], "linear", 1
                weights = outputs * channels * height * width
                channels, height, width = outputs, 1, 1
            else:
                continue
            self.parameters[half] += weights + outputs
            self.forward[half] += weights * places
            # Forward, its gradient, and that of its inputs, which the first layer does not need.
            self.step[half] += (3 if self.step["conv"] else 2) * weights * places
        self.linear_share = self.step["linear"] / sum(self.step.values())

    def size(self):
        return sum(self.parameters.values())


def rounds(n):
    """Of the paper's all-reduce among n (section 4.1.2)."""
    whole = n.bit_length() - 1
    return whole if n == 1 << whole else whole + 2


def paper_stanza(network, n_c, n_f, gigabits, step):
    """Seconds of a step by the paper's model. `step` is of the whole network."""
    rate = gigabits * 1e9 / 32
    computing = step * (1 - network.linear_share) + n_c / n_f * step * network.linear_share
    return (computing + 2 * n_c * network.cut * BATCH / (n_f * rate) +
            network.parameters["conv"] * rounds(n_c) / rate)


def paper_server(network, n_w, n_s, gigabits, step):
    return 2 * n_w * network.size() / (n_s * gigabits * 1e9 / 32) + step


def implied_step(name, network):
    """The step with which the paper's models give the paper's speedup: both are linear in it."""
    n = PAPER_WORKERS
    want = PAPER_SPEEDUPS[name]
    still = [model(network, n, 1, PAPER_BANDWIDTH, 0) for model in (paper_server, paper_stanza)]
    slope = [model(network, n, 1, PAPER_BANDWIDTH, 1) - s for model, s in zip((paper_server, paper_stanza), still)]
    return (still[0] - want * still[1]) / (want * slope[1] - slope[0])


def best_linear(network, nodes, gigabits, step):
    """Of so many nodes those that are linear, by the paper's model."""
    return max(range(1, nodes // 2 + 1),
               key=lambda n_f: (nodes - n_f) / paper_stanza(network, nodes - n_f, n_f, gigabits, step))


class Simulated:
    """Simulated jobs on a data set of nothing but zeros, which nobody reads."""

    def __init__(self, programs, batch=BATCH, rows=80 * BATCH):
        self.programs = programs
        self.batch = batch
        folder = os.path.join(programs.folder, "zeros")
        os.makedirs(folder, exist_ok=True)
        np.lib.format.open_memmap(os.path.join(folder, "x.npy"), mode="w+", dtype=np.uint8,
                                  shape=(rows, 3, 224, 224))
        np.save(os.path.join(folder, "y.npy"), np.arange(rows) % 1000)
        self.keys = {"data": "{format: npy, directory: %s, train: {features: x.npy, labels: y.npy}, "
                             "test: {features: x.npy, labels: y.npy}, memory: 1MiB}" % folder}

    def job(self, name, method, workers, servers, gigabits, step, steps, flags):
        keys = dict(self.keys, method="{%s}" % method,
                    train="{batch_size: %d, steps: %d, evaluate_every: 1000000, "
                          "optimizer: {sgd: {learning_rate: 0.01}}}" % (self.batch, steps))
        return self.programs.simulate(
            job_of(name), *paper.sets(keys), "--workers", workers, "--servers", servers, "--bandwidth",
            "%gGbit" % gigabits, "--latency", LATENCY, "--step-time", "%dus" % round(1e6 * step), "--stub-gradients",
            *flags)

    def step(self, *question):
        """Seconds of a step, and bytes that cross links in it."""
        few, many = (self.job(*question[:-1], steps, question[-1]) for steps in STEPS)
        count = STEPS[1] - STEPS[0]
        return {"seconds": (many["train_seconds"] - few["train_seconds"]) / count,
                "bytes": round((many["simulation"]["link_bytes"] - few["simulation"]["link_bytes"]) / count)}

    def server(self, name, n_w, n_s, gigabits, step):
        return self.step(name, "data_parallel: {}", n_w, n_s, gigabits, step, ["--server-rate", FOLD_RATE])

    def stanza(self, name, n_c, n_f, gigabits, step, place):
        nodes = n_c + n_f
        where, flags = place
        keys, servers = "linear_workers: %d" % n_f, list(range(n_c, nodes))
        if where == "each":
            keys, servers = keys + ", linear_servers: %d" % n_f, list(range(nodes))
        if where != "apart":
            flags = flags + ["--machines", nodes, "--server-machines", ",".join(map(str, servers))]
        return self.step(name, "layer_separation: {%s}" % keys, nodes, len(servers), gigabits, step, flags)


def counted(name, network, programs):
    """Parameters by `tessera plan`; what is counted here must agree."""
    plan = programs.plan(job_of(name), *paper.sets({"method": "{layer_separation: {linear_workers: 1}}"}), "--nodes",
                         2, "--servers", 1, "--bandwidth", 0, "--step-time", "1ms")
    whole = plan["data_parallel"]["push_bytes"] // 4
    # One worker of two has each half, and the mean is over both: what the linear one moves is its parameters, and the
    # activations of the other, which the other moves, too.
    halves = plan["layer_separation"]
    linear_less_front = (halves["linear_step_bytes"] - halves["front_step_bytes"]) // 8
    linear = round((whole + linear_less_front) / 2)
    row = {"network": name, "conv_parameters": whole - linear, "linear_parameters": linear}
    if network:
        assert network.parameters == {"conv": whole - linear, "linear": linear}, (name, network.parameters, row)
        row.update(conv_multiply_adds=network.forward["conv"], linear_multiply_adds=network.forward["linear"],
                   cut=network.cut)
    return row


def planned(simulated, name, n_c, n_f, gigabits, step):
    """Seconds of a step by `tessera plan`; without linear_servers all servers are on nodes of their own."""
    seconds = {}
    halves = "layer_separation: {linear_workers: %d}" % n_f
    each = "layer_separation: {linear_workers: %d, linear_servers: %d}" % (n_f, n_f)
    for key, method, workers, servers in (("data_parallel", "data_parallel: {}", n_c, n_f),
                                          ("layer_separation", halves, n_c + n_f, n_f),
                                          ("each", each, n_c + n_f, n_c + n_f)):
        plan = simulated.programs.plan(
            job_of(name), *paper.sets({"method": "{%s}" % method, "train.batch_size": simulated.batch}), "--nodes",
            workers, "--servers", servers, "--bandwidth", "%gGbit" % gigabits, "--latency", LATENCY, "--step-time",
            "%dus" % round(1e6 * step), "--server-rate", FOLD_RATE, *COPIES)
        seconds[key] = plan[method.split(":")[0]]["step_seconds"]
    return seconds


def cell(simulated, name, network, n_c, n_f, gigabits, step, places):
    row = {"network": name, "n_c": n_c, "n_f": n_f, "gigabits": gigabits, "step": step,
           "paper_server": paper_server(network, n_c, n_f, gigabits, step),
           "paper_stanza": paper_stanza(network, n_c, n_f, gigabits, step),
           "planned": planned(simulated, name, n_c, n_f, gigabits, step),
           "server": simulated.server(name, n_c, n_f, gigabits, step)}
    for place in places:
        row[place] = simulated.stanza(name, n_c, n_f, gigabits, step, PLACES[place])
    print("%(network)s %(n_c)d + %(n_f)d at %(gigabits)g Gb/s: done" % row, file=paper.sys.stderr, flush=True)
    return row


def measure(options, programs):
    networks = {name: Network(name) for name in NETWORKS}
    steps = {name: {"implied": round(implied_step(name, networks[name]), 6),
                    "arithmetic": round(2 * BATCH * sum(networks[name].step.values()) / HALF_V100, 6)}
             for name in NETWORKS}
    found = {"batch": BATCH, "steps": steps,
             "table2": [counted(name, networks.get(name), programs) for name in NETWORKS + OTHERS]}
    if options.quick:
        simulated = Simulated(programs, batch=2, rows=64)
        found["figure6"] = [cell(simulated, "alexnet", networks["alexnet"], 2, 1, 10, steps["alexnet"]["implied"],
                                 ["beside", "each"])]
        found.update(without={}, figure8=[])
        return found
    simulated = Simulated(programs)
    found["figure6"] = []
    for kind in KINDS:
        for name in NETWORKS:
            for n in ((2, 4, 8, 10) if kind == "implied" else (10,)):
                places = [place for place in PLACES if place != "apart" or n == PAPER_WORKERS]
                row = cell(simulated, name, networks[name], n, 1, PAPER_BANDWIDTH, steps[name][kind], places)
                found["figure6"].append(dict(row, kind=kind))
    step = steps["alexnet"]["implied"]
    found["without"] = {name: simulated.stanza("alexnet", PAPER_WORKERS, 1, PAPER_BANDWIDTH, step, place)["seconds"]
                        for name, place in WITHOUT.items()}
    found["figure8"] = []
    for gigabits in (25, 40, 100):
        for nodes in (5, 20, 80) if gigabits == 40 else (5, 10, 20, 40, 80):
            n_f = best_linear(networks["alexnet"], nodes, gigabits, step)
            found["figure8"].append(cell(simulated, "alexnet", networks["alexnet"], nodes - n_f, n_f, gigabits, step,
                                         ["each", "kept"]))
    return found


def table2(results):
    rows = []
    for row in results["table2"]:
        conv, linear = row["conv_parameters"], row["linear_parameters"]
        cells = [NAMES[row["network"]], "{:,}".format(conv), "{:,}".format(linear),
                 "%.1f %%" % (100 * linear / (conv + linear))]
        work = [row.get("conv_multiply_adds"), row.get("linear_multiply_adds")]
        cells += ["{:,.1f}".format(count / 1e6) if count else "" for count in work]
        rows.append(cells + ["%.1f %%" % (100 * work[1] / sum(work)) if work[0] else ""])
    return paper.table(["table 2", "parameters of convolutions", "of linear layers", "linear, of all",
                        "M multiply-adds of a row, convolutions", "linear layers", "linear, of all"], rows)


def who(row):
    return "%s, %d + %d" % (NAMES[row["network"]], row["n_c"], row["n_f"])


def speedup(row, place):
    return row["server"]["seconds"] / row[place]["seconds"]


def figure6(results, kind):
    rows = []
    for row in results["figure6"]:
        if row.get("kind") != kind:
            continue
        said = PAPER_SPEEDUPS[row["network"]] if row["n_c"] == PAPER_WORKERS else None
        ratios = [said, row["paper_server"] / row["paper_stanza"], row["paper_server"] / row["each"]["seconds"],
                  speedup(row, "kept"), speedup(row, "each"), speedup(row, "beside"),
                  "apart" in row and speedup(row, "apart")]
        rows.append([who(row), paper.seconds(row["step"])] + ["%.1f" % each if each else "" for each in ratios])
    return paper.table(["figure 6, a step %s" % kind, "takes", "paper", "its models", "its server, ours each",
                        "both simulated: kept", "each", "beside", "apart"], rows)


def bytes_table(results):
    """What crosses links in a step, against the paper's formulas."""
    parts = {row["network"]: row for row in results["table2"]}
    rows = []
    for row in results["figure6"]:
        if row["kind"] != "implied":
            continue
        counts, n_c = parts[row["network"]], row["n_c"]
        front = counts["conv_parameters"]
        server = 8 * n_c * (front + counts["linear_parameters"])
        stanza = 4 * (2 * n_c * counts["cut"] * results["batch"] + 2 * n_c * front)
        cells = [server, row["server"]["bytes"], stanza, row["beside"]["bytes"], row["each"]["bytes"],
                 row.get("apart", {}).get("bytes")]
        # A server beside each of the n has a part of what its worker pulls and pushes.
        own = 4 * 2 * front
        rows.append([who(row)] + [paper.megabytes(each) if each else "" for each in cells] +
                    ["%.4f" % (row["beside"]["bytes"] / stanza), "%.4f" % (row["each"]["bytes"] / (stanza - own))])
    return paper.table(["figure 6, MB a step over links", "a server: 2 n P", "simulated", "Stanza: 2 n A S + 2 n P_c",
                        "simulated, beside", "each", "apart", "beside, over the formula",
                        "each, over it less 2 P_c"], rows)


def figure7(results):
    rows = []
    for row in results["figure6"]:
        if row["kind"] != "implied":
            continue
        ways = [row["paper_server"], row["planned"]["data_parallel"], row["server"]["seconds"], row["paper_stanza"],
                row["kept"]["seconds"], row["planned"]["each"], row["each"]["seconds"], row["beside"]["seconds"],
                row["planned"]["layer_separation"],
                row.get("apart", {}).get("seconds")]
        rows.append([who(row)] + [paper.seconds(each) if each else "" for each in ways])
    return paper.table(["figure 7, a step", "a server: its model", "`plan`", "simulated", "Stanza: its model",
                        "simulated: kept", "each: `plan`", "each: simulated", "beside", "apart: `plan`",
                        "apart: simulated"], rows)


def without_table(results):
    whole = results["without"]["each"]
    return paper.table(["AlexNet, 10 + 1", "a step", "less"],
                       [[name, paper.seconds(took), paper.seconds(whole - took) if took < whole else ""]
                        for name, took in results["without"].items()])


def figure8(results):
    rows = []
    for row in results["figure8"]:
        ratios = [row["paper_server"] / row["paper_stanza"], speedup(row, "kept"), speedup(row, "each")]
        n = row["n_c"] * results["batch"]
        rows.append(["%d at %g Gb/s" % (row["n_c"] + row["n_f"], row["gigabits"]), row["n_f"]] +
                    ["{:,.0f}".format(n / row[key]["seconds"]) for key in ("server", "kept", "each")] +
                    ["%.1f" % each for each in ratios])
    return paper.table(["figure 8, nodes", "linear, or servers", "rows/s: servers", "Stanza, kept", "Stanza, each",
                        "times: its models", "kept", "each"], rows)


def pictures(results):
    by_workers = {}
    for row in results["figure6"]:
        if row["kind"] == "implied":
            by_workers.setdefault(row["n_c"], {})[row["network"]] = row
    labels, columns = [], []
    for name in NETWORKS:
        for label, value in (("the paper's models", lambda r: r["paper_server"] / r["paper_stanza"]),
                             ("simulated with parameters kept", lambda r: speedup(r, "kept")),
                             ("simulated with a server beside each", lambda r: speedup(r, "each"))):
            labels.append("%s: %s" % (NAMES[name], label))
            columns.append([value(by_workers[n][name]) for n in sorted(by_workers)])
    first = paper.Picture("stanza_workers", "workers (and one linear one or one server)", labels,
                          [[n] + [column[i] for column in columns] for i, n in enumerate(sorted(by_workers))],
                          "--y", "times a server's rows a second, 10 Gb/s")
    by_nodes = {}
    for row in results["figure8"]:
        by_nodes.setdefault(row["n_c"] + row["n_f"], {})[row["gigabits"]] = row
    speeds = sorted({row["gigabits"] for row in results["figure8"]})
    labels = ["%g Gb/s: %s" % (g, name) for g in speeds for name in ("servers", "Stanza kept", "Stanza")]
    rows = []
    for nodes in sorted(by_nodes):
        rows.append([nodes])
        for g in speeds:
            row = by_nodes[nodes].get(g)
            rows[-1] += [row and row["n_c"] * results["batch"] / row[key]["seconds"]
                         for key in ("server", "kept", "each")]
    second = paper.Picture("stanza_nodes", "nodes", labels, rows, "--y", "rows of AlexNet a second", "--log-x",
                           "--log-y")
    return [first, second]


def draw(results):
    # A quick run has a cell, which shows that it can be measured, and none of the figures.
    if not results["figure8"]:
        return [table2(results)], []
    tables = [table2(results), figure6(results, "implied"), figure6(results, "arithmetic"), bytes_table(results),
              figure7(results), without_table(results), figure8(results)]
    return tables, pictures(results)


if __name__ == "__main__":
    paper.run("stanza", __doc__, measure, draw)
