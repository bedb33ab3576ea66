"""Exchanges of a core and an explorer: what they move, what they equal, and who may die meanwhile."""
import unittest

from cluster import DIGITS_ROWS, ENDLESS, Cluster, Test, digits, job_size, members, run_to_end

EVERY = 5


def slim(alpha=0.2, beta=0.1, local_steps=2, core_every=EVERY, **keys):
    return {"slim_dp": dict(alpha=alpha, beta=beta, local_steps=local_steps, core_every=core_every, **keys)}


class Slim(Test):
    def check_payload(self, job, report, alpha, core_every=EVERY, workers=2, synchronous=True, joined=0):
        """At most alpha n words an exchange and direction, n where all are pushed, and the keys of cores."""
        n, traffic, servers = job_size(job), report["traffic"], job["cluster"]["servers"]
        per_worker = traffic["exchanges"] // workers
        self.assertEqual(traffic["exchanges"], per_worker * workers)
        full = per_worker // core_every
        part = 4 * int(alpha * n + 1e-6)
        # An entry of the explorer may be missing on each server, as shares are rounded down.
        most_push = workers * (full * 4 * n + (per_worker - full) * part)
        least_push = most_push - workers * (per_worker - full) * 4 * servers
        self.assertLessEqual(traffic["push_payload_bytes"], most_push)
        self.assertGreaterEqual(traffic["push_payload_bytes"], least_push)
        # All entries once; the keys of the first core and of one for each full push, a bit an entry at most.
        values = workers * (4 * n + per_worker * part)
        keys = workers * (full + 1) * ((n + 7) // 8 + servers)
        self.assertLessEqual(traffic["pull_payload_bytes"], values + keys)
        self.assertGreater(traffic["pull_payload_bytes"], values - workers * per_worker * 4 * servers)

    def test_an_exchange_moves_its_share_of_the_entries_and_the_model_learns(self):
        for name, method in {"barrier": slim(), "asynchronous": slim(asynchronous=True), "no core": slim(beta=0),
                             "no explorer": slim(beta=0.2), "every push is full": slim(core_every=1),
                             "gradient_weight": slim(gradient_weight=2.0)}.items():
            with self.case(name):
                job = digits(servers=2, workers=2, batch=16, epochs=10, method=method)
                report = run_to_end(self, job)
                self.assertEqual((report["outcome"], report["method"], report["refused_pushes"]),
                                 ("finished", "slim_dp", 0))
                self.assertEqual(report["steps"], 10 * (DIGITS_ROWS // 32))
                self.assertEqual(report["parameter_examples"], report["examples"])
                self.assertGreater(report["final"]["test_accuracy"], 0.85)
                self.check_payload(job, report, 0.2, method["slim_dp"]["core_every"])

    def test_all_entries_are_local_sgd_bit_for_bit(self):
        wanted = run_to_end(self, digits(workers=3, batch=16, method={"local_sgd": {"local_steps": 4}}))
        for beta in (1.0, 0.3):
            report = run_to_end(self, digits(workers=3, batch=16, method=slim(1.0, beta, 4)))
            self.assertEqual(report["parameters_hash"], wanted["parameters_hash"])
            self.assertEqual(report["history"][-1]["train_loss"], wanted["history"][-1]["train_loss"])
            self.assertEqual(report["traffic"]["push_payload_bytes"], wanted["traffic"]["push_payload_bytes"])

    def test_the_same_job_twice_gives_the_same_parameters(self):
        for codec in (None, {"push": {"qsgd": {"bits": 8}}, "pull": "bf16"}):
            job = digits(servers=2, workers=3, batch=16, method=slim())
            if codec:
                job["codec"] = codec
            first, second = run_to_end(self, job), run_to_end(self, job)
            self.assertEqual(first["parameters_hash"], second["parameters_hash"])
            self.assertEqual(first["traffic"]["push_payload_bytes"], second["traffic"]["push_payload_bytes"])

    def test_without_an_explorer_the_number_of_servers_does_not_change_the_parameters(self):
        # The core is that of the whole model; explorers are drawn by each server for itself.
        hashes = {servers: run_to_end(self, digits(servers=servers, workers=2, batch=16, epochs=3,
                                                   method=slim(beta=0.2, gradient_weight=2.0)))["parameters_hash"]
                  for servers in (1, 2, 5, 12)}
        self.assertEqual(len(set(hashes.values())), 1, hashes)

    def test_evaluations_do_not_change_what_is_trained(self):
        one, other = (run_to_end(self, digits(workers=2, batch=16, epochs=6, evaluate_every=every, method=slim()))
                      for every in (0, 1))
        self.assertEqual(len(other["history"]), 6)
        self.assertEqual(one["parameters_hash"], other["parameters_hash"])

    def test_codecs_of_fixed_size_shrink_it_further(self):
        job = digits(workers=2, batch=16, epochs=10, method=slim())
        plain = run_to_end(self, job)
        for codec, ratio in (("bf16", 0.5), ("f16", 0.5), ("int8", 0.3), ({"qsgd": {"bits": 4}}, 1.0)):
            with self.case(str(codec)):
                report = run_to_end(self, dict(job, codec={"push": codec, "pull": "bf16"}))
                self.assertGreater(report["final"]["test_accuracy"], 0.8)
                self.assertLessEqual(report["traffic"]["push_payload_bytes"],
                                     ratio * plain["traffic"]["push_payload_bytes"])

    def test_what_is_not_moved_may_be_held_back_and_sent_later(self):
        steps = 57  # The last exchange is none that pushes all by itself.
        plain = digits(servers=2, workers=3, batch=16, method=slim(local_steps=1), steps=steps, rate=0.05)
        for method in (slim(local_steps=1), slim(local_steps=1, asynchronous=True)):
            for codec in ({"error_feedback": True}, {"error_feedback": True, "push": "int8"},
                          {"error_feedback": True, "flush": True}):
                with self.case("%s %s" % (method, codec)):
                    job = dict(plain, codec=codec, method=method)
                    report = run_to_end(self, job)
                    self.assertEqual((report["outcome"], report["refused_pushes"]), ("finished", 0))
                    self.assertGreater(report["final"]["test_accuracy"], 0.75)
                    if not method["slim_dp"].get("asynchronous"):
                        again = run_to_end(self, job)
                        self.assertEqual(report["parameters_hash"], again["parameters_hash"])
        base = run_to_end(self, plain)["traffic"]["push_payload_bytes"]
        held, flushed = (run_to_end(self, dict(plain, codec=codec))["traffic"]["push_payload_bytes"] for codec in (
            {"error_feedback": True}, {"error_feedback": True, "flush": True}))
        self.assertEqual(held, base)
        # One push of all entries in the place of one of a fifth, by each worker.
        all_entries = 3 * 4 * job_size(plain)
        self.assertAlmostEqual(flushed - base, 0.8 * all_entries, delta=0.001 * all_entries)


class SlimFaults(Test):
    METHODS = {"barrier": slim(), "asynchronous": slim(asynchronous=True), "every push is full": slim(core_every=1)}

    def test_a_killed_worker_costs_its_lease_and_a_late_one_takes_part(self):
        for name, method in self.METHODS.items():
            with self.case(name):
                job = digits(epochs=ENDLESS, batch=16, rate=0.05, method=method, lease="3s", workers=3)
                cluster = Cluster(self, job)
                cluster.await_step(20)
                victim = cluster.workers[1]
                victim.kill()
                cluster.await_status("it is lost", lambda status: len(members(status, "lost")) == 1)
                cluster.await_further(40)
                late = cluster.start_worker()
                cluster.await_status("three train", lambda status: len(members(status, "training")) == 3)
                cluster.await_further(40)
                cluster.drain()
                report = cluster.finish(victim)
                self.assertEqual((report["outcome"], report["members"]["joined"], report["members"]["lost"]),
                                 ("stopped", 4, 1))
                self.assertEqual(report["refused_pushes"], 0)
                self.assertIn("joined rank=1", late.output())
                self.assertGreater(report["final"]["test_accuracy"], 0.8)

    def test_a_job_goes_on_after_it_has_lost_all_its_workers(self):
        for name, method in self.METHODS.items():
            with self.case(name):
                job = digits(epochs=ENDLESS, batch=16, rate=0.05, method=method, lease="4s", workers=2)
                cluster = Cluster(self, job)
                cluster.await_step(20)
                late = cluster.start_worker()
                cluster.await_status("it waits or trains", lambda status: len(status["members"]) == 3)
                first, second = cluster.workers[:2]
                first.kill()
                second.kill()
                cluster.await_status("both are lost", lambda status: len(members(status, "lost")) == 2)
                cluster.await_further(20)
                cluster.drain()
                report = cluster.finish(first, second)
                self.assertEqual(report["members"]["lost"], 2)
                self.assertTrue(late.output())


if __name__ == "__main__":
    unittest.main()
