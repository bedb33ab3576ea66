"""The same job by `tessera simulate` and by `tessera run`: what is learned and moved is the same, bit for bit."""
import gzip
import json
import os
import signal
import unittest

from cluster import DIGITS, ENDLESS, TESSERA, Process, Test, await_true, digits, run_to_end, tessera, write_job

PAYLOADS = ("pull_payload_bytes", "push_payload_bytes", "other_payload_bytes", "exchanges")
WIRE = ("pull_wire_bytes", "push_wire_bytes")
# Synchronous ones: what they learn follows from the job alone.
METHODS = {
    "data_parallel": {"data_parallel": {}},
    "local_sgd": {"local_sgd": {"local_steps": 7}},
    "diloco": {"diloco": {"local_steps": 7}},
    "overlapped local_sgd": {"local_sgd": {"local_steps": 7, "overlap": True}},
    "overlapped diloco": {"diloco": {"local_steps": 7, "overlap": True}},
    "slim_dp": {"slim_dp": {"local_steps": 2, "core_every": 5}},
    "ist": {"ist": {"local_steps": 7}},
    "ist with a tail": {"ist": {"local_steps": 7, "tail_steps": 30}},
    "ensemble": {"ensemble": {}},
}


class SimulatedAndReal(Test):
    def job(self, name, **keys):
        # By shared memory fewer bytes go over a wire than in the simulation, which has one between all.
        job = digits(method=METHODS[name], batch=16, rate=0.1, epochs=4, cluster={"transport": "tcp"}, **keys)
        layers = []
        # Parts of different sizes, and rows that no server has as many of as the next.
        for units in (41, 37):
            layers += [{"linear": {"units": units, "bias": False}}, "batch_norm", "relu"]
        layers.append({"linear": {"units": 10, "bias": False}})
        # Without one a tail is refused.
        job["model"]["layers"] = layers + [{"batch_norm": {"affine": False}}] * ("tail" in name)
        return job

    def simulate(self, job):
        report = self.path("simulated.json")
        code, out, error = tessera("simulate", write_job(self, job, "simulated.yaml"), "--step-time", "2ms",
                                   "--latency", "1ms", "--bandwidth", "1Gbit", "--report", report, "--quiet")
        self.assertEqual((code, out, error), (0, "", ""))
        with open(report) as file:
            return json.load(file)

    def assert_same(self, job):
        real, simulated = run_to_end(self, job), self.simulate(job)
        for key in ("parameters_hash", "steps", "examples", "rounds", "final"):
            self.assertEqual(simulated.get(key), real.get(key), key)
        for got, want in zip(simulated["history"], real["history"]):
            for key in ("test_accuracy", "test_loss", "train_loss", "step"):
                self.assertEqual(got[key], want[key], key)
        self.assertEqual(len(simulated["history"]), len(real["history"]))
        traffic = zip([simulated["traffic"]] + simulated["traffic"]["by_worker"],
                      [real["traffic"]] + real["traffic"]["by_worker"])
        for got, want in traffic:
            for key in PAYLOADS:
                self.assertEqual(got[key], want[key], key)
            # Estimates on both sides, of the same messages.
            for key in WIRE:
                self.assertAlmostEqual(got[key], want[key], delta=0.01 * want[key], msg=key)
        return real

    def test_synchronous_jobs_learn_and_move_the_same(self):
        for name in METHODS:
            with self.subTest(name):
                every = 0 if name == "ensemble" else 1
                report = self.assert_same(self.job(name, workers=3, servers=2, evaluate_every=every))
                self.assertEqual(len(report["history"]), 4 if every else 1)
                self.assertGreater(report["final"]["test_accuracy"], 0.4)

    def test_coded_jobs_learn_and_move_the_same(self):
        for name, codec in (("data_parallel", {"push": "int8", "pull": "bf16", "error_feedback": True}),
                            ("local_sgd", {"push": {"threshold": {"density": 0.05}}, "flush": True}),
                            ("diloco", {"push": {"qsgd": {"bits": 6, "bucket": 16}}, "pull": "f16"}),
                            ("overlapped local_sgd", {"push": "int8", "pull": "bf16", "error_feedback": True}),
                            ("ist", {"push": {"qsgd": {"norm": "l2"}}, "pull": "int8"}),
                            ("slim_dp", {"error_feedback": True, "flush": True}),
                            ("slim_dp", {"push": "int8", "error_feedback": True}),
                            ("ist with a tail", {"push": "f16", "pull": "qsgd"})):
            with self.subTest(name, codec=codec):
                job = self.job(name, workers=3, servers=2, evaluate_every=2)
                # Some matrices are large enough to be rounded at random.
                job["model"]["layers"][0]["linear"]["units"] = 157
                job["codec"] = codec
                report = self.assert_same(job)
                self.assertGreater(report["final"]["test_accuracy"], 0.4)

    def test_halves_of_the_layers_learn_and_move_the_same(self):
        layers = [{"conv2d": {"channels": 12, "kernel": 3}}, "relu", {"conv2d": {"channels": 24, "kernel": 3}},
                  "batch_norm", "relu", {"max_pool": {"kernel": 2}}, {"linear": {"units": 41}}, "relu",
                  {"dropout": {"probability": 0.1}}, {"linear": {"units": 10}}]
        for linear, codec in ((1, None), (2, None), (2, {"push": "int8", "pull": "bf16", "error_feedback": True})):
            with self.subTest(linear=linear, codec=codec):
                job = digits(method={"layer_separation": {"linear_workers": linear}}, workers=5, servers=2, batch=16,
                             rate=0.1, epochs=4, evaluate_every=1)
                job["model"] = {"input": [1, 8, 8], "layers": layers}
                if codec:
                    job["codec"] = codec
                report = self.assert_same(job)
                self.assertEqual(len(report["history"]), 4)
                self.assertGreater(report["final"]["test_accuracy"], 0.4)

    def test_replicas_move_the_same_and_learn_as_well(self):
        job = digits(method={"decentralized": {}}, workers=3, servers=3, batch=16, rate=0.06, epochs=8)
        job["codec"] = {"push": "f32"}
        real, simulated = run_to_end(self, job), self.simulate(job)
        for key in PAYLOADS:
            self.assertEqual(simulated["traffic"][key], real["traffic"][key], key)
        for report in (real, simulated):
            self.assertGreater(report["final"]["test_accuracy"], 0.88)
        for key in ("steps", "examples"):
            self.assertEqual(simulated[key], real[key], key)

    def test_replicas_are_as_many_as_workers(self):
        job = write_job(self, digits(method={"decentralized": {}}, workers=2, servers=2, epochs=1))
        for more in (["--workers", "4"], ["--workers", "4", "--servers", "4"]):
            with self.subTest(more):
                self.assertEqual(tessera("simulate", job, "--step-time", "2ms", "--quiet", *more)[0], 0)
        # Servers that are asked for are not made to fit.
        code, _, error = tessera("simulate", job, "--workers", "4", "--servers", "3")
        self.assertEqual(code, 2)
        self.contains(error, "cluster.servers.count: got 3, want 4")

    def test_overlapped_exchanges_take_no_time_of_their_own(self):
        def seconds(local_steps, overlap=False):
            job = digits(method={"local_sgd": {"local_steps": local_steps, "overlap": overlap}}, batch=16, epochs=4,
                         workers=2, servers=2)
            report = self.path("simulated.json")
            self.assertEqual(tessera("simulate", write_job(self, job, "simulated.yaml"), "--step-time", "10ms",
                                     "--bandwidth", "1200kbit", "--report", report, "--quiet")[0], 0)
            with open(report) as file:
                return json.load(file)["train_seconds"]
        # 168 steps and one exchange, which is waited for; three of them more.
        computing = seconds(1000)
        exchange = (seconds(42) - computing) / 3
        self.assertGreater(exchange, 0.1)
        for steps in (42, 21, 12, 6, 4):
            with self.subTest(local_steps=steps):
                more, waited = 168 // steps - 1, max(0, exchange - 0.01 * steps)
                self.assertAlmostEqual(seconds(steps, overlap=True), computing + more * waited, delta=0.02)
                self.assertAlmostEqual(seconds(steps), computing + more * exchange, delta=0.02)

    def test_sparse_rows_are_read_as_such(self):
        files = {}
        for part in ("train", "test"):
            with gzip.open(os.path.join(DIGITS, part + "-images-idx3-ubyte.gz")) as file:
                pixels = file.read()[16:]
            with gzip.open(os.path.join(DIGITS, part + "-labels-idx1-ubyte.gz")) as file:
                labels = file.read()[8:]
            name = part + ".xc.gz"
            with gzip.open(self.path(name), "wt") as file:
                file.write("%d 64 10\n" % len(labels))
                for row, label in enumerate(labels):
                    entries = enumerate(pixels[row * 64:row * 64 + 64])
                    file.write("%d %s\n" % (label, " ".join("%d:%d" % (i, x) for i, x in entries if x)))
            files[part] = {"features": name}
        for name in ("local_sgd", "ist"):
            with self.subTest(name):
                job = self.job(name, workers=2, servers=2)
                job["data"] = {"format": "xc", "directory": self.folder, "normalize": {"stddev": 16.0}, **files}
                self.assert_same(job)


class Refusals(Test):
    def test_too_few_rows_are_told_once(self):
        code, out, error = tessera("simulate", write_job(self, digits()), "--workers", "64", "--step-time", "1ms")
        self.assertEqual((code, out), (2, ""))
        self.assertEqual(error, "tessera: training rows are 1347, want at least 64 workers x 32; "
                                "lower train.batch_size or --workers\n")

    def test_a_job_that_fails_is_told_once(self):
        path = write_job(self, digits())
        for flags in ((), ("--quiet",)):
            code, _, error = tessera("simulate", path, "--step-time", "1ms", "--fail-rate", "1e6", *flags)
            self.assertEqual(code, 1)
            self.assertRegex(error, r"^tessera: all workers are gone; [^\n]*\n$")

    def test_a_report_that_finds_no_room_costs_the_report_alone(self):
        code, out, error = tessera("simulate", write_job(self, digits()), "--step-time", "1ms", "--report", "/dev/full")
        self.assertEqual((code, error), (1, 'tessera: --report: "/dev/full" cannot be written: '
                                            "No space left on device\n"))
        self.contains(out, "accuracy", "could not be written")

    def test_steps_that_take_for_ever_are_refused(self):
        code, out, error = tessera("simulate", write_job(self, digits()), "--step-time", "1000h")
        self.assertEqual((code, out, error), (2, "", "tessera: simulation: step time is 1000h, want at most 24h\n"))


class Signals(Test):
    def test_ctrl_c_is_answered_at_once_also_while_a_step_is_measured(self):
        job = digits(epochs=ENDLESS, units=8000, batch=1000, workers=1)
        process = Process(self, "simulate", [TESSERA, "simulate", write_job(self, job)])

        def is_heard():
            with open("/proc/%d/status" % process.pid) as file:
                facts = dict(line.strip().split(":", 1) for line in file)
            return facts["Name"].strip() == "tessera" and int(facts["SigBlk"], 16) >> (signal.SIGINT - 1) & 1

        await_true("it takes signals", is_heard, explain=process.output)
        process.signal(signal.SIGINT)
        process.signal_again(signal.SIGTERM)
        # The second one ended it.
        self.assertEqual(process.expect_exit(-signal.SIGTERM),
                         "tessera: ending the simulated job; again to stop at once\n"
                         "tessera: stopped at once; no report\n")


if __name__ == "__main__":
    unittest.main()
