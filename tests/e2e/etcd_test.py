"""The servers elect the coordinator in a real etcd, and it may go without the job."""
import shutil
import time
import unittest

from authority import Authority
from checkpoint_folders import steps_in
from cluster import (ENDLESS, PATIENCE, SOON, Cluster, Test, await_true, digits, free_ports, lost, members, status_of,
                     tessera, write_job)
from etcd_member import Etcd
from partition import Cut

# Long enough for a machine that is busy with other tests.
LEASE = "4s"
METHODS = {"data_parallel": {"data_parallel": {}}, "async_sgd": {"async_sgd": {}}}


class Elected(Test):
    def cluster(self, etcds, servers=2, workers=2, away="1m", checkpoints=None, start=True, method=None, lease=LEASE,
                replicas=0, **keys):
        job = digits(batch=16, lease=lease, method=method, workers=workers, **keys)
        job["cluster"]["replicas"] = replicas
        ports = free_ports(servers)
        job["cluster"]["servers"] = ["127.0.0.1:%d" % port for port in ports]
        job["cluster"]["coordinator"] = {"etcd": etcds, "away_timeout": away}
        if checkpoints is not None:
            folder = self.path("checkpoints-" + checkpoints.get("store", ""))
            job["checkpoint"] = dict(checkpoints, directory=folder, every_steps=50, keep=3)
        return Cluster(self, job, start=start)

    def leader(self, cluster):
        """(the server that is the coordinator, its status)"""
        found = []

        def has_leader():
            for server in cluster.servers:
                status = status_of(server.address) if server.alive else None
                if status and status["coordinator"]["store"].startswith("etcd"):
                    found.append((server, status))
                    cluster.coordinator = server.address
                    return True
            return False

        await_true("a server is elected", has_leader, explain=cluster.logs)
        return found[0]

    def drain(self, cluster):
        self.leader(cluster)
        cluster.drain()

    def test_a_job_runs_and_any_server_may_be_asked_to_end_it(self):
        etcd = Etcd(self)
        cluster = self.cluster([etcd.address], epochs=ENDLESS)
        self.leader(cluster)
        cluster.await_step(20)
        for server in cluster.servers:
            self.assertEqual(status_of(server.address)["coordinator"]["term"], "1")
        other = [s for s in cluster.servers if s.address != cluster.coordinator][0]
        other.signal(15)
        for process in cluster.workers + cluster.servers:
            process.expect_exit(0)

    def test_a_coordinator_in_another_server_than_0_says_which_was_asked_to_end(self):
        cluster = self.cluster([Etcd(self).address], epochs=ENDLESS, start=False)
        server = cluster.start_server(1)
        self.leader(cluster)
        server.signal(15)
        self.contains(server.expect_exit(1), "server 1 was asked to end", "drained before it had started")

    def test_the_coordinator_is_cut_off_from_etcd_and_another_server_takes_over_without_loss(self):
        for name, method in METHODS.items():
            with self.case(name):
                etcd = Etcd(self)
                ports = free_ports(2)
                cuts = [Cut(self, port, etcd.port) for port in ports]
                cluster = self.cluster([etcd.address], epochs=ENDLESS, method=method, start=False)
                for rank, port in enumerate(ports):
                    cluster.start_server(rank, "--set", "cluster.coordinator.etcd=[127.0.0.1:%d]" % port)
                for rank in range(2):
                    cluster.start_worker(rank)
                old, _ = self.leader(cluster)
                cluster.await_step(20)
                cuts[cluster.servers.index(old)].cut.set()
                await_true("it steps down", lambda: "is here no longer" in old.output(), explain=cluster.logs)
                new, status = self.leader(cluster)
                self.assertIsNot(new, old)
                self.assertEqual(status["coordinator"]["term"], "2")
                cluster.await_further(60)
                # The one that stepped down serves its parameters: it has found the new one by the other servers.
                self.assertEqual(int(status_of(new.address)["members_lost"]), 0)
                cuts[cluster.servers.index(old)].cut.clear()
                self.drain(cluster)
                for process in cluster.workers + cluster.servers:
                    self.assertEqual(process.exit_code(), 0, cluster.logs())

    def test_the_coordinators_machine_is_lost_and_its_disk_was_not_the_only_one(self):
        disks = [self.path("disk-%d" % rank) for rank in range(3)]

        def keys(folder, restore):
            directory, restored = ["--set", "checkpoint.directory=" + folder], ["--set", "checkpoint.restore=" + folder]
            return directory + (restored if restore else [])

        def start(etcd, restore=False, **train):
            cluster = self.cluster([etcd.address], servers=3, replicas=1, checkpoints={"store": "own_disks"},
                                   start=False, **train)
            for rank, disk in enumerate(disks):
                # Whoever is the coordinator at the end writes the report.
                report = ["--report", cluster.report_path] if rank > 0 else []
                cluster.start_server(rank, *report, *keys(disk, restore))
            for rank in range(2):
                cluster.start_worker(rank, *keys(self.path("scratch-%d" % rank), restore))
            return cluster

        cluster = start(Etcd(self), epochs=ENDLESS)
        old, _ = self.leader(cluster)
        cluster.await_status("a checkpoint", lambda s: int(s["checkpoint"]["count"]) > 0)
        rank = cluster.servers.index(old)
        old.kill()
        old.exit_code()
        shutil.rmtree(disks[rank])
        new, status = self.leader(cluster)
        self.assertEqual(status["coordinator"]["term"], "2")
        count = int(status["checkpoint"]["count"])
        cluster.await_status("another checkpoint", lambda s: int(s["checkpoint"]["count"]) > count)
        # Whoever comes now is told of the servers that are there.
        victim = cluster.workers.pop(0)
        victim.kill()
        cluster.await_status("a worker is lost", lost)
        cluster.start_worker(0, *keys(self.path("scratch-0"), restore=False))
        status = cluster.await_status("both train", lambda s: len(members(s, "training")) == 2)
        count = int(status["checkpoint"]["count"])
        cluster.await_status("a checkpoint of both", lambda s: int(s["checkpoint"]["count"]) > count + 1)
        cluster.drain()
        report = cluster.finish(old, victim)
        self.assertEqual((report["checkpoint"]["rollbacks"], report["members"]["lost"]), (0, 1))
        steps = report["steps"]

        # Another etcd, as after all machines were off, and whoever is elected finds what the disks have.
        again = start(Etcd(self), restore=True, steps=steps + 50)
        self.assertEqual(again.finish()["steps"], steps + 50)
        self.assertEqual([steps_in(disk)[-1] for disk in disks], [steps + 50] * 3)

    def test_the_coordinators_process_is_killed_and_the_job_goes_on_from_its_checkpoint(self):
        for store in ("shared_folder", "own_disks"):
            with self.case(store):
                self.kill_the_coordinator({"store": store})

    def kill_the_coordinator(self, checkpoints):
        etcd = Etcd(self)
        # Nobody is lost while the server is gone: leases outlive what a busy machine takes to start it again.
        cluster = self.cluster([etcd.address], epochs=ENDLESS, checkpoints=checkpoints, lease="5s")
        old, _ = self.leader(cluster)
        cluster.await_status("a checkpoint", lambda s: int(s["checkpoint"]["count"]) > 1)
        rank = cluster.servers.index(old)
        old.kill()
        old.exit_code()
        new, status = self.leader(cluster)
        self.assertEqual(status["coordinator"]["term"], "2")
        cluster.await_status("it is waited for", lambda s: s.get("waiting_for") == ["server %d" % rank])
        cluster.servers.remove(old)
        cluster.start_server(rank)
        cluster.coordinator = new.address
        status = cluster.await_status("it went back", lambda s: int(s["checkpoint"]["rollbacks"]) == 1)
        status = cluster.await_step(int(status["checkpoint_step"]) + 60)
        self.assertEqual(int(status["checkpoint"]["rollbacks"]), 1)
        self.assertEqual(int(status["members_lost"]), 0)
        self.drain(cluster)
        for process in cluster.workers + cluster.servers:
            self.assertEqual(process.exit_code(), 0, cluster.logs())

    def test_with_standbys_the_coordinators_machine_is_lost_and_the_job_goes_on_without_it(self):
        for name, method in METHODS.items():
            with self.case(name):
                etcd = Etcd(self)
                cluster = self.cluster([etcd.address], servers=3, workers=3, epochs=ENDLESS, method=method, replicas=1)
                old, _ = self.leader(cluster)
                cluster.await_status("all have standbys", lambda s: all(owner["in_sync"] for owner in s["owners"]))
                cluster.await_step(20)
                rank = cluster.servers.index(old)
                old.kill()
                old.exit_code()
                new, status = self.leader(cluster)
                self.assertEqual(status["coordinator"]["term"], "2")
                status = cluster.await_status("its standby leads", lambda s: int(s["takeovers"]) == 1)
                self.assertNotEqual(status["owners"][rank]["leader"], rank)
                cluster.await_further(60)
                cluster.await_status("all have standbys again",
                                     lambda s: all(owner["in_sync"] for owner in s["owners"]))
                self.assertEqual(int(cluster.status()["members_lost"]), 0)
                cluster.servers.remove(old)
                self.drain(cluster)
                for process in cluster.workers + cluster.servers:
                    self.assertEqual(process.exit_code(), 0, cluster.logs())

    def test_sites_go_on_without_the_one_that_had_the_coordinator(self):
        etcd = Etcd(self)
        cluster = self.cluster([etcd.address], servers=3, workers=3, epochs=ENDLESS, method={"decentralized": {}})
        old, _ = self.leader(cluster)
        cluster.await_step(20)
        rank = cluster.servers.index(old)
        old.kill()
        old.exit_code()
        self.leader(cluster)
        cluster.await_status("its worker is lost", lambda s: int(s["members_lost"]) == 1)
        cluster.workers[rank].expect_exit(1)
        cluster.await_further(60)
        cluster.servers.remove(old)
        del cluster.workers[rank]
        for process in cluster.workers:
            process.signal(15)
        for process in cluster.workers + cluster.servers:
            self.assertEqual(process.exit_code(), 0, cluster.logs())

    def test_a_frozen_coordinator_that_wakes_is_none_any_more(self):
        etcd = Etcd(self)
        cluster = self.cluster([etcd.address], epochs=ENDLESS, checkpoints={})
        old, _ = self.leader(cluster)
        cluster.await_status("a checkpoint", lambda s: int(s["checkpoint"]["count"]) > 1)
        old.freeze()
        rest = [s for s in cluster.servers if s is not old]
        await_true("another one is elected", lambda: "elected coordinator" in rest[0].output(), explain=cluster.logs)
        old.thaw()
        old.await_output("is here no longer")
        cluster.servers.remove(old)
        new, _ = self.leader(cluster)
        cluster.servers.append(old)
        self.assertIsNot(new, old)
        cluster.await_further(60)
        self.drain(cluster)
        for process in cluster.workers + cluster.servers:
            self.assertEqual(process.exit_code(), 0, cluster.logs())

    def test_etcd_goes_away_and_everybody_waits_and_goes_on_when_it_is_back(self):
        etcd = Etcd(self)
        cluster = self.cluster([etcd.address], epochs=ENDLESS)
        self.leader(cluster)
        cluster.await_step(20)
        etcd.freeze()
        for process in cluster.servers + cluster.workers:
            process.await_output("coordinator is away")
        statuses = [status_of(server.address) for server in cluster.servers]
        for status in statuses:
            self.assertTrue(status["coordinator"]["is_away"], status)
            self.assertGreater(status["coordinator"]["waits_seconds"], 10)
        etcd.thaw()
        self.leader(cluster)
        cluster.await_further(60)
        self.assertEqual(int(cluster.status()["members_lost"]), 0)
        self.drain(cluster)
        for process in cluster.workers + cluster.servers:
            self.assertEqual(process.exit_code(), 0, cluster.logs())

    def test_a_coordinator_that_is_asked_to_end_twice_ends_at_once_also_where_etcd_does_not_answer(self):
        etcd = Etcd(self)
        cluster = self.cluster([etcd.address], epochs=ENDLESS, lease="30s")
        server, _ = self.leader(cluster)
        cluster.await_step(20)
        etcd.freeze()
        server.signal(15)
        server.await_output("draining the job")
        time.sleep(0.5)
        begin = time.monotonic()
        server.signal(15)
        self.assertEqual(server.exit_code(), 1)
        # By itself it would wait for etcd until its lease of 30 s is over.
        self.assertLess(time.monotonic() - begin, 15 * PATIENCE)
        etcd.thaw()

    def test_who_waits_for_the_coordinator_says_that_etcd_does_not_answer(self):
        dead, = free_ports(1)
        cluster = self.cluster(["127.0.0.1:%d" % dead], epochs=ENDLESS, start=False)
        server, worker = cluster.start_server(0), cluster.start_worker(0)
        why = "nobody says who has been elected coordinator: etcd at 127.0.0.1:%d: " % dead
        server.await_output(why)
        self.contains(server.output(), "waiting for the coordinator")
        worker.await_output("worker: waiting for a coordinator to be elected: " + why)
        self.contains(server.output(), "control: the election cannot go on step=lease")

    def test_the_doctor_says_whether_etcd_can_be_reached(self):
        etcd = Etcd(self)
        dead, = free_ports(1)
        cluster = self.cluster([etcd.address, "127.0.0.1:%d" % dead], epochs=ENDLESS, start=False)
        code, out, _ = tessera("doctor", cluster.path)
        self.assertEqual(code, 1)
        self.contains(" ".join(out.split()), "etcd at %s: no server has been elected yet" % etcd.address,
                      "PROBLEM etcd at 127.0.0.1:%d" % dead)

    def test_etcd_may_want_tls_and_certificates(self):
        authority = Authority(self, "job")
        certificate, key = authority.sign("all")
        etcd = Etcd(self, tls=(certificate, key, authority.certificate))
        cluster = self.cluster(["https://" + etcd.address], epochs=1, start=False)
        cluster.job["security"] = {"certificate": certificate, "private_key": key, "authority": authority.certificate}
        cluster.path = write_job(self, cluster.job)
        for rank in range(2):
            cluster.start_server(rank)
        for rank in range(2):
            cluster.start_worker(rank)
        for process in cluster.workers + cluster.servers:
            self.assertEqual(process.exit_code(), 0, cluster.logs())
        # In a job with TLS nobody speaks to it without, but on the same machine.
        refused = self.cluster(["10.0.0.1:1"], epochs=1, start=False)
        refused.job["security"] = cluster.job["security"]
        refused.path = write_job(self, refused.job)
        with self.assertRaises(AssertionError) as error:
            refused.start_server(0)
        self.contains(str(error.exception), "cluster.coordinator.etcd", "want https://10.0.0.1:1")

    def test_an_address_that_is_none_is_refused(self):
        cluster = self.cluster(["nowhere"], epochs=ENDLESS, start=False)
        with self.assertRaises(AssertionError) as refused:
            cluster.start_server(0)
        self.contains(str(refused.exception), "cluster.coordinator.etcd", "nowhere")
        cluster.servers[0].expect_exit(2, SOON)


if __name__ == "__main__":
    unittest.main()
