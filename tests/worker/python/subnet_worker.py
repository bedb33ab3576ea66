"""A worker of digits that trains subnets in NumPy: linear, relu, linear, each round of other hidden units.

What it was told goes to a file, and another job may be given the same rows, so that what two jobs come to can be
compared. usage: subnet_worker.py --data FOLDER [--record FILE] [--replay FILE] [--save FILE] [--share] [--blind]
[--pause SECONDS] [--rejoin]
"""
import argparse
import json
import time

import numpy as np

import tessera
from tessera.digits_network import DigitsNetwork, read_digits

NAMES = ("layers.0.weight", "layers.0.bias", "layers.2.weight", "layers.2.bias")
RATE = np.float32(0.2)


def network_of(arrays):
    return DigitsNetwork([arrays[name] for name in NAMES])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("--record")
    parser.add_argument("--replay")
    # The values of the last evaluation.
    parser.add_argument("--save")
    # Hidden sums of the whole network are as many times larger as there are workers.
    parser.add_argument("--share", action="store_true")
    parser.add_argument("--blind", action="store_true")
    parser.add_argument("--pause", type=float, default=0)
    # Takes part again once it is told that it is no member any more.
    parser.add_argument("--rejoin", action="store_true")
    arguments = parser.parse_args()
    x, labels = read_digits(arguments.data, "train")
    test_x, test_labels = read_digits(arguments.data, "test")
    record = {"rows": {}, "units": {}, "sites": {}, "whole": [], "rejoined": 0, "lost": 0, "loaded": []}
    replay = json.load(open(arguments.replay)) if arguments.replay else None
    now = {}

    def begin(arrays, units, at):
        now["network"] = network_of(arrays)
        if at.whole:
            record["whole"].append(at.number)
            return
        record["units"][at.number] = {group: indices.tolist() for group, indices in units.items()}
        record["sites"][at.number] = [at.site, at.sites]

    with tessera.join() as job:
        trainer = tessera.SubnetTrainer(job, begin, scores=not arguments.blind,
                                        on_save=lambda: b"%d" % len(record["rows"]))
        trainer.on_load = lambda state: record["loaded"].append(int(state))
        part = slice(job.rank % job.workers, None, job.workers)

        def evaluate():
            if arguments.save:
                tessera.save_tensors(trainer.whole, arguments.save)
            whole = {name: array.copy() for name, array in trainer.whole.items()}
            if arguments.share and not record["whole"]:
                whole["layers.2.weight"] /= np.float32(job.round.sites)
            trainer.report(**network_of(whole).evaluate(test_x[part], test_labels[part], x))

        def train():
            step = trainer.minibatch.step
            rows = trainer.minibatch.rows
            if replay is not None:
                rows = np.array(replay["rows"][str(step)])
            elif rows is None:
                rows = np.random.default_rng([step, job.rank]).integers(len(x), size=32)
            record["rows"][int(step)] = rows.tolist()
            network = now["network"]
            loss = network.train(x[rows], labels[rows])
            for value, gradient in zip(network.parameters, network.gradients):
                value -= RATE * gradient
            time.sleep(arguments.pause)
            trainer.step(examples=len(rows), loss=loss)

        while trainer.running:
            try:
                if trainer.evaluates:
                    evaluate()
                else:
                    train()
                record["rejoined"] += trainer.rejoined
            except tessera.JobLost:
                if not arguments.rejoin:
                    raise
                trainer.rejoin()
                record["lost"] += 1
    if arguments.record:
        with open(arguments.record, "w") as file:
            json.dump(record, file)


if __name__ == "__main__":
    main()
