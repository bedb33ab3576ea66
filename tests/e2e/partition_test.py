"""Links that carry nothing any more, in one direction or both, for less and for longer than a lease."""
import select
import socket
import threading
import time
import unittest

from cluster import ENDLESS, TEST_MAX, Cluster, Test, digits, free_ports, lost

LEASE = 3
SHORT = 0.6
BOTH = ("up", "down")


class Link:
    """A TCP proxy. What it holds back of a direction waits with the sender, as with a network that drops all
    packets until it is repaired: TCP sends them again."""

    def __init__(self, test, target):
        self.target = target.rsplit(":", 1)
        self.held = set()
        self.carried = 0
        self.over = False
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()
        test.addCleanup(self.end)

    def end(self):
        self.over = True
        self.listener.close()

    def hold(self, *directions):
        self.held = set(directions)

    def accept(self):
        while not self.over:
            try:
                client = self.listener.accept()[0]
            except OSError:
                return
            try:
                server = socket.create_connection((self.target[0], int(self.target[1])), 5)
            except OSError:
                client.close()
                continue
            for direction, source, sink in (("up", client, server), ("down", server, client)):
                threading.Thread(target=self.carry, args=(direction, source, sink), daemon=True).start()

    def carry(self, direction, source, sink):
        try:
            while not self.over:
                if direction in self.held or not select.select([source], [], [], 0.02)[0]:
                    if direction in self.held:
                        time.sleep(0.02)
                    continue
                data = source.recv(1 << 16)
                while direction in self.held and not self.over:
                    time.sleep(0.02)
                if not data:
                    break
                sink.sendall(data)
                self.carried += len(data)
        except (OSError, ValueError):  # The other direction's thread has closed both.
            pass
        finally:
            for end in (source, sink):
                end.close()


def endless(**keys):
    return digits(epochs=ENDLESS, batch=16, lease="%dms" % (1000 * LEASE), **keys)


def protected(status):
    return all(owner["in_sync"] for owner in status["owners"])


def named(directions):
    return " and ".join(directions)


class Partitions(Test):
    test_max = 2 * TEST_MAX

    def behind_a_link(self, **keys):
        """Worker 1 reaches the coordinator through the link."""
        cluster = Cluster(self, endless(**keys), workers=1)
        link = Link(self, cluster.coordinator)
        worker = cluster.start_worker(1, coordinator=link.address)
        cluster.await_step(20)
        return cluster, worker, link

    def test_a_link_to_the_coordinator_that_breaks_for_less_than_a_lease_costs_nothing(self):
        for directions in (("up",), ("down",), BOTH):
            with self.case(named(directions)):
                cluster, _, link = self.behind_a_link()
                for _ in range(2):
                    link.hold(*directions)
                    time.sleep(SHORT)
                    link.hold()
                    cluster.await_further()
                cluster.drain()
                report = cluster.finish()
                self.assertEqual(report["members"], {"joined": 2, "lost": 0, "partial_pushes": 0})

    def test_a_worker_that_loses_the_coordinator_in_one_direction_is_removed_and_the_others_go_on(self):
        # What it sends does not arrive: its lease ends, of which it hears from a server or not. What is sent to it does
        # not: it gives up by itself.
        either = "not a member of the current plan|no longer a member|not reached for 3s"
        for directions, words in ((("up",), either), (("down",), "not reached for 3s"), (BOTH, either)):
            with self.case(named(directions)):
                cluster, worker, link = self.behind_a_link()
                link.hold(*directions)
                cluster.await_status("it is lost", lambda status: lost(status) == 1)
                cluster.await_further()
                self.assertRegex(worker.expect_exit(1), words)
                cluster.drain()
                report = cluster.finish(worker)
                self.assertEqual((report["outcome"], report["members"]["lost"]), ("stopped", 1))

    def test_a_link_to_a_server_that_breaks_for_less_than_a_lease_stalls_and_counts_nothing_twice(self):
        for name, method in (("data_parallel", {"data_parallel": {}}), ("async_sgd", {"async_sgd": {}})):
            for directions in (("up",), ("down",)):
                with self.case("%s %s" % (name, named(directions))):
                    cluster, link = self.with_data_link(method)
                    cluster.await_step(20)
                    self.assertGreater(link.carried, 20 * 64)  # Training goes by this link.
                    for _ in range(2):
                        link.hold(*directions)
                        time.sleep(SHORT)
                        link.hold()
                        cluster.await_further()
                    cluster.drain()
                    report = cluster.finish()
                    self.assertEqual(report["members"], {"joined": 2, "lost": 0, "partial_pushes": 0})
                    # Each push counted once on each server.
                    self.assertEqual(sum(report["staleness"]["histogram"]), 2 * report["traffic"]["exchanges"])

    def test_workers_that_cannot_reach_a_server_leave_and_name_it(self):
        cluster, link = self.with_data_link({"data_parallel": {}})
        cluster.await_step(20)
        link.hold(*BOTH)
        began = time.monotonic()
        # gRPC's own pings notice after 70 s. The coordinator reaches the server: it is the workers that give up, not
        # before it would have.
        for worker in cluster.workers:
            self.contains(worker.expect_exit(1, within=110), "server 1 at %s" % link.address)
        self.assertGreater(time.monotonic() - began, LEASE)
        for server in cluster.servers:
            server.expect_exit(1)
        self.contains(cluster.report()["failure"], "all workers are gone", "server 1 at %s" % link.address)

    def with_data_link(self, method):
        """Workers reach server 1 through the link: that is its address in the job, while it listens everywhere. What
        goes by shared memory would pass the link by."""
        first, port = ("127.0.0.1:%d" % port for port in free_ports(2))
        link = Link(self, port)
        job = endless(method=method, servers=[first, link.address])
        job["security"] = {"insecure": True}
        job["cluster"]["transport"] = "tcp"
        cluster = Cluster(self, job, start=False)
        cluster.start_server(0)
        cluster.start_server(1, "--listen", "0.0.0.0:" + port.split(":")[1])
        for rank in range(2):
            cluster.start_worker(rank)
        return cluster, link

    def test_a_server_that_loses_the_coordinator_in_one_direction_ends_the_job_by_name(self):
        for directions in (("up",), ("down",)):
            with self.case(named(directions)):
                cluster = Cluster(self, endless(), servers=1, workers=0)
                link = Link(self, cluster.coordinator)
                cluster.start_server(1, coordinator=link.address)
                for rank in range(2):
                    cluster.start_worker(rank)
                cluster.await_step(20)
                link.hold(*directions)
                for process in cluster.servers + cluster.workers:
                    process.expect_exit(1)
                self.assertIn("server 1 is gone", cluster.report()["failure"])

    def test_a_leader_that_wakes_when_it_was_given_up_acknowledges_nothing_more(self):
        # What is left of it while the link is held is enough for a busy machine.
        lease = 6
        for name, method in (("data_parallel", {"data_parallel": {}}), ("async_sgd", {"async_sgd": {}})):
            with self.case(name):
                cluster = Cluster(self, digits(epochs=ENDLESS, batch=16, lease="%ds" % lease, method=method,
                                               cluster={"replicas": 1, "coordinator": {
                                                   "directory": self.path("state-" + name)}}), workers=0)
                link = Link(self, cluster.coordinator)
                for rank in range(2):
                    cluster.start_worker(rank, coordinator=link.address)
                cluster.await_status("all have standbys", protected)
                cluster.await_step(20)
                old = cluster.servers[1]
                old.freeze()
                # Workers hear late of its standby: they are still there, with what it has yet to acknowledge.
                time.sleep(0.7 * lease)
                link.hold("down")
                cluster.servers[0].await_output("host lost rank=1")
                old.thaw()
                old.expect_exit(1)
                link.hold()
                cluster.await_further()
                cluster.drain()
                report = cluster.finish(old)
                self.assertEqual(report["members"], {"joined": 2, "lost": 0, "partial_pushes": 0})
                self.assertEqual(sum(report["staleness"]["histogram"]), 2 * report["traffic"]["exchanges"])

    def test_a_standby_that_no_leader_reaches_holds_nobody_up_for_longer_than_a_lease(self):
        # Of two servers the second one, started again, leads nothing: only its leaders need to reach it.
        first, port = ("127.0.0.1:%d" % port for port in free_ports(2))
        link = Link(self, port)
        job = endless(servers=[first, link.address], cluster={"replicas": 1})
        # It listens everywhere, and tells the others the address that the job has for it.
        job["security"] = {"insecure": True}
        everywhere = "0.0.0.0:" + port.split(":")[1]
        cluster = Cluster(self, job, start=False)
        cluster.start_server(0)
        old = cluster.start_server(1, "--listen", everywhere)
        for rank in range(2):
            cluster.start_worker(rank)
        cluster.await_status("all have standbys", protected)
        old.kill()
        cluster.await_status("server 0 leads all", lambda status: int(status["takeovers"]) == 1)
        old.exit_code()
        cluster.start_server(1, "--listen", everywhere)
        cluster.await_status("all have standbys again", protected)
        link.hold(*BOTH)
        # gRPC's own pings would notice after 20 s.
        cluster.await_status("it is given up", lambda status: not protected(status), within=5 * LEASE)
        cluster.await_further()
        self.assertTrue(cluster.servers[-1].alive)
        link.hold()
        cluster.await_status("all have standbys at last", protected, within=60)
        cluster.drain()
        self.assertEqual(cluster.finish(old)["members"]["lost"], 0)


if __name__ == "__main__":
    unittest.main()
