"""Models that no process can hold: evaluation in blocks, and memory that fits a limit."""
import unittest

from cluster import PATIENCE, Test, digits, job_size, run_to_end, tessera, write_job

WIDTH = 3000
MIB = 1 << 20


def wide(method=None, **keys):
    """Two hidden layers, 37 MB of parameters."""
    job = digits(method=method or {"ist": {"local_steps": 10}}, batch=16, rate=0.1, **keys)
    layers = []
    for _ in range(2):
        layers += [{"linear": {"units": WIDTH, "bias": False}}, "batch_norm", "relu"]
    job["model"]["layers"] = layers + [{"linear": {"units": 10}}]
    return job


class LargeModels(Test):
    def test_blocks_and_a_limit_change_no_parameter_and_no_score(self):
        keys = dict(servers=3, workers=4, steps=24, evaluate_every=1)
        parameter_bytes = 4 * job_size(wide(**keys))
        whole = run_to_end(self, wide(**keys))
        self.assertGreaterEqual(whole["final"]["test_accuracy"], 0.5)
        blocks = run_to_end(self, wide(cluster={"evaluation_memory": "1MiB"}, **keys))
        limit = 96 * MIB
        limited = run_to_end(self, wide(cluster={"evaluation_memory": "1MiB", "memory_limit": limit}, **keys))
        for report in (blocks, limited):
            self.assertEqual(report["parameters_hash"], whole["parameters_hash"])
            self.assertEqual(report["steps"], whole["steps"])
            self.assertEqual(len(report["history"]), len(whole["history"]))
            for got, want in zip(report["history"], whole["history"]):
                self.assertAlmostEqual(got["test_loss"] / want["test_loss"], 1, delta=1e-6)
                self.assertEqual(got["test_accuracy"], want["test_accuracy"])
            for key in ("1", "3", "5"):
                self.assertEqual(report["final"]["precision_at"][key], whole["final"]["precision_at"][key])
            # Exchanges move the same; evaluations of a worker read what it holds whole elsewhere, and more than once.
            for key in ("push_payload_bytes", "pull_payload_bytes", "exchanges"):
                self.assertEqual(report["traffic"][key], whole["traffic"][key])
            self.assertGreaterEqual(report["traffic"]["other_payload_bytes"], 4 * parameter_bytes)
        # The first two hold a whole network for evaluations, or both subnets; the third does not, and keeps the limit.
        if PATIENCE >= 5:
            return  # A sanitizer's memory is not ours.
        peaks = limited["memory"]["server_peak_rss_bytes"] + limited["memory"]["worker_peak_rss_bytes"]
        self.assertLessEqual(max(peaks), limit)
        self.assertGreater(min(whole["memory"]["worker_peak_rss_bytes"]),
                           max(limited["memory"]["worker_peak_rss_bytes"]))

    def test_who_must_hold_the_whole_model_is_refused_by_the_sum_before_it_joins(self):
        cluster = {"memory_limit": 120 * MIB}
        path = write_job(self, wide({"data_parallel": {}}, servers=3, workers=4, steps=20, cluster=cluster))
        code, _, error = tessera("run", path, "--quiet", within=60)
        self.assertEqual(code, 2)
        self.contains(error, "ended with exit code 2", "cluster.memory_limit: is %d bytes, but this worker needs"
                      % (120 * MIB), "= data ", " + model, gradient, activations and batches ", " + program")
        # The same limit does for subnets.
        report = run_to_end(self, wide(servers=3, workers=4, steps=20, cluster=cluster))
        self.assertEqual(report["outcome"], "finished")

    def test_less_than_the_least_is_refused_by_its_parts(self):
        for servers, workers, limit, who, parts in (
                (3, 4, 50, "server", ("slice ", "next push ", "copies for readers 0")),
                (4, 1, 90, "worker", ("data ", "subnet ", "batches "))):
            with self.case(who):
                job = wide(servers=servers, workers=workers, steps=20, cluster={"memory_limit": limit * MIB})
                code, _, error = tessera("run", write_job(self, job), "--quiet", within=60)
                self.assertEqual(code, 2)
                self.contains(error, "but this %s needs" % who, *parts)


if __name__ == "__main__":
    unittest.main()
