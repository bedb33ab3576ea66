"""Writes testdata/: small pictures of every kind, and beside each NAME.rgb, its pixels as Pillow decodes them.

    python3 tests/worker/data/picture/make_testdata.py

Wants Pillow 9.4 (Debian's python3-pil) and NumPy. The files were made with Pillow on libjpeg-turbo 2.1.5.
"""
import io
import pathlib
import struct
import zlib

import numpy as np
from PIL import Image, ImageOps

HEIGHT, WIDTH = 10, 14


def scene(channels):
    """Smooth, so that JPEG keeps it, and without any symmetry."""
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH]
    planes = [20 + 9 * x + 5 * y, 200 - 6 * x - 3 * y, 40 + 15 * y, 255 - 12 * x]
    return np.stack(planes[:channels], axis=-1).astype(np.uint8)


def chunk(kind, content):
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png16(values, colour):
    """A PNG of 16 bits a value, which Pillow cannot write in colour."""
    height, width = values.shape[:2]
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in values)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 16, colour, 0, 0, 0))
            + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def main():
    folder = pathlib.Path(__file__).parent / "testdata"
    folder.mkdir(exist_ok=True)

    def write(name, content, pixels=None):
        (folder / name).write_bytes(content)
        if pixels is not None:
            (folder / (name + ".rgb")).write_bytes(np.ascontiguousarray(pixels).tobytes())

    def saved(picture, kind, **options):
        buffer = io.BytesIO()
        picture.save(buffer, kind, **options)
        return buffer.getvalue()

    def decoded(content):
        return np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(content))).convert("RGB"))

    colour, grey = Image.fromarray(scene(3)), Image.fromarray(scene(1)[..., 0])
    cases = {
        "colour.jpg": saved(colour, "JPEG", quality=90),
        "progressive.jpg": saved(colour, "JPEG", quality=90, progressive=True),
        "grey.jpg": saved(grey, "JPEG", quality=90),
        "colour.png": saved(colour, "PNG"),
        "grey.png": saved(grey, "PNG"),
        "two_colours.png": saved(grey.point(lambda v: 255 * (v > 90)).convert("1"), "PNG"),
        "palette.png": saved(colour.quantize(16), "PNG", transparency=3),
        "alpha.png": saved(Image.fromarray(scene(4)), "PNG"),
        "grey_alpha.png": saved(Image.merge("LA", [grey, grey]), "PNG"),
    }
    for orientation in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = orientation
        cases["turned_%d.jpg" % orientation] = saved(colour, "JPEG", quality=90, exif=exif)
    cases["turned_6.png"] = saved(colour, "PNG", exif=exif_of(6))
    for name, content in cases.items():
        write(name, content, decoded(content))
    # Seven passes, each of the filter "none".
    write("interlaced.png", interlaced(scene(3)), scene(3))
    wide = scene(3).astype(np.uint32) * 257 + 100
    write("colour_16.png", png16(np.minimum(wide, 65535), 2), np.rint(np.minimum(wide, 65535) / 257).astype(np.uint8))
    wide = np.minimum(scene(1).astype(np.uint32) * 257 + 130, 65535)
    write("grey_16.png", png16(wide, 0), np.repeat(np.rint(wide / 257).astype(np.uint8), 3, axis=-1))
    # What is refused.
    write("cmyk.jpg", saved(Image.fromarray(scene(4), "CMYK"), "JPEG"))
    write("picture.gif", saved(colour.quantize(16), "GIF"))
    write("picture.bmp", saved(colour, "BMP"))
    write("gigantic.png", b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 60000, 60000, 8, 2, 0, 0, 0))
          + chunk(b"IDAT", zlib.compress(b"\0" * 1000)) + chunk(b"IEND", b""))
    jpeg = bytearray(cases["colour.jpg"])
    frame = jpeg.index(b"\xff\xc0")
    jpeg[frame + 5:frame + 9] = struct.pack(">HH", 60000, 60000)
    write("gigantic.jpg", bytes(jpeg))
    # A larger one, which is decoded at a reduced size; Pillow's draft mode asks the library for the same.
    y, x = np.mgrid[0:120, 0:200]
    large = np.stack([x, 2 * y, 255 - x], axis=-1).astype(np.uint8)
    content = saved(Image.fromarray(large), "JPEG", quality=90)
    half = Image.open(io.BytesIO(content))
    half.draft("RGB", (100, 60))
    write("large.jpg", content, np.asarray(half.convert("RGB")))


def exif_of(orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    return exif


def interlaced(values):
    passes = [(0, 8, 0, 8), (0, 8, 4, 8), (4, 8, 0, 4), (0, 4, 2, 4), (2, 4, 0, 2), (0, 2, 1, 2), (1, 2, 0, 1)]
    rows = b""
    for top, down, left, across in passes:
        part = values[top::down, left::across]
        if part.size:
            rows += b"".join(b"\0" + row.tobytes() for row in part)
    height, width = values.shape[:2]
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 1))
            + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


if __name__ == "__main__":
    main()
