"""`tessera launch`: a job on machines that a real sshd opens, each with its own address, host key and folder."""
import contextlib
import glob
import json
import os
import re
import signal
import stat
import time
import unittest

import machines
from authority import Authority
from cluster import (ENDLESS, TESSERA, await_true, children_of, digits, exists, free_ports, run_to_end, status_of,
                     tessera, write_job)
from launching import Host, LaunchTest, why_not

WHY_NOT = why_not()
OPERATOR, WORKER, VIEWER = ("%s-token-0123456789abcdef" % role for role in ("operator", "worker", "viewer"))


@unittest.skipIf(WHY_NOT, WHY_NOT)
class Launch(LaunchTest):
    def test_a_job_ends_as_on_one_machine_and_the_bundle_is_copied_once(self):
        self.start_hosts()
        job = digits(servers=2, workers=3, epochs=4, evaluate_every=40)
        output = self.start(job).expect_exit(0, 60)
        # Before anything starts: which host has what.
        self.assertRegex(output, r"(?m)^host +address +servers +workers +bundle$")
        self.assertRegex(output, r"(?m)^127\.0\.0\.2:\d+ +127\.0\.0\.2 +0 \(:\d+\) +0 +copied$")
        self.assertRegex(output, r"(?m)^127\.0\.0\.4:\d+ +127\.0\.0\.4 +- +2 +copied$")
        self.contains(output, "accuracy", "report")
        launched, alone = self.report(), run_to_end(self, job)
        results = [[(entry["step"], entry["test_loss"], entry["test_accuracy"]) for entry in report["history"]]
                   for report in (launched, alone)]
        self.assertEqual(results[0], results[1])
        self.assertEqual((launched["outcome"], launched["steps"]), (alone["outcome"], alone["steps"]))
        for host, name in zip(self.hosts * 2, ["server-0", "server-1", "worker-2", "worker-0", "worker-1"]):
            with contextlib.suppress(FileNotFoundError):
                self.assertTrue(self.log(host, name))
        self.assertEqual(sorted(os.path.relpath(path, self.path("logs"))
                                for path in glob.glob(self.path("logs") + "/*/*.log")),
                         sorted(self.hosts[host].name + "/" + name + ".log" for host, name in
                                [(0, "server-0"), (1, "server-1"), (0, "worker-0"), (1, "worker-1"), (2, "worker-2")]))
        self.expect_nothing_left()

        before = [host.bundles() for host in self.hosts]
        self.assertEqual([len(each) for each in before], [1, 1, 1])
        output = self.start(digits(servers=1, workers=1, steps=3), "--check").expect_exit(0, 60)
        self.contains(output, " there\n", "nothing is started")
        self.assertNotIn("copied", output)
        self.assertEqual([host.bundles() for host in self.hosts], before)
        self.expect_nothing_left()

    def test_all_hosts_that_cannot_take_part_are_named_at_once(self):
        self.start_hosts(refuses=[1])
        self.hosts[2].sshd.end()
        code, out, error = tessera(*self.arguments(digits(servers=1, workers=3, steps=3)))
        self.assertEqual((code, out), (1, ""))
        self.contains(error, "2 of 3 hosts cannot take part", self.hosts[1].name + ": root@",
                      "Permission denied", "--identity", self.hosts[2].name + ": ssh: connect to host",
                      "Connection refused", "no ssh server listens there")
        self.assertEqual([host.bundles() for host in self.hosts], [[], [], []])

        # What the doctor refuses: a port that is taken, and data that are not there.
        self.write_hosts(self.hosts[:1])
        taken = self.hosts[0].name
        job = dict(digits(servers=[taken], workers=1, steps=3))
        job["data"] = dict(job["data"], directory=self.path("nowhere"))
        code, out, error = tessera(*self.arguments(job))
        self.assertEqual(code, 1, error)
        self.contains(error, "1 of 1 host cannot take part", self.hosts[0].name + ": data.directory: ",
                      taken)
        self.assertRegex(error, r"(?s)server 0 .*-> ")
        self.assertEqual(self.hosts[0].jobs(), [])

        code, _, error = tessera("launch", write_job(self, job), "--hosts", "a,,a", "--bundle", self.bundle)
        self.assertEqual(code, 2)
        self.contains(error, '--hosts: got "", want HOST', '"a" is there twice')
        code, _, error = tessera("launch", write_job(self, job), "--hosts", "a")
        self.assertEqual(code, 2)
        self.contains(error, "bundle.sha256", "deploy/bundle.sh")

    def test_a_job_outlives_its_connections_and_ends_when_it_is_left(self):
        self.start_hosts(2)
        self.write_hosts(self.hosts)
        launch = self.start(digits(servers=1, workers=2, epochs=ENDLESS, batch=16), "--grace", "15s")
        self.await_step(launch)
        connections = [pid for pid, command in children_of(launch.pid).items() if command[0].endswith("/ssh")]
        self.assertEqual(len(connections), 3)
        before = self.hosts[0].pids("tessera-server") + [pid for host in self.hosts
                                                         for pid in host.pids("tessera-worker")]
        self.assertEqual(len(before), 3)
        for pid in connections:
            os.kill(pid, signal.SIGKILL)
        launch.await_output("the connection to worker 1 on %s is lost" % self.hosts[1].name)
        cut = time.time()

        def renewed():
            return all(os.stat(job + "/lease").st_mtime > cut + 1 for host in self.hosts for job in host.jobs())

        await_true("all hosts are told again that this one is there", renewed, explain=launch.output)
        self.assertTrue(all(exists(pid) for pid in before))
        step = int(status_of(self.address)["step"])
        await_true("more steps", lambda: int(status_of(self.address)["step"]) > step, explain=launch.output)
        # Nobody is there any more to ask for an end.
        launch.kill()
        await_true("all processes have ended", lambda: not any(host.processes() for host in self.hosts), 60)
        # Secrets go with the processes; what was said stays.
        for host in self.hosts:
            (job,) = host.jobs()
            self.assertFalse(os.path.exists(job + "/job"))
            self.assertTrue(glob.glob(job + "/*.log"))

    def test_ctrl_c_ends_all_and_leaves_nothing(self):
        self.start_hosts()
        job = dict(digits(servers=2, workers=2, epochs=ENDLESS, batch=16, cluster={"replicas": 1}))
        launch = self.start(job)
        self.await_step(launch)
        self.assertIn("standbys of", launch.output())
        for host in self.hosts:
            (folder,) = host.jobs()
            self.assertEqual(stat.S_IMODE(os.stat(folder + "/job").st_mode), 0o700)
            self.assertEqual(stat.S_IMODE(os.stat(folder + "/job/job.yaml").st_mode), 0o600)
        launch.signal(signal.SIGINT)
        output = launch.expect_exit(-signal.SIGINT)
        self.contains(output, "stopping after this step")
        self.assertEqual(self.report()["outcome"], "stopped")
        self.expect_nothing_left()

        launch = self.start(job)
        self.await_step(launch)
        launch.signal(signal.SIGINT)
        launch.signal_again(signal.SIGINT)
        launch.expect_exit(-signal.SIGINT)
        self.expect_nothing_left()

    def test_a_killed_worker_is_named_with_its_host_and_data_are_copied_once(self):
        self.start_hosts(2)
        job = digits(servers=1, workers=2, epochs=ENDLESS, batch=16, lease="4s")
        launch = self.start(job, "--copy-data")
        self.await_step(launch)
        copies = [glob.glob(host.directory + "/tessera/data/*") for host in self.hosts]
        self.assertEqual([len(each) for each in copies], [1, 1])
        (worker,) = self.hosts[1].pids("tessera-worker")
        os.kill(worker, signal.SIGKILL)
        launch.await_output("worker 1 on %s ended with signal 9 (Killed)" % self.hosts[1].name)
        launch.signal(signal.SIGINT)
        launch.expect_exit(-signal.SIGINT)
        self.assertEqual(self.report()["members"]["lost"], 1)
        self.expect_nothing_left()


@machines.wanted
@unittest.skipIf(WHY_NOT, WHY_NOT)
class Apart(LaunchTest):
    """Hosts that see each other by a network alone, from a machine that is none of them, with TLS and tokens."""

    def setUp(self):
        super().setUp()
        network = machines.Network(self, desk="10.0.0.1", a="10.0.0.2", b="10.0.0.3")
        self.desk, self.inside = network.desk, network.desk.inside()
        port = free_ports(1)[0]
        self.use_hosts([Host(self, host.address, port, self.identity + ".pub", host.inside())
                        for host in (network.a, network.b)])
        authority = Authority(self, "home")
        # The desk shows one, too, when it asks for the status.
        certificate, key = authority.sign("all", "IP:10.0.0.1,IP:10.0.0.2,IP:10.0.0.3")
        self.security = {"certificate": certificate, "private_key": key, "authority": authority.certificate,
                         "token_file": self.tokens("tokens", "operator " + OPERATOR, "worker " + WORKER,
                                                   "viewer " + VIEWER)}

    def tokens(self, name, *lines):
        with open(self.path(name), "w") as file:
            file.write("".join(line + "\n" for line in lines))
        return file.name

    def secret_files(self):
        """name -> mode, of what lies on the hosts beside the job's file."""
        return {os.path.basename(path): stat.S_IMODE(os.stat(path).st_mode) for host in self.hosts
                for job in host.jobs() for path in glob.glob(job + "/job/*") if not path.endswith(".yaml")}

    def test_a_job_with_tls_and_tokens_ends_as_without(self):
        job = digits(servers=2, workers=3, epochs=3, cluster={"replicas": 1})
        output = self.start(dict(job, security=self.security)).expect_exit(0, 60)
        self.contains(output, "standbys of", "accuracy")
        launched, alone = self.report(), run_to_end(self, job)
        self.assertEqual(launched["final"]["test_loss"], alone["final"]["test_loss"])
        self.assertEqual((launched["outcome"], launched["steps"]), ("finished", alone["steps"]))
        self.expect_nothing_left()

    def test_who_has_no_token_is_told_nothing_and_secrets_are_their_owners(self):
        job = dict(digits(servers=1, workers=2, epochs=ENDLESS, batch=16), security=self.security)
        launch = self.start(job)
        launch.await_output(" --watch\n", 60)
        modes = self.secret_files()
        self.assertEqual(set(modes.values()), {0o600}, modes)
        self.assertGreaterEqual(len(modes), 4)
        address = re.search(r"; status: .*tessera status (\S+) ", launch.output()).group(1)
        calls = ["--authority", self.security["authority"], "--certificate", self.security["certificate"],
                 "--private-key", self.security["private_key"]]
        command = [TESSERA, "status", address, *calls]
        code, said = self.desk.run(command)
        self.assertEqual(code, 2, said)
        self.contains(said, "token: none came", "want one of the role viewer")
        for role, token in (("viewer", VIEWER), ("operator", OPERATOR)):
            file = self.tokens(role, role + " " + token)

            def trains(known=file):
                code, said = self.desk.run([*command, "--token-file", known, "--json"])
                return code == 0 and int(json.loads(said).get("step", 0)) > 0

            await_true("it trains, says the status to a " + role, trains, 30, launch.output)
        # Who may look may not end it.
        drain = [TESSERA, "drain", address, *calls, "--token-file"]
        self.assertEqual(self.desk.run([*drain, self.path("viewer")])[0], 2)
        code, said = self.desk.run([*drain, self.path("operator")])
        self.assertEqual(code, 0, said)
        launch.expect_exit(0, 30)
        self.assertEqual(self.report()["outcome"], "stopped")
        self.expect_nothing_left()

    def test_a_host_that_vanishes_is_named_and_the_others_go_on(self):
        job = dict(digits(servers=1, workers=2, epochs=ENDLESS, batch=16, lease="4s"), security=self.security)
        launch = self.start(job, "--grace", "5s")
        launch.await_output(" --watch\n", 60)
        b = self.desk.network.b
        await_true("worker 1 trains", lambda: "joined" in self.log(self.hosts[1], "worker-1"), 30, launch.output)
        b.vanish()
        launch.await_output("worker 1 on %s" % self.hosts[1].name, 60)
        launch.signal(signal.SIGINT)
        launch.expect_exit(-signal.SIGINT, 60)
        self.assertEqual(self.report()["members"]["lost"], 1)
        # Nobody could end it there: it does so by itself.
        await_true("all processes have ended", lambda: not any(host.processes() for host in self.hosts), 60)


if __name__ == "__main__":
    unittest.main()
