"""The C interface of worker/client/tessera_client.h for ctypes: its structs, its functions, and where the library is.

TESSERA_CLIENT_LIBRARY names the library. Without it these places are searched, in this order: the package's own folder
(a wheel), the folder `client` beside the package's parent (a bundle), the build tree that the package lies in, and
where the system's loader looks.
"""
import ctypes
import functools
import os
from ctypes import (POINTER, Structure, byref, c_char_p, c_double, c_float, c_int, c_int32, c_int64, c_size_t, c_uint32,
                    c_uint64, c_void_p, sizeof)
from typing import Iterator, TypeVar

from tessera.errors import LibraryNotFound

API = 2
NAME = "libtessera_client.so"
VARIABLE = "TESSERA_CLIENT_LIBRARY"


class Options(Structure):
    _fields_ = [("struct_size", c_size_t), ("job_file", c_char_p), ("overrides", POINTER(c_char_p)),
                ("override_count", c_size_t), ("coordinator", c_char_p), ("rank", c_int64), ("description", c_char_p),
                ("log_level", c_char_p), ("timeout_seconds", c_double)]


class Info(Structure):
    _fields_ = [("struct_size", c_size_t), ("rank", c_int64), ("workers", c_int64), ("member", c_uint64),
                ("seed", c_uint64), ("batch_size", c_int64), ("steps", c_int64), ("epochs", c_int64),
                ("local_steps", c_int64), ("tensor_count", c_int64), ("parameter_count", c_int64),
                ("pushes_gradient", c_int32), ("has_rows", c_int32), ("keeps_state", c_int32), ("overlaps", c_int32),
                ("has_subnets", c_int32), ("group_count", c_int32)]


class TensorInfo(Structure):
    _fields_ = [("struct_size", c_size_t), ("name", c_char_p), ("kind", c_int32), ("dim_count", c_int32),
                ("dims", POINTER(c_int64)), ("size", c_int64), ("parameter", c_int64), ("state", c_char_p)]


class GroupInfo(Structure):
    _fields_ = [("struct_size", c_size_t), ("name", c_char_p), ("units", c_int64)]


class RoundInfo(Structure):
    _fields_ = [("struct_size", c_size_t), ("number", c_uint64), ("site", c_int64), ("sites", c_int64),
                ("whole", c_int32), ("evaluation", c_int32)]


class MinibatchInfo(Structure):
    _fields_ = [("struct_size", c_size_t), ("step", c_uint64), ("epoch", c_uint64), ("rate", c_float),
                ("last", c_int32), ("rows", POINTER(c_uint32)), ("row_count", c_size_t)]


class Scores(Structure):
    _fields_ = [("struct_size", c_size_t), ("loss", c_double), ("score", c_double), ("rows", c_uint64)]


Struct = TypeVar("Struct", bound=Structure)


def sized(kind: type[Struct]) -> Struct:
    """An empty struct that tells the library how long it is."""
    struct = kind()
    struct.struct_size = sizeof(kind)
    return struct


# Arrays of pointers to floats are passed as void*: ctypes then takes an array of c_void_p without a cast.
_ARRAYS, _VERDICT = c_void_p, POINTER(c_int)
_FUNCTIONS = {
    "tessera_last_message": (c_char_p, []),
    "tessera_version": (c_char_p, []),
    "tessera_client_api": (c_int, []),
    "tessera_join": (c_int, [POINTER(Options), POINTER(c_void_p)]),
    "tessera_get_info": (c_int, [c_void_p, POINTER(Info)]),
    "tessera_tensor_at": (c_int, [c_void_p, c_int64, POINTER(TensorInfo)]),
    "tessera_group_at": (c_int, [c_void_p, c_int64, POINTER(GroupInfo)]),
    "tessera_get_round": (c_int, [c_void_p, POINTER(RoundInfo)]),
    "tessera_tensor_now": (c_int, [c_void_p, c_int64, POINTER(TensorInfo)]),
    "tessera_subnet": (c_int, [c_void_p, c_char_p, POINTER(POINTER(c_uint32)), POINTER(c_size_t)]),
    "tessera_set_timeout": (c_int, [c_void_p, c_double]),
    "tessera_wait": (c_int, [c_void_p, _VERDICT]),
    "tessera_pull": (c_int, [c_void_p, _ARRAYS, c_size_t, _VERDICT]),
    "tessera_minibatch": (c_int, [c_void_p, POINTER(MinibatchInfo)]),
    "tessera_step": (c_int, [c_void_p, c_uint64, c_double, _VERDICT]),
    "tessera_exchange": (c_int, [c_void_p, _ARRAYS, c_size_t, _ARRAYS, c_size_t, _VERDICT]),
    "tessera_evaluate": (c_int, [c_void_p, POINTER(Scores), _VERDICT]),
    "tessera_save_state": (c_int, [c_void_p, c_char_p, c_size_t, _VERDICT]),
    "tessera_load_state": (c_int, [c_void_p, POINTER(c_void_p), POINTER(c_size_t)]),
    "tessera_leave": (c_int, [c_void_p]),
    "tessera_close": (c_int, [c_void_p]),
}


def places() -> Iterator[tuple[str, str]]:
    """(what the place is, the path) of each place to look at, in order. The system's loader gets the bare name."""
    package = os.path.dirname(os.path.abspath(__file__))
    yield "beside the package", os.path.join(package, NAME)
    # The tree's copy that a test of Bazel runs in has it at this place, too.
    yield "in the bundle", os.path.normpath(os.path.join(package, "..", "..", "client", NAME))
    tree = os.path.normpath(os.path.join(package, "..", "..", ".."))
    yield "in the build tree", os.path.join(tree, "bazel-bin", "worker", "client", NAME)
    yield "where the system looks", NAME
    yield "where the system looks", NAME + ".1"


def _open(path: str) -> ctypes.CDLL:
    """LibraryNotFound: it cannot be loaded, lacks a function, or is older than this package."""
    try:
        library = ctypes.CDLL(path)
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError) as error:
        raise LibraryNotFound("%s: %s" % (path, error)) from None
    api = library.tessera_client_api()
    if api < API:
        raise LibraryNotFound("%s: its interface is number %d, want %d or higher; build or install the library of this "
                              "version" % (path, api, API))
    return library


@functools.lru_cache(maxsize=None)
def load() -> ctypes.CDLL:
    """The library, loaded once in a process.

    Raises LibraryNotFound: it is nowhere, and the text names all places; or the first one found is of no use.
    """
    named = os.environ.get(VARIABLE)
    if named:
        if not os.path.exists(named):
            raise LibraryNotFound("%s is \"%s\", where there is no file" % (VARIABLE, named))
        return _open(os.path.abspath(named))
    tried = []
    for what, path in places():
        if os.path.isabs(path) and not os.path.exists(path):
            tried.append("  %s: no %s" % (what, path))
            continue
        if not os.path.isabs(path):
            try:
                ctypes.CDLL(path)
            except OSError as error:
                tried.append("  %s: %s" % (what, error))
                continue
        return _open(path)
    raise LibraryNotFound("%s was not found:\n%s\nBuild it (bazel build //worker/client:%s), or name it by %s"
                          % (NAME, "\n".join(tried), NAME, VARIABLE))


def version() -> str:
    """The library's version, as "0.2.0"."""
    return load().tessera_version().decode()


def last_message() -> str:
    """What went wrong in this thread's last call that failed."""
    return (load().tessera_last_message() or b"").decode(errors="replace")


__all__ = ["API", "NAME", "VARIABLE", "GroupInfo", "Info", "MinibatchInfo", "Options", "RoundInfo", "Scores",
           "TensorInfo", "byref", "last_message", "load", "places", "sized", "version"]
