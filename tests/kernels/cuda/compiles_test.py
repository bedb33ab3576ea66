"""nvcc takes the kernels, for every architecture that the build names, without a warning.

Skipped where there is no nvcc.
"""
import os
import re
import subprocess
import unittest

NVCC = os.path.join(os.environ.get("CUDA_HOME", "/usr/local/cuda"), "bin", "nvcc")


# Kernels that move whole words of 16 bytes (8 of bf16) where they can: so many loads and stores of those at least.
# A store of four bytes instead costs as much, and nothing else would tell.
WIDE = {
    r"ColumnMap<BiasOp, true>": (0, 8),
    r"ColumnMap<NormalizeOp, true>": (8, 8),
    r"ColumnMap<BackwardValuesOp, true>": (24, 8),
    r"DecodeBuckets": (0, 1),
    r"DecodePlain<": (1, 1),
    r"Elementwise<AdamOp": (4, 3),
    r"Elementwise<MomentumOp": (3, 2),
    r"Elementwise<PlainSgdOp": (2, 1),
    r"Elementwise<ReluOp": (2, 2),
    r"Elementwise<SubtractOp": (2, 1),
    r"EncodePlain<": (2, 2),
    r"EncodeRows<8": (16, 8),
    r"FindMarks": (8, 4),
}


@unittest.skipUnless(os.access(NVCC, os.X_OK), "no nvcc")
class Compiles(unittest.TestCase):
    def compiled(self, *arguments):
        """What nvcc says, and the file that it writes."""
        out = os.path.join(os.environ["TEST_TMPDIR"], "launch.out")
        command = [NVCC, "-std=c++17", "-O3", "-fmad=false", "--expt-relaxed-constexpr", "-I.", *arguments,
                   "kernels/cuda/launch.cu", "-o", out]
        done = subprocess.run(command, capture_output=True, text=True, timeout=100)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("warning", done.stderr)
        return done.stderr, out

    def test_every_kernel_keeps_its_values_in_registers(self):
        for architecture in ("80", "90"):
            said, _ = self.compiled("-Xptxas", "-v", "-arch=sm_%s" % architecture, "-c")
            self.assertGreater(len(re.findall(r"Used \d+ registers", said)), 30)
            # An index that the compiler does not know would put an array there.
            frames = [int(n) for n in re.findall(r"(\d+) bytes stack frame", said)]
            self.assertLessEqual(max(frames), 16, said)
            spilled = [int(n) for n in re.findall(r"(\d+) bytes spill stores", said)]
            self.assertLessEqual(sum(spilled), 16, said)

    def test_words_are_moved_whole(self):
        _, out = self.compiled("-arch=sm_90", "-ptx")
        with open(out, encoding="utf-8") as file:
            ptx = file.read()
        entries = re.findall(r"\.entry (\w+)\(.*?\n\{(.*?)\n\}", ptx, re.S)
        names = subprocess.run(["c++filt"], input="\n".join(name for name, _ in entries), capture_output=True,
                               text=True, check=True).stdout.replace("tessera::cuda::", "").splitlines()
        for pattern, (loads, stores) in WIDE.items():
            bodies = [body for name, (_, body) in zip(names, entries) if re.search(pattern, name)]
            self.assertTrue(bodies, "no kernel is called " + pattern)
            for body in bodies:
                self.assertGreaterEqual(len(re.findall(r"ld\.global\.v[24]", body)), loads, pattern)
                self.assertGreaterEqual(len(re.findall(r"st\.global\.v[24]", body)), stores, pattern)


if __name__ == "__main__":
    unittest.main()
