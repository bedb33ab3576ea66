"""An example: a small GPT (Radford et al., 2019) over the characters of a text, in PyTorch.

    python3 -m tessera.example_gpt TEXT --init init.safetensors
    python3 -m tessera.example_gpt TEXT --job job.yaml

The last tenth of the text is for testing. The job's model.evaluation is minimise: the score is the mean loss.
"""
import sys

import torch
from torch import nn

from tessera.example_torch import arguments_of, train


class Block(nn.Module):
    """Attention and a network of each place, both behind a norm and around a sum."""

    def __init__(self, units: int, heads: int):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(units), nn.LayerNorm(units)
        self.attention = nn.MultiheadAttention(units, heads, batch_first=True)
        self.network = nn.Sequential(nn.Linear(units, 4 * units), nn.GELU(), nn.Linear(4 * units, units))

    def forward(self, x: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        y = self.norm1(x)
        x = x + self.attention(y, y, y, attn_mask=hidden, need_weights=False)[0]
        return x + self.network(self.norm2(x))


class Gpt(nn.Module):
    """Tokens [rows, places] to scores [rows, places, vocabulary]. The last layer has the embedding's weight."""

    def __init__(self, vocabulary: int, context: int, units: int, layers: int, heads: int):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, units)
        self.positions = nn.Parameter(torch.zeros(context, units))
        self.blocks = nn.ModuleList(Block(units, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(units)
        nn.init.normal_(self.embedding.weight, std=0.02)
        nn.init.normal_(self.positions, std=0.02)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        places = tokens.shape[1]
        hidden = torch.ones(places, places, dtype=torch.bool, device=tokens.device).triu(1)
        x = self.embedding(tokens) + self.positions[:places]
        for block in self.blocks:
            x = block(x, hidden)
        return nn.functional.linear(self.norm(x), self.embedding.weight)


def main() -> int:
    parser = arguments_of("example_gpt", "a small GPT over the characters of a text")
    parser.add_argument("text")
    parser.add_argument("--batch", type=int, default=12)
    parser.add_argument("--context", type=int, default=64)
    parser.add_argument("--units", type=int, default=128)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--heads", type=int, default=4)
    arguments = parser.parse_args()
    with open(arguments.text, encoding="utf-8") as file:
        text = file.read()
    characters = sorted(set(text))
    numbers = {character: number for number, character in enumerate(characters)}
    tokens = torch.tensor([numbers[character] for character in text])
    context = arguments.context
    training, test = tokens[:len(tokens) * 9 // 10], tokens[len(tokens) * 9 // 10:]
    if len(test) <= context:
        raise SystemExit("%s has %d characters, want more than %d, for windows of %d"
                         % (arguments.text, len(text), 10 * context + 10, context))
    torch.manual_seed(arguments.seed)
    model = Gpt(len(characters), context, arguments.units, arguments.layers, arguments.heads)

    def windows(data: torch.Tensor, begins: torch.Tensor) -> tuple:
        places = begins[:, None] + torch.arange(context)
        return data[places], data[places + 1]

    def draw(generator: torch.Generator) -> tuple:
        return windows(training, torch.randint(len(training) - context, (arguments.batch,), generator=generator))

    def loss_of(batch: tuple) -> torch.Tensor:
        return nn.functional.cross_entropy(model(batch[0]).flatten(0, 1), batch[1].flatten())

    def evaluate() -> dict:
        begins = torch.arange(0, len(test) - context, context)
        losses = [float(loss_of(tuple(tensor.to(arguments.device) for tensor in windows(test, some)))) * len(some)
                  for some in begins.split(64)]
        loss = sum(losses) / len(begins)
        return {"score": loss, "loss": loss, "rows": len(begins)}

    return train(arguments, model, draw, loss_of, evaluate)


if __name__ == "__main__":
    sys.exit(main())
