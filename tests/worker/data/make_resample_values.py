"""Prints the values of resample_values.h: what Pillow's resize(BILINEAR) makes of parts of a small picture.

    python3 tests/worker/data/make_resample_values.py > tests/worker/data/resample_values.h

Wants Pillow (the values were made with 9.4, Debian's python3-pil) and NumPy.
"""
import numpy as np
from PIL import Image

# top, left, height and width of the part, then height and width of what is made of it
CASES = [((0, 0, 7, 9), (3, 4)), ((0, 0, 7, 9), (10, 12)), ((1, 2, 5, 6), (4, 4)), ((0, 0, 7, 9), (7, 9)),
         ((6, 8, 1, 1), (2, 3))]


def braces(values):
    return "{" + ", ".join(str(int(v)) for v in np.asarray(values).ravel()) + "}"


def main():
    picture = np.random.RandomState(7).randint(0, 256, (7, 9)).astype(np.uint8)
    print("// Made by make_resample_values.py.\n#ifndef TESSERA_TESTS_WORKER_DATA_RESAMPLE_VALUES_H_")
    print("#define TESSERA_TESTS_WORKER_DATA_RESAMPLE_VALUES_H_\n\n#include <cstdint>\n#include <vector>\n")
    print('#include "worker/data/resample.h"\n\nnamespace tessera {\n')
    print("// 7 x 9 values.\ninline const std::vector<uint8_t> kResampled = %s;\n" % braces(picture))
    print("struct ResampleCase {\n  Rectangle from;\n  int64_t height;\n  int64_t width;")
    print("  std::vector<uint8_t> values;\n};")
    print("inline const std::vector<ResampleCase> kResampleCases = {")
    for (top, left, height, width), (to_height, to_width) in CASES:
        part = Image.fromarray(picture).crop((left, top, left + width, top + height))
        print("    {%s, %d, %d, %s}," % (braces([top, left, height, width]), to_height, to_width,
                                        braces(part.resize((to_width, to_height), Image.BILINEAR))))
    print("};\n\n}  // namespace tessera\n\n#endif  // TESSERA_TESTS_WORKER_DATA_RESAMPLE_VALUES_H_")


if __name__ == "__main__":
    main()
