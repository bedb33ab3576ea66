"""The loop of a program that computes minibatches: what a verdict asks for is done here.

    trainer = tessera.Trainer(job, arrays)
    while trainer.running:
        ...                                              # one minibatch: arrays are trained, or gradients written
        if not trainer.step(examples=len(x), loss=loss):
            break
        if trainer.evaluates:
            trainer.report(score=accuracy, loss=test_loss, rows=len(test))
    job.close()
"""
from typing import Callable

import numpy as np

from tessera.arrays import array_set
from tessera.errors import Status, TesseraError
from tessera.job import Arrays, Job
from tessera.tensor import Minibatch, Verdict


class Trainer:
    """Makes the calls of a Job, for a program whose model lies in NumPy arrays.

    One thread, the job's. The arrays have the servers' values once this object is made.

    on_save  returns bytes: the state of the program that is in no tensor (its optimizer's, its random numbers'), for a
             checkpoint. None: nothing is kept
    on_load  is given what on_save had returned, where the job goes on from a checkpoint. Behind the values; may be set
             later as well, and is then called at once if there is something to load
    """

    # Whether arrays are other ones in each round.
    _takes_subnets = False

    def __init__(self, job: Job, arrays: Arrays, gradients: Arrays | None = None,
                 on_save: Callable[[], bytes] | None = None, on_load: Callable[[bytes], None] | None = None):
        """`arrays`: one float32 array for each of job.tensors, as a list or by name; used in place. `gradients`: one
        for each of job.parameters, where job.pushes_gradient; the program writes each minibatch's mean gradient there.

        Raises ValueError that names every array that does not fit, and TesseraError where each round has other arrays:
        SubnetTrainer takes those.
        """
        if job.has_subnets and not self._takes_subnets:
            raise TesseraError(Status.FAILED_PRECONDITION, "trainer: each round of the job gives this worker other "
                               "units of the model; use tessera.SubnetTrainer")
        self.job = job
        self.on_save = on_save
        self._on_load: Callable[[bytes], None] | None = None
        self._own_state = b""
        self._rejoined = False
        self._minibatch: Minibatch | None = None
        self._set_arrays(arrays, gradients)
        self._settle()
        # Nothing was interrupted: this is where the program begins.
        self._rejoined = False
        self.on_load = on_load

    # --- what the program asks ---------------------------------------------------------------------------------------

    @property
    def running(self) -> bool:
        """Training is not over."""
        return self.job.verdict != Verdict.STOP

    @property
    def evaluates(self) -> bool:
        """All workers score the values that there are now: call `report`."""
        return self.job.verdict == Verdict.EVALUATE

    @property
    def rejoined(self) -> bool:
        """The last `step`, `report` or `rejoin` took the servers' values anew, as the job went back to a checkpoint or
        this worker was no member: what the program counts by itself begins again."""
        return self._rejoined

    @property
    def minibatch(self) -> Minibatch:
        """The minibatch that is to be trained, with its rows and its rate."""
        if self._minibatch is None:
            self._end_evaluation()
            self._minibatch = self.job.minibatch()
        return self._minibatch

    @property
    def on_load(self) -> Callable[[bytes], None] | None:
        return self._on_load

    @on_load.setter
    def on_load(self, called: Callable[[bytes], None] | None) -> None:
        self._on_load = called
        self._hand_over_state()

    # --- what the program does ---------------------------------------------------------------------------------------

    def step(self, examples: int, loss: float) -> bool:
        """One minibatch of so many examples is done, with this mean loss. Exchanges and saves where that is due.

        True: go on; first `report`, if `evaluates`. An evaluation that was asked for and not reported counts as one
        without rows.
        """
        self._rejoined = False
        self._end_evaluation()
        # Where the job went back in between, this minibatch was of values that are gone.
        if self.job.verdict == Verdict.TRAIN and not self._rejoined:
            self._train(examples, loss)
            self._settle()
        return self.running

    def report(self, score: float = 0.0, loss: float = 0.0, rows: int = 0) -> bool:
        """What the values score on `rows` rows of test data: Job.evaluate. Returns whether training goes on."""
        self._rejoined = False
        if not self.evaluates:
            raise TesseraError(Status.FAILED_PRECONDITION, "report: no evaluation is asked for; see Trainer.evaluates")
        # The job asks again where a worker was lost in between. The values are the same, and so is what they score.
        while self.evaluates and not self._rejoined:
            self._evaluate(score, loss, rows)
            self._settle()
        return self.running

    def rejoin(self) -> None:
        """Takes part again behind a JobLost, with the servers' values: Job.rejoin. `rejoined` is true behind it."""
        self.job.rejoin()
        self._settle()
        self._rejoined = True

    def close(self) -> None:
        """Leaves the job: Job.close."""
        self.job.close()

    def __enter__(self) -> "Trainer":
        return self

    def __exit__(self, kind, error, trace) -> None:
        self.job.__exit__(kind, error, trace)

    # --- what another kind of model does otherwise -------------------------------------------------------------------

    def _set_arrays(self, arrays: Arrays, gradients: Arrays | None) -> None:
        job = self.job
        if job.pushes_gradient != (gradients is not None):
            raise ValueError("trainer: " + ("the job pushes gradients; give the arrays that they are written to"
                                            if job.pushes_gradient else
                                            "the job pushes the change of the arrays; leave gradients out"))
        self._values = array_set(arrays, job.tensors, "trainer", True)
        self._gradients = None
        if gradients is not None:
            self._gradients = array_set(gradients, job.parameters, "trainer: gradients", False)

    def _train(self, examples: int, loss: float) -> None:
        self.job.step(examples, loss)

    def _exchange(self) -> None:
        self.job.exchange_sets(self._values, self._gradients)

    def _pull(self) -> bool:
        """Takes the servers' values. Whether what the program had before is gone, as the job went back."""
        self.job.pull_sets(self._values)
        return True

    def _evaluate(self, score: float, loss: float, rows: int) -> None:
        self.job.evaluate(score, loss, rows)

    def _state_to_save(self) -> bytes:
        return self.on_save() if self.on_save else b""

    def _adopt_state(self, state: bytes) -> bytes:
        """Takes what _state_to_save had returned, b"": nothing was saved. Returns what on_load is to be given."""
        return state

    # --- how it is done ----------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Does what the verdicts ask for, until the program is asked."""
        self._minibatch = None
        while True:
            verdict = self.job.verdict
            if verdict == Verdict.EXCHANGE:
                self._exchange()
            elif verdict == Verdict.SAVE:
                self.job.save_state(self._state_to_save())
            elif verdict == Verdict.PULL:
                if self._pull():
                    self._rejoined = True
                    self._own_state = self._adopt_state(self.job.load_state())
                    self._hand_over_state()
            else:
                return

    def _hand_over_state(self) -> None:
        if self._own_state and self._on_load:
            state, self._own_state = self._own_state, b""
            self._on_load(state)

    def _end_evaluation(self) -> None:
        while self.evaluates:
            self._evaluate(0.0, 0.0, 0)
            self._settle()


def arrays_of(job: Job) -> dict[str, np.ndarray]:
    """An array for each of job.tensors, by name and filled with 0."""
    return {tensor.name: tensor.empty() for tensor in job.tensors}
