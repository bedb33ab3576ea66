#!/usr/bin/python3
"""PyTorch as a peer: with which Python and environment it runs, and whether its products are as fast as they can be.

    bench/training/peer.py

Debian's python3-torch computes by whatever BLAS is installed, if only by the reference one, which is 50 times slower
and would make every ratio flatter. Its product is timed in turns with that of oneDNN, by which Tessera computes: one
thread, in the shape of the speech network's widest layer, best of each. Prints both as one JSON object.
"""
import ctypes
import json
import os
import signal
import subprocess
import time

# Debian's, which has python3-torch, or another one with a PyTorch for a GPU.
PYTHON = os.environ.get("TESSERA_PEER_PYTHON", "/usr/bin/python3")


def core_type():
    """OpenBLAS does not know every CPU and falls back to slow kernels: the fastest that it has for what this one can.
    None: it chooses by itself."""
    with open("/proc/cpuinfo") as file:
        flags = next((line.split() for line in file if line.startswith("flags")), [])
    return "SkylakeX" if "avx512f" in flags else "Haswell" if "avx2" in flags else None


ENVIRONMENT = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
if "OPENBLAS_CORETYPE" not in os.environ and core_type():
    ENVIRONMENT["OPENBLAS_CORETYPE"] = core_type()

INSTALL = "install python3-torch and libopenblas0-pthread, or use %s"
# The share of oneDNN's rate below which a PyTorch is no peer.
SHARE_MIN = 0.5

ROWS, INPUTS, OUTPUTS, ROUNDS, SECONDS_MAX = 128, 4096, 2048, 12, 5


def run(command, **more):
    return subprocess.run([PYTHON] + command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          env=dict(os.environ, **ENVIRONMENT), **more)


def measured(script, without):
    """What this file prints, or SystemExit in the name of `script`; `without`: how that is run without a peer."""
    done = run(["-c", "import torch"])
    if done.returncode != 0:
        why = done.stderr.strip().splitlines()
        raise SystemExit("%s: %s cannot import torch (%s); %s" % (
            script, PYTHON, why[-1] if why else "no reason given", INSTALL % without))
    done = run([os.path.abspath(__file__)])
    if done.returncode != 0:
        why = done.stderr.strip().splitlines() or [
            signal.strsignal(-done.returncode) if done.returncode < 0 else "no reason given"]
        raise SystemExit("%s: the products of PyTorch and oneDNN cannot be compared (%s); install libdnnl2, or use %s"
                         % (script, why[-1], without))
    return json.loads(done.stdout.splitlines()[-1])


def check(script, without):
    """Raises SystemExit where PyTorch is no peer here, before a job has trained for nothing. Returns what to print."""
    gflops = measured(script, without)
    text = "PyTorch's product %.1f GFLOP/s, oneDNN's %.1f" % (gflops["pytorch"], gflops["onednn"])
    if gflops["pytorch"] < SHARE_MIN * gflops["onednn"]:
        raise SystemExit("%s: %s, want half of that or more: its BLAS is no peer (the reference one?); %s" % (
            script, text, INSTALL % without))
    return text


def main():
    import torch

    dnnl = ctypes.CDLL("libdnnl.so.2")
    size, number = ctypes.c_int64, ctypes.c_float
    dnnl.dnnl_sgemm.argtypes = [ctypes.c_char, ctypes.c_char, size, size, size, number, ctypes.c_void_p, size,
                                ctypes.c_void_p, size, number, ctypes.c_void_p, size]
    torch.set_num_threads(1)
    x, weight = torch.rand(ROWS, INPUTS), torch.rand(OUTPUTS, INPUTS)
    theirs, ours = torch.empty(ROWS, OUTPUTS), torch.empty(ROWS, OUTPUTS)

    def pytorch():
        torch.mm(x, weight.t(), out=theirs)

    def onednn():
        status = dnnl.dnnl_sgemm(b"N", b"T", ROWS, OUTPUTS, INPUTS, 1, x.data_ptr(), INPUTS, weight.data_ptr(), INPUTS,
                                 0, ours.data_ptr(), OUTPUTS)
        if status != 0:
            raise SystemExit("dnnl_sgemm failed with %d" % status)

    best = {"pytorch": 0.0, "onednn": 0.0}
    start = time.perf_counter()
    for turn in range(ROUNDS):
        if turn > 1 and time.perf_counter() - start > SECONDS_MAX:
            break
        for name, product in (("pytorch", pytorch), ("onednn", onednn)):
            begin = time.perf_counter()
            product()
            seconds = time.perf_counter() - begin
            if turn > 0:
                best[name] = max(best[name], 2e-9 * ROWS * INPUTS * OUTPUTS / seconds)
    if not torch.allclose(theirs, ours, rtol=1e-3):
        raise SystemExit("the products differ")
    print(json.dumps(best))


if __name__ == "__main__":
    main()
