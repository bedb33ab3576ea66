#!/usr/bin/env python3
"""Prints loss_values.h: what PyTorch's losses make of some logits, in f64.

    loss_values.py > loss_values.h

Needs Debian's python3-torch (made with 1.13.1). Logits, labels and numbers are the fractions that loss_test.cc computes
as well, exact in f32.
"""
import torch
from torch.nn import functional

ROWS = 3


def logits(columns):
    values = [(i * 7 % 23 - 11) / 4 for i in range(ROWS * columns)]
    return torch.tensor(values, dtype=torch.float64).view(ROWS, columns).requires_grad_()


def labels(columns):
    return torch.tensor([(5 * row + 2) % columns for row in range(ROWS)])


def numbers(columns):
    values = [(i * 5 % 17 - 8) / 2 for i in range(ROWS * columns)]
    return torch.tensor(values, dtype=torch.float64).view(ROWS, columns)


def smoothed(smoothing):
    return lambda z: functional.cross_entropy(z, labels(z.shape[1]), label_smoothing=smoothing)


def of_labels(z):
    return functional.mse_loss(z, functional.one_hot(labels(z.shape[1]), z.shape[1]).double())


def of_numbers(z):
    return functional.mse_loss(z, numbers(z.shape[1]))


# The kind, its smoothing, outputs, PyTorch's loss.
CASES = [("kSoftmax", smoothing, columns, smoothed(smoothing)) for smoothing in (0, 0.125, 1) for columns in (2, 12)]
CASES += [("kSquareOfLabels", 0, columns, of_labels) for columns in (2, 12)]
CASES += [("kSquareOfNumbers", 0, columns, of_numbers) for columns in (1, 4)]


def text(case):
    kind, smoothing, columns, loss = case
    z = logits(columns)
    value = loss(z)
    value.backward()
    gradient = ["%.12g" % g for g in z.grad.flatten()]
    lines = ",\n       ".join(", ".join(gradient[i:i + 5]) for i in range(0, len(gradient), 5))
    return "      {LossKind::%s, %g, %d, %.12g,\n       {%s}},\n" % (kind, smoothing, columns, value, lines)


print("""// What PyTorch 1.13's losses make of 3 rows of logits, in f64: the mean over rows, and its gradient. Printed
// by loss_values.py, which says from what.
#ifndef TESSERA_TESTS_KERNELS_CONFORMANCE_LOSS_VALUES_H_
#define TESSERA_TESTS_KERNELS_CONFORMANCE_LOSS_VALUES_H_

#include <cstdint>
#include <vector>

namespace tessera {

// clang-format off
constexpr int64_t kLossRows = 3;

enum class LossKind { kSoftmax, kSquareOfLabels, kSquareOfNumbers };

struct LossCase {
  LossKind kind;
  double smoothing;
  int64_t columns;
  double loss;
  std::vector<double> gradient;
};

inline std::vector<LossCase> LossCases() {
  return {
%s  };
}
// clang-format on

}  // namespace tessera

#endif  // TESSERA_TESTS_KERNELS_CONFORMANCE_LOSS_VALUES_H_""" % "".join(text(case) for case in CASES))
