#!/usr/bin/python3
"""Prints torch_sequences.h: what one step of PyTorch makes of models of tokens.

    torch_sequences.py > torch_sequences.h

Run at the top of the tree; needs Debian's python3-torch (made with 1.13.1). Modules are made by
deploy/examples/pytorch_model.py. Parameters and tokens are what torch_sequences_test.cc computes as well. Of each
gradient there are its norm and its products with four waves, which tell any two gradients apart.
"""
import json
import math
import sys

import torch

sys.path.insert(0, "deploy/examples")
from pytorch_model import module_of  # noqa: E402

ROWS = 3
WAVES = 4


def block(heads, units, attention, mlp):
    return {"repeat": {"times": 2, "layers": [
        {"residual": {"layers": ["layer_norm", {"attention": dict(heads=heads, **attention)}]}},
        {"residual": {"layers": ["layer_norm", {"linear": {"units": 4 * units}}, mlp, {"linear": {"units": units}}]}}]}}


def tokens(vocabulary, context):
    return {"tokens": {"vocabulary": vocabulary, "context": context}}


MODELS = {
    "a small GPT with tied outputs": {
        "input": tokens(11, 9),
        "layers": [{"embedding": {"units": 12}}, block(3, 12, {}, "gelu"), "layer_norm",
                   {"linear": {"units": "vocabulary", "tied": True, "bias": False}}]},
    "without positions, mask and biases": {
        "input": tokens(7, 5),
        "layers": [{"embedding": {"units": 8, "positions": "none"}},
                   block(2, 8, {"causal": False, "bias": False}, {"gelu": {"approximate": "tanh"}}),
                   {"linear": {"units": "vocabulary"}}]},
    "without residual sums, tied with a bias": {
        "input": tokens(6, 10),
        "layers": [{"embedding": {"units": 10}}, {"attention": {"heads": 5}}, {"layer_norm": {"affine": False}},
                   {"linear": {"units": 16}}, "tanh", {"linear": {"units": 10}},
                   {"linear": {"units": "vocabulary", "tied": True}}]},
    "a concat of heads and values": {
        "input": tokens(5, 4),
        "layers": [{"embedding": {"units": 6}},
                   {"concat": [[{"attention": {"heads": 1}}], [{"linear": {"units": 3}}, "relu"], []]},
                   {"linear": {"units": 5}}]},
}


def wave(count, phase, step):
    return torch.tensor([math.sin(phase + step * i) for i in range(count)], dtype=torch.float64)


def values(model):
    net = module_of(model)
    net.double().train()
    for number, parameter in enumerate(net.parameters()):
        # Matrices are about 0, vectors about 1, and none is like another.
        columns = parameter[0].numel() if parameter.dim() > 1 else 1
        middle = 0 if columns > 1 else 1
        start = middle + wave(parameter.numel(), 1 + 1.3 * number, 0.7) / math.sqrt(columns + 3)
        parameter.data = start.reshape(parameter.shape)
    shape = model["input"]["tokens"]
    count = ROWS * shape["context"]
    # The square keeps neighbours from being alike in all rows.
    x = torch.tensor([(3 * i + i * i // 5) % shape["vocabulary"] for i in range(count)]).reshape(ROWS, -1)
    labels = torch.tensor([(7 * i + 2) % shape["vocabulary"] for i in range(count)])
    y = net(x)
    loss = torch.nn.functional.cross_entropy(y.flatten(0, 1), labels)
    loss.backward()
    gradients = {}
    for name, parameter in net.named_parameters():
        gradient = parameter.grad.flatten()
        products = [float(gradient @ wave(len(gradient), k, 0.3 + 0.5 * k)) for k in range(WAVES)]
        gradients[name] = [float(gradient.norm())] + products
    return y.flatten().tolist(), float(loss), gradients


def numbers(items):
    return ", ".join("%.8g" % item for item in items)


def wrapped(text, indent):
    lines, line = [], ""
    for word in text.split(" "):
        if len(line) + len(word) > 90:
            lines.append(line)
            line = ""
        line += (" " if line else "") + word
    return ("\n" + " " * indent).join(lines + [line])


def main():
    print("// Made by torch_sequences.py with PyTorch %s: do not edit." % torch.__version__.split("+")[0])
    print("#ifndef TESSERA_TESTS_WORKER_MODEL_TORCH_SEQUENCES_H_\n"
          "#define TESSERA_TESTS_WORKER_MODEL_TORCH_SEQUENCES_H_\n")
    print("#include <string>\n#include <utility>\n#include <vector>\n\nnamespace tessera {\n")
    print("struct TorchSequences {\n  std::string name;\n  // As a job file has it.\n  std::string model;\n"
          "  std::vector<double> outputs;\n  double loss;\n  // By parameter: the norm, and the products with waves.\n"
          "  std::vector<std::pair<std::string, std::vector<double>>> gradients;\n};\n")
    print("// clang-format off\ninline const std::vector<TorchSequences> kTorchSequences = {")
    for name, model in MODELS.items():
        outputs, loss, gradients = values(model)
        print("    {\"%s\",\n     R\"(%s)\",\n     {%s},\n     %.8g,\n     {" %
              (name, wrapped(json.dumps(model), 0), wrapped(numbers(outputs), 6), loss))
        for parameter, found in gradients.items():
            print("      {\"%s\", {%s}}," % (parameter, numbers(found)))
        print("     }},")
    print("};\n// clang-format on\n\n}  // namespace tessera\n\n"
          "#endif  // TESSERA_TESTS_WORKER_MODEL_TORCH_SEQUENCES_H_")


if __name__ == "__main__":
    main()
