"""Signals that ask a program to end, as service managers and `tessera run` send them."""
import contextlib
import os
import signal
import time

from tessera.job import Job

_ASKED_TO_END = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


# Seconds. Signals so close together are one: what asks a process to end may send one to it and then to its group.
_ONE_SIGNAL = 0.3


def leave_on_signals(job: Job) -> None:
    """SIGTERM, SIGINT (Ctrl-C) and SIGHUP ask this worker to leave: the call that is under way, or the next one, says
    that training is over, and the others go on without it. The second such signal, unless it comes within 0.3 seconds,
    does what it did before this call, which for most programs is to end.

    From the main thread alone, as Python has it. SIGHUP stays ignored where it was (nohup).
    """
    before = {}
    counted = []

    def leave(number, frame):
        now = time.monotonic()
        if counted and now - counted[-1] < _ONE_SIGNAL:
            return
        counted.append(now)
        if len(counted) > 1:
            for asked, handler in before.items():
                signal.signal(asked, handler if handler is not None else signal.SIG_DFL)
            signal.raise_signal(number)
            return
        if not job.closed:
            job.leave()
        # Past Python's buffers, of which the program may be in the middle. A terminal that is gone takes no words,
        # which is why SIGHUP came.
        with contextlib.suppress(OSError):
            os.write(2, b"tessera: %s received, leaving; again to end at once\n" % signal.Signals(number).name.encode())

    for number in _ASKED_TO_END:
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            before[number] = signal.signal(number, leave)


__all__ = ["leave_on_signals"]
