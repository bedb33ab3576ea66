"""Faults in a job whose shards have standbys: whatever dies alone costs no work, and all are protected again soon.

A victim among servers is drawn by what it does: one that leads a shard, or one that only follows. A shard's leader and
its standby may be struck at once: then, and only then, the job goes back to a checkpoint. Before the next fault
every shard has a standby that could take over, and every server is back.

Times are those of the logs' lines. Noticed: since the signal. Trained on: since that, until an exchange of every worker
that is there has been acknowledged by all shards. Protected: since that, until every shard has its standby again.
"""
import subprocess
import time

from chaos_job import LOCKSTEP, MARGIN, REPEATABLE, WORKERS, ChaosJob, live, rollbacks
from cluster import SOON, Cluster, await_true, free_ports, lost, run_to_end, tessera
from etcd_member import Etcd
from evidence import now

# Within so many seconds every shard is protected again and every server is back, whatever happened.
PROTECTED_MAX = 30


def protected(status):
    return bool(status.get("owners")) and all(owner["in_sync"] for owner in status["owners"])


class StandbyFaults(ChaosJob):
    def setUp(self):
        super().setUp()
        self.protections = {}
        self.frozen = None

    # --- the job, and where its coordinator is ---

    @property
    def elects(self):
        return self.arguments.coordinator == "etcd"

    def make_cluster(self, job):
        job["cluster"]["replicas"] = 1
        if self.arguments.coordinator is None:
            return Cluster(self, job, workers=0)
        ports = free_ports(self.arguments.servers)
        job["cluster"]["servers"] = ["127.0.0.1:%d" % port for port in ports]
        if self.elects:
            job["cluster"]["coordinator"] = {"etcd": [Etcd(self).address]}
        else:
            job["cluster"]["coordinator"] = {"directory": self.path("coordinator")}
        self.cluster = Cluster(self, job, start=False)
        for rank in range(self.arguments.servers):
            self.start_server(rank)
        return self.cluster

    def start_server(self, rank):
        if not self.elects or rank == 0:
            return super().start_server(rank)
        # Whoever is the coordinator in the end writes the report.
        server = self.cluster.start_server(rank, "--report", self.cluster.report_path)
        self.evidence.add(server)
        return server

    def find_coordinator(self):
        if not self.elects:
            return self.cluster.coordinator
        for server in [s for s in list(self.cluster.servers) if s.alive and s is not self.frozen]:
            try:
                code, out, _ = tessera("status", server.address, "--json", within=2)
            except subprocess.TimeoutExpired:
                continue
            if code == 0 and '"store":"etcd' in out.replace(" ", ""):
                self.cluster.coordinator = server.address
                return server.address
        return None

    def is_coordinator(self, server):
        return server.address == self.cluster.coordinator

    def victims(self):
        return [s for s in self.cluster.servers if self.arguments.coordinator or not self.is_coordinator(s)]

    # --- waiting ---

    def await_servers(self, ranks, since):
        """They have been taken back as hosts."""
        for rank in ranks:
            await_true("server %d is back" % rank, lambda: self.evidence.servers_said(
                r"standby: host attached rank=%d " % rank, since), PROTECTED_MAX, self.logs)

    def await_protected(self, since):
        """When the last shard got its standby."""
        status = self.watch.until("all shards are protected", protected, self.logs, PROTECTED_MAX, since)
        said = self.evidence.servers_said(r"standby: protected shard=", since)
        return status, said[-1][0] if said else since

    def await_trained(self, since):
        """When the last worker's exchange was acknowledged that was the first one since then."""
        times = {}

        def all_have():
            for worker in [w for w in self.cluster.workers if not w.alive]:
                self.retire(self.cluster.workers, worker)
                self.start_worker()
            for worker in self.cluster.workers:
                times[worker] = self.evidence.acknowledged_since(worker, since)
            return all(times[worker] for worker in self.cluster.workers)

        await_true("all workers train", all_have, 60, self.logs)
        return max(times[worker] for worker in self.cluster.workers)

    # --- faults of servers ---

    def end_frozen(self, victim):
        """One that was given up while it was stopped ends as soon as it can know."""
        self.frozen = None
        victim.thaw()
        victim.exit_code(self.arguments.lease + SOON)
        self.retire(self.cluster.servers, victim)

    def strike_server(self, victim, kind):
        """It is struck alone: nothing is lost, its shards' standbys lead."""
        lease = self.arguments.lease
        rank = int(victim.name.split()[1])
        how = self.dice.choice(("kill", "kill", "stop", "stop for a while"))
        when = self.dice.choice(("at once", "when it is noticed", "when all are protected"))
        what = "%s%s %s" % (kind, " and coordinator" if self.is_coordinator(victim) else "", how)
        print("  server %d, %s, started again %s" % (rank, what, when), flush=True)
        struck = now()
        if how == "stop for a while":
            victim.freeze()
            time.sleep(self.dice.uniform(0, 0.4 * lease))
            victim.thaw()
            return self.await_trained(now())
        if how == "kill":
            victim.kill()
            victim.exit_code()
            self.retire(self.cluster.servers, victim)
            if when == "at once":
                self.start_server(rank)
        else:
            self.frozen = victim
            victim.freeze()
        await_true("server %d is given up" % rank, lambda: self.evidence.servers_said(
            r"standby: host lost rank=%d " % rank, struck), SOON + lease, self.logs)
        noticed = self.evidence.servers_said(r"standby: host lost rank=%d " % rank, struck)[0][0]
        self.note(self.detections, what + (" and started at once" if how == "kill" and when == "at once" else ""),
                  noticed - struck)
        if how == "kill" and when == "when it is noticed":
            self.start_server(rank)
        self.note(self.recoveries, what, self.await_trained(noticed) - noticed)
        _, safe = self.await_protected(noticed)
        self.note(self.protections, what, safe - noticed)
        if how == "stop":
            self.end_frozen(victim)
        if how == "stop" or when == "when all are protected":
            self.start_server(rank)
        self.await_servers([rank], struck)

    def strike_server_0(self, victim, kind):
        """It has the coordinator in it, which nobody else can be."""
        how = self.dice.choice(("kill", "kill", "stop", "stop for a while"))
        pause = self.dice.uniform(0, self.arguments.lease * (2 if how == "stop" else 0.4))
        what = "%s and coordinator %s" % (kind, how)
        print("  server 0, %s, for %.1f s" % (what, pause), flush=True)
        struck = now()
        if how == "kill":
            victim.kill()
            victim.exit_code()
            self.retire(self.cluster.servers, victim)
            time.sleep(pause)
            self.start_server(0)
            back = now()
            self.await_servers([0], struck)
        else:
            victim.freeze()
            time.sleep(pause)
            victim.thaw()
            back = now()
        self.note(self.recoveries, what + ", since it is back", self.await_trained(back) - back)
        _, safe = self.await_protected(back)
        if how == "kill":
            self.note(self.protections, what + ", since it is back", safe - back)

    def strike_alone(self):
        """A server, perhaps with a worker that has nothing to do with it; how many."""
        status = self.watch.latest
        leaders = {owner.get("leader") for owner in status["owners"]}
        rank_of = lambda server: int(server.name.split()[1])
        leading = [s for s in self.victims() if rank_of(s) in leaders]
        others = [s for s in self.victims() if s not in leading]
        kind = "leader" if leading and (not others or self.dice.random() < 0.7) else "standby"
        victim = self.dice.choice(sorted(leading if kind == "leader" else others, key=rank_of))
        if self.arguments.coordinator and self.dice.random() < 0.3:
            victim = next((s for s in self.victims() if self.is_coordinator(s)), victim)
            kind = "leader" if victim in leading else "standby"
        twin = self.workers_too and self.dice.random() < 0.25
        if twin:
            self.strike_worker(self.dice.choice(self.cluster.workers))
        gone, before = lost(status), rollbacks(status)
        if self.is_coordinator(victim) and not self.elects:
            self.strike_server_0(victim, kind)
        else:
            self.strike_server(victim, kind)
        status, _ = self.await_protected(now())
        self.assertEqual(rollbacks(status), before, "a server that was struck alone took the job back\n" +
                         self.logs())
        if not twin:
            self.assertEqual(lost(status), gone, "a server that was struck alone took workers with it\n" +
                             self.logs())
        return 2 if twin else 1

    def both(self):
        """(leader, standby) of a shard, both of which may be struck; or None."""
        by_rank = {int(s.name.split()[1]): s for s in self.victims()}
        pairs = [(by_rank[owner["leader"]], by_rank[owner["standby"]]) for owner in self.watch.latest["owners"]
                 if owner.get("leader") in by_rank and owner.get("standby") in by_rank]
        return self.dice.choice(pairs) if pairs else None

    def strike_both(self, leader, standby):
        """The shard is lost: all go back to the last checkpoint."""
        ranks = [int(s.name.split()[1]) for s in (leader, standby)]
        how = self.dice.choice(("kill", "stop"))
        if not self.elects and (self.is_coordinator(leader) or self.is_coordinator(standby)):
            how = "kill"  # Nobody could give up one that is stopped.
        print("  leader %d %s and standby %d kill, at once" % (ranks[0], how, ranks[1]), flush=True)
        before = rollbacks(self.watch.latest)
        struck = now()
        if how == "kill":
            leader.kill()
        else:
            self.frozen = leader
            leader.freeze()
        standby.kill()
        standby.exit_code()
        self.retire(self.cluster.servers, standby)
        if how == "kill":
            leader.exit_code()
            self.retire(self.cluster.servers, leader)
        else:
            await_true("server %d is given up" % ranks[0], lambda: self.evidence.servers_said(
                r"standby: host lost rank=%d " % ranks[0], struck), SOON, self.logs)
            self.end_frozen(leader)
        begin = now()
        for rank in ranks:
            self.start_server(rank)
        self.await_servers(ranks, struck)
        self.watch.until("the job went back", lambda s: rollbacks(s) > before, self.logs, SOON)
        self.note(self.recoveries, "leader and standby, since started", self.await_trained(now()) - begin)
        status, safe = self.await_protected(now())
        self.assertEqual(rollbacks(status), before + 1, self.logs())
        return 2

    @property
    def workers_too(self):
        return not self.arguments.spare_workers

    def strike(self):
        self.await_protected(now())
        if self.workers_too and self.dice.random() < 0.3:
            before = rollbacks(self.watch.latest)
            count = self.strike_workers()
            self.assertEqual(rollbacks(self.watch.latest), before, self.logs())
            return count
        pair = self.both()
        goes_back = self.arguments.method in (LOCKSTEP if self.workers_too else REPEATABLE)
        if pair and goes_back and self.dice.random() < 0.12:
            count = self.strike_both(*pair)
        else:
            count = self.strike_alone()
        self.await_recovery("server")
        return count

    # --- the end ---

    def check_end(self, report):
        """The job scores what a quiet one of as many steps scores; without faults of workers it has the same bits."""
        self.tell("protected", self.protections)
        standbys, pushed = report["standbys"], report["traffic"]["push_payload_bytes"]
        print("takeovers %d; %.1f MB to standbys, %.1f MB pushed by the workers that were there in the end" % (
            standbys["takeovers"], standbys["payload_bytes"] / 1e6, pushed / 1e6))
        quiet = run_to_end(self, self.job(1, steps=report["steps"]), within=1200)
        print("accuracy %.4f, quiet %.4f" % (report["final"]["test_accuracy"], quiet["final"]["test_accuracy"]))
        self.assertGreaterEqual(report["final"]["test_accuracy"], quiet["final"]["test_accuracy"] - MARGIN)
        if not self.workers_too and self.arguments.method in LOCKSTEP:
            self.assertEqual(report["members"]["lost"], 0)
            self.assertEqual(report["parameters_hash"], quiet["parameters_hash"])
            print("parameters: the same bits as the quiet job's")
