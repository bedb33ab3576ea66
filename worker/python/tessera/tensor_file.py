"""Tensors in a file, in NumPy alone: the safetensors layout (https://huggingface.co/docs/safetensors).

    file    = length header data
    length  = 8 bytes, little-endian: bytes of the header
    header  = JSON: {"__metadata__": {"key": "value"}, "name": {"dtype": "F32", "shape": [2, 3],
                     "data_offsets": [begin, end]}, ...}, may end with spaces
    data    = the tensors, row-major and little-endian; offsets count from its begin, and the tensors fill it without a
              hole and without an overlap
"""
import json
import math
import os
import sys
from typing import Any, Mapping

import numpy as np

HEADER_BYTES_MAX = 100_000_000
# Data begins at a multiple of this.
ALIGNMENT_BYTES = 64
DTYPES = {"BOOL": "?", "U8": "u1", "I8": "i1", "U16": "<u2", "I16": "<i2", "F16": "<f2", "U32": "<u4", "I32": "<i4",
          "F32": "<f4", "U64": "<u8", "I64": "<i8", "F64": "<f8", "BF16": "<u2"}
_NAMES = {np.dtype(code): name for name, code in DTYPES.items() if name != "BF16"}


def save_tensors(tensors: Mapping[str, Any], path: str | os.PathLike,
                 metadata: Mapping[str, str] | None = None) -> None:
    """Writes NumPy arrays or PyTorch tensors, such as model.state_dict(), under their names and in their order.

    The file changes all at once. Tensors of bfloat16 are written as such, those of a GPU are fetched. `metadata` are
    texts that go with them.

    Raises ValueError: a value that is no tensor, a dtype that the layout lacks, or the name "__metadata__" or "";
    OSError where the file cannot be written, which leaves the one that was there.
    """
    if any(not isinstance(text, str) for item in (metadata or {}).items() for text in item):
        raise ValueError("%s: metadata are %s, want texts by names that are texts" % (path, metadata))
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    arrays, begin = [], 0
    for name, value in tensors.items():
        if not isinstance(name, str) or name in ("", "__metadata__"):
            raise ValueError("%s: %r is no name of a tensor" % (path, name))
        dtype, array = _array_of(path, name, value)
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [begin, begin + array.nbytes]}
        begin += array.nbytes
        arrays.append(array)
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-(len(text) + 8) % ALIGNMENT_BYTES)
    if len(text) > HEADER_BYTES_MAX:
        raise ValueError("%s: the header takes %d bytes, want at most %d" % (path, len(text), HEADER_BYTES_MAX))
    part = "%s.part-%d" % (os.fspath(path), os.getpid())
    try:
        with open(part, "wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            for array in arrays:
                file.write(array.reshape(-1).view(np.uint8).data)
        os.replace(part, path)
    except BaseException:
        if os.path.exists(part):
            os.remove(part)
        raise


def _array_of(path: Any, name: str, value: Any) -> tuple[str, np.ndarray]:
    """The layout's name of the type, and the values in its order of bytes."""
    dtype = None
    if type(value).__module__.split(".")[0] == "torch" or hasattr(value, "detach"):
        torch = sys.modules["torch"]
        value = value.detach().cpu().contiguous()
        if value.dtype == torch.bfloat16:
            dtype, value = "BF16", value.view(torch.int16)
        value = value.numpy()
    if not isinstance(value, (np.ndarray, np.generic)):
        raise ValueError("%s: %s is a %s, want a NumPy array or a PyTorch tensor" % (path, name, type(value).__name__))
    # ascontiguousarray makes an array of one dimension of a scalar.
    array = np.ascontiguousarray(value).reshape(np.shape(value))
    array = array.astype(array.dtype.newbyteorder("<"), copy=False)
    dtype = dtype or _NAMES.get(array.dtype)
    if dtype is None:
        raise ValueError("%s: %s is of %s, want one of %s" % (path, name, array.dtype, ", ".join(sorted(DTYPES))))
    return dtype, array


def load_tensors(path: str | os.PathLike, metadata: dict[str, str] | None = None) -> dict[str, np.ndarray]:
    """The tensors of a file by name, as arrays of one's own. BF16 becomes float32, which has all its values.

    `metadata`, where given, gets the texts that the file has beside them.

    Raises ValueError that says where the file is not what the layout says: it is cut, its header is none, a name comes
    twice, a dtype is unknown, offsets lie outside, overlap or leave a hole. OSError: it cannot be read.
    """
    size = os.path.getsize(path)
    with open(path, "rb") as file:
        length = int.from_bytes(_read(path, file, 8, size), "little")
        if length > min(HEADER_BYTES_MAX, size - 8):
            raise ValueError("%s: the header is said to take %d bytes, want at most %d" %
                             (path, length, min(HEADER_BYTES_MAX, size - 8)))
        header = _parse(path, _read(path, file, length, size))
        texts = header.pop("__metadata__", {})
        if not isinstance(texts, dict) or any(not isinstance(text, str) for text in texts.values()):
            raise ValueError("%s: __metadata__ is %.100r, want texts by name" % (path, texts))
        data_bytes = size - 8 - length
        places = sorted(_place(path, name, entry, data_bytes) for name, entry in header.items())
        at = 0
        for begin, end, name, _, _ in places:
            if begin != at:
                raise ValueError("%s: %s begins at byte %d of the data, want %d: tensors %s" %
                                 (path, name, begin, at, "overlap" if begin < at else "leave a hole"))
            at = end
        if at != data_bytes:
            raise ValueError("%s: %d bytes at its end are of no tensor" % (path, data_bytes - at))
        read = {}
        for begin, end, name, dtype, shape in places:
            array = np.empty(shape, DTYPES[dtype])
            if file.readinto(array.reshape(-1).view(np.uint8).data) != end - begin:
                raise ValueError("%s: it was cut while it was read" % path)
            if dtype == "BF16":
                array = (array.astype(np.uint32) << 16).view(np.float32)
            read[name] = array.astype(array.dtype.newbyteorder("="), copy=False)
    if metadata is not None:
        metadata.update(texts)
    return {name: read[name] for name in header}


def _read(path: Any, file: Any, count: int, size: int) -> bytes:
    data = file.read(count)
    if len(data) != count:
        raise ValueError("%s: it ends after %d bytes, in its header" % (path, size))
    return data


def _parse(path: Any, text: bytes) -> dict[str, Any]:
    def unique(pairs: list) -> dict:
        keys = dict(pairs)
        if len(keys) != len(pairs):
            names = [key for key, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            raise ValueError("%s: \"%s\" is given twice" % (path, twice))
        return keys

    try:
        header = json.loads(text.decode("utf-8"), object_pairs_hook=unique)
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise ValueError("%s: the header is no JSON: %s" % (path, error)) from None
    if not isinstance(header, dict):
        raise ValueError("%s: the header is %.100r, want names with what each tensor is" % (path, header))
    return header


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2 ** 63


def _place(path: Any, name: str, entry: Any, data_bytes: int) -> tuple[int, int, str, str, list[int]]:
    """(begin, end, name, dtype, shape) of one tensor, checked against the bytes that there are."""
    if not name:
        raise ValueError("%s: a tensor has no name" % path)
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise ValueError("%s: %s is %.100r, want dtype, shape and data_offsets" % (path, name, entry))
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise ValueError("%s: %s is of %.100r, want one of %s" % (path, name, dtype, ", ".join(sorted(DTYPES))))
    if not isinstance(shape, list) or not all(map(_is_count, shape)):
        raise ValueError("%s: %s has shape %.100r, want a list of sizes" % (path, name, shape))
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(map(_is_count, offsets)):
        raise ValueError("%s: %s has data_offsets %.100r, want its begin and its end" % (path, name, offsets))
    want = math.prod(shape) * np.dtype(DTYPES[dtype]).itemsize
    begin, end = offsets
    if end - begin != want:
        raise ValueError("%s: %s has %d bytes, want %d for %s %s" % (path, name, end - begin, want, dtype, shape))
    if end > data_bytes:
        raise ValueError("%s: %s ends at byte %d of the data, which has %d; the file may be cut" %
                         (path, name, end, data_bytes))
    return begin, end, name, dtype, shape
