#!/bin/sh
# The benchmark checks its results and prints its tables, on a device that every machine has.
set -eu
bench/gpu/gpu --device cpu --tiny | tee "$TEST_TMPDIR/out"
grep -q '^device copy .* 1.00$' "$TEST_TMPDIR/out"
grep -q '^batch norm: backward, relu ' "$TEST_TMPDIR/out"
grep -q '^f32 step, batch 32 ' "$TEST_TMPDIR/out"
grep -q '^the next begun before the wait ' "$TEST_TMPDIR/out"
cat >"$TEST_TMPDIR/report.json" <<'END'
{"examples_per_second": 1234.5, "final": {"train_loss": 0.25},
 "traffic": {"push_payload_bytes": 1500000000, "pull_payload_bytes": 500000000, "exchanges": 2},
 "phases": [{"worker": 0, "compute_seconds": 3.0, "pull_seconds": 0.5, "push_seconds": 0.25, "wait_seconds": 0.25}]}
END
bench/gpu/gpu --reports "ist=$TEST_TMPDIR/report.json" | grep -q '^ist .* 1234.5 .* 3.00 .* 0.25 .* 2.00 '
bench/gpu/gpu --reports "overlap=$TEST_TMPDIR/report.json" | grep -q ' MISSED$'
traffic='"traffic": {"push_payload_bytes": 12, "pull_payload_bytes": 8, "exchanges": 2}'
echo "{\"final\": {\"train_loss\": 0.25}, $traffic}" >"$TEST_TMPDIR/a.json"
echo "{\"final\": {\"train_loss\": 0.2501}, $traffic}" >"$TEST_TMPDIR/b.json"
echo "{\"final\": {\"train_loss\": 0.26}, $traffic}" >"$TEST_TMPDIR/c.json"
bench/gpu/gpu --same "$TEST_TMPDIR/a.json,$TEST_TMPDIR/b.json"
if bench/gpu/gpu --same "$TEST_TMPDIR/a.json,$TEST_TMPDIR/c.json"; then exit 1; fi
sed -i 's/12/13/' "$TEST_TMPDIR/b.json"
if bench/gpu/gpu --same "$TEST_TMPDIR/a.json,$TEST_TMPDIR/b.json"; then exit 1; fi
