"""Callers' arrays as the library wants them: one pointer for each tensor, checked, and kept alive."""
import ctypes
from typing import Any, Mapping, Sequence

import numpy as np

from tessera.tensor import Tensor


class ArraySet:
    """Pointers to the memory of one array for each tensor, in the job's order.

    The arrays are NumPy's and used in place. `owners` holds them for as long as this object lives. One thread.
    """

    def __init__(self, pointers: Any, owners: list, addresses: list[int]):
        self.pointers = pointers
        self.owners = owners
        self.addresses = addresses

    def __len__(self) -> int:
        return len(self.pointers)

    def same_as(self, arrays: Sequence) -> bool:
        """Whether it was made of these very arrays, so that it need not be made again."""
        return len(arrays) == len(self.owners) and all(a is b for a, b in zip(arrays, self.owners))


def in_order(arrays: Mapping[str, np.ndarray] | Sequence[np.ndarray], tensors: Sequence[Tensor],
             what: str) -> Sequence[np.ndarray]:
    """The arrays in the order of `tensors`; of a mapping, by name.

    Raises ValueError: another number of arrays than tensors, or names that are missing or that no tensor has.
    """
    if isinstance(arrays, Mapping):
        names = [tensor.name for tensor in tensors]
        missing = [name for name in names if name not in arrays]
        left_over = sorted(set(arrays) - set(names))
        if missing or left_over:
            raise ValueError("%s: %s" % (what, "; ".join(
                ["no array for %s" % listed(missing)] * bool(missing) +
                ["the job has no tensor %s" % listed(left_over)] * bool(left_over))))
        return [arrays[name] for name in names]
    if len(arrays) != len(tensors):
        raise ValueError("%s: %d arrays, want %d, in the order of job.tensors" % (what, len(arrays), len(tensors)))
    return arrays


def array_set(arrays: Mapping[str, np.ndarray] | Sequence[np.ndarray], tensors: Sequence[Tensor], what: str,
              written: bool) -> ArraySet:
    """Checks every array and takes its address. `written`: the library writes into them.

    Raises ValueError that names each tensor whose array does not fit, and why.
    """
    ordered = in_order(arrays, tensors, what)
    wrong = [wrongness for tensor, array in zip(tensors, ordered) if (wrongness := check(tensor, array, written))]
    if wrong:
        raise ValueError("%s: %s" % (what, "; ".join(wrong[:20]) + (" and %d more" % (len(wrong) - 20)
                                                                    if len(wrong) > 20 else "")))
    addresses = [array.ctypes.data for array in ordered]
    return ArraySet((ctypes.c_void_p * len(ordered))(*addresses), list(ordered), addresses)


def check(tensor: Tensor, array: Any, written: bool) -> str:
    """What is wrong with the array of a tensor; "" where nothing is."""
    if not isinstance(array, np.ndarray):
        return "%s is a %s, want a NumPy array" % (tensor.name, type(array).__name__)
    if array.dtype != np.float32:
        return "%s is of %s, want float32" % (tensor.name, array.dtype)
    if array.size != tensor.size or (array.ndim > 1 and array.shape != tensor.shape):
        return "%s has shape %s, want %s" % (tensor.name, list(array.shape), list(tensor.shape))
    if not array.flags.c_contiguous:
        return "%s is not contiguous in row-major order; numpy.ascontiguousarray makes a copy that is" % tensor.name
    if written and not array.flags.writeable:
        return "%s may not be written" % tensor.name
    return ""


def listed(names: Sequence[str], most: int = 10) -> str:
    """Some names for people, and how many more there are."""
    more = " and %d more" % (len(names) - most) if len(names) > most else ""
    return ", ".join('"%s"' % name for name in names[:most]) + more
