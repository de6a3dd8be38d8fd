"""`plan --diff-from`: the comment, conditions that end it, flags that need each other."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from fleetctl.cli.apply.plans.report_screen import CHARS_MAX, escape_cell
from fleetctl.cli.main import run_guarded
from fleetctl.cli.output.screen import Screen
from tests.unit.planning.repositories import commit, job, repository, volume


@pytest.fixture
def pull(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FLEETCTL_HOME", str(tmp_path / "home"))
    place = repository(
        tmp_path / "repository",
        {"jobs/a.yaml": job("a"), "jobs/v.yaml": volume("data", "Delete")},
        {"jobs/a.yaml": job("a", program="2"), "jobs/b.yaml": job("b")},
    )
    (place / "jobs/b.yaml").write_text(job("b", tasks=4))
    monkeypatch.chdir(place)
    return place


def plan(*words: str) -> tuple[int, str, str]:
    out, talk = io.StringIO(), io.StringIO()
    code = run_guarded(["plan", "-f", "jobs", *words], Screen(out, talk))
    return code, out.getvalue(), talk.getvalue()


def test_equal_revisions_give_equal_bytes_with_the_risks_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEETCTL_HOME", str(tmp_path / "home"))
    trees = (
        {"jobs/a.yaml": job("a"), "jobs/v.yaml": volume("data", "Delete")},
        {"jobs/a.yaml": job("a", program="2"), "jobs/b.yaml": job("b")},
    )
    texts = []
    for name in ("one", "two"):
        monkeypatch.chdir(repository(tmp_path / name, *trees))
        code, out, said = plan("--diff-from", "v0", "--diff-to", "v1", "-o", "markdown")
        assert (code, said) == (0, "")
        texts.append(out)
    assert texts[0] == texts[1]
    lines = texts[0].splitlines()
    assert lines[0] == "<!-- fleetctl-plan -->"
    assert lines[1].startswith("### fleetctl plan: 1 to create, 1 to update, 1 to destroy; upper")
    assert lines[3] == "**Risks**"
    assert lines[5].startswith("- **destroys-data** `volume/data`: ")
    table = texts[0].index("| object |")
    assert texts[0].index("10 tasks done under the old content") < table
    assert "| batchjob/a | update | 10 to run again | at most $" in texts[0]
    assert '- template.command[2]: "1"\n+ template.command[2]: "2"' in texts[0]
    assert str(tmp_path) not in texts[0]


def rows(*numbers: int, program: str = "1", more: str = "") -> str:
    items = ", ".join(f"{{a: {it}}}" for it in numbers)
    text = job("a", program=program).replace("completions: 10", f"tasks: {{items: [{items}]}}")
    return text + more


@pytest.mark.parametrize("more", ["", "  cache: {policy: Never}\n"], ids=["own", "never"])
@pytest.mark.parametrize(
    ("after", "fresh", "again"),
    [
        (rows(9, 1, 2, 3), 1, 0),  # inserted in front
        (rows(3, 1, 2), 0, 0),  # moved
        (rows(1, 3), 0, 0),  # removed
        (rows(1, 1, 2, 3), 1, 0),  # repeated
        (rows(1, 7, 3), 1, 0),  # edited: that row alone is new
        (rows(1, 2, 3, program="2"), 0, 3),
        (rows(9, 3, 1, program="2"), 1, 2),
    ],
)
def test_work_that_runs_again_is_counted_by_rows_and_not_by_their_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: str, fresh: int, again: int, more: str
) -> None:
    monkeypatch.setenv("FLEETCTL_HOME", str(tmp_path / "home"))
    trees = {"jobs/a.yaml": rows(1, 2, 3) + more}, {"jobs/a.yaml": after + more}
    monkeypatch.chdir(repository(tmp_path / "repository", *trees))
    pair = ("--diff-from", "v0", "--diff-to", "v1")
    code, out, _ = plan(*pair, "-o", "json")
    [found] = json.loads(out)["objects"]
    assert code == 0 and (found["work"]["new"], found["work"]["again"]) == (fresh, again)
    risky = [it["risk"] for it in json.loads(out)["risks"]]
    assert ("reruns" in risky) == bool(again)
    # An attempt of a row that is not there any more, or has other content, may be running.
    assert ("destroys-work" in risky) == (bool(again) or "{a: 2}" not in after)
    assert plan(*pair, "--fail-on", "reruns")[0] == (3 if again else 0)


def test_conditions_that_hold_end_with_3_and_are_named(pull: Path) -> None:
    pair = ("--diff-from", "v0~0", "--diff-to", "v0")
    assert plan(*pair, "--fail-on", "changes,deletes,destroys-data,cost-increase>0")[0] == 0
    code, _, said = plan(*pair, "--fail-on", "cost>2")
    assert code == 3 and "--fail-on cost>2: it may cost $" in said


TRAINING = """\
apiVersion: fleetctl.dev/v1alpha1
kind: TrainingRun
metadata: {name: train}
spec:
  placement: {provider: modal}
  checkpoint: {path: /ckpt}
  template:
    command: [python, train.py]
    resources: {gpu: "H100:8"}
    timeoutSeconds: 6h
    volumes: [{name: ckpt, mountPath: /ckpt}]
"""


@pytest.mark.parametrize(("provider", "code"), [("local", 2), ("modal", 0)])
def test_what_an_apply_refuses_is_refused_before_the_merge(
    pull: Path, provider: str, code: int
) -> None:
    """A volume that is kept where the work never runs, and that the same commit brings."""
    kept = volume("ckpt", "Delete").replace("{", f"{{provider: {provider}, ", 2)
    kept = kept.replace(f"metadata: {{provider: {provider}, ", "metadata: {")
    commit(pull, {"jobs/train.yaml": f"{TRAINING}---\n{kept}"}, "v2")
    ended, _, said = plan("--diff-from", "v0")
    assert ended == code, said
    if code:
        assert "jobs/train.yaml:11:" in said
        assert "volume/ckpt" in said


def test_a_condition_that_there_is_not_is_refused_before_anything_is_read(pull: Path) -> None:
    for text, hint in (
        ("destroys-dat", "did you mean `destroys-data`?"),
        ("cost", "cost>50"),
        ("cost>much", "cost>50"),
        ("cost<5", "cost>50"),
        ("changes>1", "changes"),
    ):
        code, out, said = plan("--diff-from", "nothing", "--fail-on", text)
        assert (code, out) == (2, "") and f"hint: {hint}" in said, text


def test_flags_that_need_each_other_say_so(pull: Path) -> None:
    for flags, hint in (
        (("--live",), "--diff-from main"),
        (("--diff-to", "v0"), "--diff-from main"),
        (("--diff-from", "v0", "--out", "x.plan"), "two revisions are compared"),
    ):
        code, _, said = plan(*flags)
        assert code == 2 and hint in said


def test_conditions_hold_for_the_plan_of_an_apply_too(pull: Path) -> None:
    code, out, said = plan("--allow-missing", "--fail-on", "cost>2,unknown-cost")
    assert code == 3 and "Plan: " in out
    assert "--fail-on cost>2: it may cost $" in said and "unknown-cost" not in said


def test_the_comment_of_an_apply_has_the_same_sections_but_no_stored_value(pull: Path) -> None:
    code, out, _ = plan("--allow-missing", "--fail-on", "cost>2", "-o", "markdown")
    lines = out.splitlines()
    assert code == 3 and lines[1].startswith("### fleetctl plan: 2 to create; at most $")
    assert lines[3].startswith("> **Refused:** cost>2: it may cost $")
    assert "| object | action | units | est. cost | where |" in lines
    assert "<details>" not in out


def test_json_has_all_of_it(pull: Path) -> None:
    code, out, _ = plan("--diff-from", "v0", "-o", "json", "--set", "parallelism=2")
    found = json.loads(out)
    assert code == 0 and found["form"] == "fleetctl.dev/review/v1alpha1"
    actions = {it["object"]: it["action"] for it in found["objects"]}
    assert actions == {"volume/data": "destroy", "batchjob/a": "update", "batchjob/b": "create"}
    [a] = [it for it in found["objects"] if it["object"] == "batchjob/a"]
    assert (a["work"]["kept"], a["work"]["again"], a["work"]["new"]) == (0, 10, 0)
    assert a["costBefore"]["high"] == a["work"]["cost"]["thisApply"]["high"] > 0
    assert found["cost"]["mostDifference"] > 0 and found["failed"] == []


def test_what_people_wrote_ends_no_cell_and_no_block_and_a_comment_has_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEETCTL_HOME", str(tmp_path / "home"))
    evil = "``` | </details> <!-- "
    before = "".join(job(f"j{at:03}") + "---\n" for at in range(300))
    after = before.replace('"1"', f"'{evil}" + "x" * 200 + "'")
    monkeypatch.chdir(repository(tmp_path / "r", {"jobs/a.yaml": before}, {"jobs/a.yaml": after}))
    code, out, said = plan("--diff-from", "v0", "-o", "markdown")
    assert (code, said) == (0, "")
    assert len(out) <= CHARS_MAX and "more objects" in out
    fences = [line for line in out.splitlines() if line.startswith("```")]
    assert set(fences) == {"````diff", "````"}  # longer than what stands inside
    assert out.splitlines()[-1] == "</details>"


def test_what_people_wrote_is_no_link_and_calls_nobody() -> None:
    evil = "[ok](https://e.org) ![x](y) @org <!-- &#64;you `a` `b \\| c"
    assert escape_cell(evil) == (
        "\\[ok\\](https://e.org) !\\[x\\](y) @&#8203;org &lt;!-- &amp;#64;you `a` \\`b \\\\\\| c"
    )
    assert escape_cell("`cost.usd < 5 && x[0]` holds") == "`cost.usd < 5 && x[0]` holds"
