"""`plan --diff-from`: the comment, conditions that end it, flags that need each other."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from fleetctl.cli.apply.plans.markdown import cell
from fleetctl.cli.apply.plans.review_markdown import CHARS_MAX
from fleetctl.cli.main import guarded
from fleetctl.cli.output.render import Screen
from tests.unit.planning.repositories import job, repository, volume


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
    code = guarded(["plan", "-f", "jobs", *words], Screen(out, talk))
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
    assert lines[1].startswith("### fleetctl plan: 1 to create, 1 to change, 1 to delete; upper")
    assert lines[3] == "**Risks**"
    assert lines[5].startswith("- **destroys-data** `volume/data`: ")
    table = texts[0].index("| object |")
    assert texts[0].index("10 tasks done under the old content") < table
    assert "| batchjob/a | change | 10 to run again | at most $" in texts[0]
    assert '- template.command[2]: "1"\n+ template.command[2]: "2"' in texts[0]
    assert str(tmp_path) not in texts[0]


def test_conditions_that_hold_end_with_3_and_are_named(pull: Path) -> None:
    pair = ("--diff-from", "v0~0", "--diff-to", "v0")
    assert plan(*pair, "--fail-on", "changes,deletes,destroys-data,cost-increase>0")[0] == 0
    code, _, said = plan(*pair, "--fail-on", "cost>2")
    assert code == 3 and "--fail-on cost>2: it may cost $" in said


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


def test_json_has_all_of_it(pull: Path) -> None:
    code, out, _ = plan("--diff-from", "v0", "-o", "json", "--set", "parallelism=2")
    found = json.loads(out)
    assert code == 0 and found["form"] == "fleetctl.dev/review/v1alpha1"
    actions = {it["object"]: it["action"] for it in found["objects"]}
    assert actions == {"volume/data": "delete", "batchjob/a": "change", "batchjob/b": "create"}
    [a] = [it for it in found["objects"] if it["object"] == "batchjob/a"]
    assert a["units"] == {"kept": 0, "again": 10, "new": 0, "gone": 0}
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
    assert cell(evil) == (
        "\\[ok\\](https://e.org) !\\[x\\](y) @&#8203;org &lt;!-- &amp;#64;you `a` \\`b \\\\\\| c"
    )
    assert cell("`cost.usd < 5 && x[0]` holds") == "`cost.usd < 5 && x[0]` holds"
