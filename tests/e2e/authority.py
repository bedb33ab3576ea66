"""Certificates for tests."""
import subprocess


class Authority:
    """Signs certificates for this machine."""

    def __init__(self, test, name):
        self.test, self.key, self.certificate = test, test.path(name + "-ca.key"), test.path(name + "-ca.pem")
        self.openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", self.key, "-out", self.certificate,
                     "-days", "2", "-subj", "/CN=" + name)

    def openssl(self, *arguments):
        subprocess.run(("openssl",) + arguments, check=True, capture_output=True)

    def sign(self, name, names="IP:127.0.0.1,DNS:localhost", kind="rsa:2048"):
        """(certificate, private key of that kind), valid for `names`."""
        key, request, certificate = (self.test.path(name + end) for end in (".key", ".csr", ".pem"))
        self.openssl("req", "-newkey", kind, "-nodes", "-keyout", key, "-out", request, "-subj", "/CN=" + name)
        with open(self.test.path("names.cnf"), "w") as file:
            file.write("subjectAltName=%s\n" % names)
        self.openssl("x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey", self.key, "-CAcreateserial",
                     "-out", certificate, "-days", "2", "-extfile", file.name)
        return certificate, key
