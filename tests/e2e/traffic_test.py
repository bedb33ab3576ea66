"""What `tessera check` says that exchanges will move is what they move."""
import re
import unittest

from cluster import Test, digits, run_to_end, tessera, write_job

STEPS = 60
# (method, codec, servers, units): units large enough that qsgd codes matrices.
EXACT = [
    ({"data_parallel": {}}, {}, 2, 32),
    ({"data_parallel": {}}, {"push": "int8", "pull": "bf16"}, 3, 32),
    ({"local_sgd": {"local_steps": 5}}, {"push": {"qsgd": {"bits": 4}}}, 2, 200),
    ({"ist": {"local_steps": 5}}, {"pull": "f16"}, 2, 32),
    ({"quant_dp": {}}, {}, 2, 200),
    ({"ensemble": {}}, {}, 2, 32),
]
ABOUT = [
    ({"slim_dp": {"alpha": 0.2, "beta": 0.1, "core_every": 4}}, {}, 2, 32),
    ({"slim_dp": {"alpha": 0.2, "beta": 0.1, "core_every": 1}}, {}, 2, 32),
    ({"slim_dp": {"alpha": 0.3, "beta": 0.1, "core_every": 10}}, {"push": {"qsgd": {}}}, 1, 600),
    ({"slim_dp": {"alpha": 0.3, "beta": 0.1, "core_every": 10}}, {"push": {"qsgd": {}}}, 8, 600),
    ({"data_parallel": {}}, {"push": {"threshold": {"density": 0.05}}}, 2, 32),
    ({"decentralized": {"density": 0.05}}, {}, 2, 32),
]
CLAIM = re.compile(r"# traffic +each worker pushes (.*?) and pulls (.*?) every (\S+)")


class Traffic(Test):
    def said_and_moved(self, method, codec, servers, units):
        """For pushes and pulls: (what check says, bytes of an exchange by the report)."""
        job = digits(servers=servers, workers=2, batch=8, rate=0.02, units=units, steps=STEPS, method=method)
        job["codec"] = codec
        code, out, error = tessera("check", write_job(self, job))
        self.assertEqual((code, error), (0, ""))
        found = CLAIM.search(out)
        self.assertTrue(found, out)
        traffic = run_to_end(self, job)["traffic"]
        exchanges = traffic["exchanges"]
        # A worker's first pull is no exchange's, and of all there is; of subnets the last exchange has none.
        first = 4 * size_in(out) if "slim_dp" in method else 0
        pulls = exchanges if first or "ist" in method or "ensemble" in method else exchanges + 2
        return ((found.group(1), traffic["push_payload_bytes"] / exchanges),
                (found.group(2), (traffic["pull_payload_bytes"] - 2 * first) / pulls))

    def test_the_codecs_in_force_are_named_also_where_the_job_names_none(self):
        for keys, codec in (({}, "pushes as f32, pulls as f32"),
                            ({"method": {"quant_dp": {}}},
                             "pushes as qsgd (8 bits, buckets of 512, max norm), pulls as f32"),
                            ({"method": {"decentralized": {"density": 0.05}}},
                             "pushes as threshold (density 0.05), pulls as f32")):
            with self.case(codec):
                code, out, error = tessera("check", write_job(self, digits(**keys)))
                self.assertEqual((code, error), (0, ""))
                self.contains(out, "\n# codec       %s\n" % codec)

    def test_what_is_said_to_be_exact_is(self):
        for case in EXACT:
            with self.case(str(case)):
                for said, moved in self.said_and_moved(*case):
                    self.assertEqual(said, "%d bytes" % moved)

    def test_what_depends_on_the_data_is_about_right(self):
        for case in ABOUT:
            with self.case(str(case)):
                for said, moved in self.said_and_moved(*case):
                    number = int(re.search(r"\d+", said).group())
                    self.assertLess(abs(number - moved), 0.12 * moved, said)

    def test_what_nobody_can_know_is_not_said(self):
        job = digits(steps=STEPS)
        job["codec"] = {"push": {"threshold": {"tau": 0.01}}}
        _, out, _ = tessera("check", write_job(self, job))
        self.assertIn("pushes what grows to tau and pulls ", out)

    def test_a_form_does_not_depend_on_the_number_of_servers(self):
        """qsgd sends few entries as f32: those of the exchange count, not those of a server."""
        moved = [self.said_and_moved({"slim_dp": {"alpha": 0.3, "beta": 0.1}}, {"push": {"qsgd": {}}}, servers, 600)
                 for servers in (1, 8)]
        self.assertLess(abs(moved[0][0][1] - moved[1][0][1]), 0.05 * moved[0][0][1])


def size_in(out):
    """Parameters, by the command's output."""
    return int(re.search(r"# parameters +(\d+)", out).group(1))


if __name__ == "__main__":
    unittest.main()
