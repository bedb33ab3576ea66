"""The examples' network of handwritten digits, in NumPy: linear, perhaps batch norm, relu, linear, cross-entropy.

    z = x W1' + b1        z = gamma (z - mean) / sqrt(variance + epsilon) + beta, where there is a norm, and no b1
    h = max(z, 0)         y = h W2' + b2
    loss = mean over rows of -log softmax(y)[label]

Shapes: x [rows, 64], W1 [units, 64], b1, gamma and beta [units], W2 [10, units], b2 [10]; all float32.
"""
import gzip
import os

import numpy as np

EPSILON = np.float32(1e-5)
# The digits are 0 to 16 as bytes, which are divided by 255 first.
MEAN, STDDEV = np.float32(0.0192), np.float32(0.0236)


def read_idx(path: str) -> np.ndarray:
    """A compressed IDX file of bytes, in its shape."""
    with gzip.open(path, "rb") as file:
        data = file.read()
    dims = data[3]
    shape = [int.from_bytes(data[4 + 4 * i:8 + 4 * i], "big") for i in range(dims)]
    return np.frombuffer(data, np.uint8, offset=4 + 4 * dims).reshape(shape)


def read_digits(folder: str, part: str) -> tuple[np.ndarray, np.ndarray]:
    """(pictures [rows, 64] float32 and normalised, labels [rows] int64) of the part "train" or "test"."""
    pictures = read_idx(os.path.join(folder, "%s-images-idx3-ubyte.gz" % part))
    labels = read_idx(os.path.join(folder, "%s-labels-idx1-ubyte.gz" % part))
    values = pictures.reshape(len(pictures), -1).astype(np.float32) / np.float32(255)
    return (values - MEAN) / STDDEV, labels.astype(np.int64)


class DigitsNetwork:
    """Borrows its parameters: W1, b1, W2, b2, or W1, gamma, beta, W2, b2 with a norm."""

    def __init__(self, parameters: list[np.ndarray]):
        shapes = [parameter.ndim for parameter in parameters]
        if shapes not in ([2, 1, 2, 1], [2, 1, 1, 2, 1]):
            raise ValueError("digits: the job's model is not linear, relu, linear, nor that with a batch_norm: %s"
                             % [list(parameter.shape) for parameter in parameters])
        self.parameters = parameters
        self.has_norm = len(parameters) == 5
        self.gradients = [np.zeros_like(parameter) for parameter in parameters]

    def train(self, x: np.ndarray, labels: np.ndarray) -> float:
        """Forward and backward over one minibatch; its mean loss. The mean gradient is in `gradients`."""
        w1, *middle, w2, b2 = self.parameters
        z = x @ w1.T
        if self.has_norm:
            mean, variance = z.mean(0), z.var(0)
            inverse = 1 / np.sqrt(variance + EPSILON)
            normal = (z - mean) * inverse
            z = normal * middle[0] + middle[1]
        else:
            z = z + middle[0]
        h = np.maximum(z, 0)
        y = h @ w2.T + b2
        loss, dy = cross_entropy(y, labels)
        dz = (dy @ w2) * (z > 0)
        g1, *g_middle, g2, g_b2 = self.gradients
        g2[:], g_b2[:] = dy.T @ h, dy.sum(0)
        if self.has_norm:
            g_middle[0][:], g_middle[1][:] = (dz * normal).sum(0), dz.sum(0)
            rows = np.float32(len(x))
            dz = middle[0] * inverse * (dz - g_middle[1] / rows - normal * (g_middle[0] / rows))
        else:
            g_middle[0][:] = dz.sum(0)
        g1[:] = dz.T @ x
        return loss

    def evaluate(self, x: np.ndarray, labels: np.ndarray, training_x: np.ndarray) -> dict[str, float]:
        """Score (accuracy), loss and rows. A norm's mean and variance are those of the training rows."""
        w1, *middle, w2, b2 = self.parameters
        z = x @ w1.T
        if self.has_norm:
            seen = training_x @ w1.T
            z = (z - seen.mean(0)) / np.sqrt(seen.var(0) + EPSILON) * middle[0] + middle[1]
        else:
            z = z + middle[0]
        y = np.maximum(z, 0) @ w2.T + b2
        loss, _ = cross_entropy(y, labels)
        return {"score": float((y.argmax(1) == labels).mean()), "loss": loss, "rows": len(x)}


def cross_entropy(y: np.ndarray, labels: np.ndarray) -> tuple[float, np.ndarray]:
    """Mean of -log softmax(y)[label] over rows, and its gradient by y."""
    shifted = y - y.max(1, keepdims=True)
    powers = np.exp(shifted)
    sums = powers.sum(1, keepdims=True)
    rows = np.arange(len(y))
    loss = float((np.log(sums[:, 0]) - shifted[rows, labels]).mean(dtype=np.float64))
    gradient = powers / sums
    gradient[rows, labels] -= 1
    return loss, gradient / np.float32(len(y))
