"""Reads TensorBoard's event files from the definition of the format, which shares nothing with what writes them.

A record is a length of 8 bytes, its masked CRC-32C, the data and its masked CRC-32C, all little-endian. Data is a
tensorflow.Event in protobuf's encoding: wall_time = 1, step = 2, file_version = 3, summary = 5 {value = 1 {tag = 1,
simple_value = 2}}, session_log = 7 {status = 1}.
"""
import struct


def crc32c(data):
    """The remainder of the data, bit by bit, with Castagnoli's polynomial."""
    crc = 0xFFFFFFFF
    for byte in data:
        for bit in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if (crc ^ byte >> bit) & 1 else 0)
    return crc ^ 0xFFFFFFFF


def unmask(masked):
    rotated = (masked - 0xA282EAD8) & 0xFFFFFFFF
    return (rotated >> 17 | rotated << 15) & 0xFFFFFFFF


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def fields(data):
    """[(number, value)] of a message; values are integers, or bytes."""
    found, at = [], 0
    while at < len(data):
        key, at = varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = varint(data, at)
        else:
            size = {1: 8, 5: 4}.get(kind)
            if size is None:
                assert kind == 2, kind
                size, at = varint(data, at)
            value, at = data[at:at + size], at + size
            assert len(value) == size
        found.append((key >> 3, value))
    return found


def events(path):
    """[{"wall_time", "step", and one of "version", "scalars": {tag: value}, "session"}] of a file."""
    with open(path, "rb") as file:
        content = file.read()
    found, at = [], 0
    while at < len(content):
        head = content[at:at + 8]
        (length,), (check,) = struct.unpack("<Q", head), struct.unpack("<I", content[at + 8:at + 12])
        assert unmask(check) == crc32c(head), "the length's checksum"
        data = content[at + 12:at + 12 + length]
        assert len(data) == length, "the record is cut off"
        assert unmask(struct.unpack("<I", content[at + 12 + length:at + 16 + length])[0]) == crc32c(data)
        at += 16 + length
        event = {"step": 0}
        for number, value in fields(data):
            if number == 1:
                event["wall_time"], = struct.unpack("<d", value)
            elif number == 2:
                event["step"] = value
            elif number == 3:
                event["version"] = value.decode()
            elif number == 5:
                event["scalars"] = {}
                for _, each in fields(value):
                    scalar = dict(fields(each))
                    event["scalars"][scalar[1].decode()], = struct.unpack("<f", scalar[2])
            elif number == 7:
                event["session"] = dict(fields(value))[1]
        found.append(event)
    return found
