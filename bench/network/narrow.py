#!/usr/bin/python3
"""Exchanges over links that carry little: how slow a link may be before its connections count as dead.

    bench/network/narrow.py [--rates 1mbit 500kbit 250kbit] [--set KEY=VALUE]

One worker and one server, each behind a link of each rate in turn (bench/network/limited.py), train a model of
4.3 MB, the built-in digits with two hidden layers of 1,000, for one step: the parameters come, go and come again. The
table has the share of the link that the push was, as payload; plain sockets measure first what the link carries. A
job that fails says why. Wants root; at 250 kbit/s it takes ten minutes.
"""
import argparse
import os
import sys

import limited
import runs

LAYER = "{linear: {units: 1000}}, relu"
FLAGS = ["model.layers=[%s, %s, {linear: {units: 10}}]" % (LAYER, LAYER), "train.steps=1", "cluster.workers=1"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rates", nargs="+", default=["1mbit", "500kbit", "250kbit"],
                        help="of the link, each way, as tc writes it")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="of the job")
    parser.add_argument("--tessera", default=os.path.join(runs.ROOT, "bazel-bin/deploy/cli/tessera"))
    options = parser.parse_args()
    options.seconds_max = 3600
    wrong = [rate for rate in options.rates if limited.megabits(rate) is None]
    if wrong:
        parser.error('--rates: got "%s", want a number with kbit, mbit or gbit' % wrong[0])
    job = os.path.join(runs.ROOT, "deploy/jobs/digits.yaml")
    flags = [word for key in FLAGS + options.set for word in ("--set", key)]
    rows = []
    for options.rate in options.rates:
        network = limited.network_of(options, 2)
        report = limited.run(options, network, job, flags, 1, [1])
        seconds = report["phases"][0]["push_seconds"]
        pushed = report["traffic"]["push_payload_bytes"]
        rows.append("| %s | %.1f MB | %.1f s | %.2f |" % (
            options.rate, 1e-6 * pushed, seconds, 8e-6 * pushed / seconds / limited.megabits(options.rate)))
    print("\n| link | pushed | in | of the link |\n|---|--:|--:|--:|")
    print("\n".join(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
