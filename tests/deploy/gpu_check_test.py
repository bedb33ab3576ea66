"""The GPU bundle's check.sh, with programs and a compute-sanitizer that do as they are told."""
import glob
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

GPU = os.path.join(os.getcwd(), "deploy", "gpu")
PROGRAMS = ["conformance_test", "device_network_half_test", "device_network_test", "device_training_test", "gpu_bench",
            "minibatch_steps_test", "planted_faults", "tessera"]

# KNOWS: how it calls the choice of kernels by their names, if it has one. BLIND: tools that find nothing. MATCHES=no:
# no kernel has such a name. SEES: a fault in a program that has none.
SANITIZER = """#!/bin/bash
all=$*
if [[ $UNSUPPORTED == yes ]]; then
  echo "========= Error: Device not supported. Please refer to the documentation"
  exit 1
fi
if [[ $all == *--kernel-* && $all != *"--$KNOWS kns=tessera "* ]]; then
  echo "unknown option"
  exit 1
fi
[[ $all =~ --tool\\ ([a-z]+) ]] && tool=${BASH_REMATCH[1]}
planted=
[[ $tool == memcheck && $all == *"planted_faults memory" ]] && planted=yes
[[ $tool == racecheck && $all == *"planted_faults race" ]] && planted=yes
[[ " $BLIND " == *" $tool "* || ( $MATCHES == no && $all == *kns=* ) ]] && planted=
[[ -n $SEES && $all == *" $tool "*"$SEES"* ]] && planted=yes
echo "$all" >>"$CALLS"
if [[ -n $SLOW && $all == *"$SLOW"* ]]; then
  [[ $WHEN_SLOW == finds ]] && echo "========= Invalid __global__ write of size 4 bytes"
  exec sleep 100
fi
echo "========= ERROR SUMMARY: ${planted:+1 error}"
[[ -z $planted ]] || exit 3
"""


class Check(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR"))
        self.addCleanup(folder.cleanup)
        self.bundle, self.tools = os.path.join(folder.name, "bundle"), os.path.join(folder.name, "tools")
        os.makedirs(os.path.join(self.bundle, "bin"))
        os.mkdir(self.tools)
        for script in ("check.sh", "run.sh"):
            shutil.copy(os.path.join(GPU, script), self.bundle)
        for program in PROGRAMS:
            self.put(os.path.join(self.bundle, "bin", program), "#!/bin/sh\nexit 0\n")
        self.put(os.path.join(self.tools, "nvidia-smi"), "#!/bin/sh\necho 'A GPU, 1.2, 3 MiB'\n")
        self.calls = os.path.join(folder.name, "calls")

    def put(self, path, text):
        with open(path, "w") as file:
            file.write(text)
        os.chmod(path, 0o755)

    def check(self, *arguments, **environment):
        """(exit code, output, part -> result and note)"""
        environment = dict(environment, PATH=self.tools + ":/usr/bin:/bin", CUDA_HOME="/none", CALLS=self.calls)
        done = subprocess.run(["bash", os.path.join(self.bundle, "check.sh"), *arguments], env=environment, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=200, stdin=subprocess.DEVNULL)
        parts = re.findall(r"^(\S.{33}) (ok|FAILED|left out) +(?:\d+)? *(.*)$", done.stdout, re.M)
        return done.returncode, done.stdout, {name.strip(): (result, note) for name, result, note in parts}

    def test_libraries_of_python_packages_are_found(self):
        packages = os.path.join(self.tools, "lib", "python3.12", "site-packages", "nvidia")
        folders = [os.path.join(packages, name, "lib") for name in ("cu13", "cudnn")]
        for folder, library in zip(folders, ("libcublas.so.13", "libcudnn.so.9")):
            os.makedirs(folder)
            self.put(os.path.join(folder, library), "")

        # This machine may have them where the script looks first.
        script = os.path.join(self.bundle, "run.sh")
        with open(script) as file:
            text = file.read()
        self.put(script, text.replace("/usr/local/", self.tools + "/none/").replace("/opt/", self.tools + "/none/"))

        def searched(**environment):
            environment = dict({"PATH": self.tools + ":/usr/bin:/bin", "VIRTUAL_ENV": self.tools}, **environment)
            told = subprocess.run(["bash", script, "printenv", "LD_LIBRARY_PATH"],
                                  env=environment, text=True, stdout=subprocess.PIPE, check=True).stdout
            return told.strip().split(":")

        self.put(os.path.join(self.tools, "ldconfig"), "#!/bin/sh\necho libcublas.so.13\n")
        self.assertEqual([folder for folder in searched() if folder.startswith(packages)], [folders[1]])
        # cuDNN beside CUDA's own libraries comes first.
        own = os.path.join(self.tools, "cuda", "lib64")
        os.makedirs(own)
        for library in ("libcublas.so.13", "libcudnn.so.9"):
            self.put(os.path.join(own, library), "")
        found = searched(CUDA_HOME=os.path.dirname(own))
        self.assertIn(own, found)
        self.assertFalse([folder for folder in found if folder.startswith(packages)])

        # The C++ library that is packed, where this machine can load it.
        for says, is_first in (("libm.so.6 => /lib/libm.so.6", True), ("version `GLIBC_2.36' not found", False)):
            self.put(os.path.join(self.tools, "ldd"), "#!/bin/sh\ncat <<'END'\n%s\nEND\n" % says)
            self.assertEqual(searched()[0] == os.path.join(self.bundle, "lib", "cxx"), is_first)

        # Whatever python3 itself knows.
        elsewhere = os.path.join(self.tools, "elsewhere", "nvidia")
        os.makedirs(os.path.join(elsewhere, "cudnn", "lib"))
        self.put(os.path.join(elsewhere, "cudnn", "lib", "libcudnn.so.9"), "")
        self.put(os.path.join(self.tools, "python3"), "#!/bin/sh\necho %s\n" % elsewhere)
        self.assertIn(os.path.join(elsewhere, "cudnn", "lib"), searched(VIRTUAL_ENV="/none"))

    def test_a_c_library_that_is_too_old_is_not_taken_for_missing_cuda(self):
        self.put(os.path.join(self.tools, "ldd"),
                 "#!/bin/sh\ncat <<'END'\n"
                 "bin/tessera: /lib/libc.so.6: version `GLIBC_2.99' not found (by bin/tessera)\nEND\n")
        code, out, parts = self.check("--quick")
        self.assertEqual(code, 1)
        self.assertEqual(parts["everything"], (
            "left out", "missing: GLIBC_2.99; this machine's C or C++ library is too old for these programs"))

    def sanitizer_calls(self):
        with open(self.calls) as file:
            return file.read().splitlines()

    @unittest.skipIf(glob.glob("/usr/local/cuda-*/*/compute-sanitizer"), "compute-sanitizer is where it is looked for")
    def test_without_a_sanitizer_the_rest_is_done(self):
        code, out, parts = self.check()
        self.assertEqual(code, 0, out)
        self.assertEqual(parts["battery"][0], "ok")
        self.assertEqual(parts["benchmark"][0], "ok")
        self.assertEqual(parts["racecheck, networks"], ("left out", "no compute-sanitizer here"))
        self.assertRegex(out.splitlines()[0], "^A GPU")
        self.assertRegex(out.splitlines()[-1], r"^\d+ passed, 0 failed, 4 left out$")
        with open(os.path.join(self.bundle, "logs", "table.txt")) as file:
            self.assertEqual(file.read().splitlines()[-1], out.splitlines()[-1])

    def test_kernels_are_chosen_as_the_sanitizer_calls_it(self):
        self.put(os.path.join(self.tools, "compute-sanitizer"), SANITIZER)
        for knows in ("kernel-name", "kernel-regex"):
            with self.subTest(knows):
                code, out, parts = self.check(KNOWS=knows)
                self.assertEqual(code, 0, out)
                self.assertEqual(parts["memcheck, kernels"][0], "ok")
                self.assertRegex(out.splitlines()[-1], " 0 failed, 0 left out$")
                self.assertTrue(all("--%s kns=tessera " % knows in call for call in self.sanitizer_calls()))
                os.remove(self.calls)

    def test_a_choice_that_no_kernel_matches_is_not_used(self):
        self.put(os.path.join(self.tools, "compute-sanitizer"), SANITIZER)
        code, out, parts = self.check(KNOWS="kernel-name", MATCHES="no")
        self.assertEqual(code, 0, out)
        self.assertEqual(parts["racecheck, kernels"][0], "ok")
        batteries = [call for call in self.sanitizer_calls() if "conformance_test" in call]
        self.assertEqual(len(batteries), 2)
        self.assertFalse([call for call in batteries if "kns=" in call])

    def test_a_tool_that_finds_nothing_calls_nothing_clean(self):
        self.put(os.path.join(self.tools, "compute-sanitizer"), SANITIZER)
        for blind in ("racecheck", "memcheck racecheck"):
            with self.subTest(blind):
                code, out, parts = self.check(KNOWS="kernel-name", BLIND=blind)
                self.assertEqual(code, 1)
                for tool in ("memcheck", "racecheck"):
                    expected = ("FAILED", "left out", "left out") if tool in blind else ("ok", "ok", "ok")
                    self.assertEqual((parts[tool + " finds what is planted"][0], parts[tool + ", kernels"][0],
                                      parts[tool + ", networks"][0]), expected, out)

    def test_one_that_finds_faults_where_there_are_none_is_not_believed(self):
        self.put(os.path.join(self.tools, "compute-sanitizer"), SANITIZER)
        code, out, parts = self.check(KNOWS="kernel-name", SEES="planted_faults none")
        self.assertEqual(code, 1)
        self.assertEqual(parts["memcheck finds nothing else"][0], "FAILED")
        self.assertEqual(parts["memcheck, kernels"][0], "left out", out)

    def test_what_it_finds_fails(self):
        self.put(os.path.join(self.tools, "compute-sanitizer"), SANITIZER)
        code, out, parts = self.check(KNOWS="kernel-name", SEES="device_network_test")
        self.assertEqual(code, 1)
        self.assertEqual([name for name, (result, _) in parts.items() if result == "FAILED"],
                         ["memcheck, networks", "racecheck, networks"], out)

    def test_a_gpu_that_the_sanitizer_does_not_support_is_no_failure(self):
        self.put(os.path.join(self.tools, "compute-sanitizer"), SANITIZER)
        code, out, parts = self.check(KNOWS="kernel-name", UNSUPPORTED="yes")
        self.assertEqual(code, 0, out)
        for part in ("memcheck finds what is planted", "racecheck, kernels", "memcheck, networks"):
            self.assertEqual(parts[part], ("left out", "compute-sanitizer does not support this device here"))

    def test_a_sanitizer_that_takes_too_long_fails_only_with_what_it_found(self):
        self.put(os.path.join(self.tools, "compute-sanitizer"), SANITIZER)
        script = os.path.join(self.bundle, "check.sh")
        with open(script) as file:
            text = file.read()
        self.assertEqual(text.count('"networks" 90'), 1)
        self.put(script, text.replace('"networks" 90', '"networks" 6'))
        for when, expected in (("is quiet", ("left out", "found nothing in 6 s, and was not done")),
                               ("finds", ("FAILED", "not done after 6 s"))):
            with self.subTest(when):
                code, out, parts = self.check(KNOWS="kernel-name", SLOW="bin/device_network_test", WHEN_SLOW=when)
                self.assertEqual(parts["memcheck, networks"], expected, out)
                self.assertEqual(code, 1 if when == "finds" else 0)

    def test_a_part_that_fails_stops_no_other_and_says_why(self):
        self.put(os.path.join(self.bundle, "bin", "conformance_test"),
                 "#!/bin/sh\necho 'a.cc:7: FAILED:'\necho '  CHECK( 1 == 2 )'\nexit 42\n")
        code, out, parts = self.check("--quick")
        self.assertEqual(code, 1)
        self.assertEqual(parts["battery"][0], "FAILED")
        self.assertIn("exit code 42", parts["battery"][1])
        self.assertIn("\nbattery: logs/battery.log\na.cc:7: FAILED:\n  CHECK( 1 == 2 )\n", out)
        self.assertEqual(parts["training"][0], "ok")
        self.assertRegex(out.splitlines()[-1], r"^\d+ passed, 1 failed, 0 left out$")

    def test_what_there_is_no_time_for_is_left_out(self):
        self.put(os.path.join(self.bundle, "bin", "device_network_test"), "#!/bin/sh\nexec sleep 100\n")
        begin = time.monotonic()
        code, out, parts = self.check("--quick", SECONDS_MAX="24")
        self.assertLess(time.monotonic() - begin, 60)
        self.assertEqual(code, 0, out)  # Nothing has failed.
        self.assertEqual(parts["battery"][0], "ok")
        self.assertEqual(parts["networks"][0], "left out")
        self.assertRegex(parts["networks"][1], r"^not done in the last [12]\d s, may take 60$")
        self.assertEqual(parts["training"], ("left out", "no time is left"))

    def test_a_signal_ends_the_part_that_runs_and_tells_what_was_found(self):
        pid = os.path.join(self.tools, "pid")
        self.put(os.path.join(self.bundle, "bin", "device_network_test"),
                 "#!/bin/sh\necho $$ >%s.new\nmv %s.new %s\nexec sleep 100\n" % (pid, pid, pid))
        for number, expected in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            with self.subTest(number):
                environment = {"PATH": self.tools + ":/usr/bin:/bin", "CUDA_HOME": "/none"}
                with subprocess.Popen(["bash", os.path.join(self.bundle, "check.sh"), "--quick"], env=environment,
                                      text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                      stdin=subprocess.DEVNULL,
                                      preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)) as check:
                    self.addCleanup(check.kill)
                    deadline = time.monotonic() + 60
                    while not os.path.exists(pid) and time.monotonic() < deadline:
                        time.sleep(0.01)
                    with open(pid) as file:
                        part = int(file.read())
                    os.remove(pid)
                    check.send_signal(number)
                    out = check.communicate(timeout=60)[0]
                self.assertEqual(check.returncode, expected, out)
                self.assertRegex(out, "networks +left out +interrupted")
                self.assertEqual(out.splitlines()[-1], "1 passed, 0 failed, 1 left out")
                self.assertFalse(os.path.exists("/proc/%d" % part))

    def test_logs_of_an_earlier_run_are_kept(self):
        for _ in range(3):
            self.assertEqual(self.check("--quick")[0], 0)
        self.assertEqual(sorted(name for name in os.listdir(self.bundle) if name.startswith("logs")),
                         ["logs", "logs.1", "logs.2"])
        for name in ("logs", "logs.1", "logs.2"):
            self.assertTrue(os.path.exists(os.path.join(self.bundle, name, "table.txt")))

    def test_a_folder_that_cannot_be_written_is_told_once(self):
        self.put(os.path.join(self.tools, "mkdir"), "#!/bin/sh\nexit 1\n")
        code, out, _ = self.check("--quick")
        self.assertEqual(code, 2)
        self.assertEqual(out, "check.sh: %s: cannot make logs/ here, want a copy of this folder that may be written "
                         "to\n" % self.bundle)

    def test_wrong_arguments_are_refused(self):
        usage = "usage: [SECONDS_MAX=N] check.sh [--quick] [--tiny]\n"
        self.assertEqual(self.check("--slow")[:2], (2, usage))
        self.assertEqual(self.check("--help")[:2], (0, usage))


if __name__ == "__main__":
    unittest.main()
