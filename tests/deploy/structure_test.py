"""The product's structure: one class, one source; a method's name in its own file; comments that stand alone."""
import unittest

import structure

# Classes that are still in more than one source: each is two concepts, of which the second has no name yet.
SLICED = set()
# Comment blocks that begin with a word that leans on another comment: below this share.
LEANING_MAX = 0.01
# Lines of sources that are comments: at least this share.
COMMENTS_MIN = 0.06


class Structure(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.texts = structure.sources(structure.tree())

    def test_the_product_was_found(self):
        self.assertGreater(len(self.texts), 800)

    def test_a_class_lives_in_one_source(self):
        self.assertEqual(set(structure.sliced_classes(self.texts)), SLICED)

    def test_a_class_in_two_sources_is_found(self):
        texts = {"server/a.cc": "void Queue::Push(int x) {\n}\n", "server/b.cc": "Queue::~Queue() = default;\n"}
        self.assertEqual(structure.sliced_classes(texts), {"Queue": ["server/a.cc", "server/b.cc"]})

    def test_no_method_is_named_outside_of_its_file(self):
        self.assertEqual(structure.method_names(self.texts, structure.training_methods(structure.tree())), [])

    def test_a_methods_name_is_found(self):
        texts = {"server/a.cc": 'if (job.method().has_ist()) {\n// slim_dp\nSay("slim_dp");\n',
                 "common/method/ist.cc": "job.method().ist().tail_steps()\n"}
        self.assertEqual(structure.method_names(texts, {"ist", "slim_dp"}), ["server/a.cc:1", "server/a.cc:3"])

    def test_large_classes_say_why(self):
        self.assertEqual([each[0] for each in structure.large_classes(self.texts) if not each[-1]], [])

    def test_a_reason_is_found(self):
        fields = "".join("  int a%d;\n" % i for i in range(21))
        texts = {"server/a.h": "class A {\n" + fields + "};\n",
                 "server/b.h": "// B has more fields than\n// other classes: why.\nclass B {\n" + fields + "};\n"}
        self.assertEqual([each[-1] for each in structure.large_classes(texts)], [False, True])

    def test_pages_on_adding_things_name_the_files_that_have_one(self):
        counts, wrong = structure.files_to_touch(structure.tree())
        self.assertEqual(wrong, [])
        for page, tables in counts.items():
            for product, _, most in tables:
                self.assertTrue(0 < product <= most, "%s.md: %d product files, want at most %d" % (page, product, most))

    def test_comments_stand_on_their_own(self):
        blocks, leaning, _, _ = structure.comments(self.texts)
        self.assertLess(leaning / blocks, LEANING_MAX)

    def test_sources_say_why(self):
        _, _, lines, all_lines = structure.comments(self.texts)
        self.assertGreaterEqual(lines / all_lines, COMMENTS_MIN)

    def test_a_leaning_comment_is_found(self):
        texts = {"server/a.cc": "// Of a push.\nint a;\n// Offers are kept.\nint b;\n"}
        self.assertEqual(structure.comments(texts), (2, 1, 2, 4))


if __name__ == "__main__":
    unittest.main()
