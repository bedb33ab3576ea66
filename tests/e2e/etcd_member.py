"""A real etcd, of one member alone."""
import socket
import urllib.request

from cluster import Process, await_true, free_ports


class Etcd(Process):
    def __init__(self, test, tls=None):
        """`tls`: (certificate, private key, authority); clients must show theirs, too."""
        self.port, peer = free_ports(2)
        self.folder = test.path("etcd-%d" % self.port)
        at, peers = "%s://127.0.0.1:%d" % ("https" if tls else "http", self.port), "http://127.0.0.1:%d" % peer
        secure = ["--cert-file", tls[0], "--key-file", tls[1], "--client-cert-auth", "--trusted-ca-file",
                  tls[2]] if tls else []
        super().__init__(test, "etcd", ["etcd", "--data-dir", self.folder, "--listen-client-urls", at,
                                        "--advertise-client-urls", at, "--listen-peer-urls", peers,
                                        "--initial-advertise-peer-urls", peers, "--initial-cluster", "default=" + peers,
                                        "--log-level", "error"] + secure)
        await_true("etcd serves", self.serves if tls is None else self.listens, explain=self.output)

    @property
    def address(self):
        return "127.0.0.1:%d" % self.port

    def listens(self):
        with socket.socket() as s:
            return s.connect_ex(("127.0.0.1", self.port)) == 0

    def serves(self):
        try:
            with urllib.request.urlopen("http://%s/health" % self.address, timeout=2) as answer:
                return b"true" in answer.read()
        except OSError:
            return False
