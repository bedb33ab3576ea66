"""Faults of servers in a job without standbys: one that is lost takes all back to the last checkpoint."""
import subprocess
import time

from chaos_job import LOCKSTEP, ChaosJob, rollbacks


class CheckpointFaults(ChaosJob):
    def strike_server(self, rank):
        lease = self.arguments.lease
        victim = self.server(rank)
        how = self.dice.choice(("kill", "kill", "stop for a while", "stop") if self.arguments.method in LOCKSTEP else
                               ("stop for a while",))
        print("  server %d %s" % (rank, how), flush=True)
        if how == "stop for a while":
            victim.freeze()
            time.sleep(self.dice.uniform(0, 0.4 * lease))
            victim.thaw()
            return
        before = rollbacks(self.watch.latest)
        begin = time.monotonic()
        (victim.kill if how == "kill" else victim.freeze)()
        self.watch.until("server %d is waited for" % rank, lambda s: "server %d" % rank in s.get("waiting_for", []) and
                         s["state"] == "waiting", self.logs)
        self.note(self.detections, "server " + how, time.monotonic() - begin)
        if how == "stop":
            victim.thaw()
            try:
                # It may notice first that it has not heard of the coordinator for a lease.
                victim.popen.wait(lease)
            except subprocess.TimeoutExpired:
                return self.await_recovery("server woken late", begin)
        self.retire(self.cluster.servers, victim)
        begin = time.monotonic()
        self.start_server(rank)
        # Those that are refused as members of before the checkpoint join again by themselves.
        self.watch.until("the job went back", lambda s: rollbacks(s) > before, self.logs)
        self.await_recovery("server " + how, begin)

    def strike(self):
        if self.dice.random() >= 0.35:
            return self.strike_workers()
        twin = self.dice.random() < 0.3
        if twin:
            begin = time.monotonic()
            self.strike_worker(self.dice.choice(self.cluster.workers))
        self.strike_server(self.dice.randrange(1, self.arguments.servers))
        self.await_recovery("twin" if twin else "server", begin if twin else None)
        return 2 if twin else 1
