#!/usr/bin/python3
"""The share of the time in which workers compute, by method, local steps, bandwidth and delay, against `tessera plan`.

    bench/network/grid.py [--steps 4 16 64 256] [--rates 4 20 100 500] [--delays 0 50 200] [--methods local_sgd ...]
                          [--at-once 2] [--seconds 10] [--results FILE] [--redraw FILE]

Two workers and a server, which is behind a relay of so many Mbit/s each way that holds every byte for half of the
delay, in milliseconds there and back. A model of 0.4 MB; each step sleeps for 20 ms, so that it takes as long on a
busy machine, and what counts is the way. `tessera plan` is told the rate, the delay and what a step took. A cell is
measured / planned; the last line has the largest ratio of the times outside computing's share, one way or the other.
--results keeps the cells, --redraw prints the tables of such a file.
"""
import argparse
import concurrent.futures
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "training"))
import delayed
import limited
import runs

WORKERS = 2
STEP_SECONDS = 0.02
LAYERS = "[{linear: {units: 512, bias: false}}, relu, {linear: {units: 128, bias: false}}, relu, {linear: {units: 10}}]"
FRAGMENTS = 4


def fragments(steps):
    """An exchange of a fragment goes on beside half of the steps to the next one, and one of them at least."""
    return {"diloco": {"local_steps": steps, "fragments": FRAGMENTS, "delay": max(1, steps // FRAGMENTS // 2)}}


METHODS = {
    "local_sgd": lambda steps: {"local_sgd": {"local_steps": steps}},
    "local_sgd, overlap": lambda steps: {"local_sgd": {"local_steps": steps, "overlap": True}},
    "diloco, %d fragments, delay" % FRAGMENTS: fragments,
    "async_sgd": lambda steps: {"async_sgd": {"local_steps": steps}},
}

# Exchanges go on beside steps.
BESIDE = list(METHODS)[1:3]


def words(method):
    flags = ["model.layers=" + LAYERS, "method=" + json.dumps(method), "cluster.workers=%d" % WORKERS,
             "train.batch_size=4", "train.optimizer={sgd: {learning_rate: 0.001}}"]
    return [word for flag in flags for word in ("--set", flag)]


JOB = os.path.join(runs.ROOT, "deploy/jobs/digits.yaml")


def planned(options, method, rate, delay, step_seconds):
    """(share of computing, seconds of a step)."""
    done = subprocess.run([options.tessera, "plan", JOB, *words(method), "--nodes", str(WORKERS), "--servers", "1",
                           "--bandwidth", "%dB" % rate, "--latency", "%dus" % (delay * 5e5), "--step-time",
                           "%dus" % (step_seconds * 1e6), "--json"], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    own = next(row for row in json.loads(done.stdout)["methods"] if row["is_own"])
    return own["computing"], own["step_seconds"]


def measured(options, method, rate, delay, steps):
    """Seconds of both workers: (computing, waiting for exchanges)."""
    number, = delayed.free_ports(1)
    process, address = delayed.start_relay("127.0.0.1:%d" % number, delay / 2, rate)
    more = ["train.steps=%d" % steps, "train.evaluate_every=0", "cluster.lease_timeout=60s",
            "cluster.servers=[%s]" % address, "security.insecure=true", "cluster.transport=tcp"]
    flags = words(method) + [word for flag in more for word in ("--set", flag)]
    with tempfile.TemporaryDirectory() as folder:
        report = os.path.join(folder, "report.json")
        cluster = limited.Cluster(folder)
        try:
            cluster.start("server-0", [limited.program(options, "tessera-server", "server"), "--job", JOB, "--rank",
                                       "0", "--listen", "0.0.0.0:%d" % number, "--report", report] + flags)
            for rank in range(WORKERS):
                cluster.start("worker-%d" % rank, [
                    "env", "TESSERA_FAILPOINTS=worker.step=sleep:%d" % (1e3 * STEP_SECONDS),
                    limited.program(options, "tessera-worker", "worker"), "--job", JOB] + flags)
            if not limited.ended(cluster, cluster.processes[0], delayed.JOB_SECONDS_MAX):
                sys.exit("grid.py: the job does not end; last lines:\n" + cluster.logs())
            with open(report) as file:
                phases = json.load(file)["phases"]
        finally:
            cluster.kill()
            process.kill()
            process.wait()
    computing = sum(one["compute_seconds"] for one in phases)
    waiting = sum(one[key] for one in phases for key in ("pull_seconds", "push_seconds", "wait_seconds"))
    return computing, waiting


def cell(options, name, steps, megabits, delay):
    method, rate = METHODS[name](steps), megabits * 1e6 / 8
    _, seconds = planned(options, method, rate, delay, STEP_SECONDS)
    # Whole cycles, as many as take the time and at least four. The last exchange of each job is waited for: where the
    # others are not, a job of one cycle is taken off.
    cycles = max(4, min(int(options.seconds / (seconds * steps)), 200))
    computing, waiting = measured(options, method, rate, delay, cycles * steps)
    step_seconds = computing / WORKERS / (cycles * steps)
    if name in BESIDE:
        first = measured(options, method, rate, delay, steps)
        computing, waiting = computing - first[0], max(0, waiting - first[1])
    share = computing / (computing + waiting)
    return {"method": name, "local_steps": steps, "megabits": megabits, "delay_ms": 1e3 * delay, "cycles": cycles,
            "computing": share, "planned": planned(options, method, rate, delay, step_seconds)[0],
            "step_seconds": step_seconds}


def ratio(one):
    """Of the times of a step that were measured and planned."""
    return max(one["computing"] / one["planned"], one["planned"] / one["computing"])


def draw(cells):
    for name in dict.fromkeys(one["method"] for one in cells):
        rows = [one for one in cells if one["method"] == name]
        steps = sorted({one["local_steps"] for one in rows})
        print("\n| %s | %s |\n|---|%s" % (name, " | ".join("J = %d" % count for count in steps), "---:|" * len(steps)))
        for key in sorted({(one["megabits"], one["delay_ms"]) for one in rows}):
            by_steps = {one["local_steps"]: one for one in rows if (one["megabits"], one["delay_ms"]) == key}
            print("| %g Mbit/s, %g ms | %s |" % (*key, " | ".join(
                "%.2f / %.2f" % (by_steps[count]["computing"], by_steps[count]["planned"]) if count in by_steps else ""
                for count in steps)))
    ratios = sorted(ratio(one) for one in cells)
    print("\n%d cells; measured and planned differ by a factor of %.2f in the middle, %.2f at most; %d above 1.15" % (
        len(ratios), ratios[len(ratios) // 2], ratios[-1], sum(value > 1.15 for value in ratios)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", nargs="+", type=int, default=[4, 16, 64, 256], help="local steps")
    parser.add_argument("--rates", nargs="+", type=float, default=[4, 20, 100, 500], help="Mbit/s each way")
    parser.add_argument("--delays", nargs="+", type=float, default=[0, 50, 200], help="milliseconds there and back")
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS), metavar="METHOD",
                        help="of " + "; ".join(METHODS))
    parser.add_argument("--at-once", type=int, default=2, help="jobs at a time")
    parser.add_argument("--seconds", type=float, default=10, help="that a job takes at least, if 200 cycles do")
    parser.add_argument("--results", help="a file that the cells are written to")
    parser.add_argument("--redraw", help="a file that was written so")
    parser.add_argument("--tessera", default=os.path.join(runs.ROOT, "bazel-bin/deploy/cli/tessera"))
    options = parser.parse_args()
    if options.redraw:
        with open(options.redraw) as file:
            return draw(json.load(file))
    asked = [(name, steps, rate, delay / 1e3) for name in options.methods for steps in options.steps
             for rate in options.rates for delay in options.delays]
    cells = []
    with concurrent.futures.ThreadPoolExecutor(options.at_once) as pool:
        for one in pool.map(lambda arguments: cell(options, *arguments), asked):
            cells.append(one)
            print("%s J=%d %g Mbit/s %g ms: %.3f, planned %.3f, %.2f" % (
                one["method"], one["local_steps"], one["megabits"], one["delay_ms"], one["computing"], one["planned"],
                ratio(one)), file=sys.stderr, flush=True)
            if options.results:
                with open(options.results, "w") as file:
                    json.dump(cells, file, indent=1)
    draw(cells)


if __name__ == "__main__":
    main()
