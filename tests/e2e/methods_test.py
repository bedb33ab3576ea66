"""Every method trains, and its report says what the method promises: who waits, what is sent, how late it counts."""
import unittest

from cluster import DIGITS_ROWS, Test, digits, job_size, run_to_end

SERVERS, WORKERS, BATCH, EPOCHS = 2, 2, 32, 10
STEPS = EPOCHS * (DIGITS_ROWS // (WORKERS * BATCH))
INVERSE = {"inverse": {"scale": 1.0}}
ADAMW = {"adamw": {"learning_rate": 0.005}}
MOMENTUM = {"sgd": {"learning_rate": 0.05, "momentum": 0.9}}


class Methods(Test):
    def train(self, method, rate=0.2, optimizer=None, **train):
        job = digits(servers=SERVERS, workers=WORKERS, batch=BATCH, epochs=EPOCHS, method=method, rate=rate, **train)
        if optimizer:
            job["train"]["optimizer"] = optimizer
        return job, run_to_end(self, job)

    def check(self, job, report, words, exchanges, copies=1):
        """`exchanges` of each worker; None: that is not known before. `copies` of the model are exchanged."""
        name = next(iter(job["method"]))
        self.assertEqual((report["outcome"], report["method"], report["refused_pushes"]), ("finished", name, 0))
        self.contains(report["method_description"], *words)
        self.assertGreaterEqual(report["final"]["test_accuracy"], 0.85)
        self.assertEqual(report["members"], {"joined": WORKERS, "lost": 0, "partial_pushes": 0})
        # All that was computed is in the parameters: no push is left in a half-filled update.
        self.assertEqual(report["steps"], STEPS)
        self.assertEqual(report["examples"], STEPS * WORKERS * BATCH)
        self.assertEqual(report["parameter_examples"], report["examples"])
        traffic, size = report["traffic"], 4 * copies * job_size(job)
        if exchanges is not None:
            self.assertEqual(traffic["exchanges"], WORKERS * exchanges)
        self.assertEqual(traffic["push_payload_bytes"], traffic["exchanges"] * size)
        # And one pull of each worker before its first exchange.
        self.assertEqual(traffic["pull_payload_bytes"], (traffic["exchanges"] + WORKERS) * size)
        self.assertEqual(report["memory"]["parameter_bytes"], size)
        # One entry per push and server.
        self.assertEqual(sum(report["staleness"]["histogram"]), SERVERS * traffic["exchanges"])

    def check_never_late(self, report):
        staleness = report["staleness"]
        self.assertEqual((staleness["mean"], staleness["max"], len(staleness["histogram"])), (0, 0, 1))

    def check_late(self, report, most=None):
        staleness = report["staleness"]
        histogram = staleness["histogram"]
        mean = sum(late * count for late, count in enumerate(histogram)) / sum(histogram)
        if staleness["max"] < len(histogram):
            self.assertEqual(len(histogram), staleness["max"] + 1)
            self.assertAlmostEqual(staleness["mean"], mean)
        if most is not None:
            self.assertLessEqual(staleness["max"], most)

    def test_a_barrier_is_never_late_whatever_the_optimizer(self):
        optimizers = {"adamw": ADAMW, "adam": {"adam": {"learning_rate": 0.005}},
                      "adagrad": {"adagrad": {"learning_rate": 0.02}},
                      "rmsprop": {"rmsprop": {"learning_rate": 0.002, "momentum": 0.5}},
                      "nesterov": {"sgd": dict(MOMENTUM["sgd"], nesterov=True)}}
        for name, optimizer in optimizers.items():
            with self.subTest(name):
                job, report = self.train({"data_parallel": {}}, optimizer=optimizer)
                self.check(job, report, ["synchronous", "mean"], STEPS)
                self.check_never_late(report)

    def test_averaging_the_state_adds_its_size_to_every_exchange(self):
        method = {"local_sgd": {"local_steps": 10, "average_state": True}}
        for name, optimizer, copies, words in (("momentum", MOMENTUM, 2, ["momentum"]),
                                               ("adamw", ADAMW, 3, ["mean", "squares"])):
            with self.subTest(name):
                job, report = self.train(method, optimizer=optimizer)
                self.check(job, report, ["every 10 steps", "averaged"] + words, STEPS // 10, copies)
                self.check_never_late(report)

    def test_diloco_waits_for_all_and_is_never_late(self):
        job, report = self.train({"diloco": {"local_steps": 10}}, rate=0.1)
        self.check(job, report, ["DiLoCo", "every 10 steps", "outer optimizer"], STEPS // 10)
        self.check_never_late(report)

    def test_diloco_with_adamw_inside_trains(self):
        job, report = self.train({"diloco": {"local_steps": 10}}, optimizer=ADAMW)
        self.check(job, report, ["DiLoCo"], STEPS // 10)

    def test_diloco_with_a_quorum_uses_every_push(self):
        job, report = self.train({"diloco": {"local_steps": 10, "quorum": {"pushes": 1, "grace": "50ms"}}}, rate=0.1)
        self.check(job, report, ["until 1", "50ms longer"], STEPS // 10)
        self.check_late(report)

    def test_a_quorum_goes_beside_training(self):
        quorum = {"pushes": 1, "adaptive_grace": True, "weights": "squared_examples"}
        job, report = self.train({"diloco": {"local_steps": 10, "quorum": quorum, "overlap": True}}, rate=0.1)
        self.check(job, report, ["until 1", "about as fast", "squared", "one exchange later"], STEPS // 10)
        self.check_late(report)

    def test_asynchronous_diloco_uses_every_push(self):
        job, report = self.train({"diloco": {"local_steps": 10, "asynchronous": True}}, rate=0.1)
        # A slower worker gets fewer steps, so it exchanges more often.
        self.check(job, report, ["slower ones fewer", "nobody waits"], None)
        self.assertGreaterEqual(report["traffic"]["exchanges"], WORKERS * STEPS // 10)
        self.check_late(report)

    def test_softsync_with_inverse_weights_uses_every_push(self):
        job, report = self.train({"softsync": {"pushes": 2, "staleness": INVERSE}})
        self.check(job, report, ["every 2 pushes", "max(1, tau)"], STEPS)
        self.check_late(report)

    def test_softsync_with_local_steps_sends_less_often(self):
        job, report = self.train({"softsync": {"pushes": 2, "local_steps": 5}})
        self.check(job, report, ["every 2 pushes"], STEPS // 5)

    def test_ssp_is_at_most_so_late_as_its_bound_allows(self):
        for bound in (0, 1):
            with self.subTest(bound=bound):
                job, report = self.train({"ssp": {"bound": bound}})
                self.check(job, report, ["weight 1/2", "more than %d exchange" % bound], STEPS)
                # Between a pull at clock c and the push after it the other goes from c - bound to c + bound + 1.
                self.check_late(report, 2 * bound + 1)

    def test_async_sgd_with_every_weight_trains(self):
        for weight in (INVERSE, {"power": {"scale": 1.0, "exponent": 0.5}},
                       {"exponential": {"scale": 1.0, "base": 0.8}}):
            with self.subTest(next(iter(weight))):
                job, report = self.train({"async_sgd": {"staleness": weight}}, rate=0.1)
                self.check(job, report, ["when it arrives", "tau", "nobody waits"], STEPS)
                self.check_late(report)


class Schedules(Test):
    """A schedule counts the examples of the whole job, wherever the optimizer runs."""

    METHODS = {"on the servers": {"data_parallel": {}}, "on the workers": {"local_sgd": {"local_steps": 3}}}

    def train(self, method, schedule, **train):
        # 42 steps of an epoch are 1,344 rows, whoever computes them.
        job = digits(batch=16, epochs=6, method=method, evaluate_every=1, schedule=schedule, **train)
        return run_to_end(self, job)["history"]

    def test_after_a_cosine_to_0_nothing_changes_any_more(self):
        for name, method in self.METHODS.items():
            with self.subTest(name):
                history = self.train(method, {"warmup": 300, "decay": {"cosine": {"examples": 4 * 1344}}})
                losses = [entry["test_loss"] for entry in history]
                self.assertGreaterEqual(history[3]["test_accuracy"], 0.8)
                self.assertEqual(len(set(losses[:4])), 4, losses)
                self.assertEqual(len(set(losses[3:])), 1, losses)

    def test_a_step_of_nearly_0_stops_the_learning_where_it_is_due(self):
        for name, method in self.METHODS.items():
            with self.subTest(name):
                history = self.train(method, {"decay": {"step": {"every": 2 * 1344, "factor": 1e-12}}})
                losses = [entry["test_loss"] for entry in history]
                self.assertGreater(abs(losses[0] - losses[1]), 1e-3)
                for loss in losses[2:]:
                    self.assertAlmostEqual(loss, losses[1], delta=1e-6)

    def test_a_long_warmup_begins_gently(self):
        for name, method in self.METHODS.items():
            with self.subTest(name):
                gentle = self.train(method, {"warmup": 100 * 1344})
                full = self.train(method, {"warmup": 0})
                self.assertGreater(gentle[0]["test_loss"], full[0]["test_loss"] + 0.1)
                self.assertLess(gentle[-1]["test_loss"], gentle[0]["test_loss"])


if __name__ == "__main__":
    unittest.main()
