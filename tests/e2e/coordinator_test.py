"""The coordinator's process dies, freezes or is cut off, and the job goes on."""
import glob
import os
import signal
import subprocess
import unittest

from checkpoint_folders import course
from cluster import ENDLESS, Cluster, Test, await_true, digits, free_ports, run_to_end, status_of
from partition import Cut

# Long enough for a machine that is busy with other tests.
LEASE_SECONDS = 3
LEASE = "%ds" % LEASE_SECONDS
METHODS = {"data_parallel": {"data_parallel": {}}, "async_sgd": {"async_sgd": {}}}


def protected(status):
    return all(owner["in_sync"] for owner in status["owners"])


class Embedded(Test):
    """In server 0, its state in a folder."""

    def cluster(self, job, servers=2, away="1m", keep=True, start=True, kept=3, pause=None, **coordinator):
        ports = free_ports(servers)
        job["cluster"]["servers"] = ["127.0.0.1:%d" % port for port in ports]
        job["cluster"]["coordinator"] = dict({"away_timeout": away}, **coordinator)
        if keep:
            job["checkpoint"] = {"directory": self.path("checkpoints"), "every_steps": 50, "keep": kept}
            job["cluster"]["coordinator"].setdefault("directory", self.path("coordinator"))
            if not job["cluster"]["coordinator"]["directory"]:
                del job["cluster"]["coordinator"]["directory"]
        return Cluster(self, job, start=start, pause=pause)

    def await_checkpoint(self, cluster):
        # The state that names it may be kept a moment after the status tells of it, but not after the next one.
        return cluster.await_status("a checkpoint", lambda s: int(s["checkpoint"]["count"]) > 1)

    def kill_server_0(self, cluster):
        # What a busy disk has kept too late nobody could go on from.
        cluster.await_status("its state is kept in time", lambda s: "late" not in s["coordinator"]["store"])
        cluster.servers[0].kill()
        cluster.servers[0].exit_code()

    def restart_server_0(self, cluster):
        dead = cluster.servers.pop(0)
        cluster.start_server(0)
        cluster.servers.insert(0, cluster.servers.pop())
        return dead

    def test_server_0_is_killed_and_started_again_and_the_job_goes_on_from_its_checkpoint(self):
        for name, method in METHODS.items():
            with self.case(name):
                cluster = self.cluster(digits(epochs=ENDLESS, batch=16, lease=LEASE, method=method))
                self.await_checkpoint(cluster)
                self.kill_server_0(cluster)
                other = cluster.servers[1]
                # Those that are left say for whom they wait, and for how long.
                other.await_output("coordinator is away")
                for worker in cluster.workers:
                    worker.await_output("coordinator is away")
                away = status_of(other.address)
                self.assertEqual(away["state"], "waiting")
                self.assertEqual(away["waiting_for"], ["the coordinator at %s" % cluster.coordinator])
                self.assertTrue(away["coordinator"]["is_away"])
                self.assertLess(away["coordinator"]["waits_seconds"], 60)
                dead = self.restart_server_0(cluster)
                status = cluster.await_status("it went back", lambda s: int(s["checkpoint"]["rollbacks"]) == 1)
                status = cluster.await_step(int(status["checkpoint_step"]) + 60)
                self.assertEqual(int(status["checkpoint"]["rollbacks"]), 1)
                self.assertEqual(int(status["coordinator"]["term"]), 2)
                self.assertEqual(int(status["members_lost"]), 0)
                self.assertIn("goes on with the job", cluster.servers[0].output())
                self.assertIn("coordinator is back", cluster.servers[1].output())
                cluster.drain()
                report = cluster.finish(dead)
                self.assertEqual(report["members"], {"joined": 2, "lost": 0, "partial_pushes": 0})
                self.assertEqual(report["outcome"], "stopped")
                self.assertGreaterEqual(report["examples"], report["parameter_examples"])
                self.check_phases(report, 2)
                subprocess.run(["rm", "-rf", self.path("checkpoints")], check=True)

    def test_a_job_whose_server_0_was_killed_ends_as_one_whose_was_not(self):
        job = digits(steps=600, batch=16, lease=LEASE, method={"local_sgd": {"local_steps": 5}}, evaluate_every=2)
        whole = self.cluster(dict(job, cluster=dict(job["cluster"])), keep=False).finish(within=100)
        cluster = self.cluster(job, pause=0.02)
        self.await_checkpoint(cluster)
        self.kill_server_0(cluster)
        self.restart_server_0(cluster)
        report = cluster.finish(within=100)
        self.assertEqual(report["checkpoint"]["rollbacks"], 1)
        self.assertEqual(course(report), course(whole))

    def test_servers_that_are_asked_to_end_go_on_from_the_checkpoint_that_they_left(self):
        job = digits(steps=600, batch=16, lease=LEASE)
        whole = self.cluster(dict(job, cluster=dict(job["cluster"])), keep=False).finish(within=100)
        cluster = self.cluster(job, pause=0.03)
        cluster.await_step(50)
        gone = []
        for rank in (1, 0):
            server = [s for s in cluster.servers if s.name == "server %d" % rank and s.alive][0]
            gone.append(server)
            cluster.leave(server)
            self.contains(server.output(), "leaving the job", "waits for", "left the job")
            cluster.await_status("it went back", lambda s: int(s["checkpoint"]["rollbacks"]) == len(gone))
            cluster.await_further()
        report = cluster.finish(*gone, within=100)
        self.assertEqual(report["outcome"], "finished")
        # As one that nobody stopped: nothing is lost, or counted twice.
        self.assertEqual(course(report), course(whole))
        self.assertEqual(report["parameters_hash"], whole["parameters_hash"])

    def test_with_standbys_server_0_is_killed_and_nothing_is_lost(self):
        for name, method in METHODS.items():
            with self.case(name):
                job = digits(epochs=ENDLESS, batch=16, lease=LEASE, method=method, workers=3)
                job["cluster"]["replicas"] = 1
                cluster = self.cluster(job, servers=3, keep=False, directory=self.path("coordinator-" + name))
                cluster.await_status("all have standbys", protected)
                cluster.await_step(20)
                before = cluster.await_status("it has trained", lambda s: s["train_seconds"] > 2)
                self.kill_server_0(cluster)
                dead = self.restart_server_0(cluster)
                after = cluster.status()
                for clock in ("train_seconds", "wall_seconds"):
                    self.assertGreater(after[clock], before[clock])
                # There is no checkpoint: the standby has all that was acknowledged.
                status = cluster.await_status("its standby leads", lambda s: int(s["takeovers"]) == 1)
                self.assertEqual(status["owners"][0]["leader"], 1)
                self.assertEqual(int(status["coordinator"]["term"]), 2)
                cluster.await_further()
                cluster.await_status("all have standbys again", protected)
                # Then the one that took over, and server 0 leads again.
                cluster.servers[1].kill()
                status = cluster.await_status("its standby leads", lambda s: int(s["takeovers"]) == 3)
                cluster.await_further()
                cluster.drain()
                report = cluster.finish(dead, cluster.servers[1])
                self.assertEqual(report["outcome"], "stopped")
                self.assertEqual(report["members"]["lost"], 0)
                self.check_phases(report, 3)

    def test_with_standbys_a_checkpoint_that_server_0_was_killed_in_is_made(self):
        job = digits(epochs=ENDLESS, batch=16, lease=LEASE, workers=3)
        job["cluster"]["replicas"] = 1
        # None is removed before it was looked for.
        cluster = self.cluster(job, servers=3, start=False, kept=10000)
        # Between a file's getting its name and the next one's.
        cluster.start_server(0, env={"TESSERA_FAILPOINTS": "file.rename@3=kill"})
        for rank in (1, 2):
            cluster.start_server(rank)
        for rank in range(3):
            cluster.start_worker(rank)
        cluster.servers[0].expect_exit(-signal.SIGKILL)
        folder, = glob.glob(self.path("checkpoints") + "/partial-step-*")
        dead = self.restart_server_0(cluster)
        cluster.await_status("the checkpoint is made", lambda s: int(s["checkpoint"]["count"]) > 0)
        # On a busy machine it is of a later step than it was begun for.
        begun = int(folder.rsplit("-", 1)[1])
        made = [int(path.rsplit("-", 1)[1]) for path in glob.glob(self.path("checkpoints") + "/step-*")]
        self.assertTrue(any(step >= begun for step in made), os.listdir(self.path("checkpoints")))
        self.assertFalse(os.path.isdir(folder), os.listdir(self.path("checkpoints")))
        cluster.await_further()
        cluster.drain()
        report = cluster.finish(dead)
        self.assertEqual((report["outcome"], report["checkpoint"]["failure"]), ("stopped", ""))

    def test_with_standbys_a_killed_server_0_changes_no_bit(self):
        job = digits(steps=400, batch=16, lease=LEASE, workers=3)
        job["cluster"]["replicas"] = 1
        # `finish` wants the report of server 0.
        unharmed = self.cluster(dict(job, cluster=dict(job["cluster"])), servers=3, keep=False)
        whole = unharmed.finish(within=100)
        cluster = self.cluster(job, servers=3, keep=False, directory=self.path("coordinator"), pause=0.03)
        cluster.await_step(50)
        self.kill_server_0(cluster)
        dead = self.restart_server_0(cluster)
        report = cluster.finish(dead, within=100)
        self.assertEqual(report["standbys"]["takeovers"], 1)
        self.assertEqual(course(report), course(whole))

    def test_a_job_that_began_from_a_checkpoint_goes_on_with_its_own_when_server_0_is_started_again(self):
        first = self.path("first")
        job = digits(steps=40, batch=16, lease=LEASE)
        run_to_end(self, dict(job, checkpoint={"directory": first, "every_steps": 20}))
        job = digits(epochs=ENDLESS, batch=16, lease=LEASE)
        self.cluster(job, start=False)  # completes the job
        job["checkpoint"]["restore"] = first
        cluster = Cluster(self, job)
        before = int(self.await_checkpoint(cluster)["checkpoint_step"])
        self.assertGreater(before, 40)
        dead = []
        for times in (1, 2):
            self.kill_server_0(cluster)
            dead.append(self.restart_server_0(cluster))
            status = cluster.await_status("it went back", lambda s: int(s["checkpoint"]["rollbacks"]) == times)
            cluster.await_step(int(status["checkpoint_step"]) + 60)
        cluster.drain()
        self.assertEqual(cluster.finish(*dead)["members"]["lost"], 0)

    def test_the_state_is_beside_the_checkpoints_where_the_job_names_no_folder(self):
        job = digits(epochs=ENDLESS, batch=16, lease=LEASE)
        cluster = self.cluster(job, directory=None)
        self.await_checkpoint(cluster)
        folder = self.path("checkpoints") + "/coordinator"
        cluster.await_status("its folder", lambda s: s["coordinator"]["store"] == folder)
        # The key that the user has set is the one to change.
        with self.assertRaises(AssertionError) as refused:
            cluster.start_server(0, "--listen", "127.0.0.1:0")
        self.contains(str(refused.exception), 'checkpoint.directory: "%s" is in use by another process' % folder)
        cluster.servers.pop().expect_exit(2)
        cluster.coordinator = cluster.servers[0].address
        self.kill_server_0(cluster)
        dead = self.restart_server_0(cluster)
        cluster.await_status("it goes on", lambda s: int(s["coordinator"]["term"]) == 2)
        cluster.await_further()
        cluster.drain()
        cluster.finish(dead)

    def test_a_disk_that_is_slow_holds_nobody_up_and_what_it_did_not_keep_is_not_gone_by(self):
        job = digits(epochs=ENDLESS, batch=16, lease=LEASE)
        cluster = self.cluster(job, start=False)
        # The first state is kept before the server serves.
        cluster.start_server(0, env=dict(os.environ, TESSERA_FAILPOINTS="state.file.sync@2=sleep:600000"))
        cluster.start_server(1)
        for rank in range(2):
            cluster.start_worker(rank)
        cluster.await_step(100)
        self.contains(cluster.status()["coordinator"]["store"], "late: its disk is slow")
        self.assertEqual(int(cluster.status()["members_lost"]), 0)
        cluster.servers[0].kill()
        cluster.servers[0].exit_code()
        dead = self.restart_server_0(cluster)
        # The job that it kept has not begun, which the others know better.
        for process in cluster.workers + cluster.servers:
            self.assertEqual(process.exit_code(), 1, cluster.logs())
        self.contains(cluster.servers[0].output(), "was told what the coordinator had not kept", "checkpoint.restore")
        self.assertFalse(dead.alive)

    def test_server_0_is_killed_again_and_again(self):
        cluster = self.cluster(digits(epochs=ENDLESS, batch=16, lease=LEASE))
        dead = []
        self.await_checkpoint(cluster)
        for times in range(1, 4):
            self.kill_server_0(cluster)
            dead.append(self.restart_server_0(cluster))
            back = cluster.await_status("it went back", lambda s: int(s["checkpoint"]["rollbacks"]) == times)
            before = int(back["checkpoint_step"])
            status = cluster.await_status("it goes on", lambda s: int(s["checkpoint_step"]) > before + 50)
            self.assertEqual(int(status["coordinator"]["term"]), times + 1)
        cluster.drain()
        cluster.finish(*dead)

    def test_a_job_that_waits_for_a_worker_waits_for_the_same_after_a_restart(self):
        job = digits(epochs=ENDLESS, batch=16, lease=LEASE)
        job["cluster"]["workers"] = 2
        cluster = self.cluster(job, start=False)
        for rank in range(cluster.server_count):
            cluster.start_server(rank)
        cluster.start_worker(0)
        cluster.await_status("worker 1 is missing", lambda s: s.get("waiting_for") == ["worker 1"])
        self.kill_server_0(cluster)
        dead = self.restart_server_0(cluster)
        cluster.await_status("it still is", lambda s: s.get("waiting_for") == ["worker 1"])
        cluster.start_worker(1)
        cluster.await_step(20)
        cluster.drain()
        cluster.finish(dead)

    def test_a_frozen_coordinator_that_wakes_finds_all_its_members(self):
        for name, method in METHODS.items():
            with self.case(name):
                cluster = self.cluster(digits(epochs=ENDLESS, batch=16, lease=LEASE, method=method), keep=False,
                                       directory=self.path("state-" + name))
                cluster.await_step(20)
                cluster.servers[0].freeze()
                cluster.servers[1].await_output("coordinator is away")
                for worker in cluster.workers:
                    worker.await_output("coordinator is away")
                cluster.servers[0].thaw()
                cluster.await_further(60)
                self.assertIn("leases begin anew", cluster.servers[0].output())
                for worker in cluster.workers:
                    worker.await_output("coordinator is back")
                cluster.drain()
                report = cluster.finish()
                self.assertEqual(report["members"]["lost"], 0)

    def test_nobody_waits_for_longer_than_the_job_says(self):
        cluster = self.cluster(digits(epochs=ENDLESS, batch=16, lease=LEASE), away="%ds" % (2 * LEASE_SECONDS))
        self.await_checkpoint(cluster)
        cluster.servers[0].kill()
        for process in cluster.servers[1:] + cluster.workers:
            self.contains(process.expect_exit(1), "coordinator at %s" % cluster.coordinator)
        for process in cluster.servers[1:] + cluster.workers:
            self.assertIn("coordinator is away", process.output())

    def test_who_is_cut_off_from_the_coordinator_trains_no_more_however_well_the_rest_of_the_network_works(self):
        cut_port, = free_ports(1)
        cluster = self.cluster(digits(epochs=ENDLESS, batch=16, lease=LEASE, method={"async_sgd": {}}), keep=False,
                               directory=self.path("state"), start=False)
        cluster.start_server(0)
        cut = Cut(self, cut_port, int(cluster.coordinator.rsplit(":")[-1]))
        through = "--coordinator", "127.0.0.1:%d" % cut_port
        cluster.start_server(1, *through)
        for rank in range(2):
            cluster.start_worker(rank, *through)
        cluster.await_step(20)
        cut.cut.set()
        # The coordinator takes them for lost; both servers can be reached all the time.
        other = cluster.servers[1]
        other.await_output("coordinator is away")
        for worker in cluster.workers:
            worker.await_output("coordinator is away")
        before = status_of(other.address)["servers"][0]["counters"]
        await_true("two leases have passed",
                   lambda: status_of(other.address)["coordinator"]["silent_seconds"] > 3 * LEASE_SECONDS)
        after = status_of(other.address)["servers"][0]["counters"]
        self.assertEqual((after["version"], after["pushes"]), (before["version"], before["pushes"]))
        for process in cluster.workers + [other]:
            self.assertTrue(process.alive)
        self.contains(cluster.servers[0].expect_exit(1), "lease expired worker=0", "lease expired worker=1")

    def test_one_folder_has_one_coordinator(self):
        cluster = self.cluster(digits(epochs=ENDLESS, batch=16, lease=LEASE))
        cluster.await_step(20)
        with self.assertRaises(AssertionError) as refused:
            cluster.start_server(0, "--listen", "127.0.0.1:0")
        self.assertIn("cluster.coordinator.directory", str(refused.exception))
        self.assertIn("in use by another process", str(refused.exception))
        second = cluster.servers.pop()
        second.expect_exit(2)
        cluster.coordinator = cluster.servers[0].address
        cluster.await_further()
        cluster.drain()
        cluster.finish()

    def test_without_a_checkpoint_a_restarted_server_0_begins_anew_and_others_of_the_old_run_end(self):
        cluster = self.cluster(digits(epochs=ENDLESS, batch=16, lease=LEASE), keep=False, directory=self.path("state"))
        cluster.await_step(20)
        self.kill_server_0(cluster)
        self.restart_server_0(cluster)
        self.assertIn("server 0's parameters are lost", cluster.servers[0].output())
        for process in [cluster.servers[1]] + cluster.workers:
            self.assertIn("another run of this job", process.expect_exit(1))
        # Its supervisors start them again.
        old = cluster.servers.pop(), list(cluster.workers)
        del cluster.workers[:]
        cluster.start_server(1)
        for rank in range(2):
            cluster.start_worker(rank)
        cluster.await_step(20)
        cluster.drain()
        cluster.finish()
        self.assertEqual(len(old), 2)


if __name__ == "__main__":
    unittest.main()
