"""Hosts for `tessera launch`: machines that a real sshd opens, each with its own address, host key and folder."""
import contextlib
import glob
import json
import os
import re
import shutil
import subprocess
import tempfile

from cluster import SERVER, TESSERA, WORKER, Process, Test, await_true, exists, free_ports, status_of, write_job

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
    """An address with an sshd of its own, and a folder for the bundle. `inside`: words before a command that is to run
    in another network than the test's."""

    def __init__(self, test, address, port, authorized, inside=()):
        self.name, self.address = "%s:%d" % (address, port), address
        self.directory = test.path("host-%s" % address)
        os.mkdir(self.directory)
        key, config = self.directory + "/key", self.directory + "/sshd_config"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
        with open(key + ".pub") as file:
            self.known = "[%s]:%d %s" % (self.address, port, file.read())
        with open(config, "w") as file:
            file.write("ListenAddress %s:%d\nHostKey %s\nAuthorizedKeysFile %s\nStrictModes no\nUsePAM no\n"
                       "PidFile none\nPermitRootLogin yes\nPasswordAuthentication no\n"
                       % (self.address, port, key, authorized))
        self.sshd = Process(test, "sshd %s" % address,
                            [*inside, "unshare", "--mount", "sh", "-c", "mount -t tmpfs none /run && mkdir /run/sshd "
                             "&& exec %s -D -e -f %s" % (SSHD, config)])

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


class LaunchTest(Test):
    test_max = 300
    # Words before the launching command, where it is to run in another network than the test's.
    inside = ()

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
        self.use_hosts([Host(self, "127.0.0.%d" % (2 + i), port, nobody if i in refuses else self.identity + ".pub")
                        for i in range(count)])

    def use_hosts(self, hosts):
        self.hosts = hosts
        with open(self.path("known"), "w") as file:
            file.writelines(host.known for host in hosts)
        self.write_hosts(hosts)
        for host in hosts:
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
                       [*self.inside, TESSERA,
                        *self.arguments(job, "--report", self.report_path, "--logs", self.path("logs"), *extra)])

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
