#!/usr/bin/env python3
"""Prints muon_values.h: what Muon, as its authors wrote it (github.com/KellerJordan/Muon), makes of some matrices, in
f64.

    muon_values.py > muon_values.h

Needs Debian's python3-torch (made with 1.13.1). Initial values, gradients and rates are the fractions that muon_test.cc
computes as well, exact in f32.
"""
import torch

UPDATES = 4
SHAPES = [(4, 7), (9, 4), (9, 9)]
LEARNING_RATE, MOMENTUM, WEIGHT_DECAY, ITERATIONS = 0.05, 0.9, 0.1, 5


def zeropower_via_newtonschulz5(matrix, steps):
    a, b, c = (3.4445, -4.7750, 2.0315)
    x = matrix / (matrix.norm() + 1e-7)
    if matrix.size(0) > matrix.size(1):
        x = x.T
    for _ in range(steps):
        product = x @ x.T
        x = a * x + (b * product + c * product @ product) @ x
    return x.T if matrix.size(0) > matrix.size(1) else x


def initial(i):
    return (i * 5 % 8 - 3.5) / 4


def gradient(update, i):
    return ((update * 37 + i * 17 + update * i * 5) % 64 - 31.5) / 32


def run(rows, columns):
    count = rows * columns
    w = torch.tensor([initial(i) for i in range(count)], dtype=torch.float64).view(rows, columns)
    momentum = torch.zeros_like(w)
    for update in range(1, UPDATES + 1):
        g = torch.tensor([gradient(update, i) for i in range(count)], dtype=torch.float64).view(rows, columns)
        eta = LEARNING_RATE / update
        momentum.mul_(MOMENTUM).add_(g)
        along = zeropower_via_newtonschulz5(g.add(momentum, alpha=MOMENTUM), ITERATIONS)
        w.mul_(1 - eta * WEIGHT_DECAY)
        w.add_(along, alpha=-eta * max(1, rows / columns) ** 0.5)
    return w


def numbers(matrix):
    values = ["%.10g" % x for x in matrix.flatten()]
    return ",\n       ".join(", ".join(values[i:i + 6]) for i in range(0, len(values), 6))


print("""// What Muon makes of 4 updates of some matrices, in f64, one after the other. Printed by muon_values.py, which
// says from what.
#ifndef TESSERA_TESTS_WORKER_MODEL_MUON_VALUES_H_
#define TESSERA_TESTS_WORKER_MODEL_MUON_VALUES_H_

#include <vector>

namespace tessera {

// clang-format off
inline std::vector<std::vector<double>> MuonValues() {
  return {
%s  };
}
// clang-format on

}  // namespace tessera

#endif  // TESSERA_TESTS_WORKER_MODEL_MUON_VALUES_H_""" % "".join(
    "      {%s},\n" % numbers(run(*shape)) for shape in SHAPES))
