"""Jobs of deploy/jobs, trained as `tessera run` does, and what their reports say."""
import math
import os
import unittest

from cluster import DIGITS_ROWS, JOBS, Test, digits, job_size, run_to_end, tessera, write_job

TRAFFIC = {"pull_payload_bytes", "push_payload_bytes", "pull_wire_bytes", "push_wire_bytes",
           "other_payload_bytes", "shared_memory_bytes", "exchanges"}
KEYS = {"job", "method", "seed", "wall_seconds", "train_seconds", "steps", "rounds", "examples",
        "examples_per_second", "final", "history", "traffic", "staleness", "memory", "phases", "members", "build"}


def job_file(name):
    return os.path.join(JOBS, name + ".yaml")


class Report(Test):
    """A report is complete, and its numbers agree with each other and with the job."""

    def check(self, report, servers, workers, size):
        self.assertGreaterEqual(report.keys(), KEYS)
        self.assertEqual(report["outcome"], "finished")
        self.assertGreater(report["train_seconds"], 0)
        self.assertGreaterEqual(report["wall_seconds"], report["train_seconds"])
        self.assertEqual(report["members"], {"joined": workers, "lost": 0, "partial_pushes": 0})
        self.assertEqual(report["refused_pushes"], 0)
        self.assertTrue(all(report["build"][key] for key in ("version", "backend", "cpu")), report["build"])
        self.check_final(report)
        self.check_history(report)
        self.check_traffic(report, workers, size)
        self.check_memory(report, servers, workers, size)
        self.check_phases(report, workers)

    def check_final(self, report):
        final = report["final"]
        last = report["history"][-1]
        for key in ("train_loss", "test_loss", "test_accuracy"):
            self.assertEqual(final[key], last[key])
            self.assertTrue(math.isfinite(final[key]))
        precision = final["precision_at"]
        self.assertEqual(precision["1"], final["test_accuracy"])
        # At least as many hits among more predictions.
        self.assertLessEqual(precision["1"], 3 * precision["3"] + 1e-9)
        self.assertLessEqual(3 * precision["3"], 5 * precision["5"] + 1e-9)
        self.assertLessEqual(5 * precision["5"], 1 + 1e-9)

    def check_history(self, report):
        history = report["history"]
        for before, after in zip(history, history[1:]):
            for key in ("seconds", "step", "epoch", "round"):
                self.assertLess(before[key], after[key])
        self.assertEqual(history[-1]["step"], report["steps"])
        self.assertLessEqual(history[-1]["seconds"], report["train_seconds"] + 1e-6)

    def check_traffic(self, report, workers, size):
        traffic = report["traffic"]
        self.assertEqual(traffic.keys(), TRAFFIC | {"by_worker"})
        self.assertEqual([w["worker"] for w in traffic["by_worker"]], list(range(workers)))
        for worker in traffic["by_worker"]:
            self.assertEqual(worker["push_payload_bytes"], worker["exchanges"] * 4 * size)
            # Each exchange pulls once, and there is one pull before the first.
            self.assertEqual(worker["pull_payload_bytes"], (worker["exchanges"] + 1) * 4 * size)
            for way in ("pull", "push"):
                self.assertGreater(worker[way + "_wire_bytes"], worker[way + "_payload_bytes"])
        for key in TRAFFIC:
            self.assertEqual(traffic[key], sum(worker[key] for worker in traffic["by_worker"]))
        # Each evaluation reads the model once per worker.
        self.assertEqual(traffic["other_payload_bytes"], len(report["history"]) * workers * 4 * size)

    def check_memory(self, report, servers, workers, size):
        memory = report["memory"]
        self.assertEqual(memory["parameter_bytes"], 4 * size)
        for who, count in (("server", servers), ("worker", workers)):
            peaks = memory[who + "_peak_rss_bytes"]
            self.assertEqual(len(peaks), count)
            for peak in peaks:
                self.assertTrue(1 << 20 < peak < 1 << 30, peak)

    def test_report_of_data_parallel_is_complete_and_consistent(self):
        job = digits(epochs=8, evaluate_every=2, servers=2, workers=2)
        report = run_to_end(self, job)
        self.check(report, 2, 2, job_size(job))
        steps = 8 * (DIGITS_ROWS // 64)
        self.assertEqual((report["method"], report["steps"], report["rounds"]), ("data_parallel", steps, steps))
        self.assertEqual(report["examples"], steps * 64)
        self.assertEqual(report["traffic"]["exchanges"], 2 * steps)
        self.assertEqual([h["epoch"] for h in report["history"]], [2, 4, 6, 8])
        # One entry per push and shard; nobody is late under a barrier.
        self.assertEqual(report["staleness"], {"mean": 0, "max": 0, "histogram": [2 * 2 * steps]})

    def test_report_of_local_sgd_is_complete_and_consistent(self):
        job = digits(epochs=8, workers=3, servers=1, batch=16, method={"local_sgd": {"local_steps": 5}})
        report = run_to_end(self, job)
        self.check(report, 1, 3, job_size(job))
        steps = 8 * (DIGITS_ROWS // 48)
        exchanges = -(-steps // 5)  # The last interval may be shorter.
        self.assertEqual((report["method"], report["steps"], report["rounds"]), ("local_sgd", steps, exchanges))
        self.assertEqual(report["traffic"]["exchanges"], 3 * exchanges)

    def test_report_of_async_sgd_is_complete_and_counts_staleness(self):
        job = digits(epochs=8, workers=2, servers=2, rate=0.1, partition="shard", method={"async_sgd": {}})
        report = run_to_end(self, job)
        self.check(report, 2, 2, job_size(job))
        staleness = report["staleness"]
        self.assertEqual(sum(staleness["histogram"]), 2 * report["traffic"]["exchanges"])
        # The last entry counts everything later, too: one worker may stand still while the other trains.
        self.assertEqual(len(staleness["histogram"]), min(staleness["max"] + 1, 65))
        mean = sum(i * n for i, n in enumerate(staleness["histogram"])) / sum(staleness["histogram"])
        if staleness["max"] <= 64:
            self.assertAlmostEqual(staleness["mean"], mean)
        else:
            self.assertGreater(staleness["mean"], mean)

    def test_more_workers_exchange_the_same_bytes_each(self):
        job = digits(epochs=2, workers=5, servers=3, batch=8)
        self.check(run_to_end(self, job), 3, 5, job_size(job))

    def test_a_job_that_is_refused_has_no_report_and_an_earlier_one_is_named(self):
        report = self.path("report.json")
        for refused, limit in (("server 0", "1MiB"), ("worker", "39MiB")):
            for earlier in (None, "earlier"):
                with self.case((refused, earlier)):
                    if earlier:
                        with open(report, "w") as file:
                            file.write(earlier)
                    job = write_job(self, digits(cluster={"memory_limit": limit}))
                    code, _, error = tessera("run", job, "--report", report, "--quiet")
                    self.assertEqual(code, 2, error)
                    self.contains(error, refused, "ended with exit code 2")
                    said = "tessera: no report is written: the job has not begun"
                    self.assertEqual(error.splitlines()[-1], said + (
                        '; "%s" is an earlier job\'s' % report if earlier else ""))
                    self.assertEqual(os.path.exists(report), bool(earlier))
                    if earlier:
                        with open(report) as file:
                            self.assertEqual(file.read(), earlier)
                        os.remove(report)


class Jobs(Test):
    """The jobs that people start with reach what they promise."""

    def test_digits_reach_their_accuracy(self):
        self.assertGreaterEqual(run_to_end(self, job_file("digits"))["final"]["test_accuracy"], 0.93)

    def test_digits_reach_their_accuracy_with_local_sgd(self):
        self.assertGreaterEqual(run_to_end(self, job_file("digits_local_sgd"))["final"]["test_accuracy"], 0.93)

    def test_digits_reach_their_accuracy_without_waiting(self):
        self.assertGreaterEqual(run_to_end(self, job_file("digits_async"))["final"]["test_accuracy"], 0.93)

    def test_the_job_without_central_servers_reaches_what_it_should(self):
        self.assertGreaterEqual(run_to_end(self, job_file("digits_decentralized"))["final"]["test_accuracy"], 0.93)

    def test_digits_reach_their_accuracy_with_subnets_and_a_tail(self):
        self.assertGreaterEqual(run_to_end(self, job_file("digits_ist_tail"))["final"]["test_accuracy"], 0.93)

    def test_digits_reach_their_accuracy_in_a_byte_an_entry(self):
        self.assertGreaterEqual(run_to_end(self, job_file("digits_quant"))["final"]["test_accuracy"], 0.93)

    def test_digits_reach_their_accuracy_with_a_core_and_explorers(self):
        self.assertGreaterEqual(run_to_end(self, job_file("digits_slim_dp"))["final"]["test_accuracy"], 0.93)

    def test_digits_reach_their_accuracy_with_one_linear_layer(self):
        self.assertGreaterEqual(run_to_end(self, job_file("digits_linear"))["final"]["test_accuracy"], 0.9)


class Keys(Test):
    """Keys of the job file do what they say."""

    def test_training_ends_when_the_target_accuracy_is_reached(self):
        report = run_to_end(self, digits(epochs=200, evaluate_every=1, target_accuracy=0.85))
        history = report["history"]
        self.assertLess(len(history), 200)
        self.assertGreaterEqual(history[-1]["test_accuracy"], 0.85)
        self.assertTrue(all(entry["test_accuracy"] < 0.85 for entry in history[:-1]), history)

    def test_steps_end_training_in_the_middle_of_an_epoch(self):
        report = run_to_end(self, digits(steps=30))
        self.assertEqual((report["steps"], report["examples"]), (30, 30 * 64))
        self.assertAlmostEqual(report["history"][-1]["epoch"], 30 / (DIGITS_ROWS // 64))

    def test_steps_that_are_no_multiple_of_the_local_steps_are_all_done(self):
        report = run_to_end(self, digits(steps=23, method={"local_sgd": {"local_steps": 10}}))
        self.assertEqual((report["steps"], report["rounds"]), (23, 3))

    def test_evaluate_every_0_evaluates_only_at_the_end(self):
        self.assertEqual(len(run_to_end(self, digits(epochs=4, evaluate_every=0))["history"]), 1)

    def test_every_partition_trains(self):
        for partition in ("global", "shard", "full", "local"):
            with self.subTest(partition):
                report = run_to_end(self, digits(epochs=10, partition=partition))
                self.assertGreaterEqual(report["final"]["test_accuracy"], 0.85)
                # `local` counts the rows of both workers.
                rows = 2 * DIGITS_ROWS if partition == "local" else DIGITS_ROWS
                self.assertEqual(report["steps"], 10 * (rows // 64))

    def test_per_feature_normalisation_trains(self):
        report = run_to_end(self, digits(epochs=10, normalize={"per_feature": True}))
        self.assertGreaterEqual(report["final"]["test_accuracy"], 0.85)

    def test_threads_change_speed_only(self):
        one = run_to_end(self, digits(steps=20, units=64))
        two = run_to_end(self, digits(steps=20, units=64, cluster={"threads": 2}))
        self.assertAlmostEqual(one["final"]["test_loss"], two["final"]["test_loss"], delta=1e-4)


if __name__ == "__main__":
    unittest.main()
