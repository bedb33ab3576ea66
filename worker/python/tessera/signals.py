"""Signals that ask a program to end, as service managers and `tessera run` send them."""
import signal
import sys

from tessera.job import Job

_ASKED_TO_END = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def leave_on_signals(job: Job) -> None:
    """SIGTERM, SIGINT (Ctrl-C) and SIGHUP ask this worker to leave: the call that is under way, or the next one, says
    that training is over, and the others go on without it. The second such signal ends the program.

    From the main thread alone, as Python has it. The handlers that there were are put back by the first signal.
    """
    before = {}

    def leave(number, frame):
        for asked, handler in before.items():
            signal.signal(asked, handler if handler is not None else signal.SIG_DFL)
        print("tessera: %s received, leaving; again to end at once" % signal.Signals(number).name, file=sys.stderr)
        if not job.closed:
            job.leave()

    for number in _ASKED_TO_END:
        before[number] = signal.signal(number, leave)


__all__ = ["leave_on_signals"]
