"""A clean Debian 12, made by debootstrap from the mirror that this machine uses."""
import os
import re
import shutil
import subprocess

SUITE = "bookworm"
# Where bases are kept between tests, as making one takes a minute and 100 MB from the network.
KEPT = os.path.expanduser("~/.cache/tessera-debian/%s.tar" % SUITE)


def mirror():
    """The address of this machine's own mirror of Debian."""
    for path in ["/etc/apt/sources.list"] + [os.path.join("/etc/apt/sources.list.d", name)
                                             for name in sorted(os.listdir("/etc/apt/sources.list.d"))]:
        if os.path.isfile(path):
            with open(path) as file:
                text = file.read()
            found = re.search(r"^(?:deb |URIs:)\s*(?:\[[^\]]*\]\s*)?(https?://\S*debian/?)(?=\s)", text, re.M)
            if found:
                return found.group(1)
    return "http://deb.debian.org/debian"


def why_no_debian():
    """Why there can be no clean Debian here; "": there can."""
    if shutil.which("debootstrap", path="/usr/sbin:" + os.environ["PATH"]) is None:
        return "no debootstrap here: apt-get install debootstrap"
    if os.geteuid() != 0:
        return "debootstrap wants to be root"
    tried = subprocess.run(["unshare", "--mount", "--pid", "--fork", "true"], capture_output=True, text=True)
    return "" if tried.returncode == 0 else "no namespaces here: " + tried.stderr.strip()


def base_archive(test):
    """The path of a tar archive of the base, which is made where none is kept. Without a mirror the test is skipped."""
    if os.path.exists(KEPT):
        return KEPT
    root = test.path("base")
    made = subprocess.run(["debootstrap", "--variant=minbase", SUITE, root, mirror()], capture_output=True, text=True,
                          env=dict(os.environ, PATH="/usr/sbin:/sbin:" + os.environ["PATH"]))
    if made.returncode != 0 and re.search(r"Failed getting release file|Couldn't download", made.stdout + made.stderr):
        test.skipTest("no mirror of Debian is reached: %s" % mirror())
    test.assertEqual(made.returncode, 0, made.stdout[-2000:] + made.stderr)
    # What is cached are packages that the base has installed.
    shutil.rmtree(root + "/var/cache/apt/archives", ignore_errors=True)
    os.makedirs(os.path.dirname(KEPT), exist_ok=True)
    part = "%s.%d" % (KEPT, os.getpid())
    subprocess.run(["tar", "-C", root, "--numeric-owner", "-cf", part, "."], check=True)
    os.rename(part, KEPT)
    shutil.rmtree(root)
    return KEPT


class Debian:
    """A clean Debian in a folder. What runs in it has mounts and processes of its own, and this machine's network."""

    def __init__(self, test):
        self.test, self.root = test, test.path("debian")
        archive = base_archive(test)
        os.mkdir(self.root)
        subprocess.run(["tar", "-C", self.root, "--numeric-owner", "-xpf", archive], check=True)
        shutil.copy("/etc/resolv.conf", self.root + "/etc/resolv.conf")
        shutil.copy("/etc/hosts", self.root + "/etc/hosts")
        with open(self.root + "/usr/sbin/policy-rc.d", "w") as file:
            file.write("#!/bin/sh\nexit 101\n")
        os.chmod(self.root + "/usr/sbin/policy-rc.d", 0o755)

    def run(self, script):
        """What a shell script there says on stdout. It is to end with 0."""
        # Nothing of this is seen outside of the namespace, which ends with the script.
        inside = ("mount --make-rprivate / && mount -t proc proc %(root)s/proc && "
                  "mount -t tmpfs tmpfs %(root)s/dev/shm && "
                  "exec chroot %(root)s /bin/sh -ec \"$SCRIPT\"" % {"root": self.root})
        done = subprocess.run(["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-ec", inside],
                              capture_output=True, text=True,
                              env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8", "SCRIPT": script,
                                   "DEBIAN_FRONTEND": "noninteractive", "HOME": "/root"})
        self.test.assertEqual(done.returncode, 0, "%s\n%s" % (done.stdout[-3000:], done.stderr[-3000:]))
        return done.stdout

    def read(self, path):
        with open(os.path.join(self.root, path)) as file:
            return file.read()
