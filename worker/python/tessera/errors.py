"""What can go wrong, as exceptions: each has the library's status as `code` and its sentence as text."""
import enum


class Status(enum.IntEnum):
    """The numbers are those of gRPC's status codes, and of tessera_client.h."""
    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    UNAUTHENTICATED = 16


class TesseraError(RuntimeError):
    """A call failed. `code` is a Status, or a plain int where the library has a newer one."""

    def __init__(self, code: int, message: str):
        super().__init__(message)
        try:
            self.code: int = Status(code)
        except ValueError:
            self.code = code


class JobLost(TesseraError):
    """This worker is no member of the job any more, or the job has gone. `Job.rejoin` takes part again."""


class CallTimeout(TesseraError, TimeoutError):
    """The call is still in progress; the text says for whom it waits. `Job.wait` goes on with it."""


class LibraryNotFound(TesseraError, ImportError):
    """libtessera_client.so is nowhere, cannot be loaded, or is too old. The text names every place that was tried."""

    def __init__(self, message: str):
        TesseraError.__init__(self, Status.NOT_FOUND, message)


def exception_of(code: int, message: str, in_order: bool) -> TesseraError:
    """The exception of a status. `in_order`: the job had asked for the call, so that a failed precondition is the
    membership's end."""
    if code == Status.DEADLINE_EXCEEDED:
        return CallTimeout(code, message)
    if code == Status.FAILED_PRECONDITION and in_order:
        return JobLost(code, message)
    return TesseraError(code, message)
