"""Names of machines: that are loopback on one of them, that come late, that move."""
import json
import unittest

from cluster import ENDLESS, SERVER, TESSERA, WORKER, Test, await_true, digits, free_ports, write_job
from machines import Network, wanted

PORT = 7921


def said(text):
    """Lines are broken by a terminal's width."""
    return " ".join(text.split())


class Names(Test):
    def job(self, *servers, **keys):
        job = dict(digits(epochs=ENDLESS, workers=1), security={"insecure": True})
        job["cluster"]["servers"] = ["%s:%d" % (name, PORT) for name in servers]
        job.update(keys)
        return job

    def step(self, machine, address):
        code, out = machine.run([TESSERA, "status", address, "--json"])
        return int(json.loads(out).get("step", 0)) if code == 0 else 0

    @wanted
    def test_a_name_that_is_loopback_here_is_told_by_server_and_doctor_with_its_remedy(self):
        network = Network(self, head="10.0.0.1", other="10.0.0.2")
        network.head.knows("127.0.1.1 head")
        network.other.knows("10.0.0.1 head")
        path = write_job(self, self.job("head"))
        doctor = [TESSERA, "doctor", path]
        code, out = network.head.run(doctor)
        self.assertEqual(code, 1, out)
        remedy = "start it with --listen 0.0.0.0:%d" % PORT
        self.contains(said(out), 'PROBLEM server 0 at head:%d: "head" is 127.0.1.1 on this machine' % PORT, remedy)
        code, out = network.other.run(doctor)
        self.contains(said(out), 'where "head" is a loopback address there (/etc/hosts), ' + remedy)
        server = network.head.start("server 0", [SERVER, "--job", path, "--rank", "0"])
        server.await_output("serving rank=0")
        self.contains(server.output(), "listens on loopback alone at=head:%d which_is=127.0.1.1;" % PORT, remedy)
        code, out = network.head.run(doctor)
        self.assertEqual(code, 1, out)
        self.contains(said(out), "ok server 0 at head", remedy, "1 problem")
        server.end()
        server = network.head.start("server 0", [SERVER, "--job", path, "--rank", "0", "--listen", "0.0.0.0:%d" % PORT])
        server.await_output("serving rank=0")
        self.assertNotIn("loopback", server.output())
        for machine in (network.head, network.other):
            code, out = machine.run(doctor)
            self.assertEqual(code, 0, out)
            self.assertNotIn("loopback", out)

    @wanted
    def test_a_server_whose_own_name_is_not_known_yet_waits_for_it(self):
        network = Network(self, head="10.0.0.1")
        server = network.head.start("server 0", [SERVER, "--job", write_job(self, self.job("head")), "--rank", "0"])
        server.await_output('server: waiting for its own name to be known at=head:%d why="' % PORT)
        network.head.knows("10.0.0.1 head")
        server.await_output("serving rank=0 address=head:%d" % PORT)

    @wanted
    def test_of_a_name_with_several_addresses_those_that_are_dead_are_passed_over(self):
        network = Network(self, head="10.0.0.1", other="10.0.0.2")
        network.other.knows("10.0.0.99 head", "fd00::99 head", "10.0.0.1 head")
        network.head.knows("10.0.0.1 head")
        # No program is told of a proxy by its environment: nobody is there.
        proxies = {name: "http://127.0.0.1:9" for name in ("http_proxy", "https_proxy", "grpc_proxy")}
        path = write_job(self, self.job("head", train=dict(digits()["train"], epochs=2)))
        server = network.head.start("server 0", [SERVER, "--job", path, "--rank", "0"], env=proxies)
        worker = network.other.start("worker 0", [WORKER, "--job", path], env=proxies)
        for process in (worker, server):
            process.expect_exit(0)

    @wanted
    def test_a_server_0_that_has_moved_is_found_within_its_lease(self):
        job = self.job("head", "second", checkpoint={"directory": self.path("kept"), "every_steps": 500})
        # All look for server 0 after half of it, and gRPC's pings would find the old one gone after 20 s only.
        job["cluster"]["lease_timeout"] = "16s"
        path = write_job(self, job)
        network = Network(self, old="10.0.0.1", second="10.0.0.2", new="10.0.0.3", third="10.0.0.4")
        second, third = network.second, network.third
        for machine in network.machines.values():
            machine.knows("10.0.0.1 head", "10.0.0.2 second")
        start = [SERVER, "--job", path, "--rank"]
        first = network.old.start("server 0", start + ["0"])
        other = second.start("server 1", start + ["1"])
        worker = third.start("worker 0", [WORKER, "--job", path])
        await_true("a checkpoint", lambda: self.step(third, "head:%d" % PORT) > 600, explain=worker.output)
        # Without a word: nobody is told that it is gone.
        network.old.vanish()
        first.kill()
        for machine in network.machines.values():
            machine.knows("10.0.0.3 head", "10.0.0.2 second")
        moved = network.new.start("server 0 again", start + ["0"])
        moved.await_output("serving rank=0")
        before = self.step(third, "head:%d" % PORT)
        await_true("training goes on", lambda: self.step(third, "head:%d" % PORT) > before + 200, within=60,
                   explain=lambda: moved.output() + other.output() + worker.output())
        # Nobody has missed it for a lease.
        for each in (other, worker):
            self.assertNotIn("coordinator is away", each.output())


if __name__ == "__main__":
    unittest.main()
