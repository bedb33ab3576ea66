"""Exchanges of fragments of the model, one after the other, with real processes."""
import json
import unittest

from checkpoint_folders import CheckpointTest, MOMENTUM, keeping, restoring, sameness, step_folder, steps_in
from cluster import Cluster, Test, digits, job_size, lost, members, run_to_end, tessera, write_job

FRAGMENTS = 4
INTERVAL = 3
ADAMW = {"adamw": {"learning_rate": 0.003}}


def fragments(name="diloco", **keys):
    return {name: dict({"local_steps": FRAGMENTS * INTERVAL, "fragments": FRAGMENTS}, **keys)}


class Fragments(Test):
    def test_each_exchange_moves_a_fragment_and_every_fragment_comes_in_its_turn(self):
        for method in (fragments(), fragments("local_sgd", delay=2, alpha=0.5), fragments(delay=INTERVAL)):
            with self.subTest(method):
                job = digits(servers=2, workers=3, batch=16, steps=120, method=method)
                report = run_to_end(self, job)
                self.assertEqual((report["outcome"], report["steps"], report["refused_pushes"]), ("finished", 120, 0))
                whole = 4 * 3 * job_size(job)
                exchanges = 120 // INTERVAL
                self.assertEqual(exchanges % FRAGMENTS, 0)
                self.assertEqual(report["traffic"]["exchanges"], 3 * exchanges)
                self.assertEqual(report["traffic"]["push_payload_bytes"], whole * exchanges // FRAGMENTS)
                # The first values are of the whole model.
                self.assertEqual(report["traffic"]["pull_payload_bytes"], whole * (exchanges // FRAGMENTS + 1))
                self.assertGreater(report["final"]["test_accuracy"], 0.85)
                self.assertIn("of 4 fragments of the model one is exchanged every 3 steps",
                              report["method_description"])

    def test_one_exchange_is_never_more_than_a_fragment(self):
        # One that ends after its first exchange has moved what the largest fragment has, to within a row.
        job = digits(servers=2, workers=1, steps=INTERVAL, method=fragments())
        pushed = run_to_end(self, job)["traffic"]["push_payload_bytes"]
        rows = 2 * 4 * 64
        self.assertLess(abs(pushed - job_size(job)), rows + 1)

    def test_the_same_job_twice_gives_the_same_parameters(self):
        for keys in ({}, {"alpha": 0.5}, {"delay": 1, "alpha": 0.25}):
            for codec in ({}, {"push": "int8", "pull": "bf16", "error_feedback": True}):
                with self.subTest(keys=keys, codec=codec):
                    job = dict(digits(servers=2, workers=3, batch=16, epochs=4, evaluate_every=2,
                                      method=fragments(**keys)), codec=codec)
                    first, second = run_to_end(self, job), run_to_end(self, job)
                    self.assertEqual(first["parameters_hash"], second["parameters_hash"])
                    self.assertGreater(first["final"]["test_accuracy"], 0.8)

    def test_selective_codecs_select_within_a_fragment(self):
        for push in ("topk", {"threshold": {"tau": 0.02}}):
            with self.subTest(push):
                job = dict(digits(workers=2, batch=16, steps=240, method=fragments("local_sgd"), norm=False,
                                  rate=0.1), codec={"push": push})
                report = run_to_end(self, job)
                self.assertLess(report["traffic"]["push_payload_bytes"], report["traffic"]["pull_payload_bytes"])
                self.assertGreater(report["final"]["test_accuracy"], 0.6)

    def test_simulated_machines_end_with_the_bits_of_real_ones(self):
        for keys in ({}, {"delay": 2, "alpha": 0.5}):
            with self.subTest(keys):
                job = digits(servers=2, workers=3, batch=16, steps=60, method=fragments(**keys))
                simulated = self.path("simulated.json")
                code, _, errors = tessera("simulate", write_job(self, job), "--step-time", "10ms", "--report",
                                          simulated, "--quiet")
                self.assertEqual(code, 0, errors)
                with open(simulated) as file:
                    report = json.load(file)
                real = run_to_end(self, job)
                self.assertEqual(report["parameters_hash"], real["parameters_hash"])
                self.assertEqual([report["traffic"][key] for key in ("push_payload_bytes", "pull_payload_bytes")],
                                 [real["traffic"][key] for key in ("push_payload_bytes", "pull_payload_bytes")])

    def test_workers_die_and_join(self):
        for keys in ({}, {"delay": 1, "alpha": 0.5}):
            with self.case(str(keys)):
                cluster = Cluster(self, digits(workers=3, batch=16, steps=1000000, lease="3s",
                                               method=fragments(**keys)))
                cluster.await_step(50)
                victim = cluster.workers[1]
                victim.kill()
                cluster.await_status("a worker is lost", lost)
                cluster.await_further(50)
                cluster.start_worker()
                cluster.await_status("three train again", lambda status: len(members(status, "training")) == 3)
                cluster.await_further(50)
                cluster.drain()
                report = cluster.finish(victim)
                self.assertEqual((report["outcome"], report["members"]["joined"], report["members"]["lost"]),
                                 ("stopped", 4, 1))
                self.assertGreater(report["final"]["test_accuracy"], 0.85)

    def test_a_standby_takes_over_with_the_same_bits(self):
        job = digits(servers=2, workers=2, batch=16, steps=1500, lease="3s", method=fragments(),
                     cluster={"replicas": 1})
        alone = run_to_end(self, dict(job, cluster=dict(job["cluster"], replicas=0)))
        cluster = Cluster(self, job, pause=0.005)
        cluster.await_step(100)
        victim = cluster.servers[1]
        victim.kill()
        report = cluster.finish(victim)
        self.assertEqual((report["outcome"], report["steps"]), ("finished", 1500))
        self.assertEqual(report["parameters_hash"], alone["parameters_hash"])


class FragmentCheckpoints(CheckpointTest):
    def test_a_resumed_job_ends_bit_equal_to_one_that_never_stopped(self):
        for number, (keys, codec, optimizer) in enumerate((
                ({}, {}, MOMENTUM), ({}, {}, ADAMW),
                ({"alpha": 0.5}, {"push": "int8", "error_feedback": True}, ADAMW))):
            with self.case("%s %s" % (keys, list(optimizer)[0])):
                job = dict(self.small(method=fragments(**keys), optimizer=optimizer, servers=2), codec=codec)
                folder = self.path("checkpoints-%d" % number)
                whole = run_to_end(self, keeping(job, folder, 21))
                steps = steps_in(folder)
                self.assertGreaterEqual(len(steps), 2)
                self.assertEqual(whole["checkpoint"]["failure"], "")
                for step in steps[:2] + steps[-1:]:
                    again = run_to_end(self, restoring(job, step_folder(folder, step)))
                    self.assertEqual(sameness(again), sameness(whole), step)

    def test_a_job_with_a_delay_goes_on_as_if_it_had_waited_there(self):
        job = self.small(method=fragments(delay=2, alpha=0.5), optimizer=ADAMW, servers=2)
        folder = self.path("checkpoints")
        whole = run_to_end(self, keeping(job, folder, 21))
        steps = steps_in(folder)
        again = [run_to_end(self, restoring(job, step_folder(folder, steps[0]))) for _ in range(2)]
        self.assertEqual(sameness(again[0]), sameness(again[1]))
        self.assertEqual(again[0]["steps"], whole["steps"])
        self.assertAlmostEqual(again[0]["final"]["test_accuracy"], whole["final"]["test_accuracy"], delta=0.05)

    def test_other_fragments_servers_and_methods_go_on_from_it(self):
        job = self.small(method=fragments(), optimizer=MOMENTUM, servers=2)
        folder = self.path("checkpoints")
        run_to_end(self, keeping(job, folder, 45))
        first = step_folder(folder, steps_in(folder)[0])
        for other in (dict(job, method=fragments(fragments=2)), dict(job, cluster=dict(job["cluster"], servers=3)),
                      dict(job, method={"diloco": {"local_steps": 6}})):
            report = run_to_end(self, restoring(other, first))
            self.assertEqual((report["outcome"], report["steps"]), ("finished", 90))
            self.assertGreater(report["final"]["test_accuracy"], 0.7)


class Refusals(Test):
    def test_what_goes_with_no_fragments_is_refused_by_name(self):
        for keys, error in (
                ({"local_steps": 10}, "got 4, want a number that divides local_steps (10)"),
                ({"delay": 4}, "got 4, want at most 3, local_steps / fragments"),
                ({"asynchronous": True}, "got 4 beside asynchronous, want one or the other"),
                ({"overlap": True}, "got 4 beside overlap (delay says how many steps"),
                ({"fragments": 1, "delay": 2}, "got 2 without fragments, want fragments 2 or more")):
            with self.subTest(keys):
                code, _, errors = tessera("check", write_job(self, digits(method=fragments(**keys))))
                self.assertEqual(code, 2)
                self.assertIn(error, errors)

    def test_check_tells_what_an_exchange_moves(self):
        job = digits(method=fragments(), servers=1)
        code, out, errors = tessera("check", write_job(self, job))
        self.assertEqual(code, 0, errors)
        self.assertRegex(out, r"pushes (about )?%d bytes and pulls (about )?\d+ bytes every 3 steps" %
                         job_size(job))


if __name__ == "__main__":
    unittest.main()
