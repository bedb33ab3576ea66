"""Checkpoints of running jobs, and jobs that go on from them."""
import array
import glob
import json
import os
import subprocess
import unittest

import cluster
from checkpoint_folders import (CheckpointTest, MOMENTUM, keeping, members_of, restoring, sameness, save_on_the_way,
                                step_folder, steps_in)
from cluster import ENDLESS, PATIENCE, SLACK_SECONDS, Cluster, members, read_tensors, run_to_end, tessera, write_job

PLAIN = {"sgd": {"learning_rate": 0.05}}
ADAMW = {"adamw": {"learning_rate": 0.003}}
ADAGRAD = {"adagrad": {"learning_rate": 0.01}}


def parameters_in(model):
    """An export's, without what batch norms found in the rows."""
    return {name: tensor for name, tensor in read_tensors(model).items()
            if name.rsplit(".", 1)[1] in ("weight", "bias")}


class Checkpoints(CheckpointTest):
    test_max = 2 * cluster.TEST_MAX

    def resume_all(self, job, every, servers=None):
        """Every checkpoint that a job leaves ends as the job itself did."""
        folder = self.path("checkpoints")
        whole = run_to_end(self, keeping(job, folder, every))
        steps = steps_in(folder)
        self.assertGreaterEqual(len(steps), 2, "checkpoints of steps %s" % steps)
        self.assertEqual(steps[-1], 90)
        self.assertEqual((whole["checkpoint"]["failure"], whole["checkpoint"]["count"]), ("", len(steps)))
        self.assertEqual(glob.glob(os.path.join(folder, "partial-*")), [])
        for step in (steps[0], steps[-1]):
            again = restoring(job, step_folder(folder, step))
            if servers:
                again["cluster"] = dict(job["cluster"], servers=servers)
            report = run_to_end(self, again)
            with self.subTest("from step %d" % step):
                if servers:  # Hashes of rows add up the same however they are sharded.
                    self.assertEqual(report["parameters_hash"], whole["parameters_hash"])
                self.assertEqual(sameness(report), sameness(whole))
        subprocess.run(["rm", "-rf", folder], check=True)

    def test_a_resumed_job_ends_bit_equal_to_one_that_never_stopped(self):
        methods = (({"data_parallel": {}}, 21), ({"local_sgd": {"local_steps": 7}}, 21),
                   ({"diloco": {"local_steps": 5}}, 25), ({"ist": {"local_steps": 5}}, 25))
        for method, every in methods:
            for optimizer in (MOMENTUM, ADAMW):
                for servers in (1, 2):
                    with self.case("%s %s %d" % (list(method)[0], list(optimizer)[0], servers)):
                        self.resume_all(self.small(method=method, optimizer=optimizer, servers=servers), every)

    def test_models_with_blocks_are_resumed(self):
        conv = {"conv2d": {"channels": 4, "kernel": 3, "padding": 1}}
        model = {"input": [1, 8, 8], "layers": [
            conv, "batch_norm", "relu",
            {"residual": {"layers": [conv, "batch_norm", "relu", conv, {"dropout": {"probability": 0.1}}]}},
            {"concat": [[], [{"conv2d": {"channels": 2, "kernel": 1}}]]}, "avg_pool", {"linear": {"units": 10}}]}
        for method, every in (({"data_parallel": {}}, 21), ({"ist": {"local_steps": 5, "cut": "all"}}, 25)):
            with self.case(list(method)[0]):
                self.resume_all(dict(self.small(method=method, optimizer=MOMENTUM, servers=2), model=model), every)

    def test_a_tail_on_the_whole_model_is_resumed(self):
        job = self.small(method={"ist": {"local_steps": 5, "tail_steps": 40}}, optimizer=MOMENTUM)
        job["model"]["layers"].append({"batch_norm": {"affine": False}})
        self.resume_all(job, 30)

    def test_averaged_states_are_resumed(self):
        job = self.small(method={"local_sgd": {"local_steps": 5, "average_state": True}}, optimizer=ADAMW)
        self.resume_all(job, 35)

    def test_a_job_goes_on_with_another_number_of_servers(self):
        for before, after in ((2, 1), (1, 3), (3, 2)):
            with self.case("%d to %d" % (before, after)):
                self.resume_all(self.small(method={"local_sgd": {"local_steps": 5}}, optimizer=MOMENTUM,
                                           servers=before), 35, servers=after)

    def test_what_a_codec_holds_back_is_resumed(self):
        job = dict(self.small(method={"local_sgd": {"local_steps": 5}}, optimizer=MOMENTUM),
                   codec={"push": "int8", "error_feedback": True})
        self.resume_all(job, 35)

    def test_a_led_threshold_is_resumed(self):
        # It follows what was to be sent so far, a third at each push.
        for method in ({"data_parallel": {}}, {"local_sgd": {"local_steps": 5}}):
            with self.case(list(method)[0]):
                self.resume_all(dict(self.small(method=method),
                                     codec={"push": {"threshold": {"tau": 0, "density": 0.05}}}), 35)

    def test_cores_and_what_workers_keep_to_themselves_are_resumed(self):
        # After exchanges that push a part, and after one that pushes all, from which a core is selected.
        for every, codec in ((14, {}), (20, {}), (20, {"error_feedback": True}),
                             (14, {"push": "int8", "error_feedback": True})):
            with self.case("%d %s" % (every, codec)):
                method = {"slim_dp": {"local_steps": 2, "core_every": 5}}
                self.resume_all(dict(self.small(method=method, optimizer=MOMENTUM, servers=2), codec=codec), every)

    def test_the_last_checkpoint_has_the_core_that_one_in_mid_run_has(self):
        job = self.small(steps=60, method={"slim_dp": {"core_every": 4}}, optimizer=MOMENTUM, evaluate_every=0)
        folders = self.path("checkpoints-long"), self.path("checkpoints-short")
        _, step = save_on_the_way(self, job, folders[0], 30)
        run_to_end(self, keeping(dict(job, train=dict(job["train"], steps=step)), folders[1], 0))
        shards = [[read_tensors(path) for path in sorted(glob.glob(os.path.join(step_folder(folder, step), "shard-*")))]
                  for folder in folders]
        self.assertEqual(len(shards[0]), 2)
        self.assertEqual(shards[0], shards[1])

    def drain_early(self, job, folder):
        """The report of a job that is drained long before its last step, and leaves a checkpoint there."""
        job_cluster = Cluster(self, keeping(job, folder, 0), pause=0.02)
        job_cluster.await_step(50)
        job_cluster.drain()
        drained = job_cluster.finish()
        self.assertEqual(steps_in(folder), [drained["steps"]])
        self.assertLess(drained["steps"], job["train"]["steps"])
        return drained

    def test_a_drained_job_goes_on_as_if_it_had_not_been(self):
        for method in ({"local_sgd": {"local_steps": 4}}, {"slim_dp": {"local_steps": 4, "core_every": 10000}}):
            with self.case(list(method)[0]):
                job = dict(self.small(method=method, optimizer=ADAMW, steps=400), name="long")
                self.drain_early(job, self.path(list(method)[0]))
                again = run_to_end(self, restoring(job, self.path(list(method)[0])))
                self.assertEqual(sameness(again), sameness(run_to_end(self, job)))

    def test_an_overlapped_job_goes_on_as_if_it_had_waited_there(self):
        # What was trained beside the exchange of a checkpoint is in none, and is trained anew.
        for method in ("local_sgd", "diloco"):
            with self.case(method):
                job = self.small(method={method: {"local_steps": 5, "overlap": True}}, optimizer=ADAMW)
                folder = self.path("checkpoints-" + method)
                whole = run_to_end(self, keeping(job, folder, 35))
                self.assertEqual(whole["checkpoint"]["failure"], "")
                steps = steps_in(folder)
                self.assertEqual(steps[-1], 90)
                again = [run_to_end(self, restoring(job, step_folder(folder, steps[0]))) for _ in range(2)]
                self.assertEqual(sameness(again[0]), sameness(again[1]))
                self.assertEqual(again[0]["steps"], 90)
                self.assertAlmostEqual(again[0]["final"]["test_accuracy"], whole["final"]["test_accuracy"], delta=0.05)
                self.assertEqual(sameness(run_to_end(self, restoring(job, step_folder(folder, 90)))), sameness(whole))

    def test_a_drained_overlapped_job_ends_with_an_exchange(self):
        job = dict(self.small(method={"local_sgd": {"local_steps": 4, "overlap": True}}, optimizer=ADAMW, steps=400),
                   name="long")
        folder = self.path("checkpoints")
        drained = self.drain_early(job, folder)
        # What was trained beyond it is in nothing, and is not counted.
        self.assertEqual(drained["traffic"]["exchanges"], 2 * drained["steps"] // 4)
        short = dict(job, train=dict(job["train"], steps=drained["steps"]))
        self.assertEqual(run_to_end(self, short)["parameters_hash"], drained["parameters_hash"])
        again = run_to_end(self, restoring(job, folder))
        self.assertEqual(again["steps"], 400)
        self.assertEqual(again["traffic"]["exchanges"], 2 * (400 - drained["steps"]) // 4)
        self.assertEqual(again["history"][0]["step"], drained["history"][0]["step"])

    def test_methods_without_lockstep_go_on_from_where_each_worker_was(self):
        methods = ({"async_sgd": {}}, {"softsync": {"pushes": 2}}, {"ssp": {"bound": 2, "local_steps": 3}},
                   {"diloco": {"local_steps": 4, "asynchronous": True}},
                   {"slim_dp": {"local_steps": 2, "core_every": 5, "asynchronous": True}},
                   {"diloco": {"local_steps": 4, "quorum": {"pushes": 1, "grace": "10ms"}}})
        for method in methods:
            with self.case(str(method)):
                job = self.small(method=method, steps=400, rate=0.05)
                folder = self.path("checkpoints")
                job_cluster = Cluster(self, keeping(dict(job, train=dict(job["train"], steps=ENDLESS)), folder, 0))
                job_cluster.await_step(60)
                code, out, error = tessera("checkpoint", job_cluster.coordinator)
                self.assertEqual(code, 0, error + job_cluster.logs())
                saved = steps_in(folder)[0]
                self.assertIn("step %d: " % saved, out)
                job_cluster.drain()
                job_cluster.finish()
                again = dict(job, train=dict(job["train"], steps=saved + 400))
                report = run_to_end(self, restoring(again, step_folder(folder, saved)))
                self.assertEqual(report["steps"], saved + 400)
                self.assertGreater(report["final"]["test_accuracy"], 0.8)
                subprocess.run(["rm", "-rf", folder], check=True)

    def test_a_job_goes_on_with_other_workers(self):
        job = self.small(method={"local_sgd": {"local_steps": 5}}, optimizer=MOMENTUM)
        folder = self.path("checkpoints")
        before = run_to_end(self, keeping(job, folder, 40))
        for workers in (1, 3):
            with self.case("%d workers" % workers):
                again = restoring(dict(job, cluster=dict(job["cluster"], workers=workers),
                                       train=dict(job["train"], steps=200)), folder)
                logs = self.path("logs-%d" % workers)
                report = run_to_end(self, again, "--logs", logs)
                self.assertEqual((report["steps"], report["members"]["joined"]), (200, workers))
                batch = before["examples"] // before["steps"] // 2
                self.assertEqual(report["examples"], before["examples"] + (200 - before["steps"]) * workers * batch)
                self.assertEqual(report["parameter_examples"], report["examples"])
                self.assertGreater(report["final"]["test_accuracy"], 0.85)
                with open(os.path.join(logs, "worker-0.log")) as file:
                    self.contains(file.read(), "worker state dropped rank=0", "workers were 2, now %d" % workers)
                with open(os.path.join(logs, "server-0.log")) as file:
                    self.contains(file.read(), "keys of the job have changed", "cluster.workers", "train.steps")

    def test_a_job_goes_on_with_another_optimizer_of_its_workers(self):
        # Momentum has both signs, and would be the root of squares.
        job = self.small(method={"local_sgd": {"local_steps": 5}}, optimizer=MOMENTUM)
        folder, logs = self.path("checkpoints"), self.path("logs")
        run_to_end(self, keeping(job, folder, 40))
        again = self.small(method={"local_sgd": {"local_steps": 5}}, optimizer=ADAGRAD, steps=200)
        report = run_to_end(self, restoring(again, folder), "--logs", logs)
        self.assertGreater(report["final"]["test_accuracy"], 0.85)
        with open(os.path.join(logs, "worker-0.log")) as file:
            self.contains(file.read(), "worker state dropped rank=0", "were momentum, now squares")

    def test_a_server_that_is_killed_and_started_again_takes_the_job_back_to_the_last_checkpoint(self):
        for name, method in (("data_parallel", {"data_parallel": {}}), ("local_sgd", {"local_sgd": {"local_steps": 4}}),
                             ("async_sgd", {"async_sgd": {}}), ("ist", {"ist": {"local_steps": 4}})):
            with self.case(name):
                job = self.small(method=method, optimizer=PLAIN if name == "async_sgd" else MOMENTUM, steps=ENDLESS,
                                 evaluate_every=5)
                folder = self.path("checkpoints")
                job_cluster = Cluster(self, keeping(job, folder, 50))
                job_cluster.await_status("a checkpoint", lambda s: int(s["checkpoint"]["count"]) > 0)
                job_cluster.servers[1].kill()
                begun = job_cluster.await_status("it is waited for", lambda s: s["waiting_for"] == ["server 1"] and
                                                 s["state"] == "waiting")
                before = int(begun["checkpoint_step"])
                victim = job_cluster.servers.pop(1)
                waited = job_cluster.await_status("that takes time",
                                                  lambda s: s["wall_seconds"] > begun["wall_seconds"] + 2)
                trained = waited["train_seconds"] - begun["train_seconds"]
                # To wait is to train, but for an evaluation: that waits itself.
                if members(waited, "evaluating"):
                    self.assertEqual(trained, 0)
                else:
                    self.assertGreaterEqual(trained, 2 - SLACK_SECONDS)
                job_cluster.start_server(1)
                status = job_cluster.await_status("training goes on", lambda s: int(s["step"]) > before + 60)
                self.assertEqual(int(status["checkpoint"]["rollbacks"]), 1)
                self.assertEqual(int(status["members_lost"]), 0)
                self.assertIn("restored step=%d" % before, job_cluster.servers[1].output())
                job_cluster.drain()
                report = job_cluster.finish(victim)
                self.assertEqual(report["members"], {"joined": 2, "lost": 0, "partial_pushes": 0})
                # What was undone counts no more, what was moved for it does.
                self.assertGreaterEqual(report["examples"], report["parameter_examples"])
                self.assertGreater(report["train_seconds"], waited["train_seconds"])
                self.check_phases(report, 2)
                subprocess.run(["rm", "-rf", folder], check=True)

    def test_members_who_go_back_take_up_their_own_files_where_one_was_lost_before(self):
        job = dict(self.small(method={"local_sgd": {"local_steps": 4}}, optimizer=MOMENTUM, steps=ENDLESS, workers=3),
                   codec={"push": "int8", "error_feedback": True})
        folder = self.path("checkpoints")
        job_cluster = Cluster(self, keeping(job, folder, 50))
        job_cluster.await_step(20)
        job_cluster.workers[2].kill()
        lost_at = int(job_cluster.await_status("worker 2 is lost", lambda s: int(s["members_lost"]) == 1)["step"])
        job_cluster.await_status("a checkpoint of two", lambda s: int(s.get("checkpoint_step", 0)) > lost_at + 100)
        victims = [job_cluster.workers[2], job_cluster.servers.pop(1)]
        victims[1].kill()
        victims[1].exit_code()
        job_cluster.start_server(1)
        status = job_cluster.await_status("back", lambda s: int(s["checkpoint"]["rollbacks"]) == 1)
        job_cluster.await_step(int(status["checkpoint_step"]) + 60)
        job_cluster.drain()
        report = job_cluster.finish(*victims)
        self.assertEqual(report["residuals_lost"], 1)
        for worker in job_cluster.workers[:2]:
            self.assertNotIn("worker state dropped", worker.output())

    def test_a_job_that_went_back_ends_as_one_that_did_not(self):
        job = self.small(method={"local_sgd": {"local_steps": 5}}, optimizer=ADAMW, steps=600, evaluate_every=5)
        whole = run_to_end(self, job)
        job_cluster = Cluster(self, keeping(job, self.path("checkpoints"), 50, keep=2), pause=0.02)
        job_cluster.await_status("a checkpoint", lambda s: int(s["checkpoint"]["count"]) > 0)
        victim = job_cluster.servers[1]
        victim.kill()
        victim.exit_code()
        job_cluster.servers.pop(1)
        job_cluster.start_server(1)
        report = job_cluster.finish(within=100)
        self.assertEqual(report["checkpoint"]["rollbacks"], 1)
        self.assertEqual(sameness(report), sameness(whole))
        self.assertEqual(len(steps_in(self.path("checkpoints"))), 2)

    def test_an_old_folder_or_another_model_is_refused_before_anybody_joins(self):
        job = self.small(steps=30, optimizer=MOMENTUM)
        folder = self.path("checkpoints")
        # Both are ends: where one in mid-run lies depends on the disk.
        run_to_end(self, keeping(dict(job, train=dict(job["train"], steps=20)), folder, 0))
        further = keeping(job, folder, 0)
        further["checkpoint"]["restore"] = folder
        run_to_end(self, further)
        self.assertEqual(steps_in(folder), [20, 30])
        wide = restoring(self.small(steps=30, units=48, optimizer=MOMENTUM), folder)
        squares = restoring(self.small(steps=30, optimizer=ADAGRAD), folder)
        file = self.path("no-folder")
        open(file, "w").close()
        older = restoring(job, step_folder(folder, 20))
        older["checkpoint"]["directory"] = folder
        for what, bad, words in (
                ("begun anew", keeping(job, folder, 20), ("has checkpoints already", "step 30", "checkpoint.restore")),
                ("an older one", older, ("later checkpoint, of step 30", "of step 20")),
                ("another model", wide, ("checkpoint.restore", "layers.0.weight", "another model")),
                ("another optimizer", squares, ("checkpoint.restore", "are momentum", "want squares")),
                ("no checkpoint", restoring(job, self.path("nothing")), ("checkpoint.restore", "no whole checkpoint")),
                ("no folder", keeping(job, os.path.join(file, "x"), 20), ("checkpoint.directory: ", "cannot be made"))):
            with self.subTest(what):
                code, _, error = tessera("run", write_job(self, bad, "bad.yaml"), "--quiet")
                self.assertEqual(code, 2, error)
                self.contains(error, *words)

    def test_only_the_newest_stay(self):
        job = self.small(steps=ENDLESS)
        folder = self.path("checkpoints")
        job_cluster = Cluster(self, keeping(job, folder, 0, keep=2))
        job_cluster.await_step(20)
        said = [int(tessera("checkpoint", job_cluster.coordinator)[1].split(":")[0].split()[1]) for _ in range(4)]
        cluster.await_true("older ones are gone", lambda: steps_in(folder) == said[-2:])
        job_cluster.drain()
        job_cluster.finish()

    def test_an_export_is_the_servers_files_put_together(self):
        folder, model = self.path("checkpoints"), self.path("model.safetensors")
        run_to_end(self, keeping(self.small(steps=20, method={"local_sgd": {"local_steps": 5}}, optimizer=MOMENTUM),
                                 folder, 0))
        code, _, error = tessera("export", folder, model)
        self.assertEqual(code, 0, error)
        exported = parameters_in(model)
        shards = [read_tensors(os.path.join(step_folder(folder, 20), "shard-%d-of-2.safetensors" % s))
                  for s in range(2)]
        self.assertEqual(exported["layers.0.weight"][0], [32, 64])
        for name, (shape, data) in exported.items():
            parts = [shard[name] for shard in shards]
            self.assertEqual(shape, [sum(part[0][0] for part in parts)] + parts[0][0][1:])
            self.assertEqual(data, b"".join(part[1] for part in parts))
        # Momentum is the workers' own.
        for rank in range(2):
            own = read_tensors(os.path.join(step_folder(folder, 20), "worker-%d.safetensors" % rank))
            self.assertEqual({name for name in own if name.startswith("state.")},
                             {"state.momentum." + name for name in exported})
            self.assertTrue(any(own["state.momentum.layers.0.weight"][1]))

    def test_an_export_of_subnets_makes_up_for_sums_over_all_neurons(self):
        for workers in (2, 3):
            with self.case("%d workers" % workers):
                folder, model = self.path("checkpoints-%d" % workers), self.path("model.safetensors")
                job = self.small(steps=20, method={"ist": {"local_steps": 5}}, workers=workers)
                hidden = [{"linear": {"units": 16}}, "relu", {"linear": {"units": 12}}, "batch_norm", "relu"]
                job["model"]["layers"][3:3] = hidden
                run_to_end(self, keeping(job, folder, 0))
                self.assertEqual(tessera("export", folder, model, "--quiet"), (0, "", ""))
                exported = parameters_in(model)
                shards = [read_tensors(os.path.join(step_folder(folder, 20), "shard-%d-of-2.safetensors" % s))
                          for s in range(2)]
                # Fed by hidden neurons, and no batch norm behind them.
                scaled = {"layers.3.weight", "layers.8.weight"}
                self.assertEqual({"layers.%d.%s" % (layer, part) for layer in (0, 1, 3, 5, 6, 8)
                                  for part in ("weight", "bias")}, set(exported))
                share = array.array("f", [1 / workers])[0]
                for name, (_, data) in exported.items():
                    kept = array.array("f", b"".join(shard[name][1] for shard in shards))
                    self.assertTrue(any(kept), name)
                    # Products of two f32 are exact before they are rounded to one.
                    wanted = array.array("f", [share * value for value in kept]) if name in scaled else kept
                    self.assertEqual(array.array("f", data), wanted, name)

    def test_eval_scores_a_checkpoint_as_the_job_did(self):
        for method in ({"local_sgd": {"local_steps": 5}}, {"ist": {"local_steps": 5}}):
            with self.case(list(method)[0]):
                folder = self.path("checkpoints")
                job = self.small(method=method)
                report = run_to_end(self, keeping(job, folder, 0))
                code, out, error = tessera("eval", folder, write_job(self, job), "--json")
                self.assertEqual(code, 0, error)
                scores = json.loads(out)
                self.assertEqual(scores["step"], 90)
                for key in ("test_loss", "test_accuracy", "precision_at"):
                    self.assertEqual(scores[key], report["final"][key])
                subprocess.run(["rm", "-rf", folder], check=True)
        self.assertEqual(tessera("eval", self.path("nothing"), write_job(self, self.small()))[0], 2)

    def test_eval_says_that_a_checkpoint_is_of_another_model(self):
        folder = self.path("checkpoints")
        run_to_end(self, keeping(self.small(steps=10), folder, 0))
        for other, words in ((self.small(units=33), "the checkpoint has tensor "),
                             (self.small(norm=False), " tensors, and the job's model ")):
            code, out, error = tessera("eval", folder, write_job(self, other, "other.yaml"))
            self.assertEqual((code, out), (2, ""), error)
            self.contains(error, words, "it is of another model; name the job that wrote it")

    def test_eval_knows_the_sites_of_the_last_round_where_one_was_lost(self):
        """Without a batch norm sums of subnets are scaled by the sites' number: those of the round, not who is left."""
        folder = self.path("checkpoints")
        job = self.small(workers=3, norm=False, rate=0.02, steps=ENDLESS, evaluate_every=0,
                         method={"ist": {"local_steps": 300}})
        cluster = Cluster(self, keeping(job, folder, 0))
        cluster.await_step(400)
        lost = cluster.workers[1]
        lost.kill()
        cluster.drain()
        report = cluster.finish(lost)
        self.assertEqual(report["members"]["lost"], 1)
        with open(os.path.join(step_folder(folder, report["steps"]), "manifest.json")) as file:
            factors = [parameter["export_factor"] for parameter in json.load(file)["parameters"]]
        self.assertIn(1 / 3, factors)
        code, out, error = tessera("eval", folder, cluster.path, "--json")
        self.assertEqual(code, 0, error)
        self.assertEqual(json.loads(out)["test_accuracy"], report["final"]["test_accuracy"])
        self.assertAlmostEqual(json.loads(out)["test_loss"], report["final"]["test_loss"], places=6)

    def test_whatever_moment_a_job_is_killed_at_its_checkpoints_are_whole(self):
        job = self.small(steps=60, method={"local_sgd": {"local_steps": 5}}, optimizer=MOMENTUM, evaluate_every=0,
                         lease="10s")
        # Many a death is waited for until its lease is over.
        killed = dict(job, cluster=dict(job["cluster"], lease_timeout="%ds" % (2 * PATIENCE)))
        whole = run_to_end(self, job)
        rows = write_job(self, job, "rows.yaml")
        kills = survived = resumed = 0
        for place in range(1, 200, 3):
            with self.subTest("every process dies at its place %d" % place):
                folder = self.path("checkpoints-%d" % place)
                done = subprocess.run([cluster.TESSERA, "run", write_job(self, keeping(killed, folder, 15)), "--quiet"],
                                      env=dict(os.environ, TESSERA_FAILPOINTS="*@%d=kill" % place),
                                      capture_output=True, timeout=60 * PATIENCE)
                steps = steps_in(folder) if os.path.exists(folder) else []
                for step in steps:
                    code, _, error = tessera("export", step_folder(folder, step), self.path("model"), "--quiet",
                                             "--job", rows)
                    self.assertEqual(code, 0, error)
                kills += done.returncode != 0
                survived = survived + 1 if done.returncode == 0 else 0
                # A worker that outlives the other's lease goes on alone: its checkpoints are of another job.
                of_all = [step for step in steps if len(members_of(step_folder(folder, step))) == 2]
                if of_all and kills % 4 == 0:
                    again = restoring(job, step_folder(folder, of_all[-1]))
                    self.assertEqual(sameness(run_to_end(self, again)), sameness(whole))
                    resumed += 1
            if survived == 2:
                break
        self.assertGreater(kills, 5)
        self.assertGreater(resumed, 1)
        self.assertEqual(survived, 2)


if __name__ == "__main__":
    unittest.main()
