"""What a worker keeps between runs, as bytes that are read without unpickling objects.

It is made of tensors, numbers, texts and None, and of dicts, lists and tuples of these.
"""
import inspect
import io
import json
from typing import Any

import torch


def to_bytes(state: Any) -> bytes:
    """Raises ValueError: something in it is of another type."""
    tensors: list[torch.Tensor] = []
    text = json.dumps(_described(state, tensors))
    file = io.BytesIO()
    torch.save({"state": text, "tensors": tensors}, file)
    return file.getvalue()


def from_bytes(data: bytes) -> Any:
    """What to_bytes was given; its tensors are on the CPU."""
    # PyTorch 1.13 reads tensors and texts so, and no floats: these are in the text.
    safely = {"weights_only": True} if "weights_only" in inspect.signature(torch.load).parameters else {}
    read = torch.load(io.BytesIO(data), map_location="cpu", **safely)
    return _made(json.loads(read["state"]), read["tensors"])


def _described(value: Any, tensors: list[torch.Tensor]) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, torch.Tensor):
        tensors.append(value.detach())
        return {"tensor": len(tensors) - 1}
    if isinstance(value, (list, tuple)):
        return {type(value).__name__: [_described(item, tensors) for item in value]}
    if isinstance(value, dict):
        return {"dict": [[_described(key, tensors), _described(item, tensors)] for key, item in value.items()]}
    raise ValueError("state: it has a %s, want tensors, numbers, texts, dicts and lists; keep it by on_save"
                     % type(value).__name__)


def _made(described: Any, tensors: list[torch.Tensor]) -> Any:
    if not isinstance(described, dict):
        return described
    (kind, items), = described.items()
    if kind == "tensor":
        return tensors[items]
    if kind == "dict":
        return {_made(key, tensors): _made(item, tensors) for key, item in items}
    made = [_made(item, tensors) for item in items]
    return tuple(made) if kind == "tuple" else made
