"""Checkpoints without a shared folder: each server has a disk of its own, and its file a copy on the next one's."""
import json
import os
import shutil
import unittest

from authority import Authority
from checkpoint_folders import CheckpointTest, MOMENTUM, course, step_folder, steps_in
from cluster import Cluster, free_ports, run_to_end, tessera, write_job

# Steps so long that a server can be killed well before the last of them.
SLOW = {"TESSERA_FAILPOINTS": "worker.step=sleep:60"}
SERVERS = 3


class OwnDisks(CheckpointTest):
    def setUp(self):
        super().setUp()
        # Workers have a folder each, too, in which nothing stays.
        self.disks = [self.path("disk-%d" % rank) for rank in range(SERVERS)]
        self.scratch = [self.path("scratch-%d" % rank) for rank in range(2)]

    def job(self, steps, every=20, **changes):
        # What a codec holds back is in workers' files alone.
        job = self.small(servers=SERVERS, steps=steps, optimizer=MOMENTUM, evaluate_every=0, **changes)
        return dict(job, codec={"push": "int8", "error_feedback": True},
                    checkpoint={"directory": "", "every_steps": every, "keep": 2, "store": "own_disks"})

    def start(self, job, restore=False, failpoints=None):
        """Every process with a folder of its own, as on machines that share none."""
        job = dict(job, cluster=dict(job["cluster"],
                                     servers=["127.0.0.1:%d" % port for port in free_ports(SERVERS)]))
        job["checkpoint"] = dict(job["checkpoint"], directory=self.path("nowhere"))
        job_cluster = Cluster(self, job, start=False)
        # The one with the coordinator comes last: before it looks for what there is the others have to be there.
        for rank in [1, 2, 0]:
            self.start_server(job_cluster, rank, restore, (failpoints or {}).get(rank))
        self.in_rank_order(job_cluster)
        for rank in range(2):
            job_cluster.start_worker(rank, *self.keys(self.scratch[rank], restore), env=SLOW)
        return job_cluster

    def keys(self, folder, restore):
        keys = ["--set", "checkpoint.directory=" + folder]
        return keys + (["--set", "checkpoint.restore=" + folder] if restore else [])

    def start_server(self, job_cluster, rank, restore=False, failpoints=None):
        return job_cluster.start_server(rank, *self.keys(self.disks[rank], restore),
                                        env={"TESSERA_FAILPOINTS": failpoints} if failpoints else None)

    def in_rank_order(self, job_cluster):
        job_cluster.servers.sort(key=lambda server: server.name)

    def files(self, rank, step):
        return sorted(os.listdir(step_folder(self.disks[rank], step)))

    def check_steps(self, last):
        """All disks have the same two checkpoints, the last of which is of the job's end. A server that ended before it
        was told to remove the one before them still has that."""
        steps = [steps_in(disk) for disk in self.disks]
        self.assertEqual([kept[-2:] for kept in steps], [steps[0][-2:]] * SERVERS)
        self.assertEqual(([len(kept) in (2, 3) for kept in steps], steps[0][-1]), ([True] * SERVERS, last))

    def lose_disk_1(self, job_cluster):
        """The report of a job in which server 1 is killed, its disk lost, and one started in its place."""
        job_cluster.await_status("a checkpoint", lambda s: int(s["checkpoint"]["count"]) > 0)
        job_cluster.servers[1].kill()
        victim = job_cluster.servers.pop(1)
        job_cluster.await_status("it is waited for", lambda s: s["waiting_for"] == ["server 1"])
        shutil.rmtree(self.disks[1])
        server = self.start_server(job_cluster, 1)
        self.in_rank_order(job_cluster)
        report = job_cluster.finish(victim)
        self.assertEqual((report["checkpoint"]["rollbacks"], report["checkpoint"]["failure"]), (1, ""))
        self.contains(server.output(), "checkpoint: fetched step=", "file=shard-1-of-3.safetensors",
                      'from="server 2 at 127.0.0.1:')
        return report

    def test_a_lost_disk_costs_no_bit_and_two_neighbours_are_a_refusal(self):
        reference = course(run_to_end(self, dict(self.job(140), checkpoint={})))
        self.lose_disk_1(self.start(self.job(100)))
        # Copies lie on the next disk, old ones went from all, and workers keep nothing.
        self.check_steps(100)
        self.assertEqual([self.files(rank, 100) for rank in range(SERVERS)], [
            ["manifest.json", "shard-0-of-3.safetensors", "shard-2-of-3.safetensors", "worker-0.safetensors"],
            ["manifest.json", "shard-0-of-3.safetensors", "shard-1-of-3.safetensors", "worker-0.safetensors",
             "worker-1.safetensors"],
            ["manifest.json", "shard-1-of-3.safetensors", "shard-2-of-3.safetensors", "worker-1.safetensors"],
        ])
        self.assertEqual([os.listdir(folder) for folder in self.scratch if os.path.exists(folder)], [[], []])

        # All were stopped, a disk is lost, and of what is left a copy lies and another is cut.
        shutil.rmtree(self.disks[2])
        path = os.path.join(step_folder(self.disks[0], 100), "shard-0-of-3.safetensors")
        with open(path, "r+b") as file:
            file.seek(-1, os.SEEK_END)
            last = file.read(1)
            file.seek(-1, os.SEEK_END)
            file.write(bytes([last[0] ^ 1]))
        os.truncate(os.path.join(step_folder(self.disks[1], 100), "worker-0.safetensors"), 10)
        job_cluster = self.start(self.job(140), restore=True)
        report = job_cluster.finish()
        self.assertEqual(course(report), reference)
        self.contains(job_cluster.servers[0].output(), "passed over", "its bytes are not the ones that were written")
        self.assertEqual([steps_in(disk)[-1] for disk in self.disks], [140] * 3)

        # Of two neighbours' disks nobody has a copy.
        shutil.rmtree(self.disks[1])
        shutil.rmtree(self.disks[2])
        job = dict(self.job(180), cluster=job_cluster.job["cluster"])
        job["checkpoint"] = job_cluster.job["checkpoint"]
        again = Cluster(self, job, start=False)
        for rank in (1, 2):
            self.start_server(again, rank, restore=True)
        with self.assertRaises(AssertionError) as refused:
            self.start_server(again, 0, restore=True)
        self.contains(str(refused.exception), "checkpoint.restore: ", "step 140 lacks shard-1-of-3.safetensors "
                      "(want it on server 1 and server 2), worker-1.safetensors", "begin anew without")
        self.assertEqual(again.servers[-1].exit_code(), 2)

    def with_standbys(self, steps):
        job = self.job(steps)
        return dict(job, cluster=dict(job["cluster"], replicas=1))

    def test_with_standbys_a_server_and_its_disk_may_go_for_good(self):
        reference = course(run_to_end(self, dict(self.job(140), checkpoint={})))
        job_cluster = self.start(self.with_standbys(100))
        job_cluster.await_status("a checkpoint", lambda s: int(s["checkpoint"]["count"]) > 0)
        victim = job_cluster.servers.pop(1)
        victim.kill()
        shutil.rmtree(self.disks[1])
        report = job_cluster.finish(victim)
        self.assertEqual((report["checkpoint"]["rollbacks"], report["checkpoint"]["failure"]), (0, ""))
        # What is written without it is on both disks that are left, its own shard included.
        for rank in (0, 2):
            self.assertEqual(self.files(rank, 100), ["manifest.json"] + [
                "shard-%d-of-3.safetensors" % shard for shard in range(3)] + [
                "worker-%d.safetensors" % worker for worker in range(2)])
        # Of these one may go, too: the job goes on from the other one alone.
        shutil.rmtree(self.disks[0])
        report = self.start(self.with_standbys(140), restore=True).finish()
        self.assertEqual(course(report), reference)
        self.assertEqual([steps_in(disk)[-1] for disk in self.disks], [140] * SERVERS)

    def test_a_shard_that_is_lost_with_its_standby_comes_back_though_a_disk_does_not(self):
        reference = course(run_to_end(self, dict(self.job(100), checkpoint={})))
        job_cluster = self.start(self.with_standbys(100))
        job_cluster.await_status("a checkpoint", lambda s: int(s["checkpoint"]["count"]) > 0)
        # The standby of shard 1 is server 2.
        victims = job_cluster.servers[1:]
        del job_cluster.servers[1:]
        for victim in victims:
            victim.kill()
        shutil.rmtree(self.disks[1])
        for rank in (1, 2):
            self.start_server(job_cluster, rank)
        self.in_rank_order(job_cluster)
        report = job_cluster.finish(*victims)
        self.assertEqual((report["checkpoint"]["rollbacks"], report["members"]["lost"]), (1, 0))
        self.assertEqual(course(report), reference)

    def test_servers_that_want_certificates_and_tokens_fetch_from_each_other(self):
        reference = course(run_to_end(self, dict(self.job(100), checkpoint={})))
        job = self.job(100)
        authority = Authority(self, "home")
        certificate, key = authority.sign("all")
        with open(self.path("tokens"), "w") as tokens:
            tokens.writelines("%s %s-token-0123456789\n" % (role, role) for role in ("worker", "operator", "viewer"))
        job["security"] = {"certificate": certificate, "private_key": key, "authority": authority.certificate,
                           "token_file": tokens.name}
        with open(self.path("viewer"), "w") as viewer:
            viewer.write("viewer viewer-token-0123456789\n")
        job_cluster = self.start(job)

        def status():
            code, out, _ = tessera("status", job_cluster.coordinator, "--json", "--token-file", viewer.name,
                                   *job_cluster.client_flags())
            return json.loads(out) if code == 0 else None

        job_cluster.status = status
        report = self.lose_disk_1(job_cluster)
        self.assertEqual(course(report), reference)
        self.check_steps(100)

    def test_a_full_disk_at_the_copy_costs_a_checkpoint_and_no_step(self):
        # The copy of what comes first to server 1's disk; its own file has room.
        job_cluster = self.start(self.job(60), failpoints={1: "copy.file.write@1=enospc"})
        status = job_cluster.await_status("it failed", lambda s: s["checkpoint"]["failure"])
        self.contains(status["checkpoint"]["failure"], "the copy of ", "on server 1 at 127.0.0.1:",
                      "cannot be written: No space left on device")
        report = job_cluster.finish()
        self.assertEqual((report["steps"], report["checkpoint"]["failure"]), (60, ""))
        self.check_steps(60)
        self.assertEqual([name for disk in self.disks for name in os.listdir(disk) if name.startswith("partial-")], [])

    def test_one_machine_has_one_folder_and_whole_checkpoints_in_it(self):
        folder = self.path("checkpoints")
        job = self.job(60)
        job["checkpoint"]["directory"] = folder
        run_to_end(self, job, env=SLOW)
        # How many there were on the way depends on the machine.
        steps = steps_in(folder)
        self.assertEqual((len(steps), steps[-1]), (2, 60))
        code, _, error = tessera("export", step_folder(folder, 60), self.path("model.safetensors"))
        self.assertEqual(code, 0, error)
        # It is read as one in a shared folder is, and the other way round.
        for store in ("own_disks", "shared_folder"):
            again = dict(self.job(80), checkpoint={"restore": folder, "store": store})
            self.assertEqual(run_to_end(self, again)["steps"], 80)

    def test_jobs_that_have_no_second_disk_are_refused(self):
        job = self.job(20)
        job["cluster"]["servers"] = 1
        job["checkpoint"]["directory"] = self.disks[0]
        code, out, error = tessera("check", write_job(self, job))
        self.assertEqual(code, 2)
        self.contains(out + error, "checkpoint.copies: got 2, want at most 1")


if __name__ == "__main__":
    unittest.main()
