"""An example: ResNet-18 (He, Zhang, Ren, Sun, 2016) on pictures of 32 x 32, in PyTorch.

    python3 -m tessera.example_resnet PICTURES.npy LABELS.npy --init init.safetensors
    python3 -m tessera.example_resnet PICTURES.npy LABELS.npy --job job.yaml

PICTURES are bytes [rows, 3, 32, 32] or [rows, 32, 32, 3], LABELS whole numbers from 0. Every eighth row is for testing.
"""
import sys

import numpy as np
import torch
from torch import nn

from tessera.example_torch import arguments_of, train


class Block(nn.Module):
    """Two convolutions of 3 x 3, and what goes around them."""

    def __init__(self, inputs: int, channels: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, channels, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.downsample = nn.Identity()
        if stride != 1 or inputs != channels:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, channels, 1, stride, bias=False),
                                            nn.BatchNorm2d(channels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(y + self.downsample(x))


class ResNet18(nn.Module):
    """[rows, 3, 32, 32] to [rows, classes]. Its stem is one convolution of 3 x 3, without pooling."""

    def __init__(self, classes: int, width: int = 64):
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        blocks, inputs = [], width
        for stage in range(4):
            for stride in (1 if stage == 0 else 2, 1):
                blocks.append(Block(inputs, width << stage, stride))
                inputs = width << stage
        self.blocks = nn.Sequential(*blocks)
        self.fc = nn.Linear(inputs, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(self.blocks(torch.relu(self.bn1(self.conv1(x)))).mean((2, 3)))


def read_pictures(pictures: str, labels: str) -> tuple[torch.Tensor, torch.Tensor]:
    """(bytes [rows, 3, 32, 32], labels [rows])."""
    x, y = np.load(pictures), np.load(labels)
    if x.ndim == 4 and x.shape[3] == 3:
        x = x.transpose(0, 3, 1, 2)
    if x.shape[1:] != (3, 32, 32) or x.dtype != np.uint8 or y.shape != x.shape[:1]:
        raise SystemExit("%s and %s have %s of %s and %s, want [rows, 3, 32, 32] of uint8 and [rows]"
                         % (pictures, labels, list(x.shape), x.dtype, list(y.shape)))
    return torch.from_numpy(np.ascontiguousarray(x)), torch.from_numpy(y.astype(np.int64))


def main() -> int:
    parser = arguments_of("example_resnet", "ResNet-18 on pictures of 32 x 32")
    parser.add_argument("pictures")
    parser.add_argument("labels")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--width", type=int, default=64, help="channels of the first stage")
    arguments = parser.parse_args()
    x, y = read_pictures(arguments.pictures, arguments.labels)
    is_test = torch.arange(len(x)) % 8 == 7
    train_rows, test_rows = torch.where(~is_test)[0], torch.where(is_test)[0]
    torch.manual_seed(arguments.seed)
    model = ResNet18(int(y.max()) + 1, arguments.width)

    def pictures_of(rows: torch.Tensor) -> torch.Tensor:
        return (x[rows].float() / 255 - 0.5) / 0.25

    def draw(generator: torch.Generator) -> tuple:
        rows = train_rows[torch.randint(len(train_rows), (arguments.batch,), generator=generator)]
        values = pictures_of(rows)
        return (values.flip(3) if torch.rand(1, generator=generator) < 0.5 else values), y[rows]

    def evaluate() -> dict:
        right, loss = 0, 0.0
        for rows in test_rows.split(256):
            scores, labels = model(pictures_of(rows).to(arguments.device)), y[rows].to(arguments.device)
            loss += float(nn.functional.cross_entropy(scores, labels, reduction="sum"))
            right += int((scores.argmax(1) == labels).sum())
        count = max(1, len(test_rows))
        return {"score": right / count, "loss": loss / count, "rows": len(test_rows)}

    return train(arguments, model, draw, lambda batch: nn.functional.cross_entropy(model(batch[0]), batch[1]), evaluate)


if __name__ == "__main__":
    sys.exit(main())
