"""Each alert of deploy/dashboards fires when what it tells of happens, and not before: by Prometheus's own promtool.

Series are written as promtool reads them, a sample each minute: `0+10x5` is 0, 10, ... 50; `3x5` is 3 six times;
`_` is a scrape that got nothing."""
import json
import os
import shutil
import subprocess
import tempfile
import unittest

import yaml

RULES = os.path.abspath("deploy/dashboards/alerts.yaml")
INSTANCE = "10.0.0.1:9464"
JOB = "digits"
# The samples of an hour and a half.
LONG = "x90"


def case(at, series, fires=()):
    """At minute `at` an alert fires for each of `fires`, labels beside the instance's ({}: none)."""
    return {"at": at, "series": series, "fires": fires}


# alert -> (summary, cases). In a summary braces name labels, or the value.
ALERTS = {
    "TesseraJobFailed": ("the job digits at {instance} has failed", [
        case(1, {"tessera_job_failed": "0 1"}, [{}]),
        # The endpoint ends once it was scraped: Prometheus then marks the series stale.
        case(6, {"tessera_job_failed": "0 1 stale _ _ _ _ _ _"}, [{}]),
        # Not for ever, and not where another job is there by now.
        case(20, {"tessera_job_failed": "0 1 stale"}),
        case(6, {"tessera_job_failed": "0 1 stale _ 0 0 0 0"}),
        case(1, {"tessera_job_failed": "0 0"})]),
    "TesseraEndpointGone": ("{instance} answers no scrape any more", [
        case(5, {"up": "1 1 0 0 0 0", 'tessera_build_info{version="1"}': "1 1 _ _ _ _"}, [{}]),
        # Not yet, and back again, and one that never was a server's.
        case(3, {"up": "1 1 0 0", 'tessera_build_info{version="1"}': "1 1 _ _"}),
        case(5, {"up": "1 1 0 0 1 1", 'tessera_build_info{version="1"}': "1 1 _ _ 1 1"}),
        # A job that was seen to end; but one that was not is missed.
        case(5, {"up": "1 1 0 0 0 0", 'tessera_build_info{version="1"}': "1 1 stale _ _ _",
                 'tessera_job_state{state="done"}': "0 1 stale _ _ _"}),
        case(5, {"up": "1 1 0 0 0 0", 'tessera_build_info{version="1"}': "1 1 stale _ _ _",
                 'tessera_job_state{state="done"}': "0 0 stale _ _ _"}, [{}]),
        case(5, {"up": "1 1 0 0 0 0", 'tessera_build_info{version="1"}': "1 1 stale _ _ _",
                 'tessera_job_state{state="done",job_name="the one before"}': "1 stale _ _ _ _",
                 'tessera_job_state{state="done"}': "_ 0 stale _ _ _"}, [{}]),
        case(5, {"up": "0x5"})]),
    "TesseraJobWaits": ("the job digits at {instance} waits for somebody and has made no step for 10 minutes", [
        case(12, {"tessera_job_waiting_for": "0 1x20", "tessera_job_step": "40 50x20"}, [{}]),
        case(8, {"tessera_job_waiting_for": "0 1x20", "tessera_job_step": "40 50x20"}),
        # Somebody is waited for now and then in every job.
        case(12, {"tessera_job_waiting_for": "1x20", "tessera_job_step": "40+1x20"}),
        case(12, {"tessera_job_waiting_for": "0x20", "tessera_job_step": "50x20"})]),
    "TesseraNoProgress": ("the job digits at {instance} trains and makes no step", [
        case(16, {'tessera_job_state{state="training"}': "1x20", "tessera_job_step": "50x20"},
             [{"state": "training"}]),
        case(16, {'tessera_job_state{state="training"}': "1x20", "tessera_job_step": "50+1x20"}),
        case(16, {'tessera_job_state{state="training"}': "0x20", 'tessera_job_state{state="completed"}': "1x20",
                  "tessera_job_step": "50x20"})]),
    "TesseraWorkerStands": ("worker {rank} of {instance} has made no step for 10 minutes", [
        case(13, {'tessera_member_progress_age_seconds{rank="0"}': "0+60x20",
                  'tessera_member_progress_age_seconds{rank="1"}': "1x20"}, [{"rank": "0"}]),
        case(10, {'tessera_member_progress_age_seconds{rank="0"}': "0+60x20"})]),
    "TesseraLeaseRunsOut": ("worker {rank} of {instance} is about to be lost", [
        case(1, {'tessera_member_lease_age_seconds{rank="0"}': "1 8",
                 'tessera_member_lease_age_seconds{rank="1"}': "1 2",
                 "tessera_job_lease_timeout_seconds": "10 10"}, [{"rank": "0"}]),
        case(1, {'tessera_member_lease_age_seconds{rank="0"}': "1 8", "tessera_job_lease_timeout_seconds": "15 15"})]),
    "TesseraWorkerLost": ("{instance} lost workers in the last 10 minutes: {value}", [
        case(10, {"tessera_job_members_lost_total": "0x5 2x9"}, [{"value": "2"}]),
        # What Prometheus makes of a window with fewer samples is no whole number.
        case(6, {"tessera_job_members_lost_total": "0x4 1x9"}, [{"value": "1"}]),
        case(30, {"tessera_job_members_lost_total": "0x5 2x30"})]),
    "TesseraServerMissing": ("server {server} of {instance} is not there", [
        case(4, {'tessera_server_registered{server="1"}': "1 0x9", 'tessera_server_registered{server="0"}': "1x9"},
             [{"server": "1"}]),
        case(2, {'tessera_server_registered{server="1"}': "1 0x9"})]),
    "TesseraShardBare": ("no standby follows shard {shard} of {instance}", [
        case(6, {'tessera_shard_protected{shard="3"}': "0x9"}, [{"shard": "3"}]),
        case(6, {'tessera_shard_protected{shard="3"}': "0x3 1x9"})]),
    "TesseraCheckpointFailed": ("the last checkpoint of {instance} could not be written", [
        case(0, {"tessera_checkpoint_failed": "1"}, [{}]),
        case(0, {"tessera_checkpoint_failed": "0"})]),
    "TesseraCheckpointOld": ("{instance} has written no checkpoint for an hour", [
        case(70, {"tessera_checkpoint_age_seconds": "0+60" + LONG, "tessera_job_wall_seconds_total": "0+60" + LONG,
                  "tessera_checkpoints_total": "1" + LONG}, [{}]),
        # None has been written at all.
        case(70, {"tessera_checkpoints_total": "0" + LONG, "tessera_job_wall_seconds_total": "0+60" + LONG}, [{}]),
        # One is written each half hour.
        case(70, {"tessera_checkpoint_age_seconds": "0+60x29 0+60x29 0+60x29", "tessera_checkpoints_total": "1" + LONG,
                  "tessera_job_wall_seconds_total": "0+60" + LONG}),
        # The job keeps none.
        case(70, {"tessera_job_wall_seconds_total": "0+60" + LONG})]),
    "TesseraJobWentBack": ("the job digits at {instance} went back to a checkpoint", [
        case(10, {"tessera_checkpoint_rollbacks_total": "0x5 1x9"}, [{}]),
        case(10, {"tessera_checkpoint_rollbacks_total": "1x15"})]),
    "TesseraCoordinatorAway": ("{instance} does not hear the coordinator", [
        case(0, {"tessera_coordinator_away": "1"}, [{}]),
        case(0, {"tessera_coordinator_away": "0"})]),
    "TesseraPushesRefused": ("server {server} of {instance} refused pushes", [
        case(10, {'tessera_server_refused_pushes_total{server="0"}': "0x5 3x9",
                  'tessera_server_refused_pushes_total{server="1"}': "3x15"}, [{"server": "0"}]),
        # A new process counts from 0.
        case(10, {'tessera_server_refused_pushes_total{server="0"}': "3x5 0x9"})]),
    "TesseraLossNotFinite": ("the test loss of {instance} is no number", [
        case(1, {"tessera_evaluation_test_loss": "0.5 NaN"}, [{}]),
        case(1, {"tessera_evaluation_test_loss": "0.5 +Inf"}, [{}]),
        case(1, {"tessera_evaluation_test_loss": "0.5 1e30"})]),
}


def with_labels(series):
    """With those that all have: `up` is Prometheus's own and of no job."""
    name, _, labels = series.partition("{")
    job = "" if name == "up" or "job_name=" in labels else 'job_name="%s"' % JOB
    return "%s{%s}" % (name, ",".join(filter(None, [labels.rstrip("}"), job, 'instance="%s"' % INSTANCE])))


class Alerts(unittest.TestCase):
    def setUp(self):
        with open(RULES) as file:
            (group,) = yaml.safe_load(file)["groups"]
        self.rules = {rule["alert"]: rule for rule in group["rules"]}

    def test_every_alert_has_cases_in_which_it_fires_and_others_in_which_it_does_not(self):
        self.assertEqual(sorted(self.rules), sorted(ALERTS))
        for name, (_, cases) in ALERTS.items():
            with self.subTest(name):
                self.assertEqual({bool(c["fires"]) for c in cases}, {True, False})

    def expected(self, name, fired):
        """As promtool wants it: all labels and annotations."""
        fired = dict(fired)
        summary = ALERTS[name][0].format(value=fired.pop("value", None), instance=INSTANCE, **fired)
        rule = self.rules[name]
        labels = dict(rule["labels"], instance=INSTANCE, **fired)
        if name != "TesseraEndpointGone":
            labels["job_name"] = JOB
        return {"exp_labels": labels,
                "exp_annotations": {"summary": summary, "description": rule["annotations"]["description"]}}

    @unittest.skipUnless(shutil.which("promtool"), "promtool is not installed: Debian's prometheus has it")
    def test_alerts_fire_when_what_they_tell_of_happens(self):
        tests = [{"interval": "1m",
                  "input_series": [{"series": with_labels(series), "values": values}
                                   for series, values in c["series"].items()],
                  "alert_rule_test": [{"eval_time": "%dm" % c["at"], "alertname": name,
                                       "exp_alerts": [self.expected(name, fired) for fired in c["fires"]]}]}
                 for name, (_, cases) in ALERTS.items() for c in cases]
        with tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR")) as folder:
            path = os.path.join(folder, "alerts_test.yaml")
            with open(path, "w") as file:
                # JSON is YAML, too.
                json.dump({"rule_files": [RULES], "evaluation_interval": "1m", "tests": tests}, file)
            done = subprocess.run(["promtool", "test", "rules", path], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main()
