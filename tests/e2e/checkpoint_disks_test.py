"""Checkpoints on disks that are slow, full, shared with another job or wrong."""
import glob
import os
import shutil
import signal
import unittest

import cluster
from checkpoint_folders import CheckpointTest, MOMENTUM, keeping, restoring, sameness, step_folder, steps_in
from cluster import ENDLESS, Cluster, Process, run_to_end, tessera, write_job


class CheckpointDisks(CheckpointTest):
    def test_one_folder_has_one_job(self):
        folder = self.path("checkpoints")
        # Whoever restarts its servers by itself, and `tessera run`, which restarts none.
        for directory in (self.path("coordinator"), folder, None):
            with self.case(directory):
                job = keeping(self.small(steps=ENDLESS), folder, 0)
                if directory:
                    job["cluster"] = dict(job["cluster"], coordinator={"directory": directory})
                first = Cluster(self, job)
                first.await_step(20)
                other = keeping(self.small(steps=30), folder, 0)
                code, _, error = tessera("run", write_job(self, other, "other.yaml"), "--quiet")
                self.assertEqual(code, 2, error)
                self.contains(error, "checkpoint.directory: ", "is in use by another process", "name another folder")
                first.await_further()
                first.drain()
                report = first.finish()
                self.assertEqual(report["checkpoint"]["count"], 1)
                self.assertEqual(report["checkpoint"]["failure"], "")
                shutil.rmtree(folder)

    def test_a_full_disk_costs_a_checkpoint_and_no_step(self):
        job = self.small(steps=ENDLESS)
        folder = self.path("checkpoints")
        os.environ["TESSERA_FAILPOINTS"] = "file.write@4=enospc"
        try:
            job_cluster = Cluster(self, keeping(job, folder, 0))
        finally:
            del os.environ["TESSERA_FAILPOINTS"]
        job_cluster.await_step(20)
        seen = []
        for attempt in range(12):
            code, _, error = tessera("checkpoint", job_cluster.coordinator)
            if code != 0:
                seen.append(error)
                # A status of before may be told for a moment.
                job_cluster.await_status("why it failed", lambda status: "No space left on device" in
                                         status["checkpoint"]["failure"])
                self.contains(tessera("status", job_cluster.coordinator)[1], "checkpoint failed: ")
        self.assertTrue(seen)
        self.contains(seen[0], "cannot be written: No space left on device")
        self.assertEqual(tessera("checkpoint", job_cluster.coordinator)[0], 0)
        job_cluster.await_status("no failure", lambda status: status["checkpoint"]["failure"] == "")
        self.assertEqual(glob.glob(os.path.join(folder, "partial-*")), [])
        job_cluster.await_further()
        job_cluster.drain()
        self.assertEqual(job_cluster.finish()["outcome"], "stopped")

    def failing(self, process, rule, **changes):
        """A job that keeps the checkpoint of its end alone, in which one process has a failpoint."""
        job = self.small(steps=40, optimizer=MOMENTUM, **changes)
        job_cluster = Cluster(self, keeping(job, self.path("checkpoints"), 0), start=False)
        for rank in range(2):
            job_cluster.start_server(rank, env={"TESSERA_FAILPOINTS": rule} if process == "server %d" % rank else None)
        for rank in range(2):
            job_cluster.start_worker(rank, env={"TESSERA_FAILPOINTS": rule} if process == "worker %d" % rank else None)
        return job, job_cluster

    def test_a_last_checkpoint_that_fails_is_tried_again(self):
        folder = self.path("checkpoints")
        for process, rule, words in (("worker 1", "file.write@1=enospc", "worker 1: "),
                                     ("server 1", "file.sync@1=enospc", "server 1: "),
                                     ("server 0", "folder.rename@1=enospc", "cannot be renamed")):
            with self.case(process):
                job, job_cluster = self.failing(process, rule)
                report = job_cluster.finish()
                self.assertEqual((report["outcome"], report["members"]["lost"]), ("finished", 0))
                kept = report["checkpoint"]
                self.assertEqual((kept["count"], kept["step"], kept["failure"]), (1, 40, ""))
                self.contains(job_cluster.servers[0].output(), words, "No space left on device",
                              "it is the last one, tried again in 5s, 2 of 3")
                self.assertNotIn("3 of 3", job_cluster.servers[0].output())
                self.assertEqual((steps_in(folder), glob.glob(os.path.join(folder, "partial-*"))), ([40], []))
                # The model that was evaluated is the one that is kept.
                self.assertEqual(sameness(run_to_end(self, restoring(job, folder))), sameness(report))
                shutil.rmtree(folder)

    def test_a_last_checkpoint_that_fails_each_time_is_given_up_and_the_job_ends_normally(self):
        _, job_cluster = self.failing("worker 1", "file.write=enospc")
        status = job_cluster.await_status("it is tried again", lambda s: s["checkpoint"]["failure"])
        self.contains(status["checkpoint"]["failure"], "No space left on device", "it is the last one, tried again in")
        report = job_cluster.finish()
        self.assertEqual((report["outcome"], report["steps"], report["checkpoint"]["count"]), ("finished", 40, 0))
        self.contains(report["checkpoint"]["failure"], "worker 1: ", "No space left on device")
        self.assertNotIn("tried again", report["checkpoint"]["failure"])
        self.contains(job_cluster.servers[0].output(), "tried again in 5s, 3 of 3", "the job ends without it")
        self.assertEqual(sorted(os.listdir(self.path("checkpoints"))), ["checkpoints.lock", "coordinator"])

    def test_a_worker_whose_folder_is_not_utf_8_says_why_it_cannot_write(self):
        job = keeping(self.small(steps=40), "ck", 0)
        folder = self.path(os.fsdecode(b"j\xe9"))
        os.mkdir(folder)
        open(os.path.join(folder, "ck"), "w").close()
        job_cluster = Cluster(self, job, workers=1)
        job_cluster.start_worker(1, path=write_job(self, job, os.path.join(folder, "job.yaml")))
        report = job_cluster.finish()
        self.contains(report["checkpoint"]["failure"], "j\\xe9/ck", "Not a directory")

    def test_a_slow_disk_costs_no_step(self):
        folder = self.path("checkpoints")
        # Each write takes longer than a lease.
        os.environ["TESSERA_FAILPOINTS"] = "file.write=sleep:4500;state.file.write=sleep:4500"
        try:
            job_cluster = Cluster(self, keeping(self.small(steps=ENDLESS, lease="3s"), folder, 0))
        finally:
            del os.environ["TESSERA_FAILPOINTS"]
        job_cluster.await_step(20)
        asked = Process(self, "checkpoint", [cluster.TESSERA, "checkpoint", job_cluster.coordinator])
        writing = job_cluster.await_status("it is being written",
                                           lambda status: glob.glob(os.path.join(folder, "partial-*")))
        job_cluster.await_step(int(writing["step"]) + 50)
        self.assertTrue(asked.alive, "it was written before anybody could train on")
        asked.expect_exit(0, within=60)
        status = job_cluster.await_status("it is told of", lambda status: status["checkpoint"]["write_seconds"] > 0)
        self.assertGreater(status["checkpoint"]["write_seconds"], 4.5)
        self.assertEqual(int(status["members_lost"]), 0)
        job_cluster.drain()
        self.assertEqual(job_cluster.finish(within=60)["outcome"], "stopped")

    def test_a_worker_whose_disk_hangs_trains_on_and_says_that_it_cannot_write(self):
        # The first checkpoint fails by worker 0, while worker 1 is long in the midst of it.
        rules = ("file.create@1=sleep:1000;file.write@1=enospc", "file.write@1=sleep:15000")
        job_cluster = Cluster(self, keeping(self.small(steps=ENDLESS), self.path("checkpoints"), 0),
                              workers=0)
        for rank, rule in enumerate(rules):
            job_cluster.start_worker(rank, env={"TESSERA_FAILPOINTS": rule})
        job_cluster.await_step(20)
        code, _, error = tessera("checkpoint", job_cluster.coordinator)
        self.assertNotEqual(code, 0)
        self.contains(error, "worker 0: ", "No space left on device")
        code, _, error = tessera("checkpoint", job_cluster.coordinator)
        self.assertNotEqual(code, 0)
        self.contains(error, "worker 1: the file of an earlier checkpoint is still being written")
        job_cluster.await_further()
        self.assertEqual(int(job_cluster.status()["members_lost"]), 0)
        # The last one waits for the disk.
        job_cluster.drain()
        report = job_cluster.finish()
        self.assertEqual((report["outcome"], report["checkpoint"]["count"]), ("stopped", 1))

    def test_a_second_signal_ends_a_worker_that_a_dead_disk_keeps_from_ending(self):
        job_cluster = Cluster(self, keeping(self.small(steps=ENDLESS), self.path("checkpoints"), 0),
                              workers=1)
        worker = job_cluster.start_worker(1, env={"TESSERA_FAILPOINTS": "file.write@1=sleep:1000000"})
        job_cluster.await_step(20)
        Process(self, "checkpoint", [cluster.TESSERA, "checkpoint", job_cluster.coordinator])
        worker.await_output("file.write@1=sleep:1000000 at file.write")
        job_cluster.servers[1].kill()
        worker.await_output("worker: ended error=")
        worker.await_output("checkpoint: waiting until this worker's file is written")
        self.assertTrue(worker.alive)
        worker.signal(signal.SIGTERM)
        worker.signal_again(signal.SIGTERM)
        worker.expect_exit(1)

    def test_a_checkpoint_with_a_wrong_bit_is_named_and_the_one_before_it_is_taken(self):
        job = self.small(method={"local_sgd": {"local_steps": 5}}, optimizer=MOMENTUM)
        folder = self.path("checkpoints")
        whole = run_to_end(self, keeping(job, folder, 30))
        # While one is being written slowly the next one's exchange may pass: it is of a later one.
        steps = steps_in(folder)
        self.assertGreaterEqual(len(steps), 2, steps)
        self.assertEqual(steps[-1], 90)
        for name in sorted(os.listdir(step_folder(folder, 90))):
            with self.subTest(name):
                path = os.path.join(step_folder(folder, 90), name)
                with open(path, "rb") as file:
                    right = file.read()
                wrong = bytearray(right)
                wrong[len(wrong) // 2] ^= 0x10
                with open(path, "wb") as file:
                    file.write(wrong)
                # Asked for by its own name it is refused.
                code, _, error = tessera("run", write_job(self, restoring(job, step_folder(folder, 90))), "--quiet")
                self.assertEqual(code, 2, error)
                self.contains(error, step_folder(folder, 90), name)
                logs = self.path("logs-" + name)
                self.assertEqual(sameness(run_to_end(self, restoring(job, folder), "--logs", logs)), sameness(whole))
                with open(os.path.join(logs, "server-0.log")) as file:
                    self.contains(file.read(), name)
                with open(path, "wb") as file:
                    file.write(right)


if __name__ == "__main__":
    unittest.main()
