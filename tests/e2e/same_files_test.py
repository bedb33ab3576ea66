"""What all processes must have alike, wherever it lies: the data, and the checkpoint that a job goes on from."""
import gzip
import os
import shutil
import unittest

from checkpoint_folders import CheckpointTest, keeping, restoring, step_folder
from cluster import DIGITS, ENDLESS, Cluster, digits, run_to_end

TRAIN_LABELS, TEST_LABELS = "train-labels-idx1-ubyte.gz", "test-labels-idx1-ubyte.gz"


class SameData(CheckpointTest):
    def copy_of_data(self, name):
        folder = self.path(name)
        shutil.copytree(DIGITS, folder)
        return folder

    def rewrite(self, path, change):
        """`change` is given the bytes of a gzip file."""
        with gzip.open(path) as file:
            text = bytearray(file.read())
        change(text)
        with gzip.open(path, "wb") as file:
            file.write(bytes(text))

    def swap_labels(self, path):
        """Of the first two rows that have different ones."""
        def swap(text):
            other = next(i for i in range(9, len(text)) if text[i] != text[8])
            text[8], text[other] = text[other], text[8]

        self.rewrite(path, swap)

    def make_signed(self, path):
        """The same numbers, as a type of IDX that is not divided by 255."""
        def sign(text):
            text[2] = 9

        self.rewrite(path, sign)

    def test_a_worker_with_other_rows_is_refused_and_told_whose_it_lacks(self):
        for name, part in ((TRAIN_LABELS, "training"), (TEST_LABELS, "test")):
            with self.case(part):
                folder = self.copy_of_data("other-" + part)
                self.swap_labels(os.path.join(folder, name))
                cluster = Cluster(self, digits(workers=2), workers=1)
                cluster.workers[0].await_output("waiting for worker 1")
                refused = cluster.start_worker(None, "--set", "data.directory=" + folder)
                self.contains(refused.expect_exit(2), "join: its %s data are not those of worker 0" % part)
                cluster.start_worker(1)
                self.assertEqual(cluster.finish(refused)["members"]["joined"], 2)

    def test_copies_of_the_files_are_welcome(self):
        cluster = Cluster(self, digits(workers=2), workers=1)
        cluster.start_worker(1, "--set", "data.directory=" + self.copy_of_data("copy"))
        self.assertEqual(cluster.finish()["outcome"], "finished")

    def test_local_rows_are_each_workers_own_and_of_one_kind(self):
        folder, scaled = self.copy_of_data("own"), self.copy_of_data("scaled")
        self.swap_labels(os.path.join(folder, TRAIN_LABELS))
        for part in ("train", "test"):
            self.make_signed(os.path.join(scaled, part + "-images-idx3-ubyte.gz"))
        cluster = Cluster(self, digits(workers=2, partition="local"), workers=1)
        cluster.workers[0].await_output("waiting for worker 1")
        refused = cluster.start_worker(None, "--set", "data.directory=" + scaled)
        self.contains(refused.expect_exit(2), "join: its data are numbers that are taken as they are, want bytes, "
                      "which are divided by 255, as those of worker 0")
        cluster.start_worker(1, "--set", "data.directory=" + folder)
        self.assertEqual(cluster.finish(refused)["outcome"], "finished")


class SameCheckpoint(CheckpointTest):
    def setUp(self):
        super().setUp()
        self.saved = {}
        for seed in (1, 2):
            folder = self.path("saved-%d" % seed)
            # Its end: where one in mid-run lies depends on the disk.
            run_to_end(self, keeping(self.small(seed=1, rate=0.1 * seed, steps=20), folder, 0))
            self.saved[seed] = step_folder(folder, 20)
        self.job = self.small()

    def cluster(self):
        return Cluster(self, restoring(self.job, self.saved[1]), start=False)

    def test_a_copy_of_it_will_do(self):
        copy = self.path("copy")
        shutil.copytree(self.saved[1], copy)
        cluster = self.cluster()
        cluster.start_server(0)
        cluster.start_server(1, "--set", "checkpoint.restore=" + copy)
        cluster.start_worker(0)
        cluster.start_worker(1, "--set", "checkpoint.restore=" + copy)
        report = cluster.finish()
        self.assertEqual((report["outcome"], report["checkpoint"]["resumed_step"]), ("finished", 20))

    def test_a_server_with_another_one_of_the_same_step_is_named(self):
        for other, words in ((self.saved[2], "is not the checkpoint that server 0 goes on from"),
                             ("", "checkpoint.restore: not set here, and the job goes on from step 20")):
            with self.case(other):
                cluster = self.cluster()
                cluster.start_server(0)
                for rank in range(2):
                    cluster.start_worker(rank).await_output("waiting for server 1")
                cluster.start_server(1, "--set", "checkpoint.restore=" + other)
                for process in cluster.servers + cluster.workers:
                    self.assertNotEqual(process.exit_code(), 0)
                self.contains(cluster.servers[0].output(), "server 1: ", words)

    def test_a_server_that_alone_has_one_does_not_begin_anew_with_the_others(self):
        cluster = self.cluster()
        cluster.start_server(0, "--set", "checkpoint.restore=")
        cluster.start_server(1)
        for rank in range(2):
            cluster.start_worker(rank, "--set", "checkpoint.restore=")
        self.contains(cluster.servers[1].expect_exit(1), 'checkpoint.restore: "%s" here' % self.saved[1],
                      "begins the job anew; set it for server 0 too")
        for process in cluster.servers + cluster.workers:
            self.assertNotEqual(process.exit_code(), 0)

    def test_a_job_that_began_from_one_goes_back_to_its_own(self):
        self.job = self.small(steps=ENDLESS)
        job = keeping(self.job, self.path("own"), 50)
        job["checkpoint"]["restore"] = self.saved[1]
        cluster = Cluster(self, job)
        cluster.await_status("a checkpoint", lambda s: int(s["checkpoint"]["count"]) > 0)
        victims = []
        for times in (1, 2):
            victims.append(cluster.servers.pop(1))
            victims[-1].kill()
            victims[-1].exit_code()
            cluster.start_server(1)
            status = cluster.await_status("back", lambda s: int(s["checkpoint"]["rollbacks"]) == times)
            cluster.await_step(int(status["checkpoint_step"]) + 60)
        cluster.drain()
        self.assertEqual(cluster.finish(*victims)["members"]["lost"], 0)

    def test_a_worker_with_another_one_says_so_and_leaves_at_once(self):
        for other, words in ((self.saved[2], "is not the checkpoint that server 0 goes on from"),
                             ("", "checkpoint.restore: not set here, and the job goes on from step 20")):
            with self.case(other):
                cluster = self.cluster()
                for rank in range(2):
                    cluster.start_server(rank)
                cluster.start_worker(0)
                odd = cluster.start_worker(1, "--set", "checkpoint.restore=" + other)
                self.contains(odd.expect_exit(1), words)
                report = cluster.finish(odd)
                self.assertEqual((report["outcome"], report["members"]["lost"]), ("finished", 1))


if __name__ == "__main__":
    unittest.main()
