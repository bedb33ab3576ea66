#!/usr/bin/env python3
"""The peer of `exchange --synchronise`: two processes of PyTorch all-reduce the same bytes over gloo on one machine.

    bench/exchange/gloo_peer.py 67000000
"""
import multiprocessing
import socket
import statistics
import sys
import time

REPETITIONS = 30
WARM_UP = 5


def work(rank, port, size, seconds):
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="tcp://127.0.0.1:%d" % port, rank=rank, world_size=2)
    values = torch.zeros(size // 4)
    for i in range(WARM_UP + REPETITIONS):
        values.fill_(0.25 * (rank + 1))
        begin = time.perf_counter()
        dist.all_reduce(values)
        values /= 2
        took = time.perf_counter() - begin
        # Verified before it counts.
        assert values[0] == 0.375 and values[-1] == 0.375
        if i >= WARM_UP:
            seconds.append(took)
    dist.destroy_process_group()


def main():
    size = int(sys.argv[1]) if len(sys.argv) > 1 else 67_000_000
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with multiprocessing.Manager() as manager:
        lists = [manager.list() for _ in range(2)]
        workers = [multiprocessing.Process(target=work, args=(rank, port, size, lists[rank])) for rank in range(2)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
            if worker.exitcode != 0:
                sys.exit("gloo_peer: a worker ended with %s" % worker.exitcode)
        for rank, seconds in enumerate(lists):
            median = 1e3 * statistics.median(seconds)
            print("worker %d: %.1f MB over gloo: median %.1f ms" % (rank, 1e-6 * size, median))


if __name__ == "__main__":
    main()
