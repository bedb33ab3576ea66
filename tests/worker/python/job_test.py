"""Job: the calls of the library, one by one, against a library of the tests' own."""
import os
import signal
import subprocess
import sys
import threading
import time
import unittest

from fake_job import FAKE, PACKAGE, FakeJobTest, initial

import numpy as np
import tessera
from tessera import Status, Verdict


class JobTest(FakeJobTest):
    def test_what_the_job_is_comes_from_the_library(self):
        job = self.join("steps 6", "local_steps 2", "rows 5", "state 0 momentum", "save_every 1", rank=3)
        self.assertEqual((job.rank, job.workers, job.seed, job.batch_size, job.steps, job.epochs, job.local_steps),
                         (0, 1, 7, 5, 6, 0, 2))
        self.assertEqual((job.pushes_gradient, job.has_rows, job.keeps_state, job.overlaps),
                         (False, True, True, False))
        self.assertEqual([(t.name, t.shape, t.size, t.is_state, t.parameter, t.state) for t in job.tensors],
                         [("a", (2, 3), 6, False, 0, ""), ("b", (4,), 4, False, 1, ""),
                          ("a.momentum", (2, 3), 6, True, 0, "momentum")])
        self.assertEqual([t.name for t in job.parameters], ["a", "b"])
        self.assertEqual(job.verdict, Verdict.PULL)

    def test_the_environment_says_what_the_caller_leaves_out(self):
        path = self.write()
        os.environ.update(TESSERA_JOB=path, TESSERA_RANK="4", TESSERA_COORDINATOR="there:1")
        tessera.join(description="me").close()
        tessera.join(path, rank=2, coordinator="here:2", description="me", overrides={"a.b": 1}).close()
        log = self.fake.fake_log().decode().split(";")
        self.assertEqual(log[0], "join 4 there:1 me")
        self.assertEqual(log[2:4], ["join 2 here:2 me", "set a.b=1"])
        os.environ["TESSERA_RANK"] = "first"
        with self.assertRaisesRegex(tessera.TesseraError, "TESSERA_RANK is \"first\", want a whole number"):
            tessera.join(path)
        del os.environ["TESSERA_JOB"]
        with self.assertRaisesRegex(tessera.TesseraError, "no job file is given"):
            tessera.join()

    def test_changes_are_added_and_come_back(self):
        job = self.join("steps 4", "local_steps 2")
        a, b = np.zeros((2, 3), np.float32), np.zeros(4, np.float32)
        self.assertEqual(job.pull([a, b]), Verdict.TRAIN)
        np.testing.assert_array_equal(a, initial((2, 3), 0))
        np.testing.assert_array_equal(b, initial((4,), 1))
        self.assertFalse(job.minibatch().last)
        self.assertEqual(job.step(8, 1.5), Verdict.TRAIN)
        self.assertTrue(job.minibatch().last)
        a += 1
        self.assertEqual(job.step(8, 1.25), Verdict.EXCHANGE)
        self.assertEqual(job.exchange({"b": b, "a": a}), Verdict.TRAIN)
        np.testing.assert_array_equal(a, initial((2, 3), 0) + 1)
        job.step(8, 1)
        job.step(8, 1)
        self.assertEqual(job.exchange([a, b]), Verdict.EVALUATE)
        self.assertEqual(job.evaluate(score=0.5, loss=0.25, rows=10), Verdict.STOP)
        job.close()
        self.assertEqual(self.calls(), ["pull", "step 8 1.5", "step 8 1.25", "exchange", "step 8 1", "step 8 1",
                                        "exchange", "evaluate 0.5 0.25 10", "close"])

    def test_gradients_are_applied_by_the_servers(self):
        job = self.join("gradient 0.5", "steps 1")
        values = [tensor.empty() for tensor in job.tensors]
        job.pull(values)
        job.step(1, 0)
        gradients = [np.full((2, 3), 2, np.float32), np.zeros(4, np.float32)]
        job.exchange(values, gradients)
        np.testing.assert_array_equal(values[0], initial((2, 3), 0) - 1)
        np.testing.assert_array_equal(values[1], initial((4,), 1))

    def test_gradients_are_wanted_where_they_are_pushed_and_nowhere_else(self):
        for lines, gradients, wrong in ((("gradient 1",), None, "pushes gradients; give them"),
                                        ((), 1, "leave gradients out")):
            self.fake.fake_reset()
            job = self.join(*lines, "steps 1")
            values = [tensor.empty() for tensor in job.tensors]
            job.pull(values)
            job.step(1, 0)
            with self.assertRaisesRegex(ValueError, wrong):
                job.exchange(values, values if gradients else None)
            self.assertNotIn("exchange", self.calls())
            job.close()

    def test_arrays_that_do_not_fit_are_named_and_nothing_is_sent(self):
        job = self.join()
        a, b = np.zeros((2, 3), np.float32), np.zeros(4, np.float32)
        frozen = b.copy()
        frozen.flags.writeable = False
        for arrays, wrong in (([a], "1 arrays, want 2"), ({"a": a}, "no array for \"b\""),
                              ({"a": a, "b": b, "c": b}, "the job has no tensor \"c\""),
                              ([a.astype("f8"), b], "a is of float64, want float32"),
                              ([a.T, b], r"a has shape \[3, 2\], want \[2, 3\]"),
                              ([np.zeros((3, 2), np.float32).T, b], "a is not contiguous"),
                              ([a, frozen], "b may not be written"), ([a, [0, 0, 0, 0]], "b is a list"),
                              ([a[:1], b[:2]], r"a has shape .*; b has shape \[2\], want \[4\]")):
            with self.assertRaisesRegex(ValueError, wrong):
                job.pull(arrays)
        self.assertEqual(self.calls(), [])
        self.assertEqual(job.pull([a.reshape(-1), b]), Verdict.TRAIN)
        np.testing.assert_array_equal(a, initial((2, 3), 0))

    def test_a_call_that_was_not_asked_for_changes_nothing(self):
        job = self.join()
        for call in (lambda: job.step(1, 0), job.minibatch, job.evaluate, lambda: job.save_state(b"")):
            with self.assertRaisesRegex(tessera.TesseraError, "the job asks for PULL next") as caught:
                call()
            self.assertEqual(caught.exception.code, Status.FAILED_PRECONDITION)
            self.assertNotIsInstance(caught.exception, tessera.JobLost)
        self.assertEqual(self.calls(), [])

    def test_arrays_live_for_as_long_as_the_library_may_use_them(self):
        job = self.join()
        array = np.zeros(4, np.float32)
        before = sys.getrefcount(array)
        job.pull([np.zeros((2, 3), np.float32), array])
        self.assertEqual(sys.getrefcount(array), before + 1)
        job.close()
        self.assertEqual(sys.getrefcount(array), before)

    def test_a_call_that_runs_out_of_time_says_for_whom_it_waits_and_goes_on(self):
        job = self.join("steps 2", "slow_exchange 3")
        values = [tensor.empty() for tensor in job.tensors]
        job.pull(values)
        job.step(1, 0)
        job.timeout = 0.01
        with self.assertRaisesRegex(tessera.CallTimeout, "exchange: not within 0.01 s: waits for worker 1"):
            job.exchange(values)
        with self.assertRaisesRegex(tessera.TesseraError, "exchange is still in progress"):
            job.exchange(values)
        job.timeout = None
        self.assertEqual(job.wait(), Verdict.TRAIN)
        with self.assertRaisesRegex(tessera.TesseraError, "no call is in progress"):
            job.wait()
        with self.assertRaisesRegex(ValueError, "want a number of seconds above 0"):
            job.timeout = 0
        self.assertEqual(job.step(1, 0), Verdict.EXCHANGE)

    def test_joining_that_takes_too_long_or_fails_leaves_nothing_behind(self):
        with self.assertRaisesRegex(tessera.CallTimeout, "join: not within 0.05 s: waits for worker 1"):
            self.join("slow_join 5", timeout=0.05)
        self.assertEqual(self.open_jobs(), 0)
        with self.assertRaisesRegex(tessera.TesseraError, "does not answer") as caught:
            self.join("refuse 1")
        self.assertEqual(caught.exception.code, Status.UNAVAILABLE)
        with self.assertRaisesRegex(tessera.TesseraError, "cannot be read"):
            tessera.join(os.path.join(self.folder, "none"))
        self.join("slow_join 0.3").close()

    def test_ctrl_c_ends_a_call_that_waits(self):
        job = self.join("steps 2", "slow_exchange 60")
        values = [tensor.empty() for tensor in job.tensors]
        job.pull(values)
        job.step(1, 0)
        timer = threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT))
        begin = time.monotonic()
        with self.assertRaises(KeyboardInterrupt):
            with job:
                timer.start()
                job.exchange(values)
        self.assertLess(time.monotonic() - begin, 30)
        self.assertEqual(self.open_jobs(), 0)

    def test_leaving_ends_a_call_from_another_thread(self):
        job = self.join("steps 2", "slow_exchange 60")
        values = [tensor.empty() for tensor in job.tensors]
        job.pull(values)
        job.step(1, 0)
        timer = threading.Timer(0.2, job.leave)
        timer.start()
        self.assertEqual(job.exchange(values), Verdict.STOP)
        timer.join()
        job.close()
        job.close()
        job.leave()
        with self.assertRaisesRegex(tessera.TesseraError, "the job is closed"):
            job.pull(values)

    def test_a_second_thread_is_refused(self):
        job = self.join("steps 2", "slow_exchange 4")
        values = [tensor.empty() for tensor in job.tensors]
        job.pull(values)
        job.step(1, 0)
        caught, begins = [], threading.Event()

        def call():
            begins.wait()
            time.sleep(0.5)
            for function in (lambda: job.member, job.close):
                try:
                    function()
                except tessera.TesseraError as error:
                    caught.append(str(error))

        thread = threading.Thread(target=call)
        thread.start()
        begins.set()
        job.exchange(values)
        thread.join()
        self.assertEqual(len(caught), 2)
        self.assertTrue(all("another thread" in text for text in caught), caught)

    def test_a_worker_that_was_removed_may_join_again(self):
        job = self.join("steps 4", "lost_at 2")
        values = [tensor.empty() for tensor in job.tensors]
        job.pull(values)
        job.step(1, 0)
        job.exchange(values)
        member = job.member
        with self.assertRaisesRegex(tessera.JobLost, "was removed; join again"):
            job.step(1, 0)
        self.assertIs(job.rejoin(), job)
        self.assertEqual((job.verdict, job.member), (Verdict.PULL, member + 1))
        self.assertEqual(job.pull(values), Verdict.TRAIN)
        job.close()
        self.assertEqual(self.open_jobs(), 0)

    def test_an_error_is_raised_once(self):
        job = self.join("lost_at 1")
        job.pull([tensor.empty() for tensor in job.tensors])
        with self.assertRaises(tessera.JobLost):
            job.step(1, 0)
        job.close()

    def test_state_comes_back_with_the_values(self):
        job = self.join("steps 4", "save_every 1", "back_at 2")
        values = [tensor.empty() for tensor in job.tensors]
        job.pull(values)
        self.assertEqual(job.load_state(), b"")
        values[0] += 1
        job.step(1, 0)
        self.assertEqual(job.exchange(values), Verdict.SAVE)
        self.assertEqual(job.save_state(b"at\0one"), Verdict.TRAIN)
        values[0] += 5
        self.assertEqual(job.step(1, 0), Verdict.PULL)
        job.pull(values)
        np.testing.assert_array_equal(values[0], initial((2, 3), 0) + 1)
        self.assertEqual(job.load_state(), b"at\0one")

    def test_a_forked_child_is_told_and_does_not_end_the_job(self):
        job = self.join()
        values = [tensor.empty() for tensor in job.tensors]
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                job.pull(values)
            except tessera.TesseraError as error:
                os.write(write, str(error).encode())
            job.close()
            os._exit(0)
        os.waitpid(child, 0)
        self.assertIn(b"this process was forked from the one that joined", os.read(read, 1000))
        os.close(read)
        os.close(write)
        self.assertEqual(job.pull(values), Verdict.TRAIN)

    def test_the_interpreter_leaves_what_nobody_closed(self):
        path = self.write()
        # A handler that was registered before the package's runs after it.
        program = ("import atexit, ctypes, sys\nfake = ctypes.CDLL(sys.argv[2])\n"
                   "atexit.register(lambda: print('open', fake.fake_open_jobs()))\n"
                   "import tessera\njob = tessera.join(sys.argv[1])\nprint('open', fake.fake_open_jobs())\n")
        for end in ("", "raise SystemExit(3)\n", "1 / 0\n"):
            done = subprocess.run([sys.executable, "-c", program + end, path, FAKE], capture_output=True, text=True,
                                  env=dict(os.environ, PYTHONPATH=PACKAGE))
            self.assertEqual(done.stdout, "open 1\nopen 0\n", done.stderr)

    def test_the_places_of_the_library_are_named_where_it_is_nowhere(self):
        done = subprocess.run([sys.executable, "-c", "import tessera; tessera.join('job')"], capture_output=True,
                              text=True, env=dict(os.environ, PYTHONPATH=PACKAGE,
                                                  TESSERA_CLIENT_LIBRARY="/nowhere/libtessera_client.so"))
        self.assertIn("TESSERA_CLIENT_LIBRARY is \"/nowhere/libtessera_client.so\", where there is no file",
                      done.stderr)
        package = os.path.join(self.folder, "elsewhere")
        os.makedirs(package)
        subprocess.run(["cp", "-rL", os.path.join(PACKAGE, "tessera"), package], check=True)
        environment = {name: value for name, value in os.environ.items() if name != "TESSERA_CLIENT_LIBRARY"}
        done = subprocess.run([sys.executable, "-c", "import tessera; tessera.join('job')"], capture_output=True,
                              text=True, env=dict(environment, PYTHONPATH=package))
        for part in ("beside the package: no %s/tessera/libtessera_client.so" % package, "in the build tree: no ",
                     "where the system looks: ", "bazel build //worker/client:libtessera_client.so"):
            self.assertIn(part, done.stderr)

    def test_a_file_that_is_no_such_library_is_refused(self):
        path = os.path.join(self.folder, "libtessera_client.so")
        with open(path, "w") as file:
            file.write("text")
        done = subprocess.run([sys.executable, "-c", "import tessera; tessera.join('job')"], capture_output=True,
                              text=True, env=dict(os.environ, PYTHONPATH=PACKAGE, TESSERA_CLIENT_LIBRARY=path))
        self.assertIn("LibraryNotFound: %s" % path, done.stderr)


if __name__ == "__main__":
    unittest.main()
