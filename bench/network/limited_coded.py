#!/usr/bin/python3
"""Coded exchange on a slow network: the table of bench/training/coded.py with every worker behind a limited link.

    bench/network/limited_coded.py FOLDER --rate 200mbit [--sets fashion] [--rows quant threshold slim] [--seeds 1]

FOLDER holds the data sets. The network is that of bench/network/limited.py, its two servers too, and wants root as it
does. What counts here is the column `exchanging`: seconds that a worker's loop spends on pulls and pushes, and waiting
for the others' within them.
"""
import sys

import limited

import coded


def main():
    parser = coded.parser_of(__doc__, coded.ROWS)
    parser.add_argument("--rate", default="200mbit", help="of each worker's link, each way, as tc writes it")
    parser.set_defaults(seeds=[1], sets=["fashion"])
    options = parser.parse_args()
    if limited.megabits(options.rate) is None:
        parser.error('--rate: got "%s", want a number with kbit, mbit or gbit' % options.rate)
    options.seconds_max = 3600

    def train(name, keys, seed):
        job, flags = coded.job_of(options, name, keys, seed)
        return limited.run(options, network, job, flags, options.workers)

    try:
        network = limited.network_of(options, options.workers)
        coded.tabulate(options, coded.ROWS, train)
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
