#!/usr/bin/python3
"""Prints torch_layers.h: what one step of PyTorch makes of models with norms within rows, other activations, and
convolutions with groups and gaps.

    torch_layers.py > torch_layers.h

Needs Debian's python3-torch (made with 1.13.1). Models are written in the words of model_fixture.h. Parameters and rows
are the sines that torch_layers_test.cc computes as well. Of each gradient there are its norm and its products with four
waves, which tell any two gradients apart.
"""
import math

import torch
from torch import nn

ROWS = 6
WAVES = 4
MODELS = {
    "an AlexNet block": "3 13 11 conv:8:5:2:2 relu lrn:5:0.5:0.75:2 max:3:2 conv:12:3:1:1:1:2 relu lrn:5:0.1:0.75:1 "
                        "max:2 linear:10 relu linear:4",
    "a layer-norm network": "20 linear:24 lnorm gelu linear:16 lnorm silu linear:12 lnorm- gelu:tanh linear:5",
    "layer norms of images": "3 7 6 lnorm conv:6:3:1:1 lnorm leaky:0.1 conv:6:3:2:1:1:6 conv:8:1 lnorm- tanh linear:4",
    "group norms": "4 9 8 conv:6:3:1:2:2:2 gnorm:3 silu conv:8:2x3:1:1x0:1x2 gnorm-:2 logistic avg:2 linear:12 gnorm:4 "
                   "tanh linear:5",
    "even windows of responses": "2 6 5 conv:7:3:1:1 lrn:4:2:1.5:0.5 gelu lrn:2:1:0.5:1 linear:3",
}


class Flat(nn.Module):
    """Reads images as features where it must."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x.flatten(1))


def pair(text):
    numbers = [int(number) for number in text.split("x")]
    return (numbers[0], numbers[-1])


def layer_of(word, x):
    name, *parts = word.split(":")
    has_parameters = not name.endswith("-")
    name = name.rstrip("-")
    channels = x.shape[1]
    window = [pair(part) for part in parts] if name in ("conv", "max", "avg") else []
    if name == "linear":
        return Flat(nn.Linear(x[0].numel(), int(parts[0]), has_parameters))
    if name == "conv":
        kernel, stride, padding, dilation = (window[1:5] + [None, 1, 0, 1][len(window[1:5]):])
        groups = int(parts[5]) if len(parts) > 5 else 1
        return nn.Conv2d(channels, int(parts[0]), kernel, stride, padding, dilation, groups, has_parameters)
    if name in ("max", "avg"):
        return (nn.MaxPool2d if name == "max" else nn.AvgPool2d)(*window)
    if name == "lnorm":
        return nn.LayerNorm(list(x.shape[1:]), elementwise_affine=has_parameters)
    if name == "gnorm":
        return nn.GroupNorm(int(parts[0]), channels, affine=has_parameters)
    if name == "lrn":
        return nn.LocalResponseNorm(int(parts[0]), *(float(part) for part in parts[1:]))
    if name == "gelu":
        return nn.GELU(*parts)
    return {"relu": nn.ReLU, "tanh": nn.Tanh, "logistic": nn.Sigmoid, "silu": nn.SiLU,
            "leaky": lambda: nn.LeakyReLU(float(parts[0]))}[name]()


def module_of(text):
    words = text.split()
    sizes = [int(word) for word in words if word.isdigit()]
    x = torch.zeros(1, *sizes)
    net = nn.Sequential()
    for word in words[len(sizes):]:
        net.append(layer_of(word, x))
        x = net[-1](x)
    return net, sizes


def wave(count, phase, step):
    return torch.tensor([math.sin(phase + step * i) for i in range(count)], dtype=torch.float64)


def values(text):
    net, sizes = module_of(text)
    net.double().train()
    for number, parameter in enumerate(net.parameters()):
        # Those that a layer multiplies with are about 0, all others about 1, and none is like another.
        columns = parameter[0].numel() if parameter.dim() > 1 else 1
        middle = 0 if columns > 1 else 1
        start = middle + wave(parameter.numel(), 1 + 1.3 * number, 0.7) / math.sqrt(columns + 3)
        parameter.data = start.reshape(parameter.shape)
    x = wave(ROWS * math.prod(sizes), 0.5, 0.9).reshape(ROWS, *sizes)
    y = net(x)
    loss = nn.functional.cross_entropy(y, torch.arange(ROWS) % y.shape[1])
    loss.backward()
    gradients = []
    for parameter in net.parameters():
        gradient = parameter.grad.flatten()
        products = [float(gradient @ wave(len(gradient), k, 0.3 + 0.5 * k)) for k in range(WAVES)]
        gradients.append([float(gradient.norm())] + products)
    return y.flatten().tolist(), float(loss), gradients


def numbers(items):
    return ", ".join("%.8g" % item for item in items)


def wrapped(text):
    lines, line = [], ""
    for word in text.split(" "):
        if len(line) + len(word) > 90:
            lines.append(line)
            line = ""
        line += (" " if line else "") + word
    return "\n      ".join(lines + [line])


def main():
    print("// Made by torch_layers.py with PyTorch %s: do not edit." % torch.__version__.split("+")[0])
    print("#ifndef TESSERA_TESTS_WORKER_MODEL_TORCH_LAYERS_H_\n#define TESSERA_TESTS_WORKER_MODEL_TORCH_LAYERS_H_\n")
    print("#include <string>\n#include <vector>\n\nnamespace tessera {\n")
    print("struct TorchLayers {\n  std::string name;\n  // As ModelOf reads it.\n  std::string model;\n"
          "  std::vector<double> outputs;\n  double loss;\n  // By parameter: the norm, and the products with waves.\n"
          "  std::vector<std::vector<double>> gradients;\n};\n")
    print("// clang-format off\ninline const std::vector<TorchLayers> kTorchLayers = {")
    for name, text in MODELS.items():
        outputs, loss, gradients = values(text)
        half = text.rfind(" ", 0, len(text) // 2)
        print("    {\"%s\",\n     \"%s\"\n     \"%s\",\n     {%s},\n     %.8g,\n     {" %
              (name, text[:half], text[half:] + " softmax", wrapped(numbers(outputs)), loss))
        for found in gradients:
            print("      {%s}," % numbers(found))
        print("     }},")
    print("};\n// clang-format on\n\n}  // namespace tessera\n\n#endif  // TESSERA_TESTS_WORKER_MODEL_TORCH_LAYERS_H_")


if __name__ == "__main__":
    main()
