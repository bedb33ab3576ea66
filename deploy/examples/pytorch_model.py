"""The PyTorch module of a job's model: `module_of(job["model"])`.

    state, facts = load("model.safetensors")        # docs/operating/models.md
    net = module_of(yaml.safe_load(open("job.yaml"))["model"])
    net.load_state_dict(state, strict=True)

`model` is the job file's `model` as Python has it: a dict with `input` and `layers`. Names of parameters are those of
`tessera export`. A row is x[i] of shape `input`, and the module returns the values in front of the loss. In a model of
tokens a row is `context` numbers of tokens, and the scores are [rows, context, vocabulary].
"""
import torch
from torch import nn


def pair(value, absent=None):
    """One number for both, or height and width."""
    value = absent if value is None else value
    value = value if isinstance(value, (list, tuple)) else [value]
    return (int(value[0]), int(value[-1]))


class Linear(nn.Linear):
    """Images are flattened as [channels, height, width]; of sequences each place is read by itself."""

    def forward(self, x):
        return super().forward(x.flatten(1) if x.dim() == 4 else x)


class Embedding(nn.Embedding):
    def __init__(self, vocabulary, units, context):
        super().__init__(vocabulary, units)
        if context:
            self.positions = nn.Parameter(torch.empty(context, units).normal_())

    def forward(self, tokens):
        return super().forward(tokens) + (self.positions if hasattr(self, "positions") else 0)


class Tied(nn.Module):
    """Multiplies with the embedding's weight, which is none of its own."""

    def __init__(self, embedding, bias):
        super().__init__()
        self.embedding = [embedding]
        self.bias = nn.Parameter(torch.zeros(embedding.num_embeddings)) if bias else None

    def forward(self, x):
        return nn.functional.linear(x, self.embedding[0].weight, self.bias)


class Attention(nn.MultiheadAttention):
    def __init__(self, units, keys):
        super().__init__(units, keys["heads"], keys.get("dropout", 0.0), keys.get("bias", True), batch_first=True)
        self.causal = keys.get("causal", True)

    def forward(self, x):
        places = x.shape[1]
        hidden = torch.ones(places, places, dtype=torch.bool).triu(1) if self.causal else None
        return super().forward(x, x, x, attn_mask=hidden, need_weights=False)[0]


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
        return torch.cat([branch(x) for branch in self.branches], dim=2 if x.dim() == 3 else 1)


def pool(kind, keys, x):
    kernel = pair(keys.get("kernel"), x.shape[2:])
    return kind(kernel, pair(keys.get("stride"), kernel), pair(keys.get("padding"), 0))


def activations():
    return {"relu": lambda keys: nn.ReLU(), "tanh": lambda keys: nn.Tanh(), "sigmoid": lambda keys: nn.Sigmoid(),
            "silu": lambda keys: nn.SiLU(), "gelu": lambda keys: nn.GELU(keys.get("approximate", "none")),
            "leaky_relu": lambda keys: nn.LeakyReLU(keys.get("slope", 0.01)),
            "dropout": lambda keys: nn.Dropout(keys.get("probability", 0.5))}


def layer_of(kind, keys, x, first):
    """One layer that reads what x is like, of which only the shape counts. `first`: the model's first layer."""
    channels = x.shape[1] if x.dim() > 1 else 0
    if kind in activations():
        return activations()[kind](keys)
    if kind == "linear":
        if keys.get("tied"):
            return Tied(first, keys.get("bias", True))
        units = first.num_embeddings if keys["units"] == "vocabulary" else keys["units"]
        return Linear(x.shape[2] if x.dim() == 3 else x[0].numel(), units, keys.get("bias", True))
    if kind == "attention":
        if keys.get("head_size", 0) not in (0, x.shape[2] // keys["heads"]):
            raise ValueError("PyTorch's heads are as wide as the units divided by them")
        return Attention(x.shape[2], keys)
    if kind == "conv2d":
        return nn.Conv2d(channels, keys["channels"], pair(keys["kernel"]), pair(keys.get("stride"), 1),
                         pair(keys.get("padding"), 0), pair(keys.get("dilation"), 1), int(keys.get("groups", 1)),
                         keys.get("bias", True))
    if kind == "batch_norm":
        norm = nn.BatchNorm2d if x.dim() == 4 else nn.BatchNorm1d
        return norm(channels, float(keys.get("epsilon", 1e-5)), affine=keys.get("affine", True))
    if kind == "layer_norm":
        shape = list(x.shape[2 if x.dim() == 3 else 1:])
        return nn.LayerNorm(shape, float(keys.get("epsilon", 1e-5)), keys.get("affine", True))
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
        return Residual(sequence_of(keys["layers"], x, first)[0],
                        sequence_of(keys.get("shortcut") or [], x, first)[0])
    if kind == "concat":
        branches = keys["branches"] if isinstance(keys, dict) else keys
        return Concat([sequence_of(branch["layers"] if isinstance(branch, dict) else branch, x, first)[0]
                       for branch in branches])
    if kind == "repeat":
        return sequence_of([{"repeat once": keys["layers"]}] * keys["times"], x, first)[0]
    if kind == "repeat once":
        return sequence_of(keys, x, first)[0]
    raise ValueError("no such layer: %s" % kind)


def sequence_of(layers, x, first=None):
    """The layers, of which the first reads x, and what the last makes of it."""
    made = nn.Sequential()
    for layer in layers:
        kind, keys = (layer, {}) if isinstance(layer, str) else next(iter(layer.items()))
        made.append(layer_of(kind, keys or {}, x, first))
        first = first or made[0]
        x = made[-1].eval()(x).detach()
        made[-1].train()
    return made, x


def language_model_of(model, net):
    tokens = model["input"]["tokens"]
    (_, keys), = model["layers"][0].items()
    learned = keys.get("positions", "learned") == "learned"
    embedding = Embedding(tokens["vocabulary"], keys["units"], tokens["context"] if learned else 0)
    x = embedding(torch.zeros(1, tokens["context"], dtype=torch.long)).detach()
    net.layers = nn.Sequential(embedding, *sequence_of(model["layers"][1:], x, embedding)[0])
    net.forward = lambda rows: net.layers(rows)
    return net


def module_of(model):
    net = nn.Module()
    if isinstance(model["input"], dict):
        return language_model_of(model, net)
    images = len(model["input"]) == 3
    x = torch.zeros(1, *(model["input"] if images else [int(torch.tensor(model["input"]).prod())]))
    net.layers = sequence_of(model["layers"], x)[0]
    net.forward = lambda rows: net.layers(rows)
    return net
