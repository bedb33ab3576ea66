"""Where the library finds the values of a PyTorch tensor: in its own memory, or in a copy beside it."""
import ctypes
import operator
from typing import Callable, Sequence

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

    def use(self, tensor: torch.Tensor | None, holds: bool) -> None:
        """Goes on with this tensor, of as many entries: MemoryGroup.use and its `holds`."""
        if self._memory is not None and tensor is self._used and (
                tensor is None or tensor.data_ptr() == self._tensor.data_ptr()):
            return
        self._used = tensor
        self._tensor = tensor if tensor is None or not holds else tensor.detach()
        if tensor is not None and tensor.is_cpu and tensor.dtype == torch.float32 and tensor.is_contiguous():
            self.is_copy, self._memory, self._given = False, self._tensor, None
            return
        if self._memory is None or not self.is_copy:
            pinned = tensor is not None and tensor.is_cuda
            self._memory = torch.zeros(self._shape, dtype=torch.float32, pin_memory=pinned)
        self.is_copy = True

    @property
    def memory(self) -> torch.Tensor:
        """What the library reads and writes."""
        return self._memory

    @property
    def device(self) -> torch.device | None:
        return None if self._tensor is None else self._tensor.device

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

    def gather_gradient(self) -> None:
        """Tensor to copy; 0 where there is none."""
        self._memory.zero_() if self._tensor is None else self.gather_all()

    def scatter(self) -> None:
        """Copy to tensor. A GPU may be at work on it until it is synchronized."""
        if self._tensor is None:
            return
        self._tensor.copy_(self._memory.reshape(self._tensor.shape), non_blocking=self._memory.is_pinned())
        if self._tensor.dtype in _HALVES:
            self._given = self._tensor.clone() if self._given is None else self._given.copy_(self._tensor)


class MemoryGroup:
    """The memory of all values, or of all gradients. `set` is what the library is given.

    holds  views of the tensors are kept, so that memory lives that a tensor lets go of; not needed where the library
           uses the memory during a call alone
    """

    def __init__(self, tensors: Sequence[Tensor], holds: bool):
        self._memories = [TensorMemory(tensor) for tensor in tensors]
        self._holds = holds
        self._copies: list[TensorMemory] = []
        self._found: list[torch.Tensor | None] = []
        self._addresses: list[int] = []
        self.set: ArraySet | None = None

    def use(self, found: list[torch.Tensor | None]) -> None:
        """Goes on with these tensors, of which each may be another one, or lie elsewhere, than at the last call. None:
        the values stay in a copy."""
        addresses = [0 if tensor is None else tensor.data_ptr() for tensor in found]
        if self.set is not None and addresses == self._addresses and all(map(operator.is_, found, self._found)):
            return
        for memory, tensor in zip(self._memories, found):
            memory.use(tensor, self._holds)
        self._found, self._addresses = found, addresses
        self._copies = [memory for memory in self._memories if memory.is_copy]
        owners = [memory.memory for memory in self._memories]
        places = [owner.data_ptr() for owner in owners]
        self.set = ArraySet((ctypes.c_void_p * len(places))(*places), owners, places)

    def each_copy(self, do: Callable[[TensorMemory], None]) -> None:
        """Does something with all that does not lie in place, and waits until that is done."""
        if not self._copies:
            return
        with torch.no_grad():
            for memory in self._copies:
                do(memory)
        for device in {memory.device for memory in self._copies}:
            if device is not None and device.type == "cuda":
                torch.cuda.synchronize(device)
