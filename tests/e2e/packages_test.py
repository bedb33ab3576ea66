"""deploy/package.sh: its packages, with lintian and in a clean Debian 12, and the pages and completions in them."""
import contextlib
import glob
import json
import os
import pty
import re
import select
import shutil
import subprocess
import tempfile
import time
import unittest

from cluster import PATIENCE, SOON, Test
from debian_base import Debian, why_no_debian
from packed_tree import pack

# From `apt install` to a trained job; a machine that does other things may take longer.
INSTALL_SECONDS_MAX = 120 * PATIENCE
PACKAGES = ["libtessera-client-dev", "libtessera-client1", "python3-tessera", "tessera"]
NO_DEBIAN = why_no_debian()


def missing(*names):
    """Why a test of these programs cannot run; "": it can."""
    absent = [name for name in names if shutil.which(name, path="/usr/sbin:" + os.environ["PATH"]) is None]
    return "no %s here" % ", ".join(absent) if absent else ""


def no_packaging():
    why = missing("dpkg-buildpackage", "dh", "dh_python3")
    return why and why + ": apt-get install dpkg-dev debhelper dh-python"


class Terminal:
    """A shell in a terminal, in which keys are pressed."""

    def __init__(self, test, command, folder, environment):
        pid, self.file = pty.fork()
        if pid == 0:
            os.chdir(folder)
            os.execvpe(command[0], command, environment)
        test.addCleanup(self.end, pid)
        self.shown = ""

    def end(self, pid):
        os.close(self.file)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)

    def press(self, keys, wanted, within=SOON):
        """Presses keys, and waits until what is shown from then on matches `wanted`. Returns what was shown."""
        self.shown = ""
        os.write(self.file, keys.encode())
        deadline = time.monotonic() + within
        while not re.search(wanted, self.shown) and time.monotonic() < deadline:
            if select.select([self.file], [], [], 0.2)[0]:
                self.shown += os.read(self.file, 65536).decode(errors="replace")
                self.shown = re.sub(r"\x1b\[[?0-9;]*[a-zA-Z]", "", self.shown)
        if not re.search(wanted, self.shown):
            raise AssertionError("pressed %r, want %r, shown is %r" % (keys, wanted, self.shown))
        return self.shown


class Packed(Test):
    """Tests of a tree in which everything is built."""

    def setUp(self):
        super().setUp()
        self.tree, self.environment = pack(self.path("packed"))

    def script(self, name, *arguments, code=0):
        done = subprocess.run([os.path.join(self.tree, "deploy", name), *arguments], env=self.environment,
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout if code == 0 else done.stderr


class Pages(Packed):
    test_max = 300

    @unittest.skipIf(missing("man"), "no man here: apt-get install man-db")
    def test_man_pages_of_all_commands_and_documents_are_shown_without_a_warning(self):
        out = self.path("man")
        self.script("man_pages.py", out)
        pages = sorted(glob.glob(out + "/man*/*"))
        names = {os.path.basename(page) for page in pages}
        self.assertLessEqual({"tessera.1", "tessera-run.1", "tessera-launch.1", "tessera-server.1", "tessera-worker.1",
                              "tessera-watching.7", "tessera-job_keys.7", "tessera-methods.7"}, names)
        for page in pages:
            shown = subprocess.run(["man", "--warnings", "-l", page], capture_output=True, text=True,
                                   env=dict(self.environment, MANWIDTH="80"))
            self.assertEqual((shown.returncode, shown.stderr), (0, ""), page)
            self.assertIn("NAME\n       tessera", shown.stdout)
        run = subprocess.run(["man", "-l", out + "/man1/tessera-run.1"], capture_output=True, text=True, check=True,
                             env=dict(self.environment, MANWIDTH="80")).stdout
        for text in ("tessera run [OPTION...] JOB", "--set KEY=VALUE", "--report TEXT", "write the report here"):
            self.assertIn(text, run)

    def test_programs_that_are_not_there_are_named(self):
        for script in ("man_pages.py", "completions.py"):
            self.assertIn("/nowhere/deploy/cli/tessera: not there, want the program tessera",
                          self.script(script, "--programs", "/nowhere", self.path("out"), code=2))


class Completion(Packed):
    def setUp(self):
        super().setUp()
        self.script("completions.py", self.path("completion"))
        self.folder_with_files = self.path("files")
        os.mkdir(self.folder_with_files)
        for name in ("myjob.yaml", "report.json"):
            with open(os.path.join(self.folder_with_files, name), "w"):
                pass
        self.environment["TERM"] = "dumb"

    def test_bash_completes_commands_flags_keys_topics_and_files(self):
        self.environment["PS1"] = "READY> "
        shell = Terminal(self, ["bash", "--norc", "--noprofile", "-i"], self.folder_with_files, self.environment)
        shell.press("bind 'set enable-bracketed-paste off'; source %s/tessera.bash; PS1='READY> '\n" %
                    self.path("completion"), r"READY> $")
        for typed, completed in (("tessera chec\t\t\t", r"\r\ncheck +checkpoint"),
                                 ("tessera doct\t", r"tessera doctor $"),
                                 ("tessera run --rep\t", r"tessera run --report $"),
                                 ("tessera run my\t", r"tessera run myjob.yaml $"),
                                 ("tessera run myjob.yaml --report rep\t", r"--report report.json $"),
                                 ("tessera run myjob.yaml --set train.batch\t", r"--set train.batch_size=$"),
                                 ("tessera help watch\t", r"tessera help watching $"),
                                 ("tessera-server --ra\t", r"tessera-server --rank $"),
                                 ("tessera-worker --job my\t", r"--job myjob.yaml $")):
            shell.press(typed, completed)
            shell.press("\x15\n", r"READY> $")

    @unittest.skipIf(missing("zsh"), "no zsh here")
    def test_zsh_completes_the_same(self):
        shell = Terminal(self, ["zsh", "-f", "-i"], self.folder_with_files, self.environment)
        shell.press("PS1='READY> '; unsetopt prompt_sp; fpath=(%s $fpath); "
                    "autoload -U compinit; compinit -u -D; echo do'ne'\n" % self.path("completion"), r"done\s+READY> $")
        for typed, completed in (("tessera doct\t", r"tessera doctor $"),
                                 ("tessera run --rep\t", r"tessera run --report $"),
                                 ("tessera run my\t", r"tessera run myjob.yaml $"),
                                 ("tessera run myjob.yaml --set train.batch\t", r"--set train.batch_size=$"),
                                 ("tessera help watch\t", r"tessera help watching $"),
                                 ("tessera-server --ra\t", r"tessera-server --rank $")):
            shell.press(typed, completed)
            shell.press("\x15\n", r"READY> $")

    def test_every_value_has_a_completion_or_is_known_to_have_none(self):
        """The script would have said so and failed; this is what it says."""
        path = os.path.join(self.tree, "deploy", "completions.py")
        with open(path) as file:
            text = file.read()
        with open(path, "w") as file:
            file.write(text.replace('"--prompt",', ""))
        self.assertIn("--prompt takes a value, and nothing says how it is completed",
                      self.script("completions.py", self.path("again"), code=1))


@unittest.skipIf(no_packaging(), no_packaging())
class Packages(Packed):
    test_max = 900

    # Where the packages are that the first test has made.
    out = None

    def setUp(self):
        super().setUp()
        if Packages.out is None:
            Packages.out = tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR"))
            self.addClassCleanup(shutil.rmtree, self.out)
            self.assertIn("package.sh: %s holds version " % self.out, self.script("package.sh", self.out))

    def deb(self, name):
        found, = glob.glob("%s/%s_*.deb" % (self.out, name))
        return found

    def test_lintian_finds_nothing_and_the_same_tree_gives_the_same_packages(self):
        found = [os.path.basename(path).split("_")[0] for path in glob.glob(self.out + "/*.deb")]
        self.assertEqual(sorted(found), PACKAGES)
        if not missing("lintian"):
            changes, = glob.glob(self.out + "/*.changes")
            done = subprocess.run(["lintian", "--fail-on", "error,warning", "--allow-root", changes],
                                  env=self.environment, capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stdout), (0, ""), done.stderr)
        needs = subprocess.run(["dpkg-deb", "-f", self.deb("tessera"), "Depends"], check=True, capture_output=True,
                               text=True).stdout
        # As dpkg-shlibdeps finds them, with the versions whose functions are called.
        for library in ("libgrpc++1", "libprotobuf32", "libdnnl2", "libyaml-cpp0.7"):
            self.assertRegex(needs, r"\b%s\b" % re.escape(library))
        self.script("package.sh", self.path("again"))
        for name in PACKAGES:
            again, = glob.glob("%s/%s_*.deb" % (self.path("again"), name))
            with open(self.deb(name), "rb") as one, open(again, "rb") as two:
                self.assertTrue(one.read() == two.read(), name)

    @unittest.skipIf(NO_DEBIAN, NO_DEBIAN)
    def test_a_clean_debian_installs_them_and_trains_within_two_minutes(self):
        debian = Debian(self)
        shutil.copytree(self.out, debian.root + "/debs")
        begin = time.monotonic()
        debian.run("apt-get -q update && apt-get -q -y install /debs/tessera_*.deb && tessera run "
                   "/usr/share/tessera/jobs/digits.yaml --quiet --report /tmp/report.json")
        seconds = time.monotonic() - begin
        print("installed and trained within %.0f s" % seconds)
        report = json.loads(debian.read("tmp/report.json"))
        self.assertEqual(report["outcome"], "finished")
        self.assertGreater(report["final"]["test_accuracy"], 0.9)
        self.assertLess(seconds, INSTALL_SECONDS_MAX)
        self.check_machine(debian)
        self.check_libraries(debian)
        debian.run("apt-get -q -y purge tessera")
        self.assertFalse(os.path.exists(debian.root + "/usr/bin/tessera"))
        self.assertFalse(os.path.exists(debian.root + "/usr/share/tessera"))

    def check_machine(self, debian):
        """User, folders, units and the places of data sets."""
        self.assertRegex(debian.run("getent passwd tessera"), r"tessera:x:\d+:\d+:Tessera:/var/lib/tessera:\S*nologin")
        folders = debian.run("stat -c %U:%a /var/lib/tessera /var/lib/tessera/data")
        self.assertEqual(folders.split(), ["tessera:755"] * 2)
        self.assertEqual(debian.run("ls /etc/systemd/system/*/tessera* 2>/dev/null || true"), "")
        if os.path.exists(debian.root + "/usr/bin/systemd-analyze"):
            debian.run("systemd-analyze verify --man=no /lib/systemd/system/tessera-worker.service "
                       "/lib/systemd/system/tessera-server@.service")
        for unit in ("tessera-worker.service", "tessera-server@.service"):
            text = debian.read("lib/systemd/system/" + unit)
            self.assertRegex(text, r"ExecStart=/usr/bin/tessera-")
            self.assertNotIn("/opt/", text)
        # A user without rights reads the job, its data, and what of data sets would be missing.
        told = debian.run("su -s /bin/sh nobody -c 'tessera check /usr/share/tessera/jobs/digits.yaml'")
        self.assertIn("optdigits", told)
        said = debian.run("tessera doctor /usr/share/tessera/jobs/mnist.yaml 2>&1 || true")
        self.assertIn("/usr/share/tessera/fetch_data.sh --to /var/lib/tessera/data mnist", said)

    def check_libraries(self, debian):
        """The client library is found by the loader, by pkg-config's file and by Python."""
        debian.run("apt-get -q -y install /debs/*.deb")
        version = debian.run("tessera --version").split()[1]
        self.assertEqual(debian.run("python3 -c 'import tessera; print(tessera.version())'").strip(), version)
        multiarch, = glob.glob(debian.root + "/usr/lib/*/pkgconfig/tessera_client.pc")
        with open(multiarch) as file:
            text = file.read()
        self.assertIn("Version: " + version.split("+")[0], text)
        self.assertNotIn("prefix", text)
        self.assertTrue(os.path.exists(debian.root + "/usr/include/tessera_client.h"))


if __name__ == "__main__":
    unittest.main()
