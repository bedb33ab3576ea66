"""A worker of a job of tensors whose units have several indices each: channels that a linear layer reads behind a
flatten, rows in pairs, and heads of attention.

It computes nothing: each minibatch adds to every entry a number of its own, so that after any number of rounds all
values are known exactly, whoever had them. What a round brings, and the whole model of an evaluation, must be that.
usage: spread_worker.py
"""
import numpy as np

import tessera

UNITS = 6
SHAPES = {"conv.bias": (UNITS,), "conv.weight": (UNITS, 2, 3, 3), "fc.weight": (4, UNITS * 5), "pairs": (UNITS * 2, 3),
          "projection": (3, UNITS, 2, 4), "reads": (5, UNITS * 3, 2), "whole": (7,)}
# By tensor, the dimension that the units index.
CUT = {"conv.bias": 0, "conv.weight": 0, "fc.weight": 1, "pairs": 0, "projection": 1, "reads": 1}
GROUPS = {"channels": [[name, dimension] for name, dimension in CUT.items()]}


def initial():
    random = np.random.default_rng(5)
    return {name: random.integers(-100, 100, shape).astype(np.float32) for name, shape in SHAPES.items()}


def gain():
    """What a minibatch adds: whole numbers, of which f32 has the sums exactly."""
    random = np.random.default_rng(6)
    return {name: random.integers(1, 50, shape).astype(np.float32) for name, shape in SHAPES.items()}


def part_of(values, units):
    """What a worker has that has these units."""
    part = dict(values)
    for name, dimension in CUT.items():
        each = values[name].shape[dimension] // UNITS
        indices = (units[:, None] * each + np.arange(each)).ravel()
        part[name] = np.take(values[name], indices, axis=dimension)
    return part


def after(steps):
    return {name: value + np.float32(steps) * gain()[name] for name, value in initial().items()}


def check(arrays, wanted):
    for name, want in wanted.items():
        np.testing.assert_array_equal(arrays[name], want, err_msg=name)


def main():
    done = [0]
    now = {}

    def begin(arrays, units, at):
        now["units"] = units["channels"].astype(np.int64)
        check(arrays, part_of(after(done[0]), now["units"]))

    with tessera.join() as job:
        trainer = tessera.SubnetTrainer(job, begin)
        while trainer.running:
            if trainer.evaluates:
                check(trainer.whole, after(done[0]))
                trainer.report(score=1.0, loss=0.0, rows=1)
                continue
            for name, added in part_of(gain(), now["units"]).items():
                trainer.arrays[name] += added
            # The next round's values may come within this call.
            done[0] += 1
            trainer.step(examples=1, loss=0.0)


if __name__ == "__main__":
    main()
