"""Machines of a network of their own, as far as processes can tell: each has its address and its /etc/hosts, and all
have the same files. They want the right to make namespaces, as root has it."""
import functools
import subprocess
import unittest

from cluster import WITH_PARENT, Process

IN_NETWORK = ["nsenter", "--net", "--target"]


def run(*command):
    return subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True).stdout


def hold(*command):
    """A process that is there until it is killed, or this one ends."""
    held = subprocess.Popen(WITH_PARENT + list(command) + ["sh", "-c", "echo; exec sleep 600"],
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if held.stdout.readline() != b"\n":
        raise OSError(held.stderr.read().decode())
    return held


@functools.lru_cache(maxsize=None)
def why_not():
    """Why there can be no such machines here; "": there can."""
    try:
        network = hold("unshare", "--net", "--mount")
    except OSError as error:
        return str(error).strip()
    try:
        run(*IN_NETWORK, network.pid, "ip", "link", "add", "switch", "type", "bridge")
    except (OSError, subprocess.CalledProcessError) as error:
        return str(getattr(error, "stderr", error)).strip()
    finally:
        network.kill()
        network.wait()
    return ""


def wanted(test):
    """Of a test that needs them."""
    return unittest.skipIf(why_not(), "no namespaces here: " + why_not())(test)


class Machine:
    def __init__(self, network, name, address):
        self.network, self.name, self.address = network, name, address
        self.link = "port%d" % len(network.machines)
        self.holder = hold(*IN_NETWORK, str(network.holder.pid), "unshare", "--net", "--mount")
        self.hosts = network.test.path("hosts-" + name)
        with open(self.hosts, "w") as file:
            file.write("127.0.0.1 localhost\n")
        self.shell("mount --bind %s /etc/hosts && ip link set lo up" % self.hosts)
        run(*IN_NETWORK, network.holder.pid, "ip", "link", "add", self.link, "type", "veth", "peer", "name", "eth0",
            "netns", self.holder.pid)
        run(*IN_NETWORK, network.holder.pid, "ip", "link", "set", self.link, "master", "switch", "up")
        self.shell("ip addr add %s/24 dev eth0 && ip link set eth0 up" % address)

    def inside(self):
        return ["nsenter", "--net", "--mount", "--target", str(self.holder.pid)]

    def shell(self, text):
        return run(*self.inside(), "sh", "-c", text)

    def knows(self, *lines):
        """Its /etc/hosts, from now on."""
        with open(self.hosts, "w") as file:
            file.write("127.0.0.1 localhost\n" + "".join(line + "\n" for line in lines))

    def start(self, name, command, **keys):
        return Process(self.network.test, name, self.inside() + command, **keys)

    def run(self, command, within=60):
        """(exit code, all that it says)."""
        done = subprocess.run(self.inside() + command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=within)
        return done.returncode, done.stdout

    def vanish(self):
        """Nothing comes from it any more, and nobody is told."""
        run(*IN_NETWORK, self.network.holder.pid, "ip", "link", "set", self.link, "down")


class Network:
    def __init__(self, test, **addresses):
        """machine's name = its address, all of one network of 256."""
        self.test, self.machines = test, {}
        self.holder = hold("unshare", "--net", "--mount")
        test.addCleanup(self.end)
        run(*IN_NETWORK, self.holder.pid, "ip", "link", "add", "switch", "type", "bridge")
        run(*IN_NETWORK, self.holder.pid, "ip", "link", "set", "switch", "up")
        for name, address in addresses.items():
            self.machines[name] = Machine(self, name, address)

    def __getattr__(self, name):
        return self.__dict__["machines"][name]

    def end(self):
        for holder in [machine.holder for machine in self.machines.values()] + [self.holder]:
            holder.kill()
            holder.wait()
            holder.stdout.close()
            holder.stderr.close()
