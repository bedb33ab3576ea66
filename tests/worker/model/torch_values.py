#!/usr/bin/python3
"""Prints torch_values.h: what one step of PyTorch makes of models with blocks.

    torch_values.py > torch_values.h

Needs Debian's python3-torch (made with 1.13.1). Parameters and rows are the sines that torch_values_test.cc computes as
well. Of each gradient there are its norm and its products with four waves, which tell any two gradients apart.
"""
import json
import math
import os
import sys

import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "deploy", "examples"))
from pytorch_model import module_of  # noqa: E402

ROWS = 6
WAVES = 4


def conv(channels, kernel=3, stride=1, padding=None, bias=False):
    return {"conv2d": {"channels": channels, "kernel": kernel, "stride": stride,
                       "padding": kernel // 2 if padding is None else padding, "bias": bias}}


def basic(channels, stride=1, shortcut=None):
    block = {"layers": [conv(channels, 3, stride), "batch_norm", "relu", conv(channels), "batch_norm"]}
    if shortcut:
        block["shortcut"] = [conv(channels, 1, stride, 0), "batch_norm"]
    return [{"residual": block}, "relu"]


def unit(channels, kernel, **more):
    return [conv(channels, kernel, **more), "batch_norm", "relu"]


MODELS = {
    "a small ResNet": {
        "input": [3, 8, 8],
        "layers": unit(6, 3) + [{"repeat": {"times": 2, "layers": basic(6)}}] + basic(10, 2, True) + basic(10) +
        ["avg_pool", {"linear": {"units": 5}}]},
    "an Inception block": {
        "input": [3, 7, 6],
        "layers": unit(6, 3) + [
            {"concat": [unit(4, 1), unit(3, 1) + unit(5, 3), unit(2, 1) + unit(3, 3) + unit(3, 3),
                        [{"max_pool": {"kernel": 3, "stride": 1, "padding": 1}}] + unit(3, 1)]},
            {"max_pool": {"kernel": 2}}, {"linear": {"units": 4}}]},
    "a dense block and a block first": {
        "input": [2, 6, 6],
        "layers": [{"concat": [[], unit(3, 3)]}, {"concat": [[], unit(3, 3)]}, {"concat": [[], [], ["relu"]]},
                   "avg_pool", {"linear": {"units": 3}}]},
    "residual sums of features": {
        "input": [12],
        "layers": [{"residual": {"layers": [{"linear": {"units": 9}}, "relu", {"linear": {"units": 12}}]}},
                   {"repeat": {"times": 2, "layers": [
                       {"residual": {"layers": [{"linear": {"units": 7, "bias": False}}, "batch_norm", "relu",
                                                {"residual": {"layers": ["relu", {"linear": {"units": 7}}]}},
                                                {"linear": {"units": 12}}],
                                     "shortcut": [{"linear": {"units": 12}}]}}]}},
                   "relu", {"linear": {"units": 4}}]},
    "two flattened ends of one image": {
        "input": [2, 5, 4],
        "layers": unit(4, 3) + [{"concat": [[{"linear": {"units": 6}}, "relu"], [{"linear": {"units": 3}}],
                                            ["avg_pool", {"linear": {"units": 2}}]]}, {"linear": {"units": 3}}]},
}


def wave(count, phase, step):
    return torch.tensor([math.sin(phase + step * i) for i in range(count)], dtype=torch.float64)


def initial(number, parameter):
    scale = 1 / math.sqrt(parameter[0].numel()) if parameter.dim() > 1 else 0.1
    values = scale * wave(parameter.numel(), 1 + 1.3 * number, 0.7)
    return values.reshape(parameter.shape)


def values(model):
    net = module_of(model).double().train()
    for number, (name, parameter) in enumerate(net.named_parameters()):
        start = initial(number, parameter)
        # The weight of a norm is about 1.
        parameter.data = start + 1 if parameter.dim() == 1 and name.endswith("weight") else start
    x = wave(ROWS * math.prod(model["input"]), 0.5, 0.9).reshape(ROWS, *model["input"])
    y = net(x)
    labels = torch.arange(ROWS) % y.shape[1]
    loss = torch.nn.functional.cross_entropy(y, labels)
    loss.backward()
    gradients = []
    for name, parameter in net.named_parameters():
        gradient = parameter.grad.flatten()
        products = [float(gradient @ wave(len(gradient), k, 0.3 + 0.5 * k)) for k in range(WAVES)]
        gradients.append((name, [float(gradient.norm())] + products))
    return y.flatten().tolist(), float(loss), gradients


def numbers(items):
    return ", ".join("%.8g" % item for item in items)


def main():
    print("// Made by torch_values.py with PyTorch %s: do not edit." % torch.__version__.split("+")[0])
    print("#ifndef TESSERA_TESTS_WORKER_MODEL_TORCH_VALUES_H_\n#define TESSERA_TESTS_WORKER_MODEL_TORCH_VALUES_H_\n")
    print("#include <string>\n#include <vector>\n\nnamespace tessera {\n")
    print("struct TorchGradient {\n  std::string name;\n  // Its norm, and its products with waves.\n"
          "  std::vector<double> numbers;\n};\n")
    print("struct TorchModel {\n  std::string name;\n  // As `model` of a job file.\n  std::string model;\n"
          "  std::vector<double> outputs;\n  double loss;\n  std::vector<TorchGradient> gradients;\n};\n")
    print("// clang-format off\ninline const std::vector<TorchModel> kTorchModels = {")
    for name, model in MODELS.items():
        outputs, loss, gradients = values(model)
        print("    {\"%s\",\n     R\"(%s)\",\n     {%s},\n     %.8g,\n     {" %
              (name, wrapped(json.dumps(model)), wrapped(numbers(outputs)), loss))
        for gradient, found in gradients:
            print("      {\"%s\",\n       {%s}}," % (gradient, numbers(found)))
        print("     }},")
    print("};\n// clang-format on\n\n}  // namespace tessera\n\n#endif  // TESSERA_TESTS_WORKER_MODEL_TORCH_VALUES_H_")


def wrapped(text):
    lines, line = [], ""
    for word in text.split(" "):
        if len(line) + len(word) > 100:
            lines.append(line)
            line = ""
        line += (" " if line else "") + word
    return "\n".join(lines + [line])


if __name__ == "__main__":
    main()
