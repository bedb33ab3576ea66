#!/usr/bin/python3
"""What surveys of distributed training ask, answered by jobs of `tessera simulate` with real gradients: how often to
average, what staleness does, who should wait for slow workers, and how little may be sent.

    bench/papers/survey.py --data data [--at-once 2] [--reports FOLDER]    measures, and keeps what it found
    bench/papers/survey.py --data data --rows ROW...                       measures these rows anew, keeps the others
    bench/papers/survey.py --redraw                                        draws what is kept

--data is a folder with fashion_mnist (deploy/fetch_data.sh). The network is that of deploy/jobs/fashion_mnist.yaml, as
many machines as workers have a worker and a server each, links of 1 Gb/s, of 10 for slow workers and of 0.1 for
thresholds, and 100 us, 10 ms a step. Accuracies, bytes and simulated seconds depend on no machine.
"""
import json
import os

import paper

LINK = ["--bandwidth", "1Gbit", "--latency", "100us", "--step-time", "10ms"]
# Where computing is what takes time.
FAST_LINK = ["--bandwidth", "10Gbit", "--latency", "100us", "--step-time", "10ms"]
SLOW_LINK = ["--bandwidth", "100Mbit", "--latency", "100us", "--step-time", "10ms"]
SEEDS = (1,)
WORKERS = 8
BATCH = 32
PLAIN, MOMENTUM = "{sgd: {learning_rate: 0.1}}", "{sgd: {learning_rate: 0.02, momentum: 0.9}}"

PERIODS = (1, 4, 16, 64, 256)
# How replicas are averaged: the optimizer, and what is said beside the period.
AVERAGING = {"plain": (PLAIN, ""), "momentum, each its own": (MOMENTUM, ""),
             "momentum, averaged too": (MOMENTUM, ", average_state: true")}

CROWDS = (1, 2, 4, 8, 16, 32)
INVERSE = "staleness: {inverse: {scale: 1.0}}"
# With K workers; softsync collects a quarter of them, one at least.
STALE = {"constant": lambda k: "{async_sgd: {}}", "inverse": lambda k: "{async_sgd: {%s}}" % INVERSE,
         "softsync, constant": lambda k: "{softsync: {pushes: %d}}" % max(1, k // 4),
         "softsync, inverse": lambda k: "{softsync: {pushes: %d, %s}}" % (max(1, k // 4), INVERSE)}
STALE_RATE = "{sgd: {learning_rate: 0.5}}"

# One worker's steps take so many times as long as the others'.
SLOWNESS = (1, 2, 3, 4)
WAITING = {"data_parallel": "{data_parallel: {}}", "ssp(2)": "{ssp: {bound: 2}}", "ssp(10)": "{ssp: {bound: 10}}",
           "async_sgd": "{async_sgd: {}}", "softsync(4)": "{softsync: {pushes: 4}}",
           "diloco(20)": "{diloco: {local_steps: 20}}",
           "diloco(20), quorum of 6": "{diloco: {local_steps: 20, quorum: {pushes: 6}}}",
           "diloco(20), quorum of 6, adaptive grace":
               "{diloco: {local_steps: 20, quorum: {pushes: 6, adaptive_grace: true}}}",
           "diloco(20), asynchronous": "{diloco: {local_steps: 20, asynchronous: true}}"}
# Those whose slower workers have smaller minibatches, too.
BY_SPEED = ("data_parallel", "ssp(2)", "async_sgd", "diloco(20)")
TARGET = 0.85

CODED = {"f32": ("{data_parallel: {}}", ""), "density 0.05": ("{data_parallel: {}}", "{density: 0.05}"),
         "density 0.01": ("{data_parallel: {}}", "{density: 0.01}"),
         "density 0.002": ("{data_parallel: {}}", "{density: 0.002}"),
         "density 0.0005": ("{data_parallel: {}}", "{density: 0.0005}"),
         "tau 0.0003": ("{data_parallel: {}}", "{tau: 0.0003}"), "tau 0.003": ("{data_parallel: {}}", "{tau: 0.003}"),
         "tau 0.03": ("{data_parallel: {}}", "{tau: 0.03}"), "tau 0.3": ("{data_parallel: {}}", "{tau: 0.3}"),
         "async_sgd, f32": ("{async_sgd: {}}", ""),
         "async_sgd, density 0.002": ("{async_sgd: {}}", "{density: 0.002}"),
         "decentralized, density 0.002": ("{decentralized: {}}", "{density: 0.002}")}


class Jobs:
    """Jobs that are asked for first, and then computed together."""

    def __init__(self, options, programs):
        self.options, self.programs = options, programs
        folder, name = ("optdigits", "digits.yaml") if options.quick else ("fashion_mnist", "fashion_mnist.yaml")
        self.job = os.path.join(paper.ROOT, "deploy/jobs", name)
        self.data = os.path.abspath(os.path.join(options.data, folder))
        self.seeds = SEEDS[:1] if options.quick else SEEDS
        self.asked = []

    def ask(self, workers, epochs, method, optimizer, link, codec="", more=(), partition="global"):
        """The numbers of the reports, one for each seed."""
        epochs = 1 if self.options.quick else epochs
        train = "{batch_size: %d, epochs: %d, evaluate_every: 1, optimizer: %s}" % (BATCH, epochs, optimizer)
        begin = len(self.asked)
        for seed in self.seeds:
            keys = {"data.directory": self.data, "data.partition": partition, "method": method, "train": train,
                    "seed": seed}
            if codec:
                keys["codec"] = "{push: {threshold: %s}}" % codec
            self.asked.append((self.job, paper.sets(keys) + ["--workers", workers, "--servers", workers, "--machines",
                                                             workers] + link + list(more)))
        return range(begin, len(self.asked))

    def reports(self):
        return self.programs.simulate_all(self.asked, self.options.at_once)


def scores(reports):
    """What is kept of the reports of one job."""
    workers = len(reports[0]["phases"])
    reached = [paper.crossing(report["history"], TARGET) for report in reports]
    return {"accuracy": paper.mean([report["final"]["test_accuracy"] for report in reports]),
            "seconds": paper.mean([report["train_seconds"] for report in reports]),
            "reached": None if None in reached else paper.mean(reached),
            "staleness": paper.mean([report["staleness"]["mean"] for report in reports]),
            "push": paper.mean([report["traffic"]["push_payload_bytes"] for report in reports]) / workers,
            "pull": paper.mean([report["traffic"]["pull_payload_bytes"] for report in reports]) / workers}


def measure(options, programs):
    if not options.data:
        raise SystemExit("survey.py: --data: is absent, want the folder that deploy/fetch_data.sh fills")
    jobs = Jobs(options, programs)
    asked = []  # table, row, column, the numbers of its reports
    quick = options.quick

    def wanted(rows, suffix=""):
        return [(name, of) for name, of in rows.items() if not options.rows or name + suffix in options.rows]
    for name, (optimizer, more) in wanted(AVERAGING):
        for period in PERIODS[:2] if quick else PERIODS:
            method = "{local_sgd: {local_steps: %d%s}}" % (period, more)
            asked.append(("averaging", name, period, jobs.ask(WORKERS, 5, method, optimizer, LINK)))
    for name, method in wanted(STALE):
        for crowd in CROWDS[1:3] if quick else CROWDS:
            spread = ["--speed-spread", 0.2, "--step-jitter", 0.2]
            asked.append(("staleness", name, crowd, jobs.ask(crowd, 2, method(crowd), STALE_RATE, LINK, "", spread)))
    for name, method in wanted(WAITING):
        for times in SLOWNESS[:1] if quick else SLOWNESS:
            slow = ["--slow-worker", times, "--step-jitter", 0.1]
            asked.append(("stragglers", name, times, jobs.ask(WORKERS, 5, method, PLAIN, FAST_LINK, "", slow)))
    for name, method in wanted({name: WAITING[name] for name in BY_SPEED}, ", rows by speed"):
        for times in SLOWNESS[:1] if quick else SLOWNESS:
            slow = ["--slow-worker", times, "--step-jitter", 0.1]
            asked.append(("stragglers", name + ", rows by speed", times,
                          jobs.ask(WORKERS, 5, method, PLAIN, FAST_LINK, "", slow, "by_speed")))
    for name, (method, codec) in wanted(CODED):
        asked.append(("threshold", name, 0, jobs.ask(WORKERS, 4, method, PLAIN, SLOW_LINK, codec)))
    unknown = set(options.rows) - {row for _, row, _, _ in asked}
    if unknown:
        raise SystemExit("survey.py: --rows: got %s, want rows of its tables in docs/papers.md" % sorted(unknown))
    reports = jobs.reports()
    cells = [dict(scores([reports[i] for i in numbers]), table=name, row=row, column=column)
             for name, row, column, numbers in asked]
    if not options.rows:
        return {"cells": cells}
    # Date and machine are those of most of them.
    with open(os.path.join(paper.RESULTS, "survey.json")) as file:
        kept = json.load(file)
    return dict(kept, cells=merged(kept["cells"], cells))


def merged(kept, cells):
    """Cells in the place of those of their names; those of new rows behind the others."""
    def name(cell):
        return cell["table"], cell["row"], cell["column"]
    new = {name(cell): cell for cell in cells}
    return [new.pop(name(cell), cell) for cell in kept] + list(new.values())


def percent(cell):
    return "%.2f" % (100 * cell["accuracy"])


def seconds(value):
    return "%.1f" % value if value else "never"


def by_row(results, name):
    """{row: {column: cell}} of one table."""
    found = {}
    for cell in results["cells"]:
        if cell["table"] == name:
            found.setdefault(cell["row"], {})[cell["column"]] = cell
    return found


def averaging(results):
    rows = by_row(results, "averaging")
    columns = list(next(iter(rows.values())))
    lines = [[name] + [percent(cells[j]) for j in columns] for name, cells in rows.items()]
    for name, title in (("plain", "MB of a worker, plain"), ("momentum, averaged too", "MB, state averaged too")):
        lines.append([title] + ["{:,.0f}".format((rows[name][j]["push"] + rows[name][j]["pull"]) / 1e6)
                                for j in columns])
    lines.append(["s, plain"] + [seconds(rows["plain"][j]["seconds"]) for j in columns])
    return paper.table(["averaged every"] + ["%d" % j for j in columns], lines)


def staleness(results):
    rows = by_row(results, "staleness")
    columns = list(next(iter(rows.values())))
    lines = [[name] + [percent(cells[k]) for k in columns] for name, cells in rows.items()]
    for name in ("constant", "softsync, constant"):
        lines.append(["mean staleness, " + name] + ["%.1f" % rows[name][k]["staleness"] for k in columns])
    return paper.table(["workers that wait for nobody"] + ["%d" % k for k in columns], lines)


def stragglers(results):
    rows = by_row(results, "stragglers")
    columns = list(next(iter(rows.values())))
    lines = [[name] + [text for times in columns for text in (seconds(cells[times]["seconds"]), percent(cells[times]))]
             for name, cells in rows.items()]
    return paper.table(["one worker takes so many times as long"] + [
        text for times in columns for text in ("%d: s" % times, "%d: accuracy" % times)], lines)


def threshold(results):
    rows = [cells[0] for cells in by_row(results, "threshold").values()]
    plain = rows[0]
    lines = [[cell["row"], percent(cell), "%.4f" % (cell["push"] / plain["push"]), seconds(cell["seconds"]),
              seconds(cell["reached"])] for cell in rows]
    return paper.table(["threshold coding, 100 Mb/s", "accuracy", "bytes up, of f32", "s", "s to %.2f" % TARGET], lines)


def draw(results):
    return [averaging(results), staleness(results), stragglers(results), threshold(results)], []


def add_flags(parser):
    parser.add_argument("--data", help="the folder of the data sets")
    parser.add_argument("--rows", nargs="+", default=[], help="measures these alone, and keeps them with the others")
    parser.add_argument("--at-once", type=int, default=os.cpu_count(), help="jobs that are computed at a time")


if __name__ == "__main__":
    paper.run("survey", __doc__, measure, draw, add_flags)
