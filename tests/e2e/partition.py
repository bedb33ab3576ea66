"""Networks that are cut for a while."""
import socket
import threading


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
