"""The scripts in deploy/: their arguments, and what they say when something is missing."""
import gzip
import os
import re
import subprocess
import tempfile
import unittest

DEPLOY = os.path.join(os.getcwd(), "deploy")


def run(script, *arguments):
    """(exit code, stdout, stderr)"""
    done = subprocess.run(["bash", os.path.join(DEPLOY, script), *arguments], capture_output=True, text=True,
                          timeout=60, stdin=subprocess.DEVNULL)
    return done.returncode, done.stdout, done.stderr


class FetchData(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR"))
        self.addCleanup(folder.cleanup)
        self.source, self.target = os.path.join(folder.name, "from"), os.path.join(folder.name, "to")
        os.mkdir(self.source)

    def put(self, path, content):
        path = os.path.join(self.source, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with gzip.open(path, "wb") as file:
            file.write(content)

    def test_list_names_every_set_with_its_folder(self):
        code, out, error = run("fetch_data.sh", "--list")
        self.assertEqual((code, error), (0, ""))
        sets = {line.split()[0]: line.split()[-1] for line in out.splitlines()[1:]}
        self.assertEqual(sets, {"a9a": "a9a", "cifar10": "cifar10_12k", "delicious": "delicious_xc",
                                "eurlex": "eurlex57k_xc", "fashion_mnist": "fashion_mnist", "mnist": "mnist",
                                "speech": "arabic_speech_commands"})

    def test_wrong_arguments_are_refused(self):
        for arguments in (["--wrong"], ["--from"], ["--from", ""], ["--to"], ["nothing"],
                          ["--from", os.path.join(self.source, "missing"), "a9a"]):
            with self.subTest(arguments):
                code, out, error = run("fetch_data.sh", *arguments)
                self.assertEqual((code, out), (2, ""))
                self.assertIn("fetch_data.sh: ", error)
        self.assertIn('got "nothing", want one of a9a cifar10', run("fetch_data.sh", "nothing")[2])

    def test_a_missing_file_is_named(self):
        code, _, error = run("fetch_data.sh", "--from", self.source, "--to", self.target, "mnist")
        self.assertEqual(code, 1)
        self.assertIn("mnist/train-images-idx3-ubyte.gz is not there", error)

    def test_files_with_another_content_are_refused_and_not_left(self):
        self.put("a9a/a9a.gz", b"-1 3:1\n")
        code, out, error = run("fetch_data.sh", "--from", self.source, "--to", self.target, "a9a")
        self.assertEqual((code, out), (1, ""))
        self.assertIn("does not hold what is expected", error)
        self.assertEqual(os.listdir(os.path.join(self.target, "a9a")), [])

    def test_one_missing_set_does_not_keep_the_others_away(self):
        code, _, error = run("fetch_data.sh", "--from", self.source, "--to", self.target)
        self.assertEqual(code, 1)
        for name in ("a9a", "cifar10", "delicious", "eurlex", "fashion_mnist", "mnist", "speech"):
            self.assertIn("fetch_data.sh: %s: " % name, error)

    def test_a_set_without_a_public_address_says_where_it_comes_from(self):
        code, _, error = run("fetch_data.sh", "--to", self.target, "speech")
        self.assertEqual(code, 1)
        self.assertIn("--from DIR with DIR/arabic_speech_commands", error)
        self.assertIn("https://", error)

    @unittest.skipUnless(os.path.isdir(os.environ.get("TESSERA_DATA", "")), "TESSERA_DATA is no folder")
    def test_the_real_files_are_fetched_once(self):
        arguments = ["--from", os.environ["TESSERA_DATA"], "--to", self.target, "a9a"]
        for said in ("a9a/a9a.gz: fetched", "a9a/a9a.gz: there already"):
            code, out, error = run("fetch_data.sh", *arguments)
            self.assertEqual((code, error), (0, ""))
            self.assertIn(said, out)


class Others(unittest.TestCase):
    def test_install_deps_lists_packages_and_refuses_the_rest(self):
        code, out, error = run("install_deps.sh", "--list")
        self.assertEqual((code, error), (0, ""))
        packages = out.split()
        self.assertEqual(len(packages), len(set(packages)))
        self.assertLessEqual({"bazel-bootstrap", "libgrpc++-dev", "libdnnl-dev", "python3-grpcio"}, set(packages))
        self.assertTrue(all(re.fullmatch(r"[a-z0-9.+-]+", package) for package in packages))
        code, out, error = run("install_deps.sh", "--wrong")
        self.assertEqual((code, out), (2, ""))
        self.assertIn('unknown argument "--wrong"', error)

    def test_bundles_are_written_over_nothing_but_a_bundle(self):
        for script in ("bundle.sh", "gpu_bundle.sh"):
            with tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR")) as folder:
                code, _, error = run(script, folder)
                self.assertEqual(code, 2)
                self.assertIn("%s: exists and is no bundle" % folder, error)
                self.assertEqual(os.listdir(folder), [])
            self.assertEqual(run(script, "a", "b")[0], 2)
        self.assertEqual(run("bundle.sh", "--wrong")[0], 2)
        self.assertEqual(run("pack_libraries.sh", "folder")[0], 2)

    def test_quickstart_and_build_take_no_arguments(self):
        self.assertIn('takes no arguments, got "now"', run("build.sh", "now")[2])
        code, out, error = run("quickstart.sh", "now")
        self.assertEqual((code, out), (2, ""))
        self.assertIn('takes no arguments, got "now"', error)

    def test_help_ends_with_0(self):
        for script in ("build.sh", "bundle.sh", "fetch_data.sh", "fuzz.sh", "gpu_bundle.sh", "install_deps.sh",
                       "pack_libraries.sh", "quickstart.sh", "test.sh"):
            code, out, error = run(script, "--help")
            self.assertEqual((code, error), (0, ""), script)
            self.assertIn("usage: ", out)

    def test_every_script_is_executable_and_stops_at_errors(self):
        for script in os.listdir(DEPLOY):
            if not script.endswith(".sh"):
                continue
            path = os.path.join(DEPLOY, script)
            self.assertTrue(os.access(path, os.X_OK), script)
            with open(path) as file:
                text = file.read()
            self.assertTrue(text.startswith("#!/usr/bin/env bash\n# "), script)
            self.assertRegex(text, r"\nset -e?uo pipefail\n", script)


class Fuzz(unittest.TestCase):
    def test_wrong_arguments_are_refused(self):
        for arguments, words in ((["--wrong"], 'unknown argument "--wrong"'),
                                 (["--seconds"], "--seconds wants a number"),
                                 (["--seconds", "soon"], 'got "soon", want a number'),
                                 (["nothing"], 'no target "nothing"')):
            with self.subTest(arguments):
                code, out, error = run("fuzz.sh", *arguments)
                self.assertEqual((code, out), (2, ""))
                self.assertIn(words, error)


class Units(unittest.TestCase):
    def settings(self, name):
        """key -> values of a unit's service section."""
        with open(os.path.join(DEPLOY, "units", name)) as file:
            section = file.read().split("[Service]\n")[1].split("\n[")[0]
        found = {}
        for line in section.splitlines():
            if line and not line.startswith("#"):
                key, value = line.split("=", 1)
                found.setdefault(key, []).append(value)
        return found

    def test_servers_and_workers_may_write_one_checkpoint(self):
        """Each writes into the folder that server 0 makes, whose mode is 0755: they are one user."""
        for name in ("tessera-server@.service", "tessera-worker.service"):
            with self.subTest(name):
                service = self.settings(name)
                self.assertNotIn("DynamicUser", service)
                self.assertEqual(service["User"], ["tessera"])
                self.assertEqual(service["StateDirectory"], ["tessera"])
                self.assertEqual(service["WorkingDirectory"], ["/var/lib/tessera"])
                # What is not named is read-only.
                self.assertEqual(service["ProtectSystem"], ["strict"])
                self.assertEqual(service["ReadWritePaths"], ["-/srv/tessera"])


if __name__ == "__main__":
    unittest.main()
