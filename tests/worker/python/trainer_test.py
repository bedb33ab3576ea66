"""Trainer: what the verdicts ask for is done, and told to the program in so far as it has a part in it."""
import os
import signal
import subprocess
import sys
import time
import unittest

from fake_job import FakeJobTest, initial

import numpy as np
import tessera
from tessera.trainer import arrays_of


# A program whose job is asked to leave by signals, and which goes on until its input ends.
SIGNALLED = """
import os
import sys
from tessera.signals import leave_on_signals

class Job:
    closed = False

    def leave(self):
        os.write(1, b"left\\n")  # the signal may come in the middle of a print, whose buffer is then not to be had

leave_on_signals(Job())
print("ready", flush=True)
sys.stdin.read()
print("alive", flush=True)
"""


class SignalsTest(unittest.TestCase):
    def signalled(self, *numbers, pause=0.0, ignored=None):
        """(exit code, output) of the program that is sent these signals."""
        ignore = (lambda: signal.signal(ignored, signal.SIG_IGN)) if ignored else None
        # Nobody reads what the program says of itself: to say it is an error.
        read_end, write_end = os.pipe()
        os.close(read_end)
        self.addCleanup(os.close, write_end)
        with subprocess.Popen([sys.executable, "-c", SIGNALLED], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              stderr=write_end, text=True, preexec_fn=ignore,
                              env=dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))) as program:
            self.assertEqual(program.stdout.readline(), "ready\n")
            for number in numbers:
                program.send_signal(number)
                time.sleep(pause)
            out = program.communicate(timeout=60)[0]
        return program.returncode, out

    def test_the_second_ends_the_program(self):
        self.assertEqual(self.signalled(signal.SIGTERM, signal.SIGTERM, pause=1), (-signal.SIGTERM, "left\n"))

    def test_sighup_stays_ignored_under_nohup(self):
        self.assertEqual(self.signalled(signal.SIGHUP, ignored=signal.SIGHUP), (0, "alive\n"))


class TrainerTest(FakeJobTest):
    def test_a_loop_exchanges_and_evaluates_until_the_end(self):
        job = self.join("steps 5", "local_steps 2", "evaluate_every 1", "evaluate_twice 1", "rows 3", "rate 0.5")
        arrays = arrays_of(job)
        trainer = tessera.Trainer(job, arrays)
        np.testing.assert_array_equal(arrays["a"], initial((2, 3), 0))
        steps, rows = 0, []
        while trainer.running:
            minibatch = trainer.minibatch
            self.assertIs(minibatch, trainer.minibatch)
            self.assertEqual((minibatch.step, minibatch.rate), (steps, 0.5))
            rows += minibatch.rows.tolist()
            arrays["a"] += 1
            steps += 1
            if not trainer.step(examples=3, loss=steps):
                break
            self.assertEqual(trainer.evaluates, steps in (2, 4, 5))
            if trainer.evaluates:
                self.assertEqual(trainer.report(score=steps, loss=1, rows=9), steps < 5)
        self.assertEqual((steps, rows), (5, list(range(15))))
        np.testing.assert_array_equal(arrays["a"], initial((2, 3), 0) + 5)
        trainer.close()
        self.assertEqual(self.calls(), [
            "pull", "step 3 1", "step 3 2", "exchange", "evaluate 2 1 9", "evaluate 2 1 9", "step 3 3", "step 3 4",
            "exchange", "evaluate 4 1 9", "step 3 5", "exchange", "evaluate 5 1 9", "close"])

    def test_gradients_are_taken_from_the_programs_arrays(self):
        job = self.join("steps 2", "gradient 1")
        arrays, gradients = arrays_of(job), [tensor.empty() for tensor in job.parameters]
        trainer = tessera.Trainer(job, arrays, gradients)
        gradients[1][:] = 1
        trainer.step(1, 0)
        np.testing.assert_array_equal(arrays["b"], initial((4,), 1) - 1)

    def test_gradients_are_wanted_at_the_beginning(self):
        for lines, gradients, wrong in ((("gradient 1",), None, "give the arrays that they are written to"),
                                        ((), {}, "leave gradients out")):
            self.fake.fake_reset()
            job = self.join(*lines)
            with self.assertRaisesRegex(ValueError, wrong):
                tessera.Trainer(job, arrays_of(job), gradients)

    def test_an_evaluation_that_is_not_reported_counts_without_rows(self):
        job = self.join("steps 1", "evaluate_first 1")
        trainer = tessera.Trainer(job, arrays_of(job))
        self.assertTrue(trainer.evaluates)
        self.assertTrue(trainer.step(1, 0))
        self.assertTrue(trainer.evaluates)
        self.assertFalse(trainer.step(1, 0))
        self.assertEqual(self.calls(), ["pull", "evaluate 0 0 0", "step 1 0", "exchange", "evaluate 0 0 0"])
        with self.assertRaisesRegex(tessera.TesseraError, "no evaluation is asked for"):
            trainer.report()
        self.assertFalse(trainer.step(1, 0))

    def test_what_a_program_saves_comes_back_when_the_job_does(self):
        job = self.join("steps 4", "save_every 1", "back_at 3")
        arrays, given = arrays_of(job), []
        counter = 0
        trainer = tessera.Trainer(job, arrays, on_save=lambda: b"counter %d" % counter, on_load=given.append)
        seen = []
        for counter in range(1, 6):
            arrays["b"] += 1
            more = trainer.step(1, 0)
            seen.append(trainer.rejoined)
            if not more:
                break
            if trainer.evaluates:
                self.assertFalse(trainer.report(rows=1))
        self.assertEqual(given, [b"counter 2"])
        self.assertEqual(seen, [False, False, True, False, False])
        # Two steps were saved, one is lost, and two more were made.
        np.testing.assert_array_equal(arrays["b"], initial((4,), 1) + 4)

    def test_what_was_saved_waits_for_who_loads_it(self):
        job = self.join("steps 4", "save_every 1", "lost_at 2")
        trainer = tessera.Trainer(job, arrays_of(job), on_save=lambda: b"mine")
        trainer.step(1, 0)
        with self.assertRaises(tessera.JobLost):
            trainer.step(1, 0)
        self.assertFalse(trainer.rejoined)
        trainer.rejoin()
        self.assertTrue(trainer.rejoined)
        given = []
        trainer.on_load = given.append
        trainer.on_load = given.append
        self.assertEqual(given, [b"mine"])
        self.assertTrue(trainer.step(1, 0))
        self.assertFalse(trainer.rejoined)

    def test_a_trainer_leaves_the_job_at_the_end_of_its_block(self):
        with self.assertRaises(ZeroDivisionError):
            with tessera.Trainer(self.join(), [np.zeros((2, 3), np.float32), np.zeros(4, np.float32)]):
                1 / 0
        self.assertEqual(self.open_jobs(), 0)


if __name__ == "__main__":
    unittest.main()
