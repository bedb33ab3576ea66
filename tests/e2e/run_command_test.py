"""`tessera run`: its children, its signals, its exit code, what it leaves behind."""
import json
import os
import re
import shutil
import signal
import subprocess
import time
import unittest

from authority import Authority
from cluster import (DIGITS, ENDLESS, ONE_SIGNAL_SECONDS, PATIENCE, SOON, TESSERA, WITH_PARENT, Process, Test,
                     await_true, children_of, digits, errors_in, exists, job_size, lost, status_of, tessera, write_job)


def rank_of(command):
    return int(command[command.index("--rank") + 1])


def takes(pid, number):
    """Whether a process has a thread of its own for a signal."""
    with open("/proc/%d/status" % pid) as file:
        facts = dict(line.strip().split(":", 1) for line in file)
    return facts["Name"].strip() == "tessera" and int(facts["SigBlk"], 16) >> (number - 1) & 1


class Run(Process):
    """`tessera run`, in the background."""

    def __init__(self, test, job, *extra, env=None):
        self.report_path = test.path("report.json")
        self.temporary = test.path("tmp")
        os.makedirs(self.temporary, exist_ok=True)
        super().__init__(test, "tessera run",
                         [TESSERA, "run", write_job(test, job), "--report", self.report_path, *extra],
                         env=dict(env or {}, TMPDIR=self.temporary))
        self.expected = job["cluster"]["servers"] + job["cluster"]["workers"]

    def children(self):
        """name ("server 0", "worker 1") -> pid"""
        return {"%s %d" % (os.path.basename(command[0])[8:], rank_of(command)): pid
                for pid, command in children_of(self.pid).items() if "--rank" in command}

    def await_training(self, step=20):
        """Until all children train; name -> pid."""
        self.await_output(" --watch\n")
        self.address = re.search(r"; status: .*tessera status (\S+) ", self.output()).group(1)

        def trains():
            status = status_of(self.address)
            return status is not None and int(status["step"]) >= step

        await_true("step %d" % step, trains, explain=self.output)
        children = self.children()
        self.test.assertEqual(len(children), self.expected, children)
        return children

    def report(self):
        with open(self.report_path) as file:
            return json.load(file)

    def expect_nothing_left(self, children):
        await_true("all children have ended", lambda: not any(map(exists, children.values())), 20)


def endless(**keys):
    return digits(epochs=ENDLESS, batch=16, **dict({"lease": "4s"}, **keys))


class RunCommand(Test):
    def test_what_is_read_is_not_written_over(self):
        data = self.path("data")
        shutil.copytree(DIGITS, data)
        path = write_job(self, digits(epochs=1))
        labels = os.path.join(data, "train-labels-idx1-ubyte.gz")
        link = self.path("link")
        os.symlink(labels, link)
        for command in ("run", "simulate"):
            for report in (path, labels, link):
                with self.case((command, report)):
                    size = os.path.getsize(report)
                    code, out, error = tessera(command, path, "--set", "data.directory=" + data, "--report", report)
                    self.assertEqual((code, out), (2, ""))
                    self.contains(error, "tessera: --report: \"%s\" would be written over " % report)
                    self.assertEqual(os.path.getsize(report), size)

    def test_a_job_may_come_by_a_pipe_once(self):
        with open(write_job(self, digits(epochs=1))) as file:
            text = file.read().replace(DIGITS, "data/optdigits")
        late = "(sleep 0.5; cat job.text) | %s "
        os.symlink(os.path.dirname(DIGITS), self.path("data"))
        with open(self.path("job.text"), "w") as file:
            file.write(text)
        for command in (late % TESSERA + "check /dev/stdin", TESSERA + " check /dev/stdin < job.text",
                        late % TESSERA + "run /dev/stdin --set seed=7 --set train.epochs=2",
                        TESSERA + " run <(cat job.text)", TESSERA + " run /dev/stdin < job.text",
                        TESSERA + " simulate <(cat job.text) --workers 3 --step-time 1ms",
                        TESSERA + " plan <(cat job.text) --nodes 3 --bandwidth 1Gbit"):
            with self.case(command):
                done = subprocess.run(WITH_PARENT + ["bash", "-c", command], cwd=self.folder, capture_output=True,
                                      text=True, timeout=SOON * PATIENCE)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        code, _, error = tessera("check", "-")
        self.assertEqual(code, 2)
        self.contains(error, "\"-\" is a file's name, and /dev/stdin the standard input")

    def test_children_are_direct_and_none_is_left(self):
        run = Run(self, endless(lease="10s"))
        children = run.await_training()
        self.assertEqual(sorted(children), ["server 0", "server 1", "worker 0", "worker 1"])
        run.signal(signal.SIGINT)
        run.expect_exit(-signal.SIGINT)
        run.expect_nothing_left(children)
        self.assertEqual(os.listdir(run.temporary), [])

    def test_ctrl_c_once_evaluates_and_reports(self):
        # Some send two at once: timeout(1), and shells when their terminal goes away.
        for numbers in ((signal.SIGINT,), (signal.SIGTERM,), (signal.SIGHUP,), (signal.SIGTERM, signal.SIGINT),
                        (signal.SIGHUP, signal.SIGTERM)):
            with self.case([number.name for number in numbers]):
                run = Run(self, endless())
                children = run.await_training()
                for number in numbers:
                    run.signal(number)
                # It ends by the signal, which a shell takes for 128 more: a loop of runs ends with it.
                ended_by = -run.exit_code()
                self.assertIn(ended_by, numbers)
                report = run.report()
                by = signal.Signals(ended_by).name + " to tessera run"
                self.contains(run.output(), "stopping after this step", "accuracy",
                              "\n  outcome      stopped at step %d of %d" % (report["steps"], report["planned_steps"]),
                              by, "\n  model        not kept; --set checkpoint.directory=DIR keeps it\n")
                self.assertEqual((report["outcome"], report["stop_reason"], report["failure"]), ("stopped", by, ""))
                self.assertEqual(report["history"][-1]["step"], report["steps"])
                self.assertEqual(len(report["phases"]), 2)
                run.expect_nothing_left(children)

    def test_ctrl_c_as_the_job_ends_loses_nothing(self):
        logs = self.path("logs")
        for number in range(6):
            with self.case(number):
                run = Run(self, digits(epochs=1), "--logs", logs)
                log = os.path.join(logs, "server-0.log")

                def has_ended():
                    with open(log) as file:
                        return "control: job ended" in file.read()

                await_true("server 0 is there", lambda: "server 0" in run.children())
                await_true("the job ends", has_ended, explain=run.output)
                run.signal(signal.SIGINT)
                self.contains(run.expect_exit(-signal.SIGINT), "\n  accuracy ", "\n  report ")
                self.assertEqual(run.report()["outcome"], "finished")
                os.remove(run.report_path)
                # A row for the only evaluation, in every run.
                self.assertIn("\n     1.0 ", run.output())

    def test_ctrl_c_twice_ends_at_once(self):
        # A worker that is frozen keeps the first Ctrl-C from being done.
        run = Run(self, endless(lease="60s"))
        children = run.await_training()
        os.kill(children["worker 1"], signal.SIGSTOP)
        run.signal(signal.SIGINT)
        run.await_output("again to stop at once")
        run.signal_again(signal.SIGINT)
        self.contains(run.expect_exit(-signal.SIGINT), "stopped at once")
        run.expect_nothing_left(children)
        # An empty file would look like one.
        self.assertFalse(os.path.exists(run.report_path))

    def test_ctrl_c_twice_while_a_worker_starts_ends_at_once(self):
        run = Run(self, endless(lease="60s"))
        await_true("worker 1 is there", lambda: "worker 1" in run.children())
        children = run.children()
        os.kill(children["worker 0"], signal.SIGSTOP)  # Most likely before it has joined.
        run.signal(signal.SIGINT)
        run.await_output("again to stop at once")
        run.signal_again(signal.SIGINT)
        run.expect_exit(-signal.SIGINT, 20)  # long before the lease is over
        run.expect_nothing_left(children)

    def test_ctrl_c_again_ends_a_job_that_waits_for_its_last_checkpoint(self):
        job = dict(endless(lease="60s"), checkpoint={"directory": self.path("checkpoints")})
        run = Run(self, job, env={"TESSERA_FAILPOINTS": "folder.rename=enospc"})
        children = run.await_training()
        run.signal(signal.SIGINT)
        run.await_output("again to stop at once")

        def tries_again():
            status = status_of(run.address)
            return status is not None and "tried again in" in status["checkpoint"]["failure"]

        await_true("it is tried again", tries_again, explain=run.output)
        # The terminal says so by itself.
        run.await_output("checkpoint failed: ")
        run.await_output("it is the last one, tried again in ")
        run.signal_again(signal.SIGINT)
        self.contains(run.expect_exit(-signal.SIGINT), "stopped at once")
        run.expect_nothing_left(children)

    def test_ctrl_c_ends_a_loop_of_runs_and_whatever_has_not_begun(self):
        job = write_job(self, endless())
        loop = Process(self, "a loop", ["setsid", "bash", "-c",
                                        'for i in 1 2; do "$0" run "$1"; echo "next $?"; done', TESSERA, job])
        self.addCleanup(lambda: exists(loop.pid) and os.killpg(loop.pid, signal.SIGKILL))
        loop.await_output(" --watch\n")
        os.killpg(loop.pid, signal.SIGINT)
        self.assertNotIn("next", loop.expect_exit(-signal.SIGINT))
        # A job that comes by a pipe has not come yet.
        for command in ("run", "simulate", "doctor"):
            with self.case(command):
                waiting = subprocess.Popen(WITH_PARENT + [TESSERA, command, "/dev/stdin"], stdin=subprocess.PIPE,
                                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                try:
                    if command != "doctor":  # Which leaves signals to the kernel.
                        await_true("it takes signals", lambda: takes(waiting.pid, signal.SIGINT))
                    waiting.send_signal(signal.SIGINT)
                    if command == "simulate":  # It says that a second one ends it at once.
                        time.sleep(ONE_SIGNAL_SECONDS + 0.05)
                        waiting.send_signal(signal.SIGINT)
                    self.assertEqual(waiting.wait(SOON * PATIENCE), -signal.SIGINT)
                finally:
                    waiting.kill()
                    waiting.stdin.close()
                    waiting.wait()

    def test_what_check_notes_is_said_before_training(self):
        job = digits(epochs=1, method={"quant_dp": {}})
        report = self.path("report.json")
        code, out, error = tessera("run", write_job(self, job), "--report", report)
        self.assertEqual(code, 0, error)
        note = "codec.push qsgd (8 bits, buckets of 512, max norm): all goes as f32, as the largest parameter has "
        self.assertEqual(error.count(note), 1, error)
        self.contains(error, "tessera: note: " + note)
        with open(report) as file:
            report = json.load(file)
        self.assertIn("pushes as f32, pulls as f32", report["method_description"])
        self.assertEqual(report["traffic"]["push_payload_bytes"],
                         4 * job_size(job) * report["traffic"]["exchanges"])
        self.assertEqual(tessera("run", write_job(self, job), "--quiet"), (0, "", ""))

    def test_the_printed_status_command_can_be_pasted(self):
        authority = Authority(self, "home")
        certificate, key = authority.sign("host")
        job = dict(endless(), security={"certificate": certificate, "private_key": key,
                                        "authority": authority.certificate})
        run = Run(self, job, env={"PATH": "/usr/bin:/bin"})
        run.await_output(" --watch\n")
        command = re.search(r"; status: (.*) --watch\n", run.output()).group(1)

        def answers():
            done = subprocess.run(["sh", "-c", command], cwd="/", env={}, capture_output=True, text=True, timeout=60)
            return done.returncode == 0 and "digits-test: " in done.stdout

        await_true("it answers", answers, explain=run.output)
        run.signal(signal.SIGINT)
        run.expect_exit(-signal.SIGINT)

    def test_no_child_survives_a_killed_parent(self):
        run = Run(self, endless())
        children = run.await_training()
        run.kill()
        run.exit_code()
        run.expect_nothing_left(children)

    def test_a_killed_worker_is_told_and_the_job_ends_normally(self):
        run = Run(self, endless(workers=3))
        children = run.await_training()
        os.kill(children["worker 1"], signal.SIGKILL)
        run.await_output("worker 1 ended with signal 9 (Killed)")
        await_true("a worker is lost", lambda: lost(status_of(run.address) or {"members_lost": 0}) == 1)
        run.signal(signal.SIGINT)
        self.contains(run.expect_exit(-signal.SIGINT), "the others go on", "logs are in")
        self.assertEqual(run.report()["members"]["lost"], 1)
        run.expect_nothing_left(children)

    def test_a_killed_server_ends_everything_and_is_named(self):
        for victim in ("server 0", "server 1"):
            with self.case(victim):
                run = Run(self, endless(lease="60s"))
                children = run.await_training()
                os.kill(children[victim], signal.SIGKILL)
                # At once: for nobody's lease, and without a word of workers that cannot go on.
                output = run.expect_exit(1, 25)
                self.contains(output, victim + " ended with signal 9 (Killed)", "its parameters are lost; start the "
                              "job again; checkpoint.directory or cluster.replicas: 1", "logs are in")
                self.assertNotIn("the others go on", output)
                if victim == "server 1":
                    report = run.report()
                    self.assertEqual(report["outcome"], "failed")
                    self.assertIn("server 1 ended with signal 9 (Killed)", report["failure"])
                    self.assertGreaterEqual(report["steps"], 20)
                    os.remove(run.report_path)
                else:
                    self.assertFalse(os.path.exists(run.report_path))
                    self.assertIn("no report is written: server 0", output.splitlines()[-1])
                run.expect_nothing_left(children)

    def test_a_frozen_server_ends_everything(self):
        for servers, victim in ((2, "server 1"), (2, "server 0"), (1, "server 0")):
            with self.case("%s of %d" % (victim, servers)):
                run = Run(self, endless(servers=servers))
                children = run.await_training()
                os.kill(children[victim], signal.SIGSTOP)
                run.expect_exit(1, 40)
                self.assertIn("server", run.output())
                run.expect_nothing_left(children)

    def test_a_frozen_child_is_named_while_it_is_waited_for(self):
        run = Run(self, endless(workers=2))
        children = run.await_training()
        os.kill(children["worker 1"], signal.SIGSTOP)
        await_true("a worker is lost", lambda: lost(status_of(run.address) or {"members_lost": 0}) == 1)
        run.signal(signal.SIGINT)
        # Servers may take as long as that to go away.
        self.assertRegex(run.expect_exit(-signal.SIGINT, 60), r"waiting for (\S+ \d+, )*worker 1 to end, another ")
        self.contains(run.output(), "\n  accuracy ")
        run.expect_nothing_left(children)

    def test_all_workers_killed_ends_the_job(self):
        run = Run(self, endless(lease="60s"))
        children = run.await_training()
        # Nobody waits for their leases.
        os.kill(children["worker 0"], signal.SIGKILL)
        os.kill(children["worker 1"], signal.SIGSEGV)
        why = ("all workers are gone: worker 0 ended with signal 9 (Killed), "
               "worker 1 ended with signal 11 (Segmentation fault)")
        self.contains(run.expect_exit(1), why)
        self.assertNotIn("last heard", run.output())
        report = run.report()
        self.assertEqual((report["outcome"], report["failure"]), ("failed", why))
        run.expect_nothing_left(children)

    def test_nobody_is_said_to_go_on_where_the_job_fails_with_the_first_to_end(self):
        run = Run(self, endless(workers=3, lease="4s"))
        children = run.await_training()
        # The others make no step any more, and are not known to be gone either when this one ends.
        for worker in ("worker 0", "worker 2"):
            os.kill(children[worker], signal.SIGSTOP)
        os.kill(children["worker 1"], signal.SIGKILL)
        output = run.expect_exit(1)
        # Whatever the job's failure is called, a child's death is told, and by its cause.
        self.contains(output, "all workers are gone", "worker 1 ended with signal 9 (Killed)")
        self.assertNotIn("the others go on", output)
        run.expect_nothing_left(children)

    def test_a_diverging_job_says_so(self):
        for method in ({"data_parallel": {}}, {"local_sgd": {"local_steps": 3}}, {"async_sgd": {}}):
            with self.case(next(iter(method))):
                job = digits(rate=1000, norm=False, epochs=50, method=method)
                job["model"]["layers"].remove("relu")
                report = self.path("report.json")
                code, out, error = tessera("run", write_job(self, job), "--report", report)
                self.assertEqual(code, 1, error)
                self.contains(error, "the job has failed", "diverged, try a lower learning rate")
                with open(report) as file:
                    self.assertEqual(json.load(file)["outcome"], "failed")
        code, out, error = tessera("run", write_job(self, job), "--report", "/dev/full")
        self.assertEqual(code, 1, error)
        self.contains(error, "the job has failed", '--report: "/dev/full" cannot be written: No space left on device')

    def test_a_job_with_more_workers_than_rows_says_what_to_change(self):
        code, _, error = tessera("run", write_job(self, digits(workers=3, batch=600)))
        self.assertEqual(code, 1)
        self.contains(error, "training rows are 1347", "lower train.batch_size")
        self.assertNotIn("the others go on", error)

    def test_logs_are_kept_where_they_are_wanted(self):
        logs = self.path("logs/of/this")
        job = write_job(self, digits(epochs=1))
        # Twice: what the first run left there does not disturb the second.
        for _ in range(2):
            code, out, error = tessera("run", job, "--logs", logs)
            self.assertEqual((code, errors_in(error)), (0, ""))
        self.assertGreaterEqual(set(os.listdir(logs)),
                                {"server-0.log", "server-1.log", "worker-0.log", "worker-1.log"})
        self.contains(out, "digits-test: 2 servers, 2 workers", "accuracy", "traffic")

    def test_a_run_that_was_stopped_for_long_goes_on(self):
        run = Run(self, endless(lease="60s", evaluate_every=20))
        children = run.await_training()
        run.signal(signal.SIGSTOP)
        # Server 0 gives the connection up after 20 s (common/rpc/transport.h).
        time.sleep(25)
        run.signal(signal.SIGCONT)

        def epoch():
            return ((status_of(run.address) or {}).get("history") or [{"epoch": 0}])[-1]["epoch"]

        await_true("server 0 is heard", epoch)
        stopped, step = epoch(), int((status_of(run.address) or {"step": 0})["step"])
        # It has connected again: it shows what came after all that was on its way.
        await_true("its rows go on", lambda: max([0.0] + [float(row) for row in re.findall(
            r"\n +(\d+\.\d) ", run.output())]) > stopped, explain=run.output)
        run.signal(signal.SIGINT)
        self.contains(run.expect_exit(-signal.SIGINT), "\n  accuracy ")
        self.assertGreater(run.report()["steps"], step)
        run.expect_nothing_left(children)

    def test_two_runs_do_not_share_a_folder_of_logs(self):
        logs = self.path("logs")
        runs = [Run(self, digits(epochs=ENDLESS), "--logs", logs, "--set", "name=first")]
        runs[0].await_training()
        job = write_job(self, digits(epochs=1), "second.yaml")
        code, out, error = tessera("run", job, "--logs", logs)
        self.assertEqual((code, out), (2, ""))
        self.contains(error, '--logs: "%s": another `tessera run` writes its logs there' % logs)
        runs[0].signal(signal.SIGINT)
        runs[0].expect_exit(-signal.SIGINT)
        self.assertEqual(runs[0].report()["job"], "first")
        self.assertEqual(tessera("run", job, "--logs", logs)[0], 0)
        # Nothing but logs is left there.
        self.assertEqual([name for name in os.listdir(logs) if not name.endswith(".log")], [])

    def test_output_that_cannot_be_written_is_an_error(self):
        job = write_job(self, digits(epochs=1))
        for arguments in (["check", job], ["run", job], ["--help"]):
            with self.case(arguments[0]), open("/dev/full", "w") as full:
                ended = subprocess.run([TESSERA, *arguments], stdout=full, stderr=subprocess.PIPE, text=True,
                                       timeout=60)
                self.assertEqual(ended.returncode, 1, ended.stderr)
                self.contains(ended.stderr, "stdout: cannot be written")
            with self.case((arguments[0], "closed")):
                ended = subprocess.run(["bash", "-c", '"$@" >&-', "bash", TESSERA, *arguments], stderr=subprocess.PIPE,
                                       text=True, timeout=60)
                self.assertEqual((ended.returncode, errors_in(ended.stderr)),
                                 (1, "tessera: stdout: is closed; give it a place, if only > /dev/null\n"))
        # Who reads the first line alone is content.
        shell = subprocess.run(["bash", "-c", 'set -o pipefail; "$0" run "$1" | head -1', TESSERA, job],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60)
        self.assertEqual((shell.returncode, errors_in(shell.stderr)), (0, ""))

    def test_set_changes_keys_in_every_process(self):
        report = self.path("report.json")
        job = write_job(self, digits(epochs=5))
        code, _, error = tessera("run", job, "--report", report, "--quiet", "--set", "train.epochs=2",
                                 "--set", "name=changed", "--set", "cluster.workers=3")
        self.assertEqual((code, errors_in(error)), (0, ""))
        with open(report) as file:
            report = json.load(file)
        self.assertEqual((report["job"], report["history"][-1]["epoch"]), ("changed", 2))
        self.assertEqual(report["members"]["joined"], 3)


if __name__ == "__main__":
    unittest.main()
