"""A torch.optim optimizer whose state a job averages, keeps in checkpoints, and whose rate it schedules."""
import copy
from typing import Sequence

import torch

from tessera.tensor import Tensor

# What an optimizer of torch.optim calls the states that a job may average.
STATE_KEYS = {"momentum": ("momentum_buffer",), "mean": ("exp_avg",), "m": ("exp_avg",),
              "squares": ("exp_avg_sq", "sum"), "v": ("exp_avg_sq",), "mean_squares": ("square_avg",)}


class OptimizerStates:
    """Borrows the optimizer. One thread, the trainer's."""

    def __init__(self, optimizer: torch.optim.Optimizer | None, tensors: Sequence[Tensor],
                 parameters: Sequence[torch.Tensor | None]):
        """`parameters`: the model's tensor of each of the job's parameters.

        Raises ValueError: the job averages a state that the optimizer does not have.
        """
        self._optimizer = optimizer
        self._keys: dict[int, str] = {}  # of what is averaged, by the tensor's index
        # (number of the parameter in the optimizer's state_dict, key) of each.
        self._places: set[tuple[int, str]] = set()
        averaged = [tensor for tensor in tensors if tensor.is_state]
        if averaged:
            self._make_states()
            self._find_keys(averaged, parameters)
        self._first = copy.deepcopy(optimizer.state_dict()) if optimizer is not None else None

    def tensor_of(self, index: int, parameter: torch.Tensor | None) -> torch.Tensor | None:
        """The state that the job's tensor `index` is, of this parameter; None: the optimizer does not train it."""
        key = self._keys.get(index)
        return None if key is None else self._optimizer.state[parameter][key]

    def step(self, rate: float) -> None:
        """The optimizer's step, with its learning rates times `rate`."""
        rates = [group["lr"] for group in self._optimizer.param_groups]
        if rate != 1:
            for group in self._optimizer.param_groups:
                group["lr"] = group["lr"] * rate
        try:
            self._optimizer.step()
        finally:
            for group, own in zip(self._optimizer.param_groups, rates):
                group["lr"] = own

    def private_state(self) -> dict:
        """The optimizer's state_dict without what the servers have."""
        saved, averaged = self._optimizer.state_dict(), self._places
        return {"param_groups": saved["param_groups"],
                "state": {index: {key: value for key, value in states.items() if (index, key) not in averaged}
                          for index, states in saved["state"].items()}}

    def load(self, saved: dict) -> None:
        """Goes on with what private_state had returned. Averaged states stay as they are."""
        states = self._optimizer.state_dict()["state"]
        for index, key in self._places:
            saved["state"].setdefault(index, {})[key] = states[index][key]
        self._optimizer.load_state_dict(saved)

    def begin_again(self) -> None:
        """The state is that of before the first step, but for what is averaged."""
        self.load(copy.deepcopy(self._first))

    def _find_keys(self, averaged: Sequence[Tensor], parameters: Sequence[torch.Tensor | None]) -> None:
        missing = set()
        numbers = {id(p): number for number, p in enumerate(p for group in self._optimizer.param_groups
                                                            for p in group["params"])}
        for tensor in averaged:
            parameter = parameters[tensor.parameter]
            if parameter is None or not parameter.requires_grad:
                continue
            states = self._optimizer.state.get(parameter, {})
            key = next((key for key in STATE_KEYS.get(tensor.state, ()) if isinstance(states.get(key), torch.Tensor)),
                       None)
            if key is None:
                missing.add(tensor.state)
            else:
                self._keys[tensor.index] = key
                self._places.add((numbers[id(parameter)], key))
        if missing:
            raise ValueError("attach: the job averages \"%s\" of the optimizer, which %s does not have with its "
                             "settings for every parameter; take the optimizer that train.optimizer names, or leave "
                             "average_state out" % ("\", \"".join(sorted(missing)), type(self._optimizer).__name__))

    def _make_states(self) -> None:
        """Makes the states before the first step, all 0: by a step without gradients and without a rate."""
        groups = self._optimizer.param_groups
        parameters = [p for group in groups for p in group["params"] if p.requires_grad]
        if any(self._optimizer.state.get(p) for p in parameters):
            return
        kept = [(p, p.detach().clone(), p.grad) for p in parameters]
        rates = [group["lr"] for group in groups]
        try:
            for p in parameters:
                p.grad = torch.zeros_like(p)
            for group in groups:
                group["lr"] = group["lr"] * 0
            self._optimizer.step()
        finally:
            with torch.no_grad():
                for p, value, grad in kept:
                    p.copy_(value)
                    p.grad = grad
            for group, rate in zip(groups, rates):
                group["lr"] = rate
        for states in self._optimizer.state.values():
            for key, value in states.items():
                if isinstance(value, torch.Tensor):
                    value.zero_()
                elif isinstance(value, (int, float)):
                    states[key] = type(value)(0)
