#!/bin/sh
# The benchmark checks its results and prints its tables, on a device that every machine has.
set -eu
bench/gpu/gpu --device cpu --tiny | tee "$TEST_TMPDIR/out"
grep -q '^device copy .* 1.00$' "$TEST_TMPDIR/out"
grep -q '^batch norm: backward, relu ' "$TEST_TMPDIR/out"
grep -q '^max pooling, 2x2, backward ' "$TEST_TMPDIR/out"
grep -q '^transpose: channels last ' "$TEST_TMPDIR/out"
grep -q '^f32 conv 3x3x64, weight gradient ' "$TEST_TMPDIR/out"
grep -q '^f32 step, batch 32 ' "$TEST_TMPDIR/out"
grep -q '^rows gathered, batch 32 ' "$TEST_TMPDIR/out"
grep -q '^the next begun before the wait ' "$TEST_TMPDIR/out"
cat >"$TEST_TMPDIR/report.json" <<'END'
{"examples_per_second": 1234.5, "final": {"train_loss": 0.25},
 "traffic": {"push_payload_bytes": 1500000000, "pull_payload_bytes": 500000000, "exchanges": 2},
 "phases": [{"worker": 0, "compute_seconds": 3.0, "pull_seconds": 0.5, "push_seconds": 0.25, "wait_seconds": 0.25}]}
END
bench/gpu/gpu --reports "ist=$TEST_TMPDIR/report.json" | grep -q '^ist .* 1234.5 .* 3.00 .* 0.25 .* 2.00 '
# An exchange takes 0.5 s by itself. Computing for 1.5 s hides all of it, for 0.25 s the half.
sed 's/"compute_seconds": 3.0/"compute_seconds": 0.5/' "$TEST_TMPDIR/report.json" >"$TEST_TMPDIR/short.json"
sed 's/"compute_seconds": 3.0/"compute_seconds": 300.0/' "$TEST_TMPDIR/report.json" >"$TEST_TMPDIR/long.json"
overlap="overlap_2=$TEST_TMPDIR/short.json,overlap_20=$TEST_TMPDIR/report.json,overlap_200=$TEST_TMPDIR/long.json"
bench/gpu/gpu --reports "in_turn_2=$TEST_TMPDIR/report.json,$overlap" | tee "$TEST_TMPDIR/out"
grep -q '^overlap_2 .* 0.67 *0.50 .* MISSED$' "$TEST_TMPDIR/out"
grep -q '^overlap_20 .* 0.25 *0.00 .* 0.2500$' "$TEST_TMPDIR/out"
grep -q '^an exchange takes 500.0 ms by itself; less than 0.10 is waited from 200 local steps on$' "$TEST_TMPDIR/out"
bench/gpu/gpu --reports "overlap_2=$TEST_TMPDIR/long.json" | grep -q ' met$'
traffic='"traffic": {"push_payload_bytes": 12, "pull_payload_bytes": 8, "exchanges": 2}'
echo "{\"final\": {\"train_loss\": 0.25}, $traffic}" >"$TEST_TMPDIR/a.json"
echo "{\"final\": {\"train_loss\": 0.2501}, $traffic}" >"$TEST_TMPDIR/b.json"
echo "{\"final\": {\"train_loss\": 0.26}, $traffic}" >"$TEST_TMPDIR/c.json"
bench/gpu/gpu --same "$TEST_TMPDIR/a.json,$TEST_TMPDIR/b.json"
if bench/gpu/gpu --same "$TEST_TMPDIR/a.json,$TEST_TMPDIR/c.json"; then exit 1; fi
sed 's/0.25/0.0/' "$TEST_TMPDIR/a.json" >"$TEST_TMPDIR/zero.json"
bench/gpu/gpu --same "$TEST_TMPDIR/zero.json,$TEST_TMPDIR/zero.json"
if bench/gpu/gpu --same "$TEST_TMPDIR/a.json,$TEST_TMPDIR/zero.json"; then exit 1; fi
sed -i 's/12/13/' "$TEST_TMPDIR/b.json"
if bench/gpu/gpu --same "$TEST_TMPDIR/a.json,$TEST_TMPDIR/b.json"; then exit 1; fi
# A job that diverged is in the table; one without a report is told beside it.
sed 's/"train_loss": 0.25/"train_loss": null/' "$TEST_TMPDIR/report.json" >"$TEST_TMPDIR/null.json"
echo '{}' >"$TEST_TMPDIR/empty.json"
reports="a=$TEST_TMPDIR/empty.json,b=$TEST_TMPDIR/null.json"
if bench/gpu/gpu --reports "$reports" >"$TEST_TMPDIR/out" 2>"$TEST_TMPDIR/error"; then exit 1; fi
grep -q '^b .* 1234.5 .* nan$' "$TEST_TMPDIR/out"
grep -q 'empty.json: no report, it has no examples_per_second' "$TEST_TMPDIR/error"
sed 's/0.25/null/' "$TEST_TMPDIR/a.json" >"$TEST_TMPDIR/null.json"
if bench/gpu/gpu --same "$TEST_TMPDIR/a.json,$TEST_TMPDIR/null.json" 2>"$TEST_TMPDIR/error"; then exit 1; fi
grep -q 'null.json: final.train_loss is no finite number' "$TEST_TMPDIR/error"
