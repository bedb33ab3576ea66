"""What the CUDA kernels ask of a GPU, counted by running the benchmark's on the PTX machine (tests/kernels/cuda/ptx),
where there is nvcc and no GPU. Run it in the repository's root.

A line for each kernel that goes over the benchmark's arrays, per entry: instructions of a thread, each at about what it
costs sm_90; bytes loaded and stored, in the pieces of 32 that a warp's accesses touch; and the time of the instructions
as a share of the memory's on an H200: 132 multiprocessors that issue 4 warps at 1.755 GHz, and 4.0 TB/s, about what a
copy reaches. Above 1 the instructions are what takes the time.
"""
import argparse
import os
import re
import subprocess
import sys
import tempfile

ISSUED_PER_SECOND = 132 * 4 * 1.755e9  # of warps
BYTES_PER_SECOND = 4.0e12
WARP, PIECE = 32, 32
TARGETS = ["//bench/gpu:gpu", "//tests/kernels/cuda/ptx:libptx_machine.so"]


def counts(path):
    """Name and numbers of each kernel."""
    with open(path, encoding="utf-8") as file:
        for line in file:
            name, *rest = line.split(" unreached")[0].split()
            if "launches" in rest:
                readable = subprocess.run(["c++filt", name], stdout=subprocess.PIPE, text=True, check=True).stdout
                kernel = re.search(r"Run<(.*?) ?>\(", readable).group(1).replace("tessera::cuda::", "")
                yield kernel, dict(zip(rest[::2], map(int, rest[1::2])))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--columns", type=int, default=8192, help="a multiple of 4")
    sizes = parser.parse_args()
    built = subprocess.run(["bazel", "build", "--config=cuda"] + TARGETS, stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, text=True, check=False)
    if built.returncode != 0:
        sys.exit("counted.py: bazel build --config=cuda\n" + built.stdout)
    with tempfile.TemporaryDirectory() as folder:
        report = os.path.join(folder, "report")
        preload = os.path.abspath("bazel-bin/tests/kernels/cuda/ptx/libptx_machine.so")
        done = subprocess.run(
            ["bazel-bin/bench/gpu/gpu", "--device", "cuda", "--rows", str(sizes.rows), "--columns", str(sizes.columns),
             "--width", "64", "--batch", "16", "--seconds", "0.001"],
            env=dict(os.environ, LD_PRELOAD=preload, TESSERA_PTX_REPORT=report), stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode != 0:
            sys.exit("counted.py: the benchmark ended with %d\n%s" % (done.returncode, done.stdout))
        entries = sizes.rows * sizes.columns
        print("%-38s %12s %8s %8s %14s" % ("kernel", "instructions", "loaded", "stored", "issue / memory"))
        for kernel, count in sorted(counts(report)):
            instructions = count["issued"] * WARP / entries
            loaded, stored = count["loaded"] * PIECE / entries, count["stored"] * PIECE / entries
            if loaded + stored < 1:
                continue  # It went over something smaller.
            share = (instructions / WARP / ISSUED_PER_SECOND) / ((loaded + stored) / BYTES_PER_SECOND)
            print("%-38s %12.1f %8.2f %8.2f %14.2f" % (kernel, instructions, loaded, stored, share))


if __name__ == "__main__":
    main()
