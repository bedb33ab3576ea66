"""The status of a job as `tessera status --json` prints it, from a program that is started once (status_reader.cc)."""
import atexit
import json
import os
import subprocess
import threading

READER = os.path.join(os.getcwd(), "tests/e2e/status_reader")

lock = threading.Lock()
reader = None


def status_of(address):
    """The status of the server at `address`, whose transport is plain text, or None while it does not answer."""
    global reader
    with lock:
        if reader is None or reader.poll() is not None:
            # It ends when its input does, which is when this process is gone, however it ended.
            reader = subprocess.Popen([READER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            atexit.register(reader.kill)
        reader.stdin.write(address + "\n")
        reader.stdin.flush()
        line = reader.stdout.readline()
    if not line:
        raise AssertionError("%s has ended" % READER)
    return json.loads(line) if line.strip() else None
