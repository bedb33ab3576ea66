"""A worker's part in a job: `join`, and `Job` with the calls that its verdicts ask for.

    with tessera.join("job.yaml") as job:
        values = [tensor.empty() for tensor in job.tensors]
        verdict = job.pull(values)
        while verdict != Verdict.STOP:
            if verdict == Verdict.TRAIN:
                verdict = job.step(*train(values))       # one minibatch: its examples, and its mean loss
            elif verdict == Verdict.EXCHANGE:
                verdict = job.exchange(values)
            elif verdict == Verdict.EVALUATE:
                verdict = job.evaluate(*score(values))
            ...

Most programs take `Trainer` or `tessera.torch.attach`, which make these calls by themselves.
"""
import atexit
import ctypes
import os
import platform
import sys
import threading
import time
import weakref
from typing import Any, Callable, Iterable, Mapping, Sequence

import numpy as np

from tessera import library
from tessera.arrays import ArraySet, array_set
from tessera.errors import CallTimeout, JobLost, Status, TesseraError, exception_of
from tessera.tensor import Minibatch, Round, Tensor, Verdict

# How long the library waits before Python looks after its signals, so that Ctrl-C ends a call that waits.
_SLICE_SECONDS = 0.1
Arrays = Mapping[str, np.ndarray] | Sequence[np.ndarray]

_live: "weakref.WeakSet[Job]" = weakref.WeakSet()


@atexit.register
def _leave_all() -> None:
    """The interpreter ends: jobs that nobody closed are left, so that nobody waits for this worker."""
    for job in list(_live):
        job._close_quietly()


def join(job_file: str | os.PathLike | None = None, rank: int | None = None, coordinator: str | None = None,
         overrides: Mapping[str, Any] | Iterable[str] = (), description: str | None = None,
         timeout: float | None = None, log_level: str | None = None) -> "Job":
    """Takes part in a job as a worker; returns once admitted.

    job_file     path of the YAML file, the same as the servers'; else the environment's TESSERA_JOB
    rank         the wanted place among the workers; else TESSERA_RANK, else -1: the lowest free one
    coordinator  host:port of server 0; else TESSERA_COORDINATOR, else as the job file has it
    overrides    changes of the job file: {"train.steps": 10}, or "train.steps=10" as after --set
    description  of what computes, for status and report, such as "ResNet-18 on a laptop"
    timeout      seconds, of this call and of later ones; None: as long as it takes. Job.timeout changes it
    log_level    "debug", "info", "warning" or "error", of what the library writes to stderr; else TESSERA_LOG_LEVEL,
                 else warning

    Raises TesseraError (the job file is wrong, the servers cannot be reached or run another job), LibraryNotFound,
    CallTimeout (nobody admitted this worker in time; it takes no part then).
    """
    job_file = os.fspath(job_file) if job_file is not None else os.environ.get("TESSERA_JOB")
    if not job_file:
        raise TesseraError(Status.INVALID_ARGUMENT, "join: no job file is given; name it, or set TESSERA_JOB")
    if rank is None:
        text = os.environ.get("TESSERA_RANK") or "-1"
        try:
            rank = int(text)
        except ValueError:
            raise TesseraError(Status.INVALID_ARGUMENT, "join: TESSERA_RANK is \"%s\", want a whole number"
                               % text) from None
    coordinator = coordinator or os.environ.get("TESSERA_COORDINATOR") or None
    if isinstance(overrides, Mapping):
        overrides = ["%s=%s" % item for item in overrides.items()]
    log_level = log_level or os.environ.get("TESSERA_LOG_LEVEL") or None
    return Job(job_file, rank, coordinator, list(overrides), description or _describe(), timeout, log_level)


def _describe() -> str:
    said = "Python %s, NumPy %s" % (platform.python_version(), np.__version__)
    return said + ", PyTorch %s" % sys.modules["torch"].__version__ if "torch" in sys.modules else said


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else os.fsencode(text)


class Job:
    """A worker's membership in a job. Made by `join`.

    One thread at a time; `leave` may be called from any, and from a signal handler. Python's signal handlers run while
    a call waits, so that Ctrl-C ends it; the job is then left by `close`, by the end of a `with` block, or with the
    interpreter. A process that was forked from this one has no part in the job.

    Every call raises JobLost where this worker is no member any more (it was silent for longer than the job's lease,
    as behind a debugger): nothing of this object but `rejoin`, `leave` and `close` is of use then.
    """

    def __init__(self, job_file: str, rank: int, coordinator: str | None, overrides: list[str], description: str,
                 timeout: float | None, log_level: str | None):
        self._handle: ctypes.c_void_p | None = None
        self._library = library.load()
        self._arguments = (job_file, rank, coordinator, overrides, description, log_level)
        self._calls = threading.Lock()   # held by the call in progress
        self._life = threading.RLock()   # `leave` does not meet a handle that `close` has freed
        self._timeout = timeout
        self._join()

    # --- what the job is ---------------------------------------------------------------------------------------------

    @property
    def rank(self) -> int:
        """This worker's place, from 0."""
        return self._info.rank

    @property
    def workers(self) -> int:
        """cluster.workers: how many workers the job begins with."""
        return self._info.workers

    @property
    def member(self) -> int:
        """The number of this membership; it is another one after `rejoin`."""
        return self._read_info().member

    @property
    def seed(self) -> int:
        return self._info.seed

    @property
    def batch_size(self) -> int:
        """train.batch_size: examples of one minibatch; 0: as the caller likes."""
        return self._info.batch_size

    @property
    def steps(self) -> int:
        """train.steps; 0: train.epochs counts."""
        return self._info.steps

    @property
    def epochs(self) -> int:
        """train.epochs; 0: train.steps counts."""
        return self._info.epochs

    @property
    def local_steps(self) -> int:
        """Minibatches from one exchange to the next, at most."""
        return self._info.local_steps

    @property
    def pushes_gradient(self) -> bool:
        """Gradients are pushed, and the servers' optimizer steps. Otherwise the caller's does."""
        return bool(self._info.pushes_gradient)

    @property
    def has_rows(self) -> bool:
        """The job names the rows of each minibatch (Minibatch.rows)."""
        return bool(self._info.has_rows)

    @property
    def keeps_state(self) -> bool:
        """Checkpoints are kept, so that the verdict SAVE may come."""
        return bool(self._info.keeps_state)

    @property
    def overlaps(self) -> bool:
        """An exchange goes on beside the next minibatches."""
        return bool(self._info.overlaps)

    @property
    def has_subnets(self) -> bool:
        """Each round gives this worker a part of the model: see `subnet`."""
        return bool(self._info.has_subnets)

    @property
    def groups(self) -> dict[str, int]:
        """The groups of units that subnets cut, by name: their units in the whole model."""
        return self._groups

    @property
    def round(self) -> Round:
        """With subnets: what the arrays are of that the verdict asks for, or that there are now."""
        info = library.sized(library.RoundInfo)
        self._plain_call("round", self._library.tessera_get_round, ctypes.byref(info))
        return Round(info.number, info.site, info.sites, bool(info.whole), bool(info.evaluation))

    @property
    def tensors_now(self) -> list[Tensor]:
        """`tensors`, with subnets in the shapes of the present round."""
        if not self.has_subnets:
            return self._tensors
        return [self._read_tensor(index, self._library.tessera_tensor_now) for index in range(len(self._tensors))]

    def subnet(self, group: str) -> np.ndarray:
        """With subnets: the units of a group that the arrays are of, as ascending indices: index i of a dimension is
        unit subnet(group)[i] of the whole model; where each unit has k indices side by side, i // k takes the place of
        i. Copied."""
        indices, count = ctypes.POINTER(ctypes.c_uint32)(), ctypes.c_size_t()
        self._plain_call("subnet", self._library.tessera_subnet, group.encode(), ctypes.byref(indices),
                         ctypes.byref(count))
        return np.ctypeslib.as_array(indices, (count.value,)).astype(np.intp)

    @property
    def tensors(self) -> list[Tensor]:
        """All that is exchanged, in order: parameters, then averaged states of the optimizer."""
        return self._tensors

    @property
    def parameters(self) -> list[Tensor]:
        """The tensors of the model: the first ones of `tensors`, and those of which gradients are pushed."""
        return self._tensors[:self._info.parameter_count]

    @property
    def verdict(self) -> Verdict:
        """What the last call said; PULL behind `join`."""
        return self._verdict

    @property
    def timeout(self) -> float | None:
        """Seconds that a call may wait, None: as long as it takes. May be set between calls."""
        return self._timeout

    @timeout.setter
    def timeout(self, seconds: float | None) -> None:
        if seconds is not None and not seconds > 0:
            raise ValueError("timeout: got %s, want a number of seconds above 0, or None" % seconds)
        self._timeout = seconds

    @property
    def closed(self) -> bool:
        return self._handle is None

    # --- what the verdicts ask for -----------------------------------------------------------------------------------

    def pull(self, values: Arrays | None) -> Verdict:
        """Verdict PULL: writes the servers' values into `values`, one float32 array for each of `tensors_now`, as a
        list in their order or a dict by name. None, where `round.evaluation`: this worker scores nothing.

        The arrays are used in place, and kept by this object until it is given others or is closed.

        Raises ValueError, before anything is sent: arrays of another dtype, shape, order or number, all named.
        """
        self._expect("pull", Verdict.PULL)
        if values is None:
            return self._call("pull", self._library.tessera_pull, None, 0)
        self._values = self._set_of(values, self._values, self.tensors_now, "pull", True)
        return self._call("pull", self._library.tessera_pull, self._values.pointers, len(self._values))

    def minibatch(self) -> Minibatch:
        """Verdict TRAIN: the minibatch that is to be trained. Its rows are copied."""
        self._expect("minibatch", Verdict.TRAIN)
        info = library.sized(library.MinibatchInfo)
        self._plain_call("minibatch", self._library.tessera_minibatch, ctypes.byref(info))
        rows = None
        if info.rows:
            rows = np.ctypeslib.as_array(info.rows, (info.row_count,)).copy()
        return Minibatch(info.step, info.epoch, info.rate, bool(info.last), rows)

    def step(self, examples: int, loss: float) -> Verdict:
        """Verdict TRAIN: one minibatch of so many examples is done, with this mean loss."""
        self._expect("step", Verdict.TRAIN)
        if examples < 0:
            raise ValueError("step: examples is %d, want 0 or more" % examples)
        return self._call("step", self._library.tessera_step, int(examples), float(loss))

    def exchange(self, values: Arrays, gradients: Arrays | None = None) -> Verdict:
        """Verdict EXCHANGE: pushes what was learned, and writes the servers' values into `values`.

        `gradients`: means over the minibatch, one float32 array for each of `parameters`, where `pushes_gradient`;
        else None, and what is pushed is the change of `values` since they were pulled, which the library computes.
        With subnets `values` replace the servers' and stay what they are; the next round's come by `pull`.
        Where `overlaps`, `values` become those of the exchange before plus what was trained since.

        Raises ValueError, before anything is sent: gradients given or absent against `pushes_gradient`; arrays that do
        not fit.
        """
        self._expect("exchange", Verdict.EXCHANGE)
        if self.pushes_gradient != (gradients is not None):
            raise ValueError("exchange: " + ("the job pushes gradients; give them" if self.pushes_gradient else
                                             "the job pushes the change of the values; leave gradients out"))
        values = self._set_of(values, self._values, self.tensors_now, "exchange", True)
        if gradients is not None:
            gradients = self._set_of(gradients, self._gradients, self.parameters, "exchange: gradients", False)
        return self.exchange_sets(values, gradients)

    def exchange_sets(self, values: ArraySet, gradients: ArraySet | None) -> Verdict:
        """`exchange` of arrays that were checked before."""
        self._expect("exchange", Verdict.EXCHANGE)
        self._values, self._gradients = values, gradients
        return self._call("exchange", self._library.tessera_exchange, gradients.pointers if gradients else None,
                          len(gradients) if gradients else 0, values.pointers, len(values))

    def pull_sets(self, values: ArraySet) -> Verdict:
        """`pull` into arrays that were checked before."""
        self._expect("pull", Verdict.PULL)
        self._values = values
        return self._call("pull", self._library.tessera_pull, values.pointers, len(values))

    def evaluate(self, score: float = 0.0, loss: float = 0.0, rows: int = 0) -> Verdict:
        """Verdict EVALUATE: what the last values score on test data. Waits for the other workers.

        score  mean over the rows: accuracy in [0, 1] where the job has layers, else what model.evaluation is about
        loss   mean over the rows
        rows   how many were scored; those of all workers add up. 0: this worker scored none
        """
        self._expect("evaluate", Verdict.EVALUATE)
        if rows < 0:
            raise ValueError("evaluate: rows is %d, want 0 or more" % rows)
        scores = library.sized(library.Scores)
        scores.loss, scores.score, scores.rows = float(loss), float(score), int(rows)
        return self._call("evaluate", self._library.tessera_evaluate, ctypes.byref(scores))

    def save_state(self, state: bytes) -> Verdict:
        """Verdict SAVE: the state of this program that is in no tensor, for the checkpoint. Copied."""
        self._expect("save_state", Verdict.SAVE)
        state = bytes(state)
        return self._call("save_state", self._library.tessera_save_state, state, len(state))

    def load_state(self) -> bytes:
        """Behind `pull`: what this rank had saved in the checkpoint that the job goes on from; b"": nothing."""
        address, size = ctypes.c_void_p(), ctypes.c_size_t()
        self._plain_call("load_state", self._library.tessera_load_state, ctypes.byref(address), ctypes.byref(size))
        return ctypes.string_at(address, size.value) if size.value else b""

    def wait(self) -> Verdict:
        """Goes on with the call that raised CallTimeout, or that Ctrl-C or another exception of a signal ended."""
        if self._pending is None:
            raise TesseraError(Status.FAILED_PRECONDITION, "wait: no call is in progress")
        self._usable("wait")
        if not self._calls.acquire(blocking=False):
            raise self._busy("wait")
        try:
            return self._finish(self._pending, self._library.tessera_wait(self._handle, self._verdict_out))
        finally:
            self._calls.release()

    # --- its end -----------------------------------------------------------------------------------------------------

    def leave(self) -> None:
        """Asks to leave: at once between calls, else after the exchange in progress. From any thread, or a signal
        handler. What the call in progress, or the next one, returns is STOP."""
        with self._life:
            if self._handle is not None and self._pid == os.getpid():
                self._library.tessera_leave(self._handle)

    def close(self) -> None:
        """Leaves if the job has not ended for this worker, and frees the library's memory. Once is enough.

        Raises TesseraError where this worker's part ended with an error that no call has raised yet.
        """
        status, message = self._end()
        if status != Status.OK and not self._failed:
            self._failed = True
            raise exception_of(status, message, True)

    def rejoin(self, timeout: float | None = None) -> "Job":
        """Takes part again, as a new member with the same arguments as at first; returns this object.

        For a worker that is no member any more, and for one that left. The verdict is PULL. `timeout`: as join's, of
        this call alone; None: that of the other calls.
        """
        self._end()
        before = self._timeout
        self._timeout = timeout or before
        try:
            self._join()
        finally:
            self._timeout = before
        return self

    def __enter__(self) -> "Job":
        return self

    def __exit__(self, kind, error, trace) -> None:
        if kind is None:
            self.close()
        else:
            self._close_quietly()

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None:
            self._close_quietly()

    def __repr__(self) -> str:
        if self.closed:
            return "<tessera.Job %s, closed>" % self._arguments[0]
        return "<tessera.Job %s, worker %d, %s>" % (self._arguments[0], self.rank, self._verdict.name)

    # --- how it is done ----------------------------------------------------------------------------------------------

    def _join(self) -> None:
        job_file, rank, coordinator, overrides, description, log_level = self._arguments
        options = library.sized(library.Options)
        # NumPy and ctypes keep no reference to these bytes but `options`, which lives as long as the call.
        options.job_file, options.coordinator = _bytes(job_file), _bytes(coordinator)
        options.overrides = (ctypes.c_char_p * max(1, len(overrides)))(*map(_bytes, overrides))
        options.override_count = len(overrides)
        options.rank = rank
        options.description, options.log_level = _bytes(description), _bytes(log_level)
        options.timeout_seconds = _SLICE_SECONDS
        self._pid = os.getpid()
        self._verdict = Verdict.PULL
        self._verdict_out = (ctypes.c_int * 1)(Verdict.PULL)
        self._values: ArraySet | None = None
        self._gradients: ArraySet | None = None
        self._pending: str | None = "join"
        self._failed = False
        handle = ctypes.c_void_p()
        status = self._library.tessera_join(ctypes.byref(options), ctypes.byref(handle))
        if not handle:
            raise exception_of(status, library.last_message(), False)
        message = library.last_message()  # The next call's would take its place.
        self._handle = handle
        try:
            self._library.tessera_set_timeout(handle, _SLICE_SECONDS)
            with self._calls:
                self._finish("join", status, message)
            self._library.tessera_set_timeout(handle, _SLICE_SECONDS)
            self._verdict = Verdict.PULL
            self._info = self._read_info()
            read = self._library.tessera_tensor_at
            self._tensors = [self._read_tensor(index, read) for index in range(self._info.tensor_count)]
            self._groups = dict(map(self._read_group, range(self._info.group_count)))
        except BaseException:
            self._close_quietly()
            raise
        _live.add(self)

    def _read_info(self) -> library.Info:
        info = library.sized(library.Info)
        self._plain_call("info", self._library.tessera_get_info, ctypes.byref(info))
        return info

    def _read_group(self, index: int) -> tuple[str, int]:
        read = library.sized(library.GroupInfo)
        self._plain_call("groups", self._library.tessera_group_at, index, ctypes.byref(read))
        return read.name.decode(), read.units

    def _read_tensor(self, index: int, function: Callable) -> Tensor:
        read = library.sized(library.TensorInfo)
        self._plain_call("tensors", function, index, ctypes.byref(read))
        return Tensor(index, read.name.decode(), tuple(read.dims[:read.dim_count]), read.size, read.kind == 1,
                      read.parameter, (read.state or b"").decode())

    def _set_of(self, arrays: Arrays, before: ArraySet | None, tensors: Sequence[Tensor], what: str,
                written: bool) -> ArraySet:
        # The arrays of the last call are held, so that the same objects still lie where they lay.
        if before is not None and not isinstance(arrays, Mapping) and before.same_as(arrays):
            return before
        return array_set(arrays, tensors, what, written)

    def _usable(self, what: str) -> None:
        if self._handle is None:
            raise TesseraError(Status.FAILED_PRECONDITION, "%s: the job is closed; rejoin takes part again" % what)
        if self._pid != os.getpid():
            raise TesseraError(Status.FAILED_PRECONDITION,
                               "%s: this process was forked from the one that joined (%d) and has no part in the job; "
                               "join here, or start such processes by multiprocessing's \"spawn\"" % (what, self._pid))

    def _busy(self, what: str) -> TesseraError:
        return TesseraError(Status.FAILED_PRECONDITION, "%s: another thread is in a call of this job; calls come from "
                            "one thread at a time" % what)

    def _expect(self, what: str, verdict: Verdict) -> None:
        self._usable(what)
        if self._pending is not None:
            raise TesseraError(Status.FAILED_PRECONDITION,
                               "%s: %s is still in progress; go on with wait()" % (what, self._pending))
        if self._verdict != verdict:
            raise TesseraError(Status.FAILED_PRECONDITION, "%s: the job asks for %s next, and this is for %s"
                               % (what, self._verdict.name, verdict.name))

    def _call(self, what: str, function: Callable, *arguments) -> Verdict:
        """Makes a call that may wait; its verdict."""
        if not self._calls.acquire(blocking=False):
            raise self._busy(what)
        try:
            # Set first: an exception of a signal handler may come at any time from here on.
            self._pending = what
            return self._finish(what, function(self._handle, *arguments, self._verdict_out))
        finally:
            self._calls.release()

    def _finish(self, what: str, status: int, message: str | None = None) -> Verdict:
        """Waits for a call in slices, until it is done or its time is up."""
        end = None if self._timeout is None else time.monotonic() + self._timeout
        while status == Status.DEADLINE_EXCEEDED:
            if end is not None and time.monotonic() >= end:
                raise CallTimeout(status, "%s: not within %g s: %s"
                                  % (what, self._timeout, library.last_message() or message))
            message = None
            status = self._library.tessera_wait(self._handle, self._verdict_out)
        message = message or library.last_message()
        self._pending = None
        if status != Status.OK:
            self._failed = True
            raise exception_of(status, message, True)
        self._verdict = Verdict(self._verdict_out[0])
        return self._verdict

    def _plain_call(self, what: str, function: Callable, *arguments) -> None:
        """Makes a call that does not wait and has no verdict."""
        self._usable(what)
        if not self._calls.acquire(blocking=False):
            raise self._busy(what)
        try:
            status = function(self._handle, *arguments)
        finally:
            self._calls.release()
        if status != Status.OK:
            raise exception_of(status, library.last_message(), True)

    def _end(self) -> tuple[int, str]:
        """Leaves and frees; the library's status of this membership, and its message. Nothing where that was done."""
        if self._handle is None:
            return Status.OK, ""
        if self._pid != os.getpid():
            # The threads that would end it are the other process's.
            self._handle = None
            return Status.OK, ""
        self.leave()
        if not self._calls.acquire(blocking=False):
            raise self._busy("close")
        try:
            with self._life:
                handle, self._handle = self._handle, None
            _live.discard(self)
            status = self._library.tessera_close(handle)
            return status, library.last_message() if status != Status.OK else ""
        finally:
            self._values = self._gradients = None
            self._calls.release()

    def _close_quietly(self) -> None:
        try:
            self._end()
        except Exception:  # Whoever calls has an error of its own to tell, or ends.
            pass


__all__ = ["Job", "JobLost", "join"]
