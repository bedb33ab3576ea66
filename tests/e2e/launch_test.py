"""`tessera launch`: a job on machines that a real sshd opens, each with its own address, host key and folder."""
import contextlib
import glob
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import tempfile
import time
import unittest

from cluster import (ENDLESS, SERVER, SOON, TESSERA, WORKER, Process, Test, await_true, children_of, digits, exists,
                     free_ports, run_to_end, status_of, tessera, write_job)

SSHD = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:" + os.environ["PATH"])
SSH = shutil.which("ssh")


def why_not():
    """Why there can be no such machines here; "": there can."""
    if SSHD is None or SSH is None:
        return "no sshd here: apt-get install openssh-server openssh-client"
    if os.geteuid() != 0:
        return "wants to mount a folder for sshd, as root may"
    tried = subprocess.run(["unshare", "--mount", "mount", "-t", "tmpfs", "none", "/run"], capture_output=True,
                           text=True)
    return tried.stderr.strip() if tried.returncode != 0 else ""


WHY_NOT = why_not()


def pack_bundle():
    """What deploy/bundle.sh packs, as far as this machine needs it."""
    bundle = tempfile.mkdtemp(prefix="bundle-", dir=os.environ.get("TEST_TMPDIR"))
    for program in (TESSERA, SERVER, WORKER):
        packed = os.path.join(bundle, os.path.basename(program))
        if subprocess.run(["strip", "--strip-debug", "-o", packed, os.path.realpath(program)]).returncode != 0:
            shutil.copy(program, packed)
        os.chmod(packed, 0o755)
    sums = subprocess.run("sha256sum ./tessera*", shell=True, cwd=bundle, check=True, capture_output=True).stdout
    with open(os.path.join(bundle, "bundle.sha256"), "wb") as file:
        file.write(sums)
    return bundle


class Host:
    """One address of this machine with an sshd of its own, and a folder for the bundle."""

    def __init__(self, test, number, port, authorized):
        self.name, self.address = "127.0.0.%d:%d" % (number, port), "127.0.0.%d" % number
        self.directory = test.path("host-%d" % number)
        os.mkdir(self.directory)
        key, config = self.directory + "/key", self.directory + "/sshd_config"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
        with open(key + ".pub") as file:
            self.known = "[%s]:%d %s" % (self.address, port, file.read())
        with open(config, "w") as file:
            file.write("ListenAddress %s:%d\nHostKey %s\nAuthorizedKeysFile %s\nStrictModes no\nUsePAM no\n"
                       "PidFile none\nPermitRootLogin yes\nPasswordAuthentication no\n"
                       % (self.address, port, key, authorized))
        self.sshd = Process(test, "sshd %d" % number,
                            ["unshare", "--mount", "sh", "-c", "mount -t tmpfs none /run && mkdir /run/sshd && exec "
                             "%s -D -e -f %s" % (SSHD, config)])

    def jobs(self):
        return glob.glob(self.directory + "/tessera/jobs/*")

    def bundles(self):
        """Where the bundle lies, and since when."""
        return [(path, os.stat(path).st_ino) for path in glob.glob(self.directory + "/tessera/bundles/*")]

    def processes(self):
        """pid -> command, of what runs there: the programs, and `tessera attach` in both its roles."""
        found = {}
        for path in glob.glob("/proc/[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                # Others' may have any bytes.
                with open(path, errors="replace") as file:
                    command = file.read().split("\0")
                pid = int(path.split("/")[2])
                if command[0].startswith(self.directory + "/tessera/") and exists(pid):
                    found[pid] = command
        return found

    def pids(self, program):
        return [pid for pid, command in self.processes().items() if command[0].endswith("/" + program)]


@unittest.skipIf(WHY_NOT, WHY_NOT)
class Launch(Test):
    @classmethod
    def setUpClass(cls):
        cls.bundle = pack_bundle()

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.bundle)

    def setUp(self):
        super().setUp()
        self.identity = self.path("id")
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.identity], check=True)

    def start_hosts(self, count=3, refuses=()):
        port = free_ports(1)[0]
        nobody = self.path("nobody")
        open(nobody, "w").close()
        self.hosts = [Host(self, 2 + i, port, nobody if i in refuses else self.identity + ".pub")
                      for i in range(count)]
        with open(self.path("known"), "w") as file:
            file.writelines(host.known for host in self.hosts)
        self.write_hosts(self.hosts)
        for host in self.hosts:
            host.sshd.await_output("Server listening")

    def write_hosts(self, hosts, more=""):
        with open(self.path("hosts"), "w") as file:
            for host in hosts:
                file.write("%s address=%s directory=%s/tessera %s # one\n" % (host.name, host.address, host.directory,
                                                                             more))

    def arguments(self, job, *extra):
        return ["launch", job if isinstance(job, str) else write_job(self, job), "--hosts-file", self.path("hosts"),
                "--identity", self.identity, "--bundle", self.bundle, "--port", str(free_ports(1)[0]),
                "--ssh-option", "UserKnownHostsFile=" + self.path("known"),
                "--ssh-option", "GlobalKnownHostsFile=/dev/null", *extra]

    def start(self, job, *extra):
        self.report_path = self.path("report.json")
        return Process(self, "tessera launch",
                       [TESSERA, *self.arguments(job, "--report", self.report_path, "--logs", self.path("logs"),
                                                 *extra)])

    def await_step(self, launch, step=20):
        launch.await_output(" --watch\n", 60)
        self.address = re.search(r"; status: .*tessera status (\S+) ", launch.output()).group(1)

        def trains():
            status = status_of(self.address)
            return status is not None and int(status["step"]) >= step

        await_true("step %d" % step, trains, 60, launch.output)

    def report(self):
        with open(self.report_path) as file:
            return json.load(file)

    def log(self, host, name):
        with open(os.path.join(self.path("logs"), host.name, name + ".log")) as file:
            return file.read()

    def expect_nothing_left(self):
        await_true("all processes have ended", lambda: not any(host.processes() for host in self.hosts), 20,
                   lambda: str([host.processes() for host in self.hosts]))
        self.assertEqual([host.jobs() for host in self.hosts], [[], [], []][:len(self.hosts)])

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
        await_true("all processes have ended", lambda: not any(host.processes() for host in self.hosts), 30)
        # Secrets go with the processes; what was said stays.
        for host in self.hosts:
            (job,) = host.jobs()
            self.assertFalse(os.path.exists(job + "/job"))
            self.assertTrue(glob.glob(job + "/*.log"))

    def test_ctrl_c_ends_all_and_leaves_nothing(self):
        self.start_hosts()
        tokens = self.path("tokens")
        with open(tokens, "w") as file:
            file.write("0123456789abcdef0123456789abcdef\n")
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
        job = digits(servers=1, workers=2, epochs=ENDLESS, batch=16, lease="2s")
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


if __name__ == "__main__":
    unittest.main()
