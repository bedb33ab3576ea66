#!/usr/bin/python3
"""What `tessera plan` predicts, against real jobs whose workers and servers are each behind a limited link.

    bench/network/planned.py [--rate 100mbit] [--workers 1 2 4] [--servers 1 2 4] [--methods data_parallel ist]

Every worker and every server has a network namespace of its own with a link to one switch (bench/network/limited.py),
which a token bucket limits each way; plain sockets measure first what the links carry, and that is what is planned
with. The job is the built-in digits with two hidden layers of 512, so that exchanges are what takes the time, or that
of --job as it is; all processes share this machine's cores. Wants root.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

import limited
import runs

LAYER = "{linear: {units: 512, bias: false}}, {batch_norm: {affine: false}}, relu"
LAYERS = "model.layers=[%s, %s, {linear: {units: 10, bias: false}}]" % (LAYER, LAYER)
# method: (its keys, exchanges that are timed)
METHODS = {
    "data_parallel": ("", 15), "local_sgd": ("", 15), "diloco": ("", 15), "async_sgd": ("", 20),
    "ssp": ("", 20), "softsync": ("pushes: %d", 20), "quant_dp": ("", 20), "ist": ("", 15), "slim_dp": ("", 50),
    "decentralized": ("", 30), "layer_separation": ("linear_workers: %d", 30),
}


def payload(network):
    """Bytes per second that the slowest link carries of a socket's payload, all links being busy."""
    return 1e6 / 8 * min(min(network.probe(upwards)) for upwards in (True, False))


def keys_of(method, plan, workers):
    keys = METHODS[method][0]
    return keys % plan.get("linear_workers", (workers + 1) // 2) if "%" in keys else keys


def overrides(options):
    layers = [] if options.job else [LAYERS]
    return [word for key in layers + options.set for word in ("--set", key)]


def planned(options, job, workers, servers, bandwidth):
    """name -> the prediction."""
    done = subprocess.run([options.tessera, "plan", job, *overrides(options), "--nodes", str(workers), "--servers",
                           str(servers), "--bandwidth", "%dB" % bandwidth, "--step-time", options.step_time,
                           "--latency", options.latency, "--json"], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    return {method["method"]: method for method in json.loads(done.stdout)["methods"]}


def steps_of(method, plan):
    return METHODS[method][1] * (plan["local_steps"] or 1)


def measured(options, network, job, method, plan, workers, servers):
    """Seconds of a step; what begins and ends a job is left out by two lengths of it."""
    seconds = []
    links = range(workers) if plan["between_workers"] else range(workers, workers + servers)
    steps = steps_of(method, plan)
    for length in (steps, 2 * steps):
        flags = overrides(options)
        for key in ("method={%s: {%s}}" % (method, keys_of(method, plan, workers)), "train.steps=%d" % length,
                    "train.evaluate_every=1000000", "cluster.workers=%d" % workers):
            flags += ["--set", key]
        report = limited.run(options, network, job, flags, workers, links)
        seconds.append(report["train_seconds"])
    return (seconds[1] - seconds[0]) / steps


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", default="100mbit", help="of each link, each way, as tc writes it")
    parser.add_argument("--workers", nargs="+", type=int, default=[1, 2, 4])
    parser.add_argument("--servers", nargs="+", type=int, default=[1, 2, 4])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--step-time", default="measured")
    parser.add_argument("--latency", default="300us")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="of the job, planned and run")
    parser.add_argument("--repeat", type=int, default=1, help="medians of so many")
    parser.add_argument("--job", help="trained as it is, but for the method")
    parser.add_argument("--tessera", default=os.path.join(runs.ROOT, "bazel-bin/deploy/cli/tessera"))
    options = parser.parse_args()
    options.seconds_max = 600
    if limited.megabits(options.rate) is None:
        parser.error('--rate: got "%s", want a number with kbit, mbit or gbit' % options.rate)
    job = options.job or os.path.join(runs.ROOT, "deploy/jobs/digits.yaml")
    network = limited.network_of(options, max(options.workers) + max(options.servers))
    bandwidth = payload(network)
    print("planned with %.1f Mbit/s\n" % (8e-6 * bandwidth))
    print("| method | workers | servers | planned | measured | ratio |\n|---|--:|--:|--:|--:|--:|", flush=True)
    ratios = []
    for workers in options.workers:
        for servers in options.servers:
            plans = planned(options, job, workers, servers, bandwidth)
            for method in options.methods:
                plan = plans[method]
                if "refused" in plan:
                    print("| %s | %d | %d | %s | | |" % (method, workers, servers, plan["refused"]), flush=True)
                    continue
                seconds = statistics.median(measured(options, network, job, method, plan, workers, servers)
                                            for _ in range(options.repeat))
                step = plan["step_seconds"]
                ratios.append(step / seconds)
                print("| %s | %d | %d | %.2f ms | %.2f ms | %.2f |" % (
                    method, workers, plan["servers"], 1e3 * step, 1e3 * seconds, ratios[-1]), flush=True)
    if not ratios:
        return 1
    print("\nratios %.2f to %.2f, median %.2f" % (min(ratios), max(ratios), statistics.median(ratios)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
