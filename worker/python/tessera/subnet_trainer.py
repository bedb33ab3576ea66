"""The loop of a program that trains subnets: each round gives it arrays of other units.

    def begin(arrays, units, round):                     # a round begins: the network of these units alone
        network.build(arrays)

    trainer = tessera.SubnetTrainer(job, begin)
    while trainer.running:
        ...                                              # one minibatch: trainer.arrays are trained
        if not trainer.step(examples=len(x), loss=loss):
            break
        if trainer.evaluates:                            # trainer.whole has the values of the whole model
            trainer.report(score=accuracy, loss=test_loss, rows=len(test))
    job.close()
"""
from typing import Callable

import numpy as np

from tessera.arrays import array_set
from tessera.errors import Status, TesseraError
from tessera.job import Job
from tessera.tensor import Round
from tessera.trainer import Trainer

Begin = Callable[[dict[str, np.ndarray], dict[str, np.ndarray], Round], None]


class SubnetTrainer(Trainer):
    """Makes the calls of a Job of subnets, for a program that trains the arrays of each round in place.

    One thread, the job's. `begin` has been called once when this object is made.
    """

    _takes_subnets = True

    def __init__(self, job: Job, begin: Begin | None = None, scores: bool = True,
                 on_save: Callable[[], bytes] | None = None, on_load: Callable[[bytes], None] | None = None):
        """begin   called with (arrays, units, round) whenever a round's values have come: an array for each tensor, by
                name, by group the units of the whole model that they are of, and which round it is. State of an
                optimizer is of other units then, and begins anew. (job.round may be of what is asked for next by then:
                of an evaluation.)
        scores  False: this worker never holds the whole model, and scores nothing
        on_save, on_load as Trainer's

        Raises TesseraError: the job has no subnets.
        """
        if not job.has_subnets:
            raise TesseraError(Status.FAILED_PRECONDITION, "trainer: the job gives all workers the whole model; use "
                               "Trainer")
        self._begin = begin
        self._scores = scores
        self._member: int | None = None
        self._whole: dict[str, np.ndarray] | None = None
        self.arrays: dict[str, np.ndarray] = {}
        self.units: dict[str, np.ndarray] = {}
        self.round: Round | None = None
        super().__init__(job, {}, None, on_save, on_load)

    @property
    def whole(self) -> dict[str, np.ndarray]:
        """The arrays of the whole model by name: while `evaluates`, and from when on the job trains the whole model.

        Raises TesseraError at other times.
        """
        if self._whole is not None:
            return self._whole
        if self.round is not None and self.round.whole:
            return self.arrays
        raise TesseraError(Status.FAILED_PRECONDITION, "whole: there is none while a subnet is trained; see evaluates")

    # --- what is otherwise than with a model that is whole -----------------------------------------------------------

    def _set_arrays(self, arrays, gradients) -> None:
        self._values = self._gradients = None

    def _pull(self) -> bool:
        job = self.job
        now = job.round
        if now.evaluation and not self._scores:
            job.pull(None)
            return False
        tensors = job.tensors_now
        arrays = {tensor.name: tensor.empty() for tensor in tensors}
        values = array_set(arrays, tensors, "trainer", True)
        if now.evaluation:
            self._whole = arrays
            job.pull_sets(values)
            return False
        units = {group: job.subnet(group) for group in job.groups}
        # Those of the last round are held until the servers have them, which is when this verdict has come.
        self._values, self._whole = values, None
        job.pull_sets(values)
        self.arrays, self.units, self.round = arrays, units, now
        if self._begin is not None:
            self._begin(arrays, units, now)
        before, self._member = self._member, job.member
        return before != self._member

    def _evaluate(self, score: float, loss: float, rows: int) -> None:
        super()._evaluate(score, loss, rows)
        self._whole = None
