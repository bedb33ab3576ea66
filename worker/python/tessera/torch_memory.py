"""Where the library finds the values of a PyTorch tensor: in its own memory, or in a copy beside it."""
import ctypes
from typing import Callable

import torch

from tessera.arrays import ArraySet
from tessera.tensor import Tensor

_HALVES = (torch.float16, torch.bfloat16)


class TensorMemory:
    """The memory of one of the job's tensors: float32, dense, on the CPU.

    A tensor that is all of this is used in place. Another one has a copy, pinned where the tensor is a GPU's. Of a
    tensor of 16 bits the copy keeps the 24 bits of the servers' values: what is pushed is the copy plus what the tensor
    changed by since, so that rounding it adds up to nothing.
    """

    def __init__(self, tensor: Tensor):
        self._shape = tensor.shape
        self._tensor: torch.Tensor | None = None  # what is copied from and to; None: nothing
        self._used: torch.Tensor | None = None    # the tensor that `use` was given
        self._memory: torch.Tensor | None = None  # what the library reads and writes
        self._given: torch.Tensor | None = None   # a tensor of 16 bits as it was at the last copy
        self.is_copy = True

    def use(self, tensor: torch.Tensor | None) -> None:
        """Goes on with this tensor, of as many entries. None: the values stay in the copy."""
        # A view holds the memory, which the tensor itself may let go of.
        if self._memory is not None and tensor is self._used and (
                tensor is None or tensor.data_ptr() == self._tensor.data_ptr()):
            return
        self._used, self._tensor = tensor, None if tensor is None else tensor.detach()
        if tensor is not None and tensor.device.type == "cpu" and tensor.dtype == torch.float32 and \
                tensor.is_contiguous():
            self.is_copy, self._memory, self._given = False, self._tensor, None
            return
        if self._memory is None or not self.is_copy:
            pinned = tensor is not None and tensor.device.type == "cuda"
            self._memory = torch.zeros(self._shape, dtype=torch.float32, pin_memory=pinned)
        self.is_copy = True

    @property
    def memory(self) -> torch.Tensor:
        """What the library reads and writes."""
        return self._memory

    @property
    def device(self) -> torch.device | None:
        return None if self._tensor is None else self._tensor.device

    def clear(self) -> None:
        """The copy becomes 0."""
        self._memory.zero_()

    def gather(self) -> None:
        """Tensor to copy. A GPU may be at work on it until it is synchronized."""
        if self._tensor is None or self._tensor.dtype not in _HALVES or self._given is None:
            return self.gather_all()
        change = (self._tensor.float() - self._given.float()).cpu()
        self._memory += change.reshape(self._shape)
        self._given.copy_(self._tensor)

    def gather_all(self) -> None:
        """As `gather`, but nothing of what the copy had is kept."""
        if self._tensor is not None:
            self._memory.copy_(self._tensor.reshape(self._shape), non_blocking=self._memory.is_pinned())

    def scatter(self) -> None:
        """Copy to tensor. A GPU may be at work on it until it is synchronized."""
        if self._tensor is None:
            return
        self._tensor.copy_(self._memory.reshape(self._tensor.shape), non_blocking=self._memory.is_pinned())
        if self._tensor.dtype in _HALVES:
            self._given = self._tensor.clone() if self._given is None else self._given.copy_(self._tensor)


def copied(memories: list[TensorMemory], copy: Callable[[TensorMemory], None]) -> None:
    """Copies all that do not lie in place, and waits until that is done."""
    devices = set()
    with torch.no_grad():
        for memory in memories:
            if memory.is_copy:
                copy(memory)
                devices.add(memory.device)
    for device in devices:
        if device is not None and device.type == "cuda":
            torch.cuda.synchronize(device)


def data_set(memories: list[TensorMemory], before: ArraySet | None) -> ArraySet:
    """The addresses of all. `before`, the set of the last time, is used again where nothing has moved."""
    owners = [memory.memory for memory in memories]
    addresses = [owner.data_ptr() for owner in owners]
    if before is not None and before.addresses == addresses:
        return before
    return ArraySet((ctypes.c_void_p * len(addresses))(*addresses), owners, addresses)
