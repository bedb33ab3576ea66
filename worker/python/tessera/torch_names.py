"""Which tensor of a PyTorch model is which of the job's."""
import fnmatch
from typing import Iterable, Mapping, Sequence

import torch

from tessera.arrays import listed
from tessera.tensor import Tensor


class LocalNames:
    """Names of what is never exchanged: a set given by names and patterns."""

    def __init__(self, patterns: Iterable[str]):
        self.patterns = [patterns] if isinstance(patterns, str) else list(patterns)

    def __contains__(self, name: str) -> bool:
        return any(fnmatch.fnmatchcase(name, pattern) for pattern in self.patterns)

    def without_use(self, names: Iterable[str]) -> list[str]:
        """The patterns that none of these names fits."""
        names = list(names)
        return [pattern for pattern in self.patterns if not any(fnmatch.fnmatchcase(name, pattern) for name in names)]


def match(tensors: Sequence[Tensor], state: Mapping[str, torch.Tensor], parameters: Sequence[str],
          local: LocalNames) -> list[str | None]:
    """For each of the job's parameters the name in the model's state_dict; None: it is local.

    `parameters`: the names in the state_dict that are parameters, in the model's order.

    Raises ValueError with all that does not fit: a tensor of the job that the model lacks, another shape, a parameter
    of the model that the job lacks, a pattern of `local` that nothing fits.
    """
    parameters = [name for name in parameters if name not in local]
    wrong = ["local: no tensor fits \"%s\"" % pattern
             for pattern in local.without_use([*state, *(tensor.name for tensor in tensors)])]
    # The names of a job with layers, of which the model has none: they are made of the layers' numbers.
    if tensors and all(tensor.name.startswith("layers.") and tensor.name not in state for tensor in tensors):
        names = _by_order(tensors, state, parameters, wrong)
    else:
        names = _by_name(tensors, state, parameters, local, wrong)
    if wrong:
        more = "; and %d more" % (len(wrong) - 50) if len(wrong) > 50 else ""
        raise ValueError("attach: the model is not the job's: " + "; ".join(wrong[:50]) + more)
    return names


def _by_name(tensors: Sequence[Tensor], state: Mapping[str, torch.Tensor], parameters: Sequence[str],
             local: LocalNames, wrong: list[str]) -> list[str | None]:
    names: list[str | None] = [None if tensor.name in local else tensor.name for tensor in tensors]
    for tensor in tensors:
        if tensor.name in local:
            continue
        if tensor.name not in state:
            wrong.append("the model has no tensor \"%s\", which the job has; local=[...] leaves it out" % tensor.name)
        elif not state[tensor.name].is_floating_point():
            wrong.append("\"%s\" is of %s in the model, want floating numbers"
                         % (tensor.name, state[tensor.name].dtype))
        elif tuple(state[tensor.name].shape) != tensor.shape:
            wrong.append("\"%s\" has shape %s in the model, want the job's %s"
                         % (tensor.name, list(state[tensor.name].shape), list(tensor.shape)))
    exchanged = {tensor.name for tensor in tensors}
    # Of a tensor with two names (tied weights) one is enough.
    shared = {id(state[name]) for name in exchanged if name in state}
    left_over = [name for name in parameters if name not in exchanged and id(state[name]) not in shared]
    if left_over:
        wrong.append("the job has no tensor %s; local=[...] keeps such parameters here" % listed(left_over))
    return names


def _by_order(tensors: Sequence[Tensor], state: Mapping[str, torch.Tensor], parameters: Sequence[str],
              wrong: list[str]) -> list[str | None]:
    if len(parameters) != len(tensors):
        wrong.append("it has %d parameters, the job's layers have %d" % (len(parameters), len(tensors)))
    for name, tensor in zip(parameters, tensors):
        if tuple(state[name].shape) != tensor.shape:
            wrong.append("\"%s\" has shape %s, want %s of \"%s\""
                         % (name, list(state[name].shape), list(tensor.shape), tensor.name))
    return list(parameters)
