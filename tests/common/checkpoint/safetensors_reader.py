"""Reads a safetensors file with numpy, from the published layout alone: it shares no code with the program."""
import json
import struct

import numpy

DTYPES = {"BOOL": "?", "U8": "u1", "I8": "i1", "U16": "<u2", "I16": "<i2", "F16": "<f2", "U32": "<u4", "I32": "<i4",
          "F32": "<f4", "U64": "<u8", "I64": "<i8", "F64": "<f8"}


def no_repeats(pairs):
    keys = [key for key, _ in pairs]
    if len(keys) != len(set(keys)):
        raise ValueError("a key is given twice: %s" % keys)
    return dict(pairs)


def load(path):
    """The tensors by name, and the metadata. ValueError where the file is not what the layout says."""
    with open(path, "rb") as file:
        data = file.read()
    (length,) = struct.unpack("<Q", data[:8])
    if length > 100_000_000 or 8 + length > len(data):
        raise ValueError("the header's length is %d" % length)
    text = data[8:8 + length].decode("utf-8")
    if not text.startswith("{"):
        raise ValueError("the header begins with %r" % text[:1])
    header = json.loads(text, object_pairs_hook=no_repeats)
    body = data[8 + length:]
    metadata = header.pop("__metadata__", {})
    if not all(isinstance(value, str) for value in metadata.values()):
        raise ValueError("metadata is no text: %s" % metadata)
    tensors, covered = {}, []
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        dtype = numpy.dtype(DTYPES[entry["dtype"]])
        count = 1
        for extent in entry["shape"]:
            count *= extent
        if begin < 0 or end - begin != count * dtype.itemsize or end > len(body):
            raise ValueError("%s: %s" % (name, entry))
        tensors[name] = numpy.frombuffer(body[begin:end], dtype).reshape(entry["shape"])
        covered.append((begin, end))
    at = 0
    for begin, end in sorted(covered):
        if begin != at:
            raise ValueError("a hole or an overlap at byte %d" % at)
        at = end
    if at != len(body):
        raise ValueError("%d bytes belong to no tensor" % (len(body) - at))
    return tensors, metadata
