"""The PyTorch module of a job's model: `module_of(job["model"])`.

    state, facts = load("model.safetensors")        # docs/operating/models.md
    net = module_of(yaml.safe_load(open("job.yaml"))["model"])
    net.load_state_dict(state, strict=True)

`model` is the job file's `model` as Python has it: a dict with `input` and `layers`. Names of parameters are those of
`tessera export`. A row is x[i] of shape `input`, and the module returns the values in front of the loss.
"""
import torch
from torch import nn


def pair(value, absent=None):
    """One number for both, or height and width."""
    value = absent if value is None else value
    value = value if isinstance(value, (list, tuple)) else [value]
    return (int(value[0]), int(value[-1]))


class Linear(nn.Linear):
    """Images are flattened as [channels, height, width]."""

    def forward(self, x):
        return super().forward(x.flatten(1))


class Residual(nn.Module):
    def __init__(self, layers, shortcut):
        super().__init__()
        self.layers, self.shortcut = layers, shortcut

    def forward(self, x):
        return self.layers(x) + self.shortcut(x)


class Concat(nn.Module):
    def __init__(self, branches):
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x):
        return torch.cat([branch(x) for branch in self.branches], dim=1)


def pool(kind, keys, x):
    kernel = pair(keys.get("kernel"), x.shape[2:])
    return kind(kernel, pair(keys.get("stride"), kernel), pair(keys.get("padding"), 0))


def activations():
    return {"relu": lambda keys: nn.ReLU(), "tanh": lambda keys: nn.Tanh(), "sigmoid": lambda keys: nn.Sigmoid(),
            "silu": lambda keys: nn.SiLU(), "gelu": lambda keys: nn.GELU(keys.get("approximate", "none")),
            "leaky_relu": lambda keys: nn.LeakyReLU(keys.get("slope", 0.01)),
            "dropout": lambda keys: nn.Dropout(keys.get("probability", 0.5))}


def layer_of(kind, keys, x):
    """One layer that reads what x is like, of which only the shape counts."""
    channels = x.shape[1]
    if kind in activations():
        return activations()[kind](keys)
    if kind == "linear":
        return Linear(x[0].numel(), keys["units"], keys.get("bias", True))
    if kind == "conv2d":
        return nn.Conv2d(channels, keys["channels"], pair(keys["kernel"]), pair(keys.get("stride"), 1),
                         pair(keys.get("padding"), 0), pair(keys.get("dilation"), 1), int(keys.get("groups", 1)),
                         keys.get("bias", True))
    if kind == "batch_norm":
        norm = nn.BatchNorm2d if x.dim() == 4 else nn.BatchNorm1d
        return norm(channels, float(keys.get("epsilon", 1e-5)), affine=keys.get("affine", True))
    if kind == "layer_norm":
        return nn.LayerNorm(list(x.shape[1:]), float(keys.get("epsilon", 1e-5)), keys.get("affine", True))
    if kind == "group_norm":
        return nn.GroupNorm(keys["groups"], channels, float(keys.get("epsilon", 1e-5)), keys.get("affine", True))
    if kind == "local_response_norm":
        return nn.LocalResponseNorm(keys.get("size", 5), float(keys.get("alpha", 1e-4)), float(keys.get("beta", 0.75)),
                                    float(keys.get("k", 1)))
    if kind == "max_pool":
        return pool(nn.MaxPool2d, keys, x)
    if kind == "avg_pool":
        return pool(nn.AvgPool2d, keys, x)
    if kind == "residual":
        return Residual(sequence_of(keys["layers"], x)[0], sequence_of(keys.get("shortcut") or [], x)[0])
    if kind == "concat":
        branches = keys["branches"] if isinstance(keys, dict) else keys
        return Concat([sequence_of(branch["layers"] if isinstance(branch, dict) else branch, x)[0]
                       for branch in branches])
    if kind == "repeat":
        return sequence_of([{"repeat once": keys["layers"]}] * keys["times"], x)[0]
    if kind == "repeat once":
        return sequence_of(keys, x)[0]
    raise ValueError("no such layer: %s" % kind)


def sequence_of(layers, x):
    """The layers, of which the first reads x, and what the last makes of it."""
    made = nn.Sequential()
    for layer in layers:
        kind, keys = (layer, {}) if isinstance(layer, str) else next(iter(layer.items()))
        made.append(layer_of(kind, keys or {}, x))
        with torch.no_grad():
            x = made[-1].eval()(x)
        made[-1].train()
    return made, x


def module_of(model):
    net = nn.Module()
    images = len(model["input"]) == 3
    x = torch.zeros(1, *(model["input"] if images else [int(torch.tensor(model["input"]).prod())]))
    net.layers = sequence_of(model["layers"], x)[0]
    net.forward = lambda rows: net.layers(rows)
    return net
