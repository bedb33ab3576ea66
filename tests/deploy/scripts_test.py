"""The scripts in deploy/: their arguments, and what they say when something is missing."""
import base64
import gzip
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
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
                                "shakespeare": "tinyshakespeare", "speech": "arabic_speech_commands"})

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

    @unittest.skipUnless(os.path.isdir(os.path.join(os.environ.get("TESSERA_DATA", ""), "a9a")),
                         "TESSERA_DATA has no a9a")
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
        for script in ("build.sh", "bundle.sh", "bundle_folder.sh", "fetch_data.sh", "fuzz.sh", "gpu_bundle.sh",
                       "install_deps.sh", "pack_libraries.sh", "quickstart.sh", "test.sh"):
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


class Tree(unittest.TestCase):
    """A tree with scripts and tools that do as they are told."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR"))
        self.addCleanup(folder.cleanup)
        self.folder = os.path.realpath(folder.name)
        self.root = os.path.join(self.folder, "tree")
        for script in os.listdir(DEPLOY):
            if script.endswith(".sh"):
                shutil.copy(os.path.join(DEPLOY, script), self.put("tree/deploy/" + script, ""))

    def put(self, path, text):
        path = os.path.join(self.folder, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(text)
        os.chmod(path, 0o755)
        return path

    def tool(self, name, text):
        self.put("tools/" + name, "#!/bin/bash\n" + text)

    def start(self, script, *arguments, **environment):
        environment = dict(environment, PATH=os.path.join(self.folder, "tools") + ":/usr/bin:/bin")
        process = subprocess.Popen([os.path.join(self.root, "deploy", script), *arguments], cwd=self.folder, text=True,
                                   env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, start_new_session=True,
                                   preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def run_in_tree(self, script, *arguments, **environment):
        """(exit code, stdout, stderr), started outside of the tree"""
        process = self.start(script, *arguments, **environment)
        out, error = process.communicate(timeout=60)
        return process.returncode, out, error


class Fuzz(Tree):
    def setUp(self):
        super().setUp()
        self.tool("bazel", "[[ $1 == info ]] && echo %s/built\nexit 0\n" % self.folder)
        self.tool("clang", "exit 0\n")
        for name in ("first", "second"):
            self.put("tree/tests/fuzz/%s_fuzz.cc" % name, "")
            kept = base64.b64encode(name.encode()).decode()
            self.put("tree/tests/fuzz/corpus/%s.inputs" % name, "kept %s\n" % kept)
            self.target(name, "echo stat::number_of_executed_units: 7\n")
        shutil.copy("tests/fuzz/corpus.py", os.path.join(self.root, "tests/fuzz/corpus.py"))

    def target(self, name, text):
        self.put("built/tests/fuzz/%s_fuzz" % name, "#!/bin/bash\n" + text)

    def test_what_one_finds_keeps_no_other_from_running(self):
        self.target("first", "exit 77\n")
        code, out, error = self.run_in_tree("fuzz.sh")
        self.assertEqual((code, out), (1, "second: 7 inputs in 60 s, nothing found\n"))
        self.assertIn("first: FOUND SOMETHING", error)

    def test_a_target_reads_the_kept_inputs_and_collects_beside_them(self):
        self.target("second", '[[ "$*" == *" fuzz/second "* && $(cat "${@: -1}/kept") == second ]]\n')
        self.assertEqual(self.run_in_tree("fuzz.sh", "second")[0], 0)

    def test_an_interrupted_target_has_found_nothing_and_is_the_last(self):
        begun = os.path.join(self.folder, "begun")
        # As libFuzzer ends; a terminal sends the signal to all of the group.
        waits = "trap 'exit 72' INT\n>%s\nwhile :; do sleep 0.01; done\n" % begun
        for text, is_signalled in (("exit 72\n", False), (waits, True)):
            with self.subTest(text):
                self.target("first", text)
                process = self.start("fuzz.sh")
                deadline = time.monotonic() + 30
                while is_signalled and not os.path.exists(begun) and time.monotonic() < deadline:
                    time.sleep(0.01)
                if is_signalled:
                    os.killpg(process.pid, signal.SIGINT)
                out, error = process.communicate(timeout=30)
                self.assertEqual((process.returncode, out, error), (130, "", "fuzz.sh: interrupted\n"))

    def test_no_place_for_the_log_ends_it(self):
        for script in ("fuzz.sh", "test.sh"):
            self.put("tree/deploy/install_deps.sh", "#!/bin/sh\n")
            code, out, error = self.run_in_tree(script, TMPDIR="/none")
            self.assertEqual((code, out), (1, ""))
            self.assertRegex(error, "^mktemp: .*\n$")

    def test_wrong_arguments_are_refused(self):
        for arguments, words in ((["--wrong"], 'unknown argument "--wrong"'),
                                 (["--seconds"], "--seconds wants a number"),
                                 (["--seconds", "soon"], 'got "soon", want a number'),
                                 (["nothing"], 'no target "nothing"')):
            with self.subTest(arguments):
                code, out, error = run("fuzz.sh", *arguments)
                self.assertEqual((code, out), (2, ""))
                self.assertIn(words, error)


class Data(Tree):
    def test_a_relative_folder_is_the_callers(self):
        self.put("tree/deploy/install_deps.sh", "#!/bin/sh\n")
        said_to_bazel = os.path.join(self.folder, "arguments")
        self.tool("bazel", "printf '%%s\\n' \"$@\" >%s\n" % said_to_bazel)
        self.tool("python3", "exit 0\n")
        os.mkdir(os.path.join(self.folder, "data"))
        for said, expected, is_filtered in (("data", self.folder + "/data", False),
                                            ("none", self.folder + "/none", True),
                                            ("", self.folder + "/shared/data", True)):
            with self.subTest(said):
                code, _, error = self.run_in_tree("test.sh", TESSERA_DATA=said)
                self.assertEqual((code, error), (0, ""))
                with open(said_to_bazel) as file:
                    arguments = file.read().splitlines()
                self.assertIn("--test_env=TESSERA_DATA=" + expected, arguments)
                self.assertEqual("--test_tag_filters=-needs_data" in " ".join(arguments), is_filtered)


class Bundles(Tree):
    PACKS = {"bundle.sh": "tessera", "gpu_bundle.sh": "gpu_bundle"}

    def setUp(self):
        super().setUp()
        for name in ("dashboards", "jobs", "manifests", "units"):
            self.put("tree/deploy/%s/%s.yaml" % (name, name), "")
        for name in ("train-images-idx3", "train-labels-idx1", "test-images-idx3", "test-labels-idx1"):
            with gzip.open(self.put("tree/deploy/data/optdigits/%s-ubyte.gz" % name, ""), "wb") as file:
                file.write(bytes(80))
        self.put("tree/deploy/data/optdigits/ATTRIBUTION.md", "")
        for script in ("check.sh", "run.sh", "steps.sh"):
            self.put("tree/deploy/gpu/" + script, "")
        self.put("tree/LICENSE", "")
        for name in ("client/tessera_client.h", "client/tessera_client.hpp", "client/tessera_client.pc",
                     "python/tessera/__init__.py"):
            self.put("tree/worker/" + name, "")
        self.put("tree/deploy/pack_libraries.sh", "#!/bin/sh\nmkdir -p $1/licenses\n>$1/licenses/libc6\necho 2.34\n")
        # Whatever is to be built is there.
        self.tool("bazel", """for target in "$@"; do
  [[ $target == //* ]] || continue
  path=bazel-bin/${target#//}
  mkdir -p "$(dirname "${path/://}")"
  echo program >"${path/://}"
done
""")
        self.tool("strip", "exit 0\n")

    def test_a_run_that_fails_leaves_what_was_there_and_the_next_one_begins(self):
        for script, name in self.PACKS.items():
            with self.subTest(script):
                self.tool("strip", "exit 1\n")
                self.assertEqual(self.run_in_tree(script)[0], 1)
                self.assertFalse(os.path.exists(os.path.join(self.root, name)))
                self.tool("strip", "exit 0\n")
                self.assertEqual(self.run_in_tree(script)[::2], (0, ""))
                self.tool("strip", "exit 1\n")
                self.assertEqual(self.run_in_tree(script)[0], 1)
                self.assertTrue(os.path.exists(os.path.join(self.root, name, "lib", "licenses", "libc6")))

    def test_scripts_of_the_gpu_bundle_lie_beside_each_other(self):
        self.assertEqual(self.run_in_tree("gpu_bundle.sh")[::2], (0, ""))
        self.assertEqual([name for name in sorted(os.listdir(os.path.join(self.root, "gpu_bundle")))
                          if name.endswith(".sh")], ["check.sh", "run.sh", "steps.sh"])

    def test_only_a_bundle_that_is_as_it_was_packed_is_removed(self):
        for script, name in self.PACKS.items():
            with self.subTest(script):
                here = os.path.join(self.root, name)
                for _ in range(2):
                    self.assertEqual(self.run_in_tree(script)[::2], (0, ""))
                self.assertEqual([path for path in os.listdir(self.root) if path.startswith(name + ".")],
                                 [name + ".tar.gz"])
                job = os.path.join(here, "jobs" if name == "tessera" else "deploy/jobs", "jobs.yaml")
                with open(job, "w") as file:
                    file.write("changed\n")
                self.assertEqual(self.run_in_tree(script)[0], 0)
                with open(os.path.join(here, "mine.yaml"), "w") as file:
                    file.write("added\n")
                code, _, error = self.run_in_tree(script)
                self.assertEqual(code, 0)
                self.assertIn("%s was not as it had been packed; it is %s.2 now" % (name, name), error)
                self.assertTrue(os.path.exists(here + ".2/mine.yaml"))
                with open(job.replace(here, here + ".1")) as file:
                    self.assertEqual(file.read(), "changed\n")
                # One of an earlier version.
                os.remove(os.path.join(here, "bundle.sha256"))
                self.assertEqual(self.run_in_tree(script)[0], 0)
                self.assertTrue(os.path.exists(here + ".3/lib/licenses/libc6"))

    def test_a_folder_that_only_has_a_program_is_no_bundle(self):
        for script, program in (("bundle.sh", "tessera-server"), ("gpu_bundle.sh", "check.sh")):
            self.put("mine/" + program, "")
            code, _, error = self.run_in_tree(script, "mine")
            self.assertEqual(code, 2)
            self.assertIn("/mine: exists and is no bundle", error)
            self.assertTrue(os.path.exists(os.path.join(self.folder, "mine", program)))


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

    def test_what_differs_between_machines_is_in_one_variable(self):
        for name in ("tessera-server@.service", "tessera-worker.service"):
            self.assertRegex(self.settings(name)["ExecStart"][0], r" \$TESSERA_ARGUMENTS$", name)


if __name__ == "__main__":
    unittest.main()
