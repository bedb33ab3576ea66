"""The GPU bundle's check.sh, with programs and a compute-sanitizer that do as they are told."""
import glob
import os
import re
import shutil
import signal
import subprocess
import tarfile
import tempfile
import time
import unittest

GPU = os.path.join(os.getcwd(), "deploy", "gpu")
PROGRAMS = ["conformance_test", "device_network_half_test", "device_network_test", "device_product_step_test",
            "device_training_test", "gpu_bench", "minibatch_steps_test", "planted_faults", "tessera"]

COMPARED = 7  # jobs, on the CPU and on the GPU
PARTS = ("tests", "benchmark", "jobs", "large", "sanitizer")
# Under each tool: tags of the battery, and other tests.
EARLY_TAGS = ["memory", "activation", "pooling", "sequence", "batch_norm", "loss", "exchange", "vector", "linear",
              "convolution"]
LATE_TAGS = ["attention", "bf16", "embedding", "group_norm", "optimizer", "product_step", "response_norm",
             "sparse_linear"]


def sanitized(early, late):
    return early + ["networks", "halves of networks", "pieces of minibatches"] + late + ["training"]


# As `tessera run` does it.
WRITES_REPORT = """while (($# > 0)); do
  [[ $1 == --report ]] && echo '{}' >"$2"
  [[ $1 == --logs ]] && mkdir -p "$2" && echo "cuda: steps are queued kernel by kernel device=0" >"$2/worker-0.log"
  shift
done
"""

# KNOWS: how it calls the choice of kernels by their names, if it has one. BLIND: tools that find nothing. MATCHES=no:
# no kernel has such a name. SEES: a fault in a program that has none. BREAKS: a program whose kernels a choice breaks,
# ALIEN=yes: and in which other kernels race.
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
if [[ -n $BREAKS && $tool == racecheck && $all == *kns=*"$BREAKS"* ]]; then
  echo "========= Internal Sanitizer Error: The Sanitizer failed to handle a hardware exception."
  echo "========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)"
  exit 3
fi
if [[ -n $ALIEN && $tool == racecheck && $all == *"$BREAKS"* ]]; then
  echo "========= Error: Race reported between Write access at sm90_gemm+0x7dd0"
  echo "=========         Host Frame: tessera::cuda::Device::Multiply at device.cc"
  [[ $ALIEN == ours ]] && echo "=========     and Read access at void tessera::cuda::Run<T>(T)+0x10"
  echo "All tests ${PASS:-passed} (3 assertions in 1 test cases)"
  echo "========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)"
  exit 3
fi
if [[ -n $SLOW && $all == *"$SLOW"* ]]; then
  echo "0.125 s: one that is done"
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
        for script in os.listdir(GPU):
            shutil.copy(os.path.join(GPU, script), self.bundle)
        for program in PROGRAMS:
            self.put(os.path.join(self.bundle, "bin", program), "#!/bin/sh\nexit 0\n")
        self.put(os.path.join(self.tools, "nvidia-smi"), "#!/bin/sh\necho 'A GPU, 1.2, 3 MiB'\n")
        self.calls = os.path.join(folder.name, "calls")

    def put(self, path, text):
        with open(path, "w") as file:
            file.write(text)
        os.chmod(path, 0o755)

    def take_few_tags(self):
        """The names of what is sanitized, of a battery with four tags: each costs dozens of processes, and most of the
        tests ask nothing that depends on how many there are."""
        early, late = ["batch_norm", "loss", "linear"], ["attention"]
        self.replace("steps.sh", "(%s)" % " ".join(EARLY_TAGS), "(%s)" % " ".join(early))
        self.replace("steps.sh", "(%s)" % " ".join(LATE_TAGS), "(%s)" % " ".join(late))
        return sanitized(early, late)

    def check(self, *arguments, **environment):
        """(exit code, output, part -> result and note)"""
        environment = dict(environment, PATH=self.tools + ":/usr/bin:/bin", CUDA_HOME="/none", CALLS=self.calls)
        done = subprocess.run(["bash", os.path.join(self.bundle, "check.sh"), *arguments], env=environment, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=200, stdin=subprocess.DEVNULL)
        parts = re.findall(r"^(\S.{33}) (ok|FAILED|left out) +(?:\d+)? *(.*)$", done.stdout, re.M)
        return done.returncode, done.stdout, {name.strip(): (result, note) for name, result, note in parts}

    def replace(self, script, old, new):
        script = os.path.join(self.bundle, script)
        with open(script) as file:
            text = file.read()
        self.assertEqual(text.count(old), 1, old)
        self.put(script, text.replace(old, new))

    def runs(self, program, text):
        self.put(os.path.join(self.bundle, "bin", program), "#!/bin/bash\n" + text)

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

        # What was found before is taken as it is.
        self.assertEqual(searched(TESSERA_LIBRARY_PATH="/found:/before"), ["/found", "/before"])

    def test_libraries_are_looked_for_once(self):
        self.put(os.path.join(self.tools, "ldconfig"), "#!/bin/sh\necho ldconfig >>\"$CALLS\"\n")
        self.runs("conformance_test", "echo $LD_LIBRARY_PATH\n")
        code, out, _ = self.check("--only", "tests")
        self.assertEqual(code, 0, out)
        with open(self.calls) as file:
            self.assertEqual(file.read(), "ldconfig\n")
        with open(os.path.join(self.bundle, "logs", "battery.log")) as file:
            self.assertIn(os.path.join(self.bundle, "lib"), file.read())

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
        self.assertEqual(parts["benchmark, kernels"][0], "ok")
        self.assertEqual(parts["benchmark, steps"][0], "ok")
        for tool in ("memcheck", "racecheck"):
            self.assertEqual(parts[tool], ("left out", "no compute-sanitizer here"))
        self.assertRegex(out.splitlines()[0], "^A GPU")
        # The comparisons want reports, which the program here does not write.
        self.assertRegex(out.splitlines()[-1], r"^\d+ passed, 0 failed, %d left out$" % (2 + COMPARED))
        with open(os.path.join(self.bundle, "logs", "table.txt")) as file:
            self.assertEqual(file.read().splitlines()[-1], out.splitlines()[-1])

    def test_kernels_are_chosen_as_the_sanitizer_calls_it(self):
        self.put(os.path.join(self.tools, "compute-sanitizer"), SANITIZER)
        for knows in ("kernel-name", "kernel-regex"):
            with self.subTest(knows):
                names = sanitized(EARLY_TAGS, LATE_TAGS) if knows == "kernel-name" else self.take_few_tags()
                code, out, parts = self.check("--only", "sanitizer", KNOWS=knows)
                self.assertEqual(code, 0, out)
                for tool in ("memcheck", "racecheck"):
                    self.assertEqual([name for name in parts if name.startswith(tool + ", ")],
                                     ["%s, %s" % (tool, name) for name in names])
                self.assertRegex(out.splitlines()[-1], "^%d passed, 0 failed, 0 left out$" % (4 + 2 * len(names)))
                self.assertTrue(all("--%s kns=tessera " % knows in call for call in self.sanitizer_calls()))
                os.remove(self.calls)

    def test_a_choice_that_no_kernel_matches_is_not_used(self):
        self.put(os.path.join(self.tools, "compute-sanitizer"), SANITIZER)
        self.take_few_tags()
        code, out, parts = self.check("--only", "sanitizer", KNOWS="kernel-name", MATCHES="no")
        self.assertEqual(code, 0, out)
        self.assertEqual(parts["racecheck, batch_norm"][0], "ok")
        batteries = [call for call in self.sanitizer_calls() if "conformance_test" in call]
        self.assertEqual(len(batteries), 2 * 4)
        self.assertFalse([call for call in batteries if "kns=" in call])

    def test_a_tool_that_finds_nothing_calls_nothing_clean(self):
        self.put(os.path.join(self.tools, "compute-sanitizer"), SANITIZER)
        names = self.take_few_tags()
        for blind in ("racecheck", "memcheck racecheck"):
            with self.subTest(blind):
                code, out, parts = self.check("--only", "sanitizer", KNOWS="kernel-name", BLIND=blind)
                self.assertEqual(code, 1)
                for tool in ("memcheck", "racecheck"):
                    tested = {name: parts[name][0] for name in parts if name.startswith(tool + ", ")}
                    expected = {"%s, %s" % (tool, name): "ok" for name in names}
                    if tool in blind:
                        expected = {tool + ", tests": "left out"}
                    self.assertEqual(tested, expected, out)
                    self.assertEqual(parts[tool + " finds what is planted"][0], "FAILED" if tool in blind else "ok")

    def test_one_that_finds_faults_where_there_are_none_is_not_believed(self):
        self.put(os.path.join(self.tools, "compute-sanitizer"), SANITIZER)
        self.take_few_tags()
        code, out, parts = self.check("--only", "sanitizer", KNOWS="kernel-name", SEES="planted_faults none")
        self.assertEqual(code, 1)
        self.assertEqual(parts["memcheck finds nothing else"][0], "FAILED")
        self.assertEqual(parts["memcheck, tests"], ("left out", "it would say nothing: see what is planted"), out)
        self.assertNotIn("memcheck, batch_norm", parts)

    def test_what_it_finds_fails(self):
        self.put(os.path.join(self.tools, "compute-sanitizer"), SANITIZER)
        self.take_few_tags()
        code, out, parts = self.check("--only", "sanitizer", KNOWS="kernel-name", SEES="device_network_test")
        self.assertEqual(code, 1)
        self.assertEqual([name for name, (result, _) in parts.items() if result == "FAILED"],
                         ["memcheck, networks", "racecheck, networks"], out)

    def test_kernels_that_a_choice_of_others_breaks_are_looked_at_as_well(self):
        self.put(os.path.join(self.tools, "compute-sanitizer"), SANITIZER)
        self.take_few_tags()
        for sees, expected in (("", "ok"), ("[linear]", "FAILED")):
            with self.subTest(sees):
                code, out, parts = self.check("--only", "sanitizer", KNOWS="kernel-name", BREAKS="[linear]", SEES=sees)
                self.assertEqual(parts["racecheck, linear"][0], expected, out)
                self.assertEqual(parts["racecheck, loss"][0], "ok")
                self.assertEqual(code, 1 if sees else 0)
                calls = [call for call in self.sanitizer_calls() if "racecheck" in call and "[linear]" in call]
                self.assertEqual(["kns=" in call for call in calls], [True, False], calls)
                os.remove(self.calls)

    def test_races_of_kernels_that_are_not_ours_are_told_and_are_no_failure(self):
        self.put(os.path.join(self.tools, "compute-sanitizer"), SANITIZER)
        self.take_few_tags()
        for more, expected in ((dict(ALIEN="yes"), "ok"), (dict(ALIEN="ours"), "FAILED"),
                               (dict(ALIEN="yes", PASS="failed"), "FAILED")):
            with self.subTest(str(more)):
                code, out, parts = self.check("--only", "sanitizer", KNOWS="kernel-name", BREAKS="[linear]", **more)
                self.assertEqual(parts["racecheck, linear"][0], expected, out)
                self.assertEqual(code, 0 if expected == "ok" else 1)
                if expected == "ok":
                    self.assertEqual(parts["racecheck, linear"][1],
                                     "RACECHECK SUMMARY: none in our kernels; the log has what is in others")

    def test_a_gpu_that_the_sanitizer_does_not_support_is_no_failure(self):
        self.put(os.path.join(self.tools, "compute-sanitizer"), SANITIZER)
        code, out, parts = self.check(KNOWS="kernel-name", UNSUPPORTED="yes")
        self.assertEqual(code, 0, out)
        for tool in ("memcheck", "racecheck"):
            self.assertEqual(parts[tool], ("left out", "compute-sanitizer does not support this device here"))
        self.assertFalse([name for name in parts if re.match("(memcheck|racecheck)[ ,]", name)])

    def test_a_sanitizer_that_takes_too_long_fails_only_with_what_it_found(self):
        self.put(os.path.join(self.tools, "compute-sanitizer"), SANITIZER)
        self.take_few_tags()
        self.replace("sanitizer.sh", '"networks" 120', '"networks" 6')
        done = ", but for 1 tests"
        for when, expected in (("is quiet", ("left out", "found nothing in 6 s, and was not done" + done)),
                               ("finds", ("FAILED", "not done after 6 s" + done))):
            with self.subTest(when):
                code, out, parts = self.check("--only", "sanitizer", KNOWS="kernel-name", WHEN_SLOW=when,
                                              SLOW="bin/device_network_test")
                self.assertEqual(parts["memcheck, networks"], expected, out)
                self.assertEqual(parts["memcheck, training"][0], "ok")
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
        self.assertRegex(out.splitlines()[-1], r"^\d+ passed, 1 failed, %d left out$" % COMPARED)

    def test_a_battery_that_met_an_error_of_cuda_is_done_again_in_parts(self):
        self.runs("conformance_test", 'case "$*" in\n*loss*) ;; *\\[*) exit 0;; esac\n'
                  'echo "cuda:0: kernel AddRows${CUDA_LAUNCH_BLOCKING:-, later}: an illegal memory access"\nexit 1\n')
        self.runs("device_network_test", '[[ -z "$CUDA_LAUNCH_BLOCKING" ]]\n')
        code, output, parts = self.check("--only", "tests", SECONDS_MAX="100")
        self.assertEqual(code, 1, output)
        of_battery = {name: result for name, (result, _) in parts.items() if name.startswith("battery")}
        wanted = {"battery, " + tag: "ok" for tag in EARLY_TAGS + LATE_TAGS}
        self.assertEqual(of_battery, {**wanted, "battery": "FAILED", "battery, loss": "FAILED"}, output)
        self.assertIn("kernel AddRows1: an illegal", parts["battery, loss"][1])
        self.assertEqual(parts["networks"][0], "ok", output)
        # A result that differs is no such error.
        self.runs("conformance_test", 'echo "CHECK( cuda == cpu )"\nexit 1\n')
        parts = self.check("--only", "tests", SECONDS_MAX="100")[2]
        self.assertEqual([name for name in parts if name.startswith("battery")], ["battery"])

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

    def test_parts_are_done_alone_and_those_not_asked_for_are_not_left_out(self):
        self.runs("tessera", WRITES_REPORT)
        first = {"tests": "battery", "benchmark": "benchmark, kernels", "jobs": "job data_parallel_on_cpu",
                 "large": "job local_sgd_f32"}
        for part, name in first.items():
            with self.subTest(part):
                code, out, parts = self.check("--only", part)
                self.assertEqual(code, 0, out)
                self.assertEqual([each for each in first.values() if each in parts], [name])
                self.assertRegex(out.splitlines()[-1], r"^\d+ passed, 0 failed, 0 left out$")
        _, _, parts = self.check("--only", "large", "--only", "benchmark,tests")
        self.assertEqual([each for each in parts if each in first.values()],
                         ["battery", "benchmark, kernels", "job local_sgd_f32"])
        _, _, parts = self.check("--only", "benchmark,tests", "--quick")
        self.assertNotIn("benchmark, kernels", parts)

    def test_no_job_is_without_steps_where_sizes_are_small(self):
        self.runs("tessera", 'echo "$*" >>"$CALLS"\n')
        self.assertEqual(self.check("--only", "large", "--tiny")[0], 0)
        with open(self.calls) as file:
            steps = re.findall(r"[{,] steps: (\d+),", file.read())
        self.assertEqual(len(steps), 14)
        self.assertNotIn("0", steps)

    def test_jobs_are_compared_where_both_have_a_report(self):
        self.runs("tessera", '[[ "$*" == *slim_dp_on_cpu* ]] && exit 3\n' + WRITES_REPORT)
        self.runs("gpu_bench", "echo largest difference of 5 losses: $*\n")
        code, out, parts = self.check("--only", "jobs")
        self.assertEqual(code, 1)
        self.assertEqual(parts["ist as on the CPU"],
                         ("ok", "largest difference of 5 losses: --same logs/ist_on_cpu.json,logs/ist_on_cuda.json"))
        self.assertEqual(parts["job slim_dp_on_cpu"][0], "FAILED")
        self.assertEqual(parts["job slim_dp_on_cuda"][0], "ok")
        self.assertEqual(parts["slim_dp as on the CPU"], ("left out", "job slim_dp_on_cpu has no report"))
        self.assertEqual(len([name for name in parts if name.endswith("as on the CPU")]), COMPARED)
        self.assertRegex(out.splitlines()[-1], r"^\d+ passed, 1 failed, 1 left out$")
        # What workers say of what falls back, and where all they say is.
        self.assertRegex(out, r"\n +\d+ steps are queued kernel by kernel device=0\n")
        self.assertTrue(os.path.exists(os.path.join(self.bundle, "logs", "ist_on_cuda.d", "worker-0.log")))

    def test_after_a_part_that_hung_the_next_ones_have_less_time_but_not_the_benchmark(self):
        self.replace("check.sh", '"battery" 240', '"battery" 2')
        self.replace("steps.sh", "cap=25", "cap=2")
        self.runs("conformance_test", "echo '0.5 s: the first'\nexec sleep 100\n")
        self.runs("device_network_test", "exec sleep 100\n")
        self.runs("gpu_bench", "sleep 3\necho relu 1.0 met\n")
        code, out, parts = self.check("--only", "tests,benchmark")
        self.assertEqual(code, 1)
        self.assertEqual(parts["battery"], ("FAILED", "not done after 2 s, but for 1 tests"))
        self.assertEqual(parts["benchmark, kernels"], ("ok", "1 aims met, 0 missed"))
        self.assertEqual(parts["networks"], ("left out", "not done in 2 s, after one that hung; may take 60"))
        self.assertEqual(parts["training"][0], "ok")
        self.assertEqual(out.splitlines()[-1], "6 passed, 1 failed, 1 left out")

    def test_time_is_kept_for_the_benchmark(self):
        self.runs("conformance_test", "exec sleep 100\n")
        self.replace("check.sh", "kept + 90 *", "kept + 300 *")
        code, out, parts = self.check("--only", "tests,benchmark", SECONDS_MAX="30")
        self.assertRegex(parts["battery"][1], r"^not done in the last 1\d s, may take 240$")
        self.assertEqual((code, parts["benchmark, kernels"][0]), (0, "ok"), out)

    def test_a_benchmark_that_ends_early_is_in_the_table_as_far_as_it_came(self):
        self.runs("gpu_bench", "[[ $2 == steps ]] || exit 0\necho bf16 step 1.0 MISSED\necho 'WRONG: tf32'\nexit 1\n")
        self.put(os.path.join(self.tools, "nvidia-smi"), "#!/bin/sh\necho 1 MHz, 2 MHz, 3 MHz, 4 W, 5 W, 6\n")
        code, out, parts = self.check("--only", "benchmark")
        self.assertEqual(code, 1)
        self.assertEqual(parts["benchmark, kernels"][0], "ok")
        self.assertEqual(parts["benchmark, steps"], ("FAILED", "exit code 1: WRONG: tf32"))
        self.assertIn("\nbf16 step 1.0 MISSED\nWRONG: tf32\n", out)
        for when in ("before", "in kernels", "in steps", "after"):
            self.assertIn("temperature %s: 1 MHz, 2 MHz, 3 MHz, 4 W, 5 W, 6\n" % when, out)

    def results(self):
        """table.txt and the names in logs.tgz"""
        folder = os.path.join(self.tools, "results")
        with open(os.path.join(folder, "table.txt")) as file:
            table = file.read()
        with tarfile.open(os.path.join(folder, "logs.tgz")) as logs:
            return table, logs.getnames()

    def test_results_lie_where_they_are_wanted_also_of_what_was_stopped(self):
        folder = os.path.join(self.tools, "results")
        self.runs("device_network_test", "tar tzf %s/logs.tgz\ncat %s/table.txt\n" % (folder, folder))
        code, out, _ = self.check("--quick", "--only", "tests", RESULTS=folder)
        self.assertEqual(code, 0, out)
        table, names = self.results()
        self.assertEqual(table, out.replace("\n\n", "\n"))
        self.assertIn("logs/training.log", names)
        self.assertEqual(sorted(os.listdir(folder)), ["logs.tgz", "table.txt"])
        # Some of it was there before the end.
        with open(os.path.join(self.bundle, "logs", "networks.log")) as file:
            before = file.read()
        self.assertIn("logs/battery.log\n", before)
        self.assertRegex(before, r"\nbattery +ok ")
        # A signal leaves what was found by then.
        self.replace("check.sh", "here=$PWD\n", "here=$PWD\nexport CHECK=$$\n")
        self.runs("device_network_test", "kill -TERM $CHECK\nexec sleep 100\n")
        code, out, _ = self.check("--only", "tests", RESULTS=folder)
        self.assertEqual(code, 143, out)
        table, names = self.results()
        self.assertEqual(table, out.replace("\n\n", "\n"))
        self.assertIn("logs/networks.log", names)
        self.assertNotIn("logs/training.log", names)

    def test_results_that_have_no_place_are_told_before_anything_is_done(self):
        place = os.path.join(self.bundle, "check.sh", "none")
        code, out, _ = self.check("--quick", RESULTS=place)
        self.assertEqual((code, out), (2, "check.sh: RESULTS=%s: cannot be written to, want a folder that may be\n" %
                                       place))

    def test_wrong_arguments_are_refused(self):
        usage = ("usage: [SECONDS_MAX=N] [RESULTS=FOLDER] check.sh [--quick] [--only PART,...] [--tiny]; parts: %s\n" %
                 ",".join(PARTS))
        for arguments in (["--slow"], ["--only"], ["--only", ","], ["--only", "tests,none"]):
            self.assertEqual(self.check(*arguments)[:2], (2, usage))
        self.assertEqual(self.check("--help")[:2], (0, usage))


if __name__ == "__main__":
    unittest.main()
