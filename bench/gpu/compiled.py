"""What the CUDA kernels' machine code says of their speed, where there is nvcc and no GPU. Run it in the repository's
root.

A line for each kernel: registers of a thread, threads that a multiprocessor of an H100 or H200 has room for at once,
bytes on the stack, instructions, how many of them load from and store to global memory, by bytes, and the most loads
of a size that a thread has under way before it waits for one of them, with the KiB that this is in all threads of a
multiprocessor. Warnings of nvcc go to stderr. docs/design/gpu_kernels.md says what to make of it.

The instruction words are not documented; these fields have been the same from sm_70 to sm_90.
"""
import argparse
import collections
import os
import re
import signal
import struct
import subprocess
import sys
import tempfile

NVCC = os.path.join(os.environ.get("CUDA_HOME", "/usr/local/cuda"), "bin", "nvcc")
THREADS, REGISTERS, BLOCKS, SHARED = 2048, 65536, 32, 227 * 1024  # of a multiprocessor of compute capability 9.0
LOAD, STORE = 0x981, 0x986  # of global memory, in the lowest 12 bits of an instruction's 128
MAX_THREADS = b"\x04\x05\x0c\x00"  # before a block's three extents, among a kernel's attributes
WAIT, BRANCH, EXIT = 0x91A, 0x947, 0x94D
BYTES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 8, 6: 16}  # by bits 73 to 75


def compiled(architecture):
    """The machine code, and what ptxas says of it."""
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "launch.cubin")
        command = [NVCC, "-std=c++17", "-O3", "-fmad=false", "--expt-relaxed-constexpr", "-I.", "-Xptxas", "-v",
                   "-cubin", "-arch=sm_%d" % architecture, "kernels/cuda/launch.cu", "-o", out]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode != 0:
            sys.exit("compiled.py: %s\n%s" % (" ".join(command), done.stdout))
        with open(out, "rb") as file:
            return file.read(), done.stdout


def sections(elf):
    """Name and bytes of each section of a 64-bit ELF file."""
    begin, = struct.unpack_from("<Q", elf, 0x28)
    size, count, names = struct.unpack_from("<HHH", elf, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", elf, begin + i * size) for i in range(count)]
    for header in headers:
        at = headers[names][4] + header[0]
        yield elf[at:elf.index(b"\0", at)].decode(), elf[header[4]:header[4] + header[5]]


def accesses(code):
    """Loads and stores of global memory, each as a count of those of so many bytes."""
    loads, stores = collections.Counter(), collections.Counter()
    for low, high in struct.iter_unpack("<QQ", code):
        size = BYTES.get(high >> 9 & 7, 0)
        if low & 0xFFF == LOAD:
            loads[size] += 1
        elif low & 0xFFF == STORE:
            stores[size] += 1
    return loads, stores


def under_way(code):
    """The most global loads of a thread, of each size, of which none has been waited for.

    Code is read as it lies, up to where it goes elsewhere. An instruction names the barrier that tells when its result
    is there (bits 110 to 112 of its 128), and those that it waits for itself (116 to 121).
    """
    most, of = collections.Counter(), {}
    for low, high in struct.iter_unpack("<QQ", code):
        kind, always = low & 0xFFF, low >> 12 & 15 == 7
        # A wait for some of a barrier's loads: none is counted further.
        waits = 63 if kind == WAIT else high >> 52 & 63
        of = {barrier: sizes for barrier, sizes in of.items() if not waits >> barrier & 1}
        if kind == LOAD:
            of.setdefault(high >> 46 & 7, []).append(BYTES.get(high >> 9 & 7, 0))
            most |= collections.Counter(size for sizes in of.values() for size in sizes)
        elif kind in (BRANCH, EXIT) and always:
            of = {}
    return most


def room(registers, shared, threads):
    """Threads at once: registers are given to warps by 256, shared memory to blocks with 1 KiB besides."""
    warps = threads // 32
    by_registers = REGISTERS // (-(-registers * 32 // 256) * 256) // warps
    return threads * min(by_registers, THREADS // threads, BLOCKS, SHARED // (shared + 1024))


def text(counts):
    return " ".join("%dx%d" % (counts[size], size) for size in sorted(counts, reverse=True))


def main():
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("architecture", nargs="?", type=int, default=90, help="compute capability without its dot")
    architecture = parser.parse_args().architecture
    if not os.access(NVCC, os.X_OK):
        sys.exit("compiled.py: %s: no nvcc there, want a CUDA toolkit in CUDA_HOME" % NVCC)
    if not os.path.exists("kernels/cuda/launch.cu"):
        sys.exit("compiled.py: %s: has no kernels/cuda/launch.cu, want the repository's root" % os.getcwd())
    elf, said = compiled(architecture)
    sys.stderr.writelines(line + "\n" for line in said.splitlines() if "warning" in line)
    of = {}
    for name, stack, registers, rest in re.findall(
            r"Function properties for (\S+)\n\s*(\d+) bytes stack[^\n]*\n[^\n]*Used (\d+) registers([^\n]*)", said):
        shared = re.search(r"(\d+) bytes smem", rest)
        of[name] = int(stack), int(registers), int(shared.group(1)) if shared else 0
    codes = {name[len(".text."):]: code for name, code in sections(elf) if name.startswith(".text.")}
    infos = {name[len(".nv.info."):]: info for name, info in sections(elf) if name.startswith(".nv.info.")}
    names = subprocess.run(["c++filt"], input="\n".join(codes), capture_output=True, text=True,
                           check=True).stdout.split("\n")
    print("%-44s %4s %7s %5s %6s  %-24s %-24s %-12s %s" % (
        "kernel", "regs", "threads", "stack", "instr.", "loads x bytes", "stores x bytes", "at once", "KiB"))
    lines = []
    for (name, code), full in zip(codes.items(), names):
        stack, registers, shared = of[name]
        short = re.sub(r"tessera::(?:cuda::)?|\(anonymous namespace\)::|void ", "", full)
        short = re.sub(r"^Run<(.*)>\(.*$", r"\1", short).replace(" >", ">")
        loads, stores = accesses(code)
        threads, = struct.unpack_from("<I", infos[name], infos[name].index(MAX_THREADS) + len(MAX_THREADS))
        has_room = room(registers, shared, threads)
        at_once = under_way(code)
        kib = max([size * count for size, count in at_once.items()], default=0) * has_room // 1024
        lines.append("%-44s %4d %7d %5d %6d  %-24s %-24s %-12s %d" % (
            short, registers, has_room, stack, len(code) // 16, text(loads), text(stores), text(at_once), kib))
    print("\n".join(sorted(lines)))


if __name__ == "__main__":
    main()
