#!/usr/bin/python3
"""The peer of independent subnets: what the published PyTorch reference (IST_Release, its centralised script for two
hidden layers) does, over gloo, with the network, data and batch sizes of deploy/jobs/speech.yaml.

    pytorch_ist_peer.py FOLDER [--epochs N] [--to ACCURACY]

Rank 0 holds the full network and trains a part itself. A round: rank 0 shuffles and cuts both hidden layers, scatters
the parts, all train theirs, rank 0 gathers them and writes them back. An epoch is 1/K of the minibatches of each rank's
own order of all rows, and ends with a round.

As published, a round sends its parts back one step before it is over: the step that follows is trained and thrown away.
That is the peer, and so the default; --keep-last-step sends them back after it. Otherwise in sound form: what is chance
follows from the seed and differs by rank (in the release partitions have no seed, and all ranks from 1 on draw the same
minibatches). Rows lie in memory as floats; the release reads them from files with four processes per rank.

Processes have one thread each. Prints one JSON object, and in words when --to was reached. Its history is scored in two
ways, neither of them in the seconds: `test_accuracy` under constants calibrated on training rows, as Tessera does, and
`batch_accuracy` as published, by the statistics of each batch of 128 test rows. Needs Debian's python3-torch.
"""
import argparse
import json
import os
import random
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from pytorch_peer import BATCH, LOCAL_STEPS, RATE, WIDTH, accuracy, load, network
from runs import crossing

# For each parameter of the network which hidden layer its rows and its columns belong to.
LAYERS = [(1, None), (1, None), (1, None), (2, 1), (2, None), (2, None), (None, 2)]


def cut(width, workers, dice):
    """A fresh partition of a hidden layer: each worker's neurons."""
    neurons = list(range(width))
    dice.shuffle(neurons)
    return [torch.tensor(neurons[width // workers * k:width // workers * (k + 1)]) for k in range(workers)]


def part_of(value, rows, columns):
    if rows is not None:
        value = value.index_select(0, rows)
    return value if columns is None else value.index_select(1, columns)


def write_part(value, part, rows, columns):
    if columns is None:
        value.index_copy_(0, rows, part)
    elif rows is None:
        value.index_copy_(1, columns, part)
    else:
        band = value.index_select(0, rows)
        band.index_copy_(1, columns, part)
        value.index_copy_(0, rows, band)


class Exchange:
    """Rank 0's full network, cut anew for each round; the other ranks have their part alone."""

    def __init__(self, rank, workers, width, full, part, seed):
        self.rank, self.workers, self.width = rank, workers, width
        self.full = list(full.parameters()) if rank == 0 else None
        self.part = list(part.parameters())
        self.dice = random.Random(seed)
        self.payload_bytes = 0

    def indices(self, site, layers):
        return [None if layer is None else self.neurons[layer][site] for layer in layers]

    def dispatch(self):
        if self.rank == 0:
            self.neurons = {layer: cut(self.width, self.workers, self.dice) for layer in (1, 2)}
            self.lists = [[part_of(value.data, *self.indices(site, layers)) for site in range(self.workers)]
                          for value, layers in zip(self.full, LAYERS)]
        for i, value in enumerate(self.part):
            dist.scatter(value.data, self.lists[i] if self.rank == 0 else [], src=0)
        self.count()

    def collect(self):
        for i, value in enumerate(self.part):
            dist.gather(value.data, self.lists[i] if self.rank == 0 else [], dst=0)
        self.count()
        if self.rank == 0:
            for value, layers, parts in zip(self.full, LAYERS, self.lists):
                for site, part in enumerate(parts):
                    write_part(value.data, part, *self.indices(site, layers))

    def count(self):
        """Of all ranks; rank 0's own part does not travel."""
        self.payload_bytes += 4 * (self.workers - 1) * sum(value.numel() for value in self.part)


def batch_accuracy(model, x, y, generator):
    """As published: every batch of shuffled test rows is normalised by its own statistics."""
    order, right = torch.randperm(len(x), generator=generator), 0
    with torch.no_grad():
        for rows in order.split(BATCH):
            right += (model(x[rows]).argmax(1) == y[rows]).sum().item()
    return right / len(x)


def train_epoch(options, model, optimizer, exchange, x, y, generator):
    """Its number of steps."""
    steps = len(x) // BATCH // options.workers
    order = torch.randperm(len(x), generator=generator)
    loss_of = torch.nn.CrossEntropyLoss()
    for t in range(steps):
        if t % LOCAL_STEPS == 0:
            exchange.dispatch()
        rows = order[t * BATCH:(t + 1) * BATCH]
        optimizer.zero_grad(set_to_none=False)
        loss_of(model(x[rows]), y[rows]).backward()
        optimizer.step()
        done = t + 1 if options.keep_last_step else t + 2
        if done % LOCAL_STEPS == 0 or t + 1 == steps:
            exchange.collect()
    return steps


def work(rank, options):
    torch.set_num_threads(1)
    torch.manual_seed(options.seed * options.workers + rank)
    dist.init_process_group("gloo", init_method="tcp://127.0.0.1:%d" % options.port, rank=rank,
                            world_size=options.workers)
    x, y = load(options.folder, "train")
    if rank == 0:
        test_x, test_y = load(options.folder, "test")
    full = network(options.width) if rank == 0 else None
    part = network(options.width // options.workers)
    optimizer = torch.optim.SGD(part.parameters(), lr=RATE)
    exchange = Exchange(rank, options.workers, options.width, full, part, options.seed)
    generator = torch.Generator().manual_seed(options.seed * options.workers + rank)
    seconds, step, history = 0.0, 0, []
    for epoch in range(options.epochs):
        dist.barrier()
        begin = time.monotonic()
        step += train_epoch(options, part, optimizer, exchange, x, y, generator)
        seconds += time.monotonic() - begin
        enough = torch.zeros(1)
        if rank == 0:
            history.append({"seconds": seconds, "step": step, "epoch": epoch + 1,
                            "test_accuracy": accuracy(full, x, test_x, test_y),
                            "batch_accuracy": batch_accuracy(full, test_x, test_y, generator)})
            enough[0] = min(history[-1]["test_accuracy"], history[-1]["batch_accuracy"]) >= options.to
        dist.broadcast(enough, 0)
        if enough:
            break
    if rank == 0:
        print(json.dumps({"peer": "pytorch " + torch.__version__, "method": "ist", "steps": step,
                          "train_seconds": seconds, "payload_bytes": exchange.payload_bytes, "history": history}))
        for name, score in (("as published", "batch_accuracy"), ("with constants", "test_accuracy")):
            there = crossing([dict(entry, test_accuracy=entry[score]) for entry in history], options.to)
            print("scored %s: %s" % (name, "not reached" if there is None else "%.2f after %.1f s" % (
                options.to, there)), file=sys.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="the speech data: deploy/fetch_data.sh --from DIR speech")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--width", type=int, default=WIDTH, help="of both hidden layers")
    parser.add_argument("--epochs", type=int, default=30, help="at most")
    parser.add_argument("--to", type=float, default=1.0, help="end once both scores are there")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--port", type=int, default=29519)
    parser.add_argument("--keep-last-step", action="store_true", help="of every round; the published script loses it")
    options = parser.parse_args()
    if options.workers < 1 or options.width % options.workers != 0:
        parser.error("--width is %d, want a multiple of %d workers" % (options.width, options.workers))
    if not os.path.isdir(options.folder):
        parser.error('folder: got "%s", want a folder with the speech data' % options.folder)
    mp.spawn(work, (options,), nprocs=options.workers)


if __name__ == "__main__":
    main()
