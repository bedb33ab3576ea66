"""nvcc takes the kernels without a warning, for every architecture that the build names, and makes of them what was
meant.

Skipped where there is no nvcc.
"""
import functools
import os
import re
import subprocess
import sys
import tempfile
import unittest

NVCC = os.path.join(os.environ.get("CUDA_HOME", "/usr/local/cuda"), "bin", "nvcc")
# On a quiet machine it takes half a minute.
NVCC_SECONDS_MAX = 250

# Kernels that move 16 bytes at once (8 of bf16) where they can: so many loads and stores of those at least. nvcc made
# four stores of one before, each of which costs as much, and no other test would tell.
WIDE = {
    "AveragePool<true>": (1, 1),
    "AveragePoolBackward<true>": (1, 1),
    "ColumnMap<BiasOp, true>": (0, 8),
    "ColumnMap<NormalizeOp, true>": (8, 8),
    "ColumnMap<BackwardValuesOp, true>": (24, 8),
    "DecodeBuckets": (0, 1),
    "DecodePlain<AsBf16>": (0, 1),
    "DecodePlain<AsF16>": (0, 1),
    "Elementwise<AdamOp>": (4, 3),
    "Elementwise<MomentumOp>": (3, 2),
    "Elementwise<PlainSgdOp>": (2, 1),
    "Elementwise<ReluOp>": (2, 2),
    "Elementwise<RoundsToo<PlainSgdOp>>": (2, 1),
    "Elementwise<SubtractOp>": (2, 1),
    "EncodePlain<AsBf16>": (2, 1),
    "EncodeRows<8>": (16, 8),
    "FindMarks": (8, 4),
    "MaxPool<true>": (1, 1),
    "MaxPoolBackward<true>": (2, 1),
    "MaxPoolScatter<true>": (2, 0),
}

# Kernels whose threads have so many loads of so many bytes under way before they wait for one: its latency wants that.
# ptxas put most of these behind one another before, as branches or stores lay between them.
AT_ONCE = {
    "AddRows": (8, 8),
    "ColumnFinish<BackwardSumsOp>": (16, 8),
    "ColumnFinish<StatisticsOp>": (16, 8),
    "ColumnFinish<SumOp>": (8, 8),
    "ColumnMap<BackwardValuesOp, false>": (12, 4),
    "ColumnMap<BackwardValuesOp, true>": (3, 16),
    "ColumnMap<NormalizeOp, false>": (4, 4),
    "ColumnMap<NormalizeOp, true>": (4, 16),
    "ColumnSums<BackwardSumsOp>": (12, 4),
    "ColumnSums<StatisticsOp>": (8, 4),
    "ColumnSums<SumOp>": (8, 4),
    "DecodePlain<AsBf16>": (2, 8),
    "DecodePlain<AsF16>": (2, 8),
    "Elementwise<ReluOp>": (2, 16),
    "Elementwise<RoundOp>": (2, 16),
    "Elementwise<WidenOp>": (2, 8),
    "EncodeRows<2>": (4, 16),
    "EncodeRows<4>": (4, 16),
    "EncodeRows<8>": (4, 16),
    "GatherColumns": (4, 4),
    "GatherPlaces": (2, 16),
    "ScatterColumns<true>": (4, 4),
    "ScatterPlaces": (8, 4),
    "SigmoidRows<false>": (8, 4),
    "SigmoidRows<true>": (8, 4),
}

# Threads that a multiprocessor has room for at least, where there must not be fewer.
THREADS = {
    "ColumnMap<BackwardValuesOp, false>": 2048,
    "ColumnMap<BackwardValuesOp, true>": 1280,
    "ColumnMap<NormalizeOp, true>": 1280,
    "ColumnSums<BackwardSumsOp>": 1536,
    "ColumnSums<StatisticsOp>": 1536,
    "ColumnSums<SumOp>": 1536,
    "GatherPlaces": 2048,
    "ScatterPlaces": 1536,
    "SigmoidRows<true>": 1280,
}

# What AT_ONCE would not tell: columns of panels are read once, not for each load behind them; and the first five are
# found without a branch for every case. Loads of 4 bytes, and instructions, at most.
LOADS_MAX = {"GatherColumns": 5, "ScatterColumns<false>": 5, "ScatterColumns<true>": 9}
INSTRUCTIONS_MAX = {"SigmoidRows<true>": 2600}


def number(text, size):
    """Of accesses of so many bytes, in a column of the table."""
    found = re.search(r"(\d+)x%d\b" % size, text)
    return int(found.group(1)) if found else 0


@unittest.skipUnless(os.access(NVCC, os.X_OK), "no nvcc")
class Compiles(unittest.TestCase):
    @staticmethod
    @functools.lru_cache(maxsize=None)
    def kernels(architecture):
        """Columns of bench/gpu/compiled.py's table, by kernel. nvcc takes most of this test's time: once for each."""
        test = unittest.TestCase()
        done = subprocess.run([sys.executable, "bench/gpu/compiled.py", architecture], capture_output=True, text=True,
                              timeout=NVCC_SECONDS_MAX, check=False)
        test.assertEqual(done.returncode, 0, done.stderr)
        test.assertEqual(done.stderr, "")  # No warning.
        lines = [re.split(r"  +", line) for line in done.stdout.splitlines()[1:]]
        test.assertGreater(len(lines), 30)
        return {line[0]: line[1:] for line in lines}

    def test_every_kernel_keeps_its_values_in_registers(self):
        for architecture in ("80", "90"):
            # An index that the compiler does not know would put an array on the stack.
            on_stack = {name: int(columns[2]) for name, columns in self.kernels(architecture).items()}
            self.assertLessEqual(sum(on_stack.values()), 16, on_stack)

    def test_words_are_moved_whole(self):
        kernels = self.kernels("90")
        for name, (loads, stores) in WIDE.items():
            columns = kernels[name]
            self.assertGreaterEqual(number(columns[4], 16), loads, name)
            self.assertGreaterEqual(number(columns[5], 16), stores, name)

    def test_loads_are_under_way_together(self):
        kernels = self.kernels("90")
        for name, (loads, size) in AT_ONCE.items():
            self.assertGreaterEqual(number(kernels[name][6], size), loads, name)
        for name, threads in THREADS.items():
            self.assertGreaterEqual(int(kernels[name][1]), threads, name)
        for name, loads in LOADS_MAX.items():
            self.assertLessEqual(number(kernels[name][4], 4), loads, name)
        for name, instructions in INSTRUCTIONS_MAX.items():
            self.assertLessEqual(int(kernels[name][3]), instructions, name)

    def test_a_weights_step_keeps_its_sums_in_registers_and_its_products_at_work(self):
        with tempfile.TemporaryDirectory() as folder:
            command = [NVCC, "-std=c++17", "-O3", "-fmad=false", "--expt-relaxed-constexpr", "-I.", "-Xptxas", "-v",
                       "-cubin", "-arch=sm_90a", "kernels/cuda/weight_step.cu", "-o", os.path.join(folder, "cubin")]
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                  timeout=NVCC_SECONDS_MAX, check=False)
        self.assertEqual(done.returncode, 0, done.stdout)
        # Where ptxas cannot tell who uses the sums it waits for every product, and says so.
        self.assertNotIn("warning", done.stdout)
        self.assertNotIn("serializ", done.stdout)
        self.assertIn("0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads", done.stdout)
        self.assertEqual(done.stdout.count("bytes stack frame"), 1)


if __name__ == "__main__":
    unittest.main()
