#!/bin/sh
# The benchmark checks its results and prints its tables, on a device that every machine has.
set -eu
bench/gpu/gpu --device cpu --tiny | tee "$TEST_TMPDIR/out"
grep -q '^device copy .* 1.00$' "$TEST_TMPDIR/out"
grep -q '^device copy, again ' "$TEST_TMPDIR/out"
grep -q '^to the device, page-locked ' "$TEST_TMPDIR/out"
# Nothing but batch norm, losses, optimizers and gather is held to an aim.
grep -q -E '^gather one in 5 .* (met|MISSED)$' "$TEST_TMPDIR/out"
if grep -E '^(relu|scatter|encode|max pooling|round to) .*(met|MISSED)$' "$TEST_TMPDIR/out"; then exit 1; fi
for part in kernels steps; do
  bench/gpu/gpu --device cpu --tiny --part "$part" >"$TEST_TMPDIR/$part"
done
grep -q '^adamw ' "$TEST_TMPDIR/kernels"
if grep '^f32 ' "$TEST_TMPDIR/kernels" || grep '^adamw ' "$TEST_TMPDIR/steps"; then exit 1; fi
grep -q '^f32 step, batch 32 ' "$TEST_TMPDIR/steps"
# Not every CPU has bf16; none steps by products.
if grep -q '^bf16 product ' "$TEST_TMPDIR/steps"; then
  grep -q -E '^bf16 weight step, rows 512 +- +[0-9.]+$' "$TEST_TMPDIR/steps"
fi
grep -q '^batch norm: backward, relu ' "$TEST_TMPDIR/out"
grep -q '^max pooling, 2x2, backward ' "$TEST_TMPDIR/out"
grep -q '^transpose: channels last ' "$TEST_TMPDIR/out"
grep -q '^f32 conv 3x3x64, weight gradient ' "$TEST_TMPDIR/out"
# No cuDNN, which has a dash then, and rates without it.
grep -q -E '^f32 32x2x2 to 32, 3x3 +- +- +- \| +[0-9.]+ +[0-9.]+ +[0-9.]+$' "$TEST_TMPDIR/out"
grep -q '^f32 step, batch 32 ' "$TEST_TMPDIR/out"
grep -q '^rows gathered, threads 1 ' "$TEST_TMPDIR/out"
grep -q '^the next begun before the wait ' "$TEST_TMPDIR/out"
cat >"$TEST_TMPDIR/report.json" <<'END'
{"examples_per_second": 1234.5, "final": {"train_loss": 0.25},
 "traffic": {"push_payload_bytes": 1500000000, "pull_payload_bytes": 500000000, "exchanges": 2},
 "phases": [{"worker": 0, "compute_seconds": 3.0, "pull_seconds": 0.5, "push_seconds": 0.25, "wait_seconds": 0.25}]}
END
bench/gpu/gpu --reports "ist=$TEST_TMPDIR/report.json" | grep -q '^ist *1 *1234.5 .* 3.00 .* 0.25 .* 2.00 '
# A job that ended well without all of its workers, and one that did not, have no line.
for ended in '"members": {"lost": 1}' '"outcome": "failed"'; do
  sed "s/^{/{$ended, /" "$TEST_TMPDIR/report.json" >"$TEST_TMPDIR/ended.json"
  reports="a=$TEST_TMPDIR/ended.json,b=$TEST_TMPDIR/report.json"
  if bench/gpu/gpu --reports "$reports" >"$TEST_TMPDIR/out" 2>"$TEST_TMPDIR/error"; then exit 1; fi
  grep -q '^b ' "$TEST_TMPDIR/out"
  if grep '^a ' "$TEST_TMPDIR/out"; then exit 1; fi
  grep -q -E 'ended.json: (1 workers were lost|the job.s outcome is "failed")' "$TEST_TMPDIR/error"
done
# An exchange takes 0.5 s by itself. Computing for 1.5 s hides all of it, for 0.25 s the half.
sed 's/"compute_seconds": 3.0/"compute_seconds": 0.5/' "$TEST_TMPDIR/report.json" >"$TEST_TMPDIR/short.json"
sed 's/"compute_seconds": 3.0/"compute_seconds": 300.0/' "$TEST_TMPDIR/report.json" >"$TEST_TMPDIR/long.json"
overlap="overlap_2=$TEST_TMPDIR/short.json,overlap_20=$TEST_TMPDIR/report.json,overlap_200=$TEST_TMPDIR/long.json"
bench/gpu/gpu --reports "in_turn_2=$TEST_TMPDIR/report.json,$overlap" | tee "$TEST_TMPDIR/out"
grep -q '^overlap_2 .* 0.67 *0.50 .* MISSED$' "$TEST_TMPDIR/out"
grep -q '^overlap_20 .* 0.25 *0.00 .* 0.2500$' "$TEST_TMPDIR/out"
grep -q '^an exchange takes 500.0 ms by itself; less than 0.10 is waited from 200 local steps on$' "$TEST_TMPDIR/out"
bench/gpu/gpu --reports "overlap_2=$TEST_TMPDIR/long.json" | grep -q ' met$'
# What a step computes is the difference of two jobs, not what each does at first: 2 s in 40 steps. Two of them hide
# 0.1 s of 0.5 s.
sed 's/^{/{"steps": 10, /; s/"compute_seconds": 3.0/"compute_seconds": 9.0/' "$TEST_TMPDIR/report.json" \
  >"$TEST_TMPDIR/short.json"
sed 's/^{/{"steps": 50, /; s/"compute_seconds": 3.0/"compute_seconds": 11.0/' "$TEST_TMPDIR/report.json" \
  >"$TEST_TMPDIR/long.json"
overlap="overlap_2=$TEST_TMPDIR/short.json,overlap_10=$TEST_TMPDIR/long.json"
bench/gpu/gpu --reports "in_turn_2=$TEST_TMPDIR/report.json,$overlap" >"$TEST_TMPDIR/out"
grep -q '^overlap_2 .* 9.00 *0.10 *0.80 ' "$TEST_TMPDIR/out"
grep -q '^overlap_10 .* 11.00 *0.08 *0.00 ' "$TEST_TMPDIR/out"
traffic='"traffic": {"push_payload_bytes": 12, "pull_payload_bytes": 8, "exchanges": 2}'
echo "{\"final\": {\"train_loss\": 0.25}, $traffic}" >"$TEST_TMPDIR/a.json"
echo "{\"final\": {\"train_loss\": 0.2501}, $traffic}" >"$TEST_TMPDIR/b.json"
echo "{\"final\": {\"train_loss\": 0.26}, $traffic}" >"$TEST_TMPDIR/c.json"
bench/gpu/gpu --same "$TEST_TMPDIR/a.json,$TEST_TMPDIR/b.json"
if bench/gpu/gpu --same "$TEST_TMPDIR/a.json,$TEST_TMPDIR/c.json"; then exit 1; fi
sed 's/0.25/0.0/' "$TEST_TMPDIR/a.json" >"$TEST_TMPDIR/zero.json"
bench/gpu/gpu --same "$TEST_TMPDIR/zero.json,$TEST_TMPDIR/zero.json"
if bench/gpu/gpu --same "$TEST_TMPDIR/a.json,$TEST_TMPDIR/zero.json"; then exit 1; fi
# Each evaluation counts, not the last alone.
with_history() {  # file, a loss of the second evaluation
  sed "s/^{/{\"history\": [{\"train_loss\": 2.0, \"test_loss\": 2.0}, {\"train_loss\": $2, \"test_loss\": 1.5}], /" "$1"
}
with_history "$TEST_TMPDIR/a.json" 1.0 >"$TEST_TMPDIR/d.json"
with_history "$TEST_TMPDIR/b.json" 1.0005 >"$TEST_TMPDIR/e.json"
with_history "$TEST_TMPDIR/b.json" 1.005 >"$TEST_TMPDIR/f.json"
bench/gpu/gpu --same "$TEST_TMPDIR/d.json,$TEST_TMPDIR/e.json" |
  grep -q '^largest difference of 2 losses: 5.0e-04 in training, 0.0e+00 of the test rows$'
if bench/gpu/gpu --same "$TEST_TMPDIR/d.json,$TEST_TMPDIR/f.json"; then exit 1; fi
if bench/gpu/gpu --same "$TEST_TMPDIR/d.json,$TEST_TMPDIR/b.json"; then exit 1; fi
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
