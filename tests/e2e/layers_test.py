"""Layer separation: workers that train the convolutions, and others that train the linear layers behind them."""
import copy
import json
import os
import re
import signal
import time
import unittest

from checkpoint_folders import CheckpointTest, keeping, restoring, sameness, save_on_the_way, step_folder, steps_in
from cluster import (ENDLESS, JOBS, SERVER, SOON, WORKER, Cluster, Process, await_true, digits, lost, members,
                     run_to_end, tessera, write_job)

FRONT = [{"conv2d": {"channels": 6, "kernel": 3, "padding": 1}}, "batch_norm", "relu", {"max_pool": {"kernel": 2}},
         {"dropout": {"probability": 0.1}}]
# What batch norm and dropout make of a batch is that worker's who has its rows.
BEHIND = [{"linear": {"units": 40}}, "batch_norm", "relu", {"dropout": {"probability": 0.2}}, {"linear": {"units": 10}}]
# Batches of other workers do not matter to these.
SMOOTH = [{"conv2d": {"channels": 6, "kernel": 3, "padding": 1}}, "relu", {"max_pool": {"kernel": 2}},
          {"linear": {"units": 40}}, "relu", {"linear": {"units": 10}}]
CUT = 6 * 4 * 4
FRONT_SIZE = 6 * 9 + 6 + 12
BEHIND_SIZE = 40 * CUT + 40 + 80 + 10 * 40 + 10
MOMENTUM = {"sgd": {"learning_rate": 0.1, "momentum": 0.9}}


def separated(front, linear, layers=None, optimizer=MOMENTUM, **keys):
    job = digits(workers=front + linear, method={"layer_separation": {"linear_workers": linear}}, **keys)
    job["model"] = {"input": [1, 8, 8], "layers": layers or FRONT + BEHIND}
    job["train"]["optimizer"] = optimizer
    return job


def on_own_servers(job, linear_servers):
    """The job with the linear layers on the last servers alone."""
    job = copy.deepcopy(job)
    job["method"]["layer_separation"]["linear_servers"] = linear_servers
    return job


def together(workers, **keys):
    """The same job, in which each worker has the whole model."""
    job = separated(workers, 0, **keys)
    job["method"] = {"data_parallel": {}}
    return job


def endless(front, linear, **keys):
    return separated(front, linear, **dict({"epochs": ENDLESS, "batch": 16, "lease": "4s"}, **keys))


def has_trained(status, rank):
    return any(m["rank"] == rank and int(m["progress"]["step"]) > 0 and float(m["progress"].get("train_loss", 0)) >= 0
               for m in members(status, "training"))


def final(report):
    return report["final"]["train_loss"], report["final"]["test_loss"]


class Equalities(CheckpointTest):
    def test_one_linear_worker_makes_the_updates_of_data_parallel_to_the_bit(self):
        for workers in (1, 2, 3):
            with self.case("%d with data" % workers):
                keys = {"batch": 16, "epochs": 3, "evaluate_every": 1, "schedule": {"warmup": 1000}}
                want = run_to_end(self, together(workers, servers=2, **keys))
                for servers in (1, 5):
                    got = run_to_end(self, separated(workers, 1, servers=servers, **keys))
                    for key in ("parameters_hash", "steps", "rounds", "examples", "parameter_examples"):
                        self.assertEqual(got[key], want[key], key)
                    # One more shares the test rows. Sums are formed share by share, and on some processors a product
                    # of other rows rounds otherwise.
                    for a, b in zip(got["history"], want["history"]):
                        self.assertEqual((a["train_loss"], a["test_accuracy"]), (b["train_loss"], b["test_accuracy"]))
                        self.assertAlmostEqual(a["test_loss"], b["test_loss"], delta=1e-7)

    def test_servers_with_one_half_each_make_the_same_updates(self):
        keys = {"batch": 16, "epochs": 3, "evaluate_every": 1}
        want = run_to_end(self, together(2, servers=1, **keys))
        for servers, linear_servers in ((2, 1), (5, 2)):
            with self.case("%d of %d" % (linear_servers, servers)):
                job = on_own_servers(separated(2, 1, servers=servers, **keys), linear_servers)
                got = run_to_end(self, job)
                self.assertEqual(got["parameters_hash"], want["parameters_hash"])
                pushed = got["steps"] * 4 * (2 * FRONT_SIZE + BEHIND_SIZE)
                self.assertEqual(got["traffic"]["push_payload_bytes"], pushed)

    def test_codecs_code_what_they_code_in_data_parallel(self):
        # Coded each by itself and then summed, or summed and then coded: with one worker the same.
        for codec in ({"push": "int8", "pull": "bf16", "error_feedback": True},
                      {"push": {"threshold": {"density": 0.1}}}):
            with self.case(str(codec)):
                want = run_to_end(self, dict(together(1, steps=60), codec=codec))
                got = run_to_end(self, dict(separated(1, 1, steps=60), codec=codec))
                self.assertEqual(got["steps"], want["steps"])
                for a, b in zip(final(got), final(want)):
                    self.assertAlmostEqual(a, b, delta=0.15)
                self.assertLess(final(got)[1], 1.5)  # It has learned.

    def test_several_linear_workers_make_the_mean_whoever_has_how_many_batches(self):
        want = final(run_to_end(self, together(1, layers=SMOOTH, batch=60, steps=60)))
        for front, linear in ((2, 2), (3, 2), (4, 2), (5, 3)):
            with self.case("%d + %d" % (front, linear)):
                job = separated(front, linear, layers=SMOOTH, batch=60 // front, steps=60)
                first, second = run_to_end(self, job), run_to_end(self, job)
                self.assertEqual(first["parameters_hash"], second["parameters_hash"])
                for a, b in zip(final(first), want):
                    self.assertAlmostEqual(a, b, delta=1e-4)
        self.assertLess(want[1], 1.0)

    def test_what_is_sent_is_the_formula(self):
        report = run_to_end(self, separated(3, 2, batch=16, steps=40))
        traffic = report["traffic"]
        self.assertEqual(traffic["push_payload_bytes"], 40 * 4 * (3 * FRONT_SIZE + 2 * BEHIND_SIZE))
        self.assertEqual(traffic["pull_payload_bytes"], 41 * 4 * (3 * FRONT_SIZE + 2 * BEHIND_SIZE))
        self.assertEqual(traffic["exchanges"], 40 * 5)
        # A value there and one back for each at the cut, and a class for each row; the evaluation's reads besides.
        crossed = 40 * 3 * 16 * (2 * CUT + 1) * 4
        self.assertEqual(traffic["other_payload_bytes"], crossed + 5 * 4 * (FRONT_SIZE + BEHIND_SIZE))
        self.assertEqual(report["examples"], 40 * 3 * 16)


class Checkpoints(CheckpointTest):
    def test_a_job_goes_on_from_a_checkpoint_with_another_number_of_servers(self):
        job = separated(2, 1, servers=3, epochs=2)
        folder = self.path("checkpoints")
        whole, saved = save_on_the_way(self, job, folder, 15)
        again = restoring(job, step_folder(folder, saved))
        again["cluster"]["servers"] = 2
        report = run_to_end(self, again)
        self.assertEqual(report["parameters_hash"], whole["parameters_hash"])
        self.assertEqual(sameness(report), sameness(whole))
        code, out, error = tessera("eval", step_folder(folder, steps_in(folder)[-1]), write_job(self, job))
        self.assertEqual((code, error), (0, ""))
        self.assertIn("%.4f" % whole["final"]["test_accuracy"], out)

    def test_a_job_goes_on_with_the_halves_on_other_servers(self):
        job = separated(2, 1, servers=3, epochs=2)
        folder = self.path("checkpoints")
        whole, saved = save_on_the_way(self, on_own_servers(job, 1), folder, 15)
        for linear_servers in (1, 2, 0):
            with self.case("%d with the linear layers" % linear_servers):
                again = restoring(on_own_servers(job, linear_servers), step_folder(folder, saved))
                report = run_to_end(self, again)
                self.assertEqual(report["parameters_hash"], whole["parameters_hash"])
                self.assertEqual(sameness(report), sameness(whole))

    def test_eval_calibrates_with_the_rows_of_those_that_have_data(self):
        # Three of four: a quarter of the rows are others than a third.
        job = separated(3, 1, epochs=2, partition="shard")
        folder = self.path("checkpoints")
        final = run_to_end(self, keeping(job, folder, 15))["final"]
        code, out, error = tessera("eval", step_folder(folder, steps_in(folder)[-1]), write_job(self, job), "--json")
        self.assertEqual((code, error), (0, ""))
        self.assertEqual(json.loads(out)["test_loss"], final["test_loss"])

    def test_what_a_codec_holds_back_is_kept(self):
        job = dict(separated(2, 1, epochs=2), codec={"push": "int8", "error_feedback": True})
        folder = self.path("checkpoints")
        whole, saved = save_on_the_way(self, job, folder, 15)
        report = run_to_end(self, restoring(job, step_folder(folder, saved)))
        self.assertEqual(sameness(report), sameness(whole))

    def test_what_a_codec_holds_back_of_a_half_goes_to_those_who_have_it_now(self):
        codec = {"push": {"threshold": {"density": 0.1}}}
        # To three in front and a linear one; of how many files each rank takes up what was held back.
        for front, linear, files in ((2, 1, (1, 1, 0, 1)), (2, 2, (1, 1, 0, 2))):
            with self.case("%d + %d" % (front, linear)):
                folder, logs = (self.path("%s-%d" % (name, linear)) for name in ("checkpoints", "logs"))
                before = dict(separated(front, linear, epochs=2), codec=codec)
                _, saved = save_on_the_way(self, before, folder, 15)
                again = dict(separated(3, 1, epochs=2), codec=codec)
                report = run_to_end(self, restoring(again, step_folder(folder, saved)), "--logs", logs)
                self.assertLess(final(report)[1], 1.5)
                for rank, count in enumerate(files):
                    with open(os.path.join(logs, "worker-%d.log" % rank)) as file:
                        self.contains(file.read(), "residuals_of=%d " % count)

    def test_workers_go_back_to_a_checkpoint_with_a_lost_server(self):
        cluster = Cluster(self, keeping(endless(2, 1), self.path("checkpoints"), 20, 2))
        cluster.await_step(50)
        victim = cluster.servers[1]
        victim.kill()
        cluster.await_status("it is missed", lambda status: "server 1" in str(status.get("waiting_for")))
        cluster.start_server(1)
        cluster.await_further(100)
        cluster.drain()
        report = cluster.finish(victim)
        self.assertEqual((report["outcome"], report["members"]["lost"]), ("stopped", 0))
        self.assertGreater(report["final"]["test_accuracy"], 0.8)

    def test_standbys_take_over(self):
        cluster = Cluster(self, endless(2, 1, servers=3, cluster={"replicas": 1}, lease="3s"))
        cluster.await_status("all have standbys", lambda status: all(o["in_sync"] for o in status["owners"]))
        cluster.await_step(30)
        victim = cluster.servers[1]
        victim.kill()
        cluster.await_status("its standby leads", lambda status: int(status["takeovers"]) >= 1)
        cluster.await_further(50)
        cluster.drain()
        report = cluster.finish(victim)
        self.assertEqual((report["outcome"], report["members"]["lost"]), ("stopped", 0))


    def test_a_linear_worker_is_lost_with_the_server_of_its_layers(self):
        job = on_own_servers(endless(3, 2, servers=3, cluster={"replicas": 1}, lease="3s"), 1)
        cluster = Cluster(self, job)
        cluster.await_status("all have standbys", lambda status: all(o["in_sync"] for o in status["owners"]))
        cluster.await_step(30)
        victims = cluster.workers[4], cluster.servers[2]
        for victim in victims:
            victim.kill()
        cluster.await_status("the standby leads", lambda status: int(status["takeovers"]) >= 1 and lost(status) == 1)
        cluster.await_further(50)
        cluster.drain()
        report = cluster.finish(*victims)
        self.assertEqual((report["outcome"], report["members"]["lost"]), ("stopped", 1))
        self.assertGreater(report["final"]["test_accuracy"], 0.8)


class Faults(CheckpointTest):
    def test_others_go_on_without_a_worker_that_has_data(self):
        cluster = Cluster(self, endless(3, 1))
        cluster.await_step(30)
        victim = cluster.workers[1]
        victim.kill()
        status = cluster.await_status("it is lost", lost)
        self.assertEqual([m["rank"] for m in members(status, "lost")], [1])
        cluster.await_further(100)
        cluster.drain()
        report = cluster.finish(victim)
        self.assertEqual((report["outcome"], report["members"]["lost"]), ("stopped", 1))
        self.assertGreater(report["final"]["test_accuracy"], 0.8)

    def test_others_take_the_batches_of_a_lost_linear_worker(self):
        for how in ("kill", "freeze"):
            with self.case(how):
                cluster = Cluster(self, endless(4, 2))
                cluster.await_step(30)
                victim = cluster.workers[5]
                getattr(victim, how)()
                cluster.await_status("it is lost", lost)
                cluster.await_further(100)
                if how == "freeze":
                    victim.thaw()
                    # Told so, or by itself: a renewal that was under way when it was frozen is late.
                    self.assertRegex(victim.expect_exit(1), "no longer a member|not reached for")
                    self.assertIn("lease expired worker=5", cluster.servers[0].output())
                cluster.drain()
                report = cluster.finish(victim)
                self.assertEqual((report["outcome"], report["members"]["lost"]), ("stopped", 1))
                self.assertGreater(report["final"]["test_accuracy"], 0.8)

    def test_the_last_one_of_a_half_ends_the_job_with_its_name(self):
        for rank, words in ((2, "the linear layers"), (0, "the layers in front of the linear ones")):
            with self.case(words):
                job = endless(2, 1) if rank == 2 else endless(1, 1)
                cluster = Cluster(self, job)
                cluster.await_step(30)
                cluster.workers[rank].kill()
                output = cluster.servers[0].expect_exit(1)
                self.contains(output, "worker %d is gone, the last one that trained %s" % (rank, words))
                for worker in cluster.workers:
                    if worker is not cluster.workers[rank]:
                        self.contains(worker.expect_exit(1), "the last one that trained " + words)

    def test_a_job_whose_workers_are_all_asked_to_leave_ends_normally(self):
        for first in (0, 3):
            with self.case("worker %d first" % first):
                # All leave within it, however slow the machine is.
                cluster = Cluster(self, endless(2, 2, lease="10s"))
                cluster.await_step(20)
                # The others come to a step in which a half may have nobody left.
                for rank in [first] + [rank for rank in (2, 3, 0, 1) if rank != first]:
                    cluster.workers[rank].signal(signal.SIGTERM)
                    time.sleep(0.2)
                report = cluster.finish()
                self.assertEqual((report["outcome"], report["members"]["lost"]), ("stopped", 0))

    def test_the_last_one_of_a_half_that_leaves_alone_ends_the_job(self):
        for rank, words in ((2, "the linear layers"), (0, "the layers in front of the linear ones")):
            with self.case(words):
                cluster = Cluster(self, endless(2, 1) if rank == 2 else endless(1, 1))
                cluster.await_step(20)
                cluster.workers[rank].signal(signal.SIGTERM)
                self.assertEqual(cluster.workers[rank].exit_code(SOON), 0)
                output = cluster.servers[0].expect_exit(1)
                self.contains(output, "worker %d has left, the last one that trained %s" % (rank, words))
                for worker in cluster.workers:
                    if worker is not cluster.workers[rank]:
                        self.contains(worker.expect_exit(1), "the last one that trained " + words)

    def test_one_that_comes_late_is_refused_where_all_ranks_are_held(self):
        cluster = Cluster(self, endless(1, 1))
        cluster.await_step(10)
        late = cluster.start_worker()
        self.contains(late.expect_exit(1), "all 2 ranks are held")
        cluster.await_further()
        cluster.drain()
        self.assertEqual(cluster.finish(late)["outcome"], "stopped")

    def test_another_takes_the_place_of_a_lost_one_of_either_half(self):
        for rank in (1, 5):
            with self.case("worker %d" % rank):
                cluster = Cluster(self, endless(4, 2))
                cluster.await_step(30)
                victim = cluster.workers[rank]
                victim.kill()
                cluster.await_status("it is lost", lost)
                cluster.await_further(20)
                late = cluster.start_worker(rank)
                status = cluster.await_status("it trains", lambda s: has_trained(s, rank))
                self.assertEqual(len(members(status, "training")), 6)
                cluster.await_further(100)
                cluster.drain()
                report = cluster.finish(victim)
                self.assertEqual((report["outcome"], report["members"]["lost"]), ("stopped", 1))
                self.assertEqual(report["members"]["joined"], 7)
                self.assertGreater(report["final"]["test_accuracy"], 0.8)
                self.assertEqual(late.exit_code(SOON), 0)

    def test_workers_that_come_and_go_all_the_time_cost_the_job_nothing_but_time(self):
        cluster = Cluster(self, endless(3, 2))
        victims = []
        for rank in (4, 0, 3, 4, 2):
            cluster.await_further(30)
            victim = cluster.workers[rank]
            victim.kill()
            victims.append(victim)
            cluster.await_status("%d are lost" % len(victims), lambda s: len(members(s, "lost")) == len(victims))
            cluster.workers[rank] = cluster.start_worker(rank)
            cluster.await_status("it is back", lambda s: has_trained(s, rank))
        cluster.await_further(50)
        cluster.drain()
        report = cluster.finish(*victims)
        self.assertEqual((report["outcome"], report["members"]["lost"]), ("stopped", 5))
        self.assertGreater(report["final"]["test_accuracy"], 0.8)


class Users(CheckpointTest):
    def test_the_job_that_is_shipped_learns(self):
        report = run_to_end(self, os.path.join(JOBS, "digits_layers.yaml"))
        self.assertGreater(report["final"]["test_accuracy"], 0.93)

    def test_check_says_which_servers_have_the_linear_layers(self):
        for linear_servers, words in ((1, "server 3 has the"), (2, "servers 2 to 3 have the")):
            job = write_job(self, on_own_servers(separated(2, 1, servers=4), linear_servers))
            code, out, error = tessera("check", job)
            self.assertEqual((code, error), (0, ""))
            self.contains(out, words + " linear layers' parameters alone")

    def test_what_the_job_leaves_open_is_chosen_before_it_starts(self):
        job = separated(3, 1, epochs=2)
        job["method"]["layer_separation"] = {"cut": "auto", "linear_workers": "auto"}
        path = write_job(self, job, "open.yaml")
        report = self.path("report.json")
        code, _, error = tessera("run", path, "--report", report, within=60)
        self.assertEqual(code, 0, error)
        chosen = re.search(r"note: of what the job leaves open, method\.layer_separation\.cut=(layers\.\d+) and "
                           r"method\.layer_separation\.linear_workers=(\d+) would train most rows", error)
        self.assertIsNotNone(chosen, error)
        with open(report) as file:
            trained = json.load(file)
        keys = {"cut": chosen.group(1), "linear_workers": int(chosen.group(2))}
        self.assertEqual(trained["overrides"],
                         ["method.layer_separation.%s=%s" % (key, value) for key, value in keys.items()])
        # It is the job with these keys, to the bit.
        job["method"]["layer_separation"] = keys
        self.assertEqual(final(run_to_end(self, job)), final(trained))
        code, out, error = tessera("check", path)
        self.assertEqual((code, error), (0, ""))
        self.contains(out, "method.layer_separation.cut is auto: tessera run and tessera launch choose it")
        for program in (SERVER, WORKER):
            process = Process(self, os.path.basename(program), [program, "--job", path, "--rank", "0"])
            self.contains(process.expect_exit(2), "method.layer_separation.cut: got auto, which tessera run and "
                          "tessera launch choose before they start a process; want what tessera plan says is best")

    def test_a_checkpoint_goes_on_with_whatever_is_chosen_then(self):
        folder = self.path("checkpoints")
        job = separated(3, 1, steps=60)
        job["method"]["layer_separation"] = {"cut": "auto", "linear_workers": "auto"}
        whole, step = save_on_the_way(self, job, folder, 20)
        self.assertIn(step, range(20, 60))
        for keys in ({"cut": "auto", "linear_workers": "auto"}, {"cut": "layers.5", "linear_workers": 2}):
            with self.case(str(keys)):
                again = restoring(job, step_folder(folder, step))
                again["method"] = {"layer_separation": keys}
                report = run_to_end(self, again)
                self.assertEqual((report["outcome"], report["steps"]), ("finished", 60))
                self.assertLess(report["traffic"]["exchanges"], whole["traffic"]["exchanges"])

    def test_where_a_worker_listens_is_checked_before_anybody_waits(self):
        job = separated(1, 1, epochs=1)
        job["cluster"]["servers"] = ["node-a:7000"]
        job["security"] = {"insecure": True}
        path = write_job(self, job)
        for arguments, words in (
                (["--rank", "1"], "--listen: not given, and ranks from 1 on train the linear layers"),
                (["--rank", "1", "--listen", "0.0.0.0:7001"], "want an address that the other machines can call"),
                (["--rank", "1", "--listen", "[::]:7001"], "want an address that the other machines can call"),
                (["--rank", "1", "--listen", ":::7001"], "an IPv6 address in brackets"),
                (["--rank", "1", "--listen", "127.0.0.1:7001"], "want an address that the other machines can call"),
                (["--rank", "1", "--listen", "7001"], "want host:port")):
            with self.case(words):
                worker = Process(self, "worker", [WORKER, "--job", path] + arguments)
                self.contains(worker.expect_exit(2), words)

    def test_a_door_that_nobody_calls_is_told(self):
        path = write_job(self, digits(servers=["127.0.0.1:1"]))
        worker = Process(self, "worker", [WORKER, "--job", path, "--listen", "127.0.0.1:0"])
        await_true("it says so", lambda: "--listen 127.0.0.1:0 has no use: with method " in worker.output(),
                   explain=worker.output)
        worker.kill()


if __name__ == "__main__":
    unittest.main()
