"""What the README says scripts may rely on, asked of the real command line."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from tests.docs.fleet import BIN, HANG_S, Fleet


def manifest(kind: str, name: str, spec: dict[str, Any]) -> str:
    head = {"apiVersion": "fleetctl.dev/v1alpha1", "kind": kind, "metadata": {"name": name}}
    return json.dumps({**head, "spec": spec})


def test_a_script_finds_its_parameters_in_variables_and_in_a_file(empty: Fleet) -> None:
    script = """
    file=$(cat "$FLEETCTL_PARAMS")
    printf '{"text": "%s", "number": "%s", "list": %s, "index": "%s", "file": %s}' \\
      "$TASK_TEXT" "$TASK_A_NUMBER" "$TASK_LIST" "$JOB_COMPLETION_INDEX" "$file" \\
      > "$FLEETCTL_RESULT"
    """
    params = {"text": "two words", "a.number": 0.5, "list": [1, {"deep": True}]}
    spec = {"tasks": {"items": [{"text": "first", "a.number": 1, "list": []}, params]}}
    desired = manifest("BatchJob", "variables", {**spec, "template": {"script": script}})
    empty.ok("apply", "-f", "-", "--wait", stdin=desired)
    second = empty.results("job/variables")[1]
    assert second["params"] == params
    assert second["result"] == {
        "text": "two words",
        "number": "0.5",
        "list": [1, {"deep": True}],
        "index": "1",
        "file": params,
    }


def test_a_command_reports_metrics_and_its_result_by_files(empty: Fleet) -> None:
    script = """
    echo '{"step": 1, "val/loss": 0.5}' >> "$FLEETCTL_METRICS"
    echo '{"step": 2, "val/loss": 0.25}' >> "$FLEETCTL_METRICS"
    echo '{"note": "done"}' > "$FLEETCTL_RESULT"
    """
    search = {
        "method": "grid",
        "metric": {"name": "val/loss"},
        "parameters": {"x": {"value": 1}},
    }
    desired = manifest("Sweep", "files", {"search": search, "template": {"script": script}})
    empty.ok("apply", "-f", "-", "--wait", stdin=desired)
    (row,) = empty.results("sweep/files")
    assert row["result"] == {"note": "done"}
    assert row["metric"] == {"name": "val/loss", "value": 0.25}


def test_objects_and_results_have_the_promised_shape(empty: Fleet) -> None:
    spec = {"tasks": {"completions": 2}, "template": {"script": "exit $JOB_COMPLETION_INDEX"}}
    answer = empty.run("apply", "-f", "-", "--wait", stdin=manifest("BatchJob", "half", spec))
    assert answer.code == 1
    found = empty.json("get", "job/half")
    assert found["metadata"]["name"] == "half"
    assert found["spec"]["tasks"] == {"completions": 2}
    counts = {key: found["status"][key] for key in ("phase", "succeeded", "failed", "active")}
    assert counts == {"phase": "Failed", "succeeded": 1, "failed": 1, "active": 0}
    rows = empty.json("results", "job/half")
    (content,) = {row.pop("content") for row in rows}
    assert len(content) == 16 and found["status"]["outdated"] == 0
    plain = {"params": {}, "attempts": 1, "outdated": False, "result": None}
    assert rows == [
        {"index": 0, "state": "Succeeded", **plain},
        {"index": 1, "state": "Failed", **plain},
    ]


def test_status_tells_whether_a_controller_runs(empty: Fleet) -> None:
    empty.ok("down")
    none = empty.json("status")
    assert (none["pid"], none["ready"]) == (None, False)
    empty.ok("up", "--detach")
    running = empty.json("status")
    assert isinstance(running["pid"], int) and running["ready"] is True
    empty.ok("down")
    assert empty.json("status")["pid"] is None


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (0, ["get", "all"]),
        (2, ["get", "jobs", "--bogus"]),
        (2, ["frobnicate"]),
        (4, ["get", "job/missing"]),
        (4, ["wait", "job/missing"]),
    ],
)
def test_exit_codes_are_those_of_the_table(empty: Fleet, code: int, words: list[str]) -> None:
    assert empty.run(*words).code == code


def test_a_wait_that_cannot_be_met_ends_with_1_and_one_without_time_with_124(empty: Fleet) -> None:
    spec = {"parallelism": 0, "template": {"script": "exit 0"}}
    empty.ok("apply", "-f", "-", stdin=manifest("BatchJob", "never", spec))
    assert empty.run("wait", "job/never", "--timeout", "0.1s").code == 124
    spec = {"template": {"script": "exit 1"}}
    empty.run("apply", "-f", "-", "--wait", stdin=manifest("BatchJob", "bad", spec))
    assert empty.run("wait", "job/bad", "--for=succeeded").code == 1


def test_a_wait_ends_at_once_when_a_task_has_failed_for_good_and_others_still_run(
    empty: Fleet,
) -> None:
    script = "[ $JOB_COMPLETION_INDEX = 0 ] && exit 1; sleep 600"
    spec = {"parallelism": 2, "tasks": {"completions": 2}, "template": {"script": script}}
    empty.ok("apply", "-f", "-", stdin=manifest("BatchJob", "doomed", spec))
    answer = empty.run("wait", "job/doomed", "--for=succeeded", "--timeout", "5m")
    assert answer.code == 1
    assert "batchjob/doomed can no longer succeed: 1 of 2 tasks failed" in answer.talk
    assert empty.status("job/doomed")["active"] == 1


def test_a_watch_goes_on_with_a_line_for_every_change(empty: Fleet) -> None:
    spec = {"parallelism": 0, "template": {"script": "exit 0"}}
    empty.ok("apply", "-f", "-", stdin=manifest("BatchJob", "seen", spec))
    words = [str(BIN / "fleetctl"), "get", "job/seen", "-w"]
    with subprocess.Popen(words, env=empty.env, stdout=subprocess.PIPE, text=True) as watch:
        hang = threading.Timer(HANG_S, watch.kill)
        hang.start()
        assert watch.stdout is not None
        assert watch.stdout.readline().split()[:2] == ["NAME", "STATUS"]
        assert watch.stdout.readline().split()[:2] == ["seen", "Pending"]
        empty.ok("apply", "-f", "-", stdin=manifest("BatchJob", "seen", {**spec, "parallelism": 1}))
        phases = [line.split()[1] for line in _until(watch.stdout, "Succeeded")]
        hang.cancel()
        watch.terminate()
    assert phases[-1] == "Succeeded"


def test_what_get_writes_can_be_applied_again_and_a_dry_run_names_what_would_change(
    empty: Fleet,
) -> None:
    spec = {"parallelism": 1, "template": {"python": "SUBMIT(a=1)"}}
    both = "\n---\n".join(manifest("BatchJob", name, spec) for name in ("left", "right"))
    empty.ok("apply", "-f", "-", "--wait", stdin=both)
    written = empty.ok("get", "jobs", "left", "right", "-o", "yaml")
    again = empty.ok("apply", "-f", "-", stdin=written)
    assert again.splitlines() == ["batchjob/left unchanged", "batchjob/right unchanged"]
    changed = manifest("BatchJob", "left", {**spec, "parallelism": 2})
    said = empty.ok("apply", "-f", "-", "--dry-run", stdin=changed)
    assert said == "batchjob/left configured (dry run)  parallelism 1 -> 2; 1 kept\n"


def test_events_call_a_failed_unit_by_the_name_that_its_kind_gives_it(empty: Fleet) -> None:
    search = {"method": "grid", "parameters": {"lr": {"values": [1]}}}
    spec = {"search": search, "template": {"python": "raise ValueError(lr)"}}
    assert empty.run("apply", "-f", "-", "--wait", stdin=manifest("Sweep", "bad", spec)).code == 1
    said = empty.ok("events", "sweep/bad")
    assert "TrialFailed" in said
    assert "trial 0 attempt 1 failed: Error" in said


def _until(lines: Iterable[str], word: str) -> Iterator[str]:
    for line in lines:
        yield line
        if word in line:
            return


def test_a_wrong_manifest_ends_with_2_and_stores_nothing(empty: Fleet) -> None:
    good = manifest("BatchJob", "good", {"template": {"script": "exit 0"}})
    wrong = manifest("BatchJob", "wrong", {"template": {"script": "exit 0"}, "paralellism": 1})
    answer = empty.run("apply", "-f", "-", stdin=f"{good}\n---\n{wrong}")
    assert answer.code == 2
    assert "-:3:" in answer.talk and "did you mean `parallelism`?" in answer.talk
    assert empty.ok("get", "all", "-o", "name") == ""


def test_a_volume_is_found_through_its_variable_too(empty: Fleet) -> None:
    template = {
        "script": 'echo "{\\"same\\": $([ "$FLEETCTL_VOLUME_KEPT" -ef /data ] && echo true)}"'
        ' > "$FLEETCTL_RESULT"; echo kept > "$FLEETCTL_VOLUME_KEPT/file"',
        "volumes": [{"name": "kept", "mountPath": "/data"}],
    }
    desired = manifest("BatchJob", "mounts", {"template": template})
    empty.ok("apply", "-f", "-", "--wait", stdin=desired)
    assert empty.results("job/mounts")[0]["result"] == {"same": True}
    assert (empty.volume("kept") / "file").read_text("utf-8") == "kept\n"
