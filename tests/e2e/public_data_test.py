"""The jobs over public data learn what a short run can show. TESSERA_DATA: a folder for fetch_data.sh --from, or one
that it has filled. Sets that are not there are skipped."""
import os
import unittest

from cluster import JOBS, Test, run_to_end

DATA = os.environ.get("TESSERA_DATA", "")
# By their folders in the former; in the latter they have the same name but for these.
FETCHED = {"arabic_speech_commands": "speech", "cifar10_12k": "cifar10", "delicious_xc": "delicious",
           "eurlex57k_xc": "eurlex"}


@unittest.skipUnless(os.path.isdir(DATA), "TESSERA_DATA is no folder")
class PublicData(Test):
    def train(self, job, folder, *sets):
        names = [name for name in (folder, FETCHED.get(folder)) if name]
        folders = [path for path in (os.path.join(DATA, name) for name in names)
                   if os.path.isdir(path) and os.listdir(path)]
        if not folders:
            self.skipTest("TESSERA_DATA, %s, has no %s" % (DATA, " or ".join(names)))
        arguments = ["--set", "data.directory=" + folders[0]]
        for item in sets:
            arguments += ["--set", item]
        report = run_to_end(self, os.path.join(JOBS, job + ".yaml"), *arguments)
        self.assertEqual(report["outcome"], "finished")
        return report["final"]["test_accuracy"]

    def test_a9a(self):
        # 0.764 of the test rows are in one class.
        self.assertGreaterEqual(self.train("a9a", "a9a", "train.epochs=2"), 0.835)

    def test_delicious(self):
        # Always the most frequent label: 0.398 of the test rows have it.
        self.assertGreaterEqual(self.train("delicious", "delicious_xc", "train.epochs=2"), 0.5)

    def test_eurlex(self):
        # Precision at 1; the most frequent label: 0.077.
        self.assertGreaterEqual(self.train("eurlex", "eurlex57k_xc", "train.epochs=1", "cluster.workers=2"), 0.7)

    def test_eurlex_wide(self):
        # An eighth of the width, where the limit is still less than the parameters' 150 MB.
        narrow = ("model.layers=[linear: {units: 1024, bias: false}, batch_norm: {}, relu: {}, "
                  "linear: {units: 4271}]")
        accuracy = self.train("eurlex_wide", "eurlex57k_xc", narrow, "train.epochs=1", "cluster.servers=3",
                              "cluster.workers=4", "cluster.memory_limit=148MB")
        self.assertGreaterEqual(accuracy, 0.3)

    def test_mnist(self):
        self.assertGreaterEqual(self.train("mnist", "mnist", "train.epochs=1"), 0.94)

    def test_fashion_mnist(self):
        accuracy = self.train("fashion_mnist", "fashion_mnist", "train.epochs=6", "train.evaluate_every=0")
        self.assertGreaterEqual(accuracy, 0.87)

    def test_cifar(self):
        self.assertGreaterEqual(self.train("cifar", "cifar10_12k", "train.epochs=2"), 0.38)

    def test_cifar_conv(self):
        self.assertGreaterEqual(self.train("cifar_conv", "cifar10_12k", "train.epochs=2"), 0.42)

    def test_speech(self):
        # 40 words: a guess is right once in 40.
        self.assertGreaterEqual(self.train("speech", "arabic_speech_commands", "train.epochs=1"), 0.6)

    def test_speech_ist(self):
        self.assertGreaterEqual(self.train("speech_ist", "arabic_speech_commands", "train.epochs=2"), 0.6)

    def test_speech_local_sgd(self):
        self.assertGreaterEqual(self.train("speech_local_sgd", "arabic_speech_commands", "train.epochs=1"), 0.6)


if __name__ == "__main__":
    unittest.main()
