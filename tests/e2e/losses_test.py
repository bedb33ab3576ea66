"""Losses and optimizers through whole jobs: what is learned, what evaluations say, and what is refused."""
import json
import random
import unittest

from cluster import Test, digits, run_to_end, tessera, write_job

MUON = {"muon": {"learning_rate": 0.02, "adamw": {"learning_rate": 0.005}}}


class Numbers(Test):
    """A model with one output and the squared error learns numbers."""

    def rows(self, name, count, seed):
        """y = 2 a - 3 b + 0.5, which is linear, so that the error goes to 0."""
        draw = random.Random(seed)
        with open(self.path(name), "w", encoding="ascii") as file:
            for _ in range(count):
                a, b = draw.uniform(-1, 1), draw.uniform(-1, 1)
                file.write("%.6f,%.6f,%.6f\n" % (a, b, 2 * a - 3 * b + 0.5))

    def job(self, **train):
        self.rows("train.csv", 600, 1)
        self.rows("test.csv", 200, 2)
        job = digits(epochs=20, batch=10, rate=0.1, evaluate_every=5, **train)
        job["data"] = {"format": "csv", "directory": self.folder, "train": {"features": "train.csv"},
                       "test": {"features": "test.csv"}}
        job["model"] = {"input": [2], "layers": [{"linear": {"units": 1}}], "loss": "mean_squared_error"}
        job["checkpoint"] = {"directory": self.path("kept")}
        return job

    def test_the_error_goes_to_nothing_and_nothing_is_right_or_wrong(self):
        job = self.job()
        report = run_to_end(self, job)
        final = report["final"]
        self.assertLess(final["test_loss"], 1e-6)
        self.assertGreater(report["history"][0]["test_loss"], 10 * final["test_loss"])
        self.assertIsNone(final["test_accuracy"])
        self.assertEqual(set(final["precision_at"].values()) | set(final["top_k_accuracy"].values()), {None})
        code, out, error = tessera("eval", self.path("kept"), write_job(self, job), "--json")
        self.assertEqual(code, 0, error)
        scored = json.loads(out)
        self.assertAlmostEqual(scored["test_loss"], final["test_loss"], delta=1e-3 * final["test_loss"])
        self.assertIsNone(scored["test_accuracy"])
        self.assertNotIn("accuracy", tessera("eval", self.path("kept"), write_job(self, job))[1])

    def test_an_accuracy_to_aim_for_is_refused(self):
        code, _, error = tessera("check", write_job(self, self.job(target_accuracy=0.9)))
        self.assertEqual(code, 2)
        self.assertIn("train.target_accuracy: got 0.9, want 0 with mean_squared_error and 1 output", error)


class Digits(Test):
    def train(self, accuracy=0.9, loss="softmax_cross_entropy", smoothing=0, **keys):
        job = digits(epochs=10, **keys)
        job["model"].update({"loss": loss, "label_smoothing": smoothing})
        report = run_to_end(self, job)
        self.assertGreaterEqual(report["final"]["test_accuracy"], accuracy)
        return report["final"]

    def test_classes_are_learned_by_their_squared_distance(self):
        # The squared error learns more slowly at this rate: its gradient is a tenth, of ten outputs.
        final = self.train(loss="mean_squared_error", accuracy=0.85)
        self.assertLess(final["test_loss"], 0.05)
        self.assertGreater(final["top_k_accuracy"]["5"], final["top_k_accuracy"]["1"])
        self.assertIsNone(final["top_k_accuracy"]["10"])

    def test_labels_are_smoothed_in_training_alone(self):
        final = self.train(smoothing=0.3)
        # The least that a smoothed loss can be is above what the rows' own labels give.
        self.assertGreater(final["train_loss"], 1.2)
        self.assertLess(final["test_loss"], 1)

    def test_clipped_gradients_learn_more_slowly_and_learn(self):
        for method in ({"data_parallel": {}}, {"local_sgd": {"local_steps": 5}}, {"ist": {"local_steps": 5}}):
            with self.subTest(method):
                free, bound = (self.train(accuracy=0.5, method=method, clip_norm=norm) for norm in (0, 0.05))
                self.assertGreater(bound["test_loss"], free["test_loss"])

    def test_muon_learns_where_workers_step(self):
        for method in ({"local_sgd": {"local_steps": 5}}, {"local_sgd": {"local_steps": 5, "average_state": True}},
                       {"diloco": {"local_steps": 10}}, {"ist": {"local_steps": 5}}):
            with self.subTest(method):
                self.train(accuracy=0.85, method=method, optimizer=MUON)


if __name__ == "__main__":
    unittest.main()
