"""Networks that are cut for a while, that are far away, and that carry little."""
import queue
import socket
import threading
import time


class Cut:
    """A way to a port that can be cut: connections through it stay, and nothing comes through any more."""

    def __init__(self, test, port, to):
        self.to, self.cut, self.sockets = to, threading.Event(), []
        self.door = socket.socket()
        self.door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.door.bind(("127.0.0.1", port))
        self.door.listen(64)
        threading.Thread(target=self.accept, daemon=True).start()
        test.addCleanup(self.door.close)

    def accept(self):
        while True:
            try:
                one, _ = self.door.accept()
                other = socket.create_connection(("127.0.0.1", self.to))
            except OSError:
                return
            self.sockets += [one, other]
            for pair in ((one, other), (other, one)):
                threading.Thread(target=self.carry, args=pair, daemon=True).start()

    def carry(self, source, sink):
        try:
            while True:
                data = source.recv(65536)
                if not data:
                    break
                # What was sent before the cut is lost with it.
                if not self.cut.is_set():
                    sink.sendall(data)
        except OSError:
            pass


class Way:
    """A way to an address: `address` is where it begins. What becomes of a connection is the subclass's."""

    def __init__(self, test, to, held=None):
        """`held`: bytes that the receiving sides' buffers hold; None: what the kernel gives."""
        host, port = to.rsplit(":", 1)
        self.to, self.held, self.sockets = (host, int(port)), held, []
        self.listener = self.socket()
        self.listener.bind(("127.0.0.1", 0))
        self.listener.listen(64)
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()
        test.addCleanup(self.end)

    def socket(self):
        result = socket.socket()
        if self.held is not None:
            result.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.held)
        return result

    def end(self):
        for each in [self.listener] + self.sockets:
            each.close()

    def accept(self):
        while True:
            try:
                client = self.listener.accept()[0]
            except OSError:
                return
            self.sockets.append(client)
            threading.Thread(target=self.connect, args=(client,), daemon=True).start()

    def connect(self, client):
        server = self.socket()
        self.sockets.append(server)
        try:
            server.settimeout(5)
            server.connect(self.to)
            server.settimeout(None)
        except OSError:
            client.close()
            return
        self.carry("up", client, server)
        self.carry("down", server, client)


class Distance(Way):
    """On which every byte takes `latency` seconds, and a connection a round trip."""

    def __init__(self, test, to, latency):
        self.latency = latency
        super().__init__(test, to)

    def connect(self, client):
        time.sleep(2 * self.latency)
        super().connect(client)

    def carry(self, direction, source, sink):
        source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        on_their_way = queue.Queue()
        threading.Thread(target=self.take, args=(source, on_their_way), daemon=True).start()
        threading.Thread(target=self.give, args=(sink, on_their_way), daemon=True).start()

    def take(self, source, on_their_way):
        data = b"-"
        while data:
            try:
                data = source.recv(1 << 16)
            except OSError:
                data = b""
            on_their_way.put((time.monotonic() + self.latency, data))

    def give(self, sink, on_their_way):
        try:
            while True:
                arrival, data = on_their_way.get()
                time.sleep(max(0, arrival - time.monotonic()))
                if not data:
                    sink.shutdown(socket.SHUT_WR)
                    return
                sink.sendall(data)
        except OSError:
            pass


class Narrow(Way):
    """That carries so many bytes per second of a direction, and holds 64 KiB: the rest waits with the sender."""

    HELD = 1 << 16
    # No gap in one transfer, on a busy machine either.
    PAUSE = 10

    def __init__(self, test, to, up=None, down=None):
        self.rates = {"up": up, "down": down}
        self.longest = 0  # seconds that something was on its way without a pause of PAUSE seconds
        super().__init__(test, to, self.HELD)

    def carry(self, direction, source, sink):
        threading.Thread(target=self.pass_on, args=(self.rates[direction], source, sink), daemon=True).start()

    def pass_on(self, rate, source, sink):
        began = last = time.monotonic()
        try:
            while True:
                data = source.recv(self.HELD if rate is None else rate // 10)
                if not data:
                    sink.shutdown(socket.SHUT_WR)
                    return
                if time.monotonic() - last > self.PAUSE:
                    began = time.monotonic()
                if rate is not None:
                    time.sleep(len(data) / rate)
                sink.sendall(data)
                last = time.monotonic()
                self.longest = max(self.longest, last - began)
        except OSError:
            pass
