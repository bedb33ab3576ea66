#!/usr/bin/env python3
"""Prints reference_values.h: what PyTorch's optimizers make of 20 updates, in f64.

    reference_values.py > reference_values.h

Needs Debian's python3-torch (made with 1.13.1). Initial values, gradients and rates are the fractions that
optimizer_test.cc computes as well, exact in f32.
"""
import torch

ENTRIES = 7
UPDATES = 20
NAMES = {"square_avg": "mean_squares", "momentum_buffer": "momentum", "sum": "squares", "exp_avg": "mean",
         "exp_avg_sq": "squares"}

# Name, optimizer as in a job (protobuf text), PyTorch's.
CASES = [
    ("sgd", "sgd { learning_rate: 0.1 }", torch.optim.SGD, dict(lr=0.1)),
    ("sgd, decay", "sgd { learning_rate: 0.1 weight_decay: 0.05 }", torch.optim.SGD, dict(lr=0.1, weight_decay=0.05)),
    ("sgd, momentum", "sgd { learning_rate: 0.05 momentum: 0.9 }", torch.optim.SGD, dict(lr=0.05, momentum=0.9)),
    ("sgd, momentum and decay", "sgd { learning_rate: 0.05 momentum: 0.8 weight_decay: 0.1 }", torch.optim.SGD,
     dict(lr=0.05, momentum=0.8, weight_decay=0.1)),
    ("sgd, nesterov", "sgd { learning_rate: 0.05 momentum: 0.9 nesterov: true }", torch.optim.SGD,
     dict(lr=0.05, momentum=0.9, nesterov=True)),
    ("sgd, nesterov and decay", "sgd { learning_rate: 0.05 momentum: 0.8 weight_decay: 0.1 nesterov: true }",
     torch.optim.SGD, dict(lr=0.05, momentum=0.8, weight_decay=0.1, nesterov=True)),
    ("adagrad", "adagrad { learning_rate: 0.1 epsilon: 1e-10 }", torch.optim.Adagrad, dict(lr=0.1)),
    ("adagrad, decay and a large epsilon", "adagrad { learning_rate: 0.2 epsilon: 0.5 weight_decay: 0.1 }",
     torch.optim.Adagrad, dict(lr=0.2, eps=0.5, weight_decay=0.1)),
    ("adam", "adam { learning_rate: 0.05 beta1: 0.9 beta2: 0.999 epsilon: 1e-8 }", torch.optim.Adam, dict(lr=0.05)),
    ("adam, decay and a large epsilon",
     "adam { learning_rate: 0.1 beta1: 0.7 beta2: 0.95 epsilon: 0.25 weight_decay: 0.2 }", torch.optim.Adam,
     dict(lr=0.1, betas=(0.7, 0.95), eps=0.25, weight_decay=0.2)),
    ("adamw", "adamw { learning_rate: 0.05 beta1: 0.9 beta2: 0.999 epsilon: 1e-8 weight_decay: 0.01 }",
     torch.optim.AdamW, dict(lr=0.05)),
    ("adamw, decay and a large epsilon",
     "adamw { learning_rate: 0.1 beta1: 0.7 beta2: 0.95 epsilon: 0.25 weight_decay: 0.2 }", torch.optim.AdamW,
     dict(lr=0.1, betas=(0.7, 0.95), eps=0.25, weight_decay=0.2)),
    ("rmsprop", "rmsprop { learning_rate: 0.01 alpha: 0.99 epsilon: 1e-8 }", torch.optim.RMSprop, dict(lr=0.01)),
    ("rmsprop, decay, momentum and a large epsilon",
     "rmsprop { learning_rate: 0.05 alpha: 0.9 epsilon: 0.25 weight_decay: 0.1 momentum: 0.8 }", torch.optim.RMSprop,
     dict(lr=0.05, alpha=0.9, eps=0.25, weight_decay=0.1, momentum=0.8)),
]


def initial(i):
    return (i * 5 % 8 - 3.5) / 4


def gradient(update, i):
    return ((update * 37 + i * 17 + update * i * 5) % 64 - 31.5) / 32


def rate(update):
    return (1 + update % 4) / 4


def run(kind, keys):
    w = torch.tensor([initial(i) for i in range(ENTRIES)], dtype=torch.float64)
    optimizer = kind([w], **keys)
    for update in range(1, UPDATES + 1):
        w.grad = torch.tensor([gradient(update, i) for i in range(ENTRIES)], dtype=torch.float64)
        for group in optimizer.param_groups:
            group["lr"] = keys["lr"] * rate(update)
        optimizer.step()
    kept = optimizer.state[w]
    states = [(NAMES[key], kept[key]) for key in NAMES if kept.get(key) is not None]
    return [("w", w)] + states


def numbers(tensor):
    return ",\n       ".join(", ".join("%.10g" % x for x in row) for row in (tensor[:4].tolist(), tensor[4:].tolist()))


print("""// What PyTorch 1.13's optimizers make of 20 updates of 7 entries, in f64. Printed by
// reference_values.py, which says from what.
#ifndef TESSERA_TESTS_COMMON_RULE_REFERENCE_VALUES_H_
#define TESSERA_TESTS_COMMON_RULE_REFERENCE_VALUES_H_

#include <string>
#include <utility>
#include <vector>

namespace tessera {

// clang-format off
constexpr int kReferenceEntries = %d;
constexpr int kReferenceUpdates = %d;

struct ReferenceCase {
  std::string name;
  // v1::Optimizer as protobuf text.
  std::string optimizer;
  // "w", then the states by name, each after the last update.
  std::vector<std::pair<std::string, std::vector<double>>> values;
};

inline std::vector<ReferenceCase> ReferenceCases() {
  return {""" % (ENTRIES, UPDATES))
for name, job, kind, keys in CASES:
    print('      {"%s",\n       "%s",' % (name, job))
    arrays = ['{"%s",\n       {%s}}' % (key, numbers(values)) for key, values in run(kind, keys)]
    print("       {%s}}," % ",\n       ".join(arrays))
print("""  };
}

}  // namespace tessera

#endif  // TESSERA_TESTS_COMMON_RULE_REFERENCE_VALUES_H_""")
