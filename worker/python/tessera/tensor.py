"""What the job says of what is exchanged and of what is asked: tensors, minibatches and verdicts."""
import dataclasses
import enum

import numpy as np


class Verdict(enum.IntEnum):
    """What the job wants of its caller next, and the call of Job that does it."""
    TRAIN = 0     # one minibatch, then step
    EXCHANGE = 1  # exchange
    EVALUATE = 2  # evaluate
    SAVE = 3      # save_state
    PULL = 4      # pull: the job begins, or went back to a checkpoint; with subnets, other units have come
    STOP = 5      # training is over: close


@dataclasses.dataclass(frozen=True)
class Tensor:
    """One tensor that is exchanged, of float32."""
    index: int
    name: str
    shape: tuple[int, ...]
    size: int              # numbers in it
    is_state: bool         # of the caller's optimizer, averaged beside the parameters; begins at 0
    parameter: int         # the index of the parameter that a state belongs to; of a parameter its own
    state: str             # what a state is: "momentum", "mean", "squares"; "" of a parameter

    def empty(self) -> np.ndarray:
        """An array that the tensor's values fit into, filled with 0."""
        return np.zeros(self.shape, np.float32)


@dataclasses.dataclass(frozen=True)
class Round:
    """What the arrays are of in a job of subnets."""
    number: int            # of the exchange that ends it
    site: int              # this worker's part, from 0
    sites: int             # the parts of all workers
    whole: bool            # the whole model
    evaluation: bool       # for an evaluation alone; the round's arrays stay what they are


@dataclasses.dataclass(frozen=True)
class Minibatch:
    """The minibatch that is to be trained next."""
    step: int              # of this worker, from 0
    epoch: int             # from 0
    rate: float            # what the schedule multiplies the learning rate of the caller's optimizer by
    last: bool             # an exchange follows
    rows: np.ndarray | None  # uint32: rows of the job's training data, in its files' order; None: the job has no data
