"""The published instability of stale gradients, and its cures, on 30 simulated workers. TESSERA_DATA as elsewhere."""
import argparse
import importlib.util
import os
import statistics
import unittest

DATA = os.path.join(os.environ.get("TESSERA_DATA", ""), "fashion_mnist")


def benchmark():
    spec = importlib.util.spec_from_file_location("staleness", "bench/consistency/staleness.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@unittest.skipUnless(os.path.isdir(DATA), "TESSERA_DATA has no fashion_mnist")
class StalenessWeights(unittest.TestCase):
    def test_dividing_by_staleness_converges_where_constant_weights_fail_and_softsync_helps(self):
        options = argparse.Namespace(data=DATA, tessera="deploy/cli/tessera", workers=30, pushes=5, batch=32, epochs=1,
                                     seeds=3, rates=[2.0])
        accuracies, staleness = benchmark().measure(options)
        mean = {name: statistics.mean(by_rate[2.0]) for name, by_rate in accuracies.items()}
        self.assertAlmostEqual(staleness["async_sgd, constant"], 29, delta=2.9)
        self.assertAlmostEqual(staleness["softsync, constant"], 29 / 5, delta=0.58)
        self.assertGreater(mean["async_sgd, inverse"], 0.65)
        self.assertLess(mean["async_sgd, constant"], mean["async_sgd, inverse"] - 0.1)
        self.assertGreaterEqual(mean["softsync, inverse"], mean["async_sgd, inverse"])
        self.assertGreaterEqual(mean["softsync, inverse"], mean["softsync, constant"])


if __name__ == "__main__":
    unittest.main()
