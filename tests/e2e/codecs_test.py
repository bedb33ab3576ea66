"""Coded pushes and pulls with real processes: what they move, that it learns, and that a loss costs what it did."""
import array
import os
import signal
import unittest

from cluster import (DIGITS_ROWS, ENDLESS, Cluster, Test, digits, job_size, lost, read_tensors, run_to_end, tessera,
                     write_job)

UNITS = 200


def coded(codec, method=None, **keys):
    job = digits(method=method, units=UNITS, batch=16, rate=0.1, **keys)
    job["codec"] = codec
    return job


def matrices(job):
    """(rows, columns) of each matrix, and the sizes of the vectors."""
    weights, vectors, inputs = [], [], 64
    for layer in job["model"]["layers"]:
        if layer == "batch_norm":
            vectors += [inputs, inputs]
        elif "linear" in layer:
            weights.append((layer["linear"]["units"], inputs))
            inputs = layer["linear"]["units"]
            vectors.append(inputs)
    return weights, vectors


def pushed(job, codec, servers):
    """Bytes of one push to all servers, by docs/methods.md."""
    weights, vectors = matrices(job)
    size = job_size(job)
    if codec == "f32":
        return 4 * size
    if codec in ("bf16", "f16"):
        return 2 * size
    if codec == "int8":
        # Every server has a piece of every vector.
        return sum(rows * (4 + columns) for rows, columns in weights) + sum(n + 4 * servers for n in vectors)
    if "topk" in codec:
        assert servers == 1  # Each server's entries are chunks of their own.
        full, rest = divmod(size, 4096)
        sent = -(-codec["topk"]["k"] * rest // 4096)
        return full * (8 + -(-14 * codec["topk"]["k"] // 8)) + (8 + -(-14 * sent // 8) if rest else 0)
    bits, bucket = codec["qsgd"]["bits"], codec["qsgd"]["bucket"]
    total = 4 * sum(vectors)
    for rows, columns in weights:
        if rows * columns < 10000:
            total += 4 * rows * columns
            continue
        full, rest = divmod(columns, bucket)
        total += rows * (full * (4 + -(-bucket * bits // 8)) + (4 + -(-rest * bits // 8) if rest else 0))
    return total


class Codecs(Test):
    def test_traffic_is_what_the_format_says_in_each_direction(self):
        qsgd = {"qsgd": {"bits": 5, "bucket": 48}}
        for push, pull, servers in (("bf16", "f32", 1), ("f32", "int8", 2), ("int8", "bf16", 3), (qsgd, "f16", 2),
                                    ("f16", qsgd, 2), ({"topk": {"k": 300}}, "f32", 1)):
            with self.subTest(push=push, pull=pull):
                job = coded({"push": push, "pull": pull}, workers=2, servers=servers, epochs=8)
                report = run_to_end(self, job)
                exchanges = report["traffic"]["exchanges"]
                self.assertEqual(exchanges, 2 * 8 * (DIGITS_ROWS // 32))
                self.assertEqual(report["traffic"]["push_payload_bytes"], exchanges * pushed(job, push, servers))
                self.assertEqual(report["traffic"]["pull_payload_bytes"], (exchanges + 2) * pushed(job, pull, servers))
                self.assertEqual(report["refused_pushes"], 0)
                self.contains(report["method_description"], "pushes as ", "pulls as ")
                self.assertGreaterEqual(report["final"]["test_accuracy"], 0.9)

    def test_a_worker_that_is_asked_to_leave_brings_what_was_held_back_or_it_is_counted_as_lost(self):
        for flush in (True, False):
            with self.case("flush %s" % flush):
                job = coded({"push": "int8", "error_feedback": True, "flush": flush}, servers=2, workers=3,
                            epochs=ENDLESS)
                cluster = Cluster(self, job)
                cluster.await_step(50)
                cluster.workers[2].signal(signal.SIGTERM)
                # It has not finished, and nobody says so.
                self.contains(cluster.workers[2].expect_exit(0), "worker: ended, left before the job's end")
                self.contains(cluster.servers[0].output(), "control: worker left worker=2 ",
                              "why=\"it was asked to leave\"")
                cluster.await_further()
                cluster.drain()
                report = cluster.finish()
                self.assertEqual((report["members"]["lost"], report["refused_pushes"]), (0, 0))
                self.assertEqual(report["residuals_lost"], 0 if flush else 1)
                left = [w for w in report["traffic"]["by_worker"] if w["worker"] == 2][0]
                last = pushed(job, "f32" if flush else "int8", 2)
                self.assertEqual(left["push_payload_bytes"], (left["exchanges"] - 1) * pushed(job, "int8", 2) + last)

    def test_the_same_job_again_ends_with_the_same_bits(self):
        for codec in ({"push": "int8", "error_feedback": True}, {"push": {"qsgd": {"bits": 4}}, "pull": "qsgd"},
                      {"push": "threshold"}, {"push": "topk"}):
            with self.subTest(codec=codec):
                job = coded(codec, workers=3, steps=60)
                hashes = {run_to_end(self, job)["parameters_hash"] for _ in range(2)}
                self.assertEqual(len(hashes), 1)

    def test_every_method_takes_codecs(self):
        methods = {
            "local_sgd": {"local_sgd": {"local_steps": 5, "average_state": False}},
            "diloco": {"diloco": {"local_steps": 10}},
            "async_sgd": {"async_sgd": {}},
            "softsync": {"softsync": {"pushes": 2}},
            "ssp": {"ssp": {"bound": 2, "local_steps": 3}},
            "ist": {"ist": {"local_steps": 7}},
            "ensemble": {"ensemble": {}},
        }
        for name, method in methods.items():
            with self.subTest(name):
                job = coded({"push": "int8", "pull": "bf16"}, method=method, workers=2, epochs=12)
                report = run_to_end(self, job)
                self.assertEqual((report["outcome"], report["refused_pushes"]), ("finished", 0))
                self.assertGreaterEqual(report["final"]["test_accuracy"], 0.8)
                self.assertLess(report["traffic"]["push_payload_bytes"], 0.62 * report["traffic"]["pull_payload_bytes"])

    def test_quant_dp_pushes_a_quarter_and_learns_as_data_parallel_does(self):
        plain = run_to_end(self, coded({}, workers=2, epochs=10))
        job = coded({}, method={"quant_dp": {"bucket": 64}}, workers=2, epochs=10)
        quant = run_to_end(self, job)
        self.assertEqual(quant["method"], "quant_dp")
        exchanges = quant["traffic"]["exchanges"]
        self.assertEqual(quant["traffic"]["push_payload_bytes"],
                         exchanges * pushed(job, {"qsgd": {"bits": 8, "bucket": 64}}, 2))
        self.assertGreaterEqual(quant["final"]["test_accuracy"], plain["final"]["test_accuracy"] - 0.02)

    def test_threshold_sends_about_its_density_and_flushes_at_the_end(self):
        job = coded({"push": {"threshold": {"density": 0.01}}, "flush": True}, workers=2, epochs=12)
        report = run_to_end(self, job)
        exchanges = report["traffic"]["exchanges"]
        size = job_size(job)
        # Two servers, two workers; the last pushes are whole, the others have a head of 8 bytes for each server.
        entries = (report["traffic"]["push_payload_bytes"] - 2 * 4 * size - (exchanges - 2) * 16) / 4
        self.assertAlmostEqual(entries / (exchanges - 2) / size, 0.01, delta=0.005)
        self.assertGreaterEqual(report["final"]["test_accuracy"], 0.85)

    def test_a_killed_worker_takes_only_what_it_held_back(self):
        for codec in ({"push": "int8", "error_feedback": True}, {"push": "threshold"},
                      {"push": "qsgd", "pull": "int8"}):
            with self.case("codec %s" % codec):
                cluster = Cluster(self, coded(codec, workers=3, epochs=ENDLESS, lease="3s"))
                cluster.await_step(50)
                victim = cluster.workers[1]
                victim.kill()
                cluster.await_status("a worker is lost", lost)
                cluster.await_further(50)
                cluster.drain()
                report = cluster.finish(victim)
                self.assertEqual((report["outcome"], report["members"]["lost"]), ("stopped", 1))
                holds_back = codec["push"] == "threshold" or codec.get("error_feedback", False)
                self.assertEqual(report["residuals_lost"], 1 if holds_back else None)
                self.assertGreaterEqual(report["final"]["test_accuracy"], 0.8)

    def saved(self, folder, workers):
        """The parameters of the newest checkpoint, and what its workers held back together, one after the other."""
        step = os.path.join(folder, max(name for name in os.listdir(folder) if name.startswith("step-")))
        shard = read_tensors(os.path.join(step, "shard-0-of-1.safetensors"))
        names = ("layers.%d.%s" % (layer, name) for layer in (0, 2) for name in ("weight", "bias"))
        values = array.array("f", b"".join(shard[name][1] for name in names))
        held = [0] * len(values)
        for rank in range(workers):
            tensors = read_tensors(os.path.join(step, "worker-%d.safetensors" % rank))
            own = array.array("f", b"".join(tensors["residual.%d" % p][1] for p in range(4)))
            held = [a + b for a, b in zip(held, own)]
        return values, held

    def test_what_was_held_back_weighs_the_same_where_there_are_other_workers(self):
        # A push is one of a mean, or weighs as there are members, or counts by itself, or is one of so many.
        for method, changes, factor in (({"local_sgd": {}}, {}, 0.5), ({"ssp": {"bound": 1}}, {}, 0.5),
                                        ({"async_sgd": {}}, {}, 1), ({"softsync": {"pushes": 2}}, {"pushes": 1}, 0.5)):
            name = list(method)[0]
            with self.case(name):
                method = {name: dict(method[name], local_steps=4)}
                job = coded({"push": "int8", "error_feedback": True}, method=method, servers=1, norm=False, steps=40)
                folders = [self.path("%s-%d" % (name, workers)) for workers in (2, 1)]
                run_to_end(self, dict(job, checkpoint={"directory": folders[0]}))
                # It learns nothing, so that what the servers get is what was held back.
                still = dict(job["train"], steps=60, optimizer={"sgd": {"learning_rate": 1e-12}})
                alone = {name: dict(method[name], **changes)}
                run_to_end(self, dict(job, train=still, method=alone, cluster=dict(job["cluster"], workers=1),
                                      checkpoint={"restore": folders[0], "directory": folders[1]}))
                before, held_before = self.saved(folders[0], 2)
                after, held_after = self.saved(folders[1], 1)
                self.assertGreater(max(held_before), 1e-5)
                for was, held, now, left in zip(before, held_before, after, held_after):
                    self.assertAlmostEqual(now - was + left, factor * held, delta=1e-6)

    def test_what_does_not_go_together_is_refused_before_anything_starts(self):
        job = coded({"pull": "threshold"}, method={"ist": {"local_steps": 7}})
        code, out, error = tessera("run", write_job(self, job))
        self.assertEqual((code, out), (2, ""))
        self.contains(error, "codec.pull: got threshold, want f32, bf16, f16, int8 or qsgd")


if __name__ == "__main__":
    unittest.main()
