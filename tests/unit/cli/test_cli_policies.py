"""`--policy`: what policies of files say of files, of a pull request and of what is stored."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from fleetctl.apply.policies.expressions import (
    ExpressionData,
    compile_expression,
    evaluate_expression,
)
from fleetctl.apply.write import commit
from fleetctl.cli.main import run_guarded
from fleetctl.cli.output.screen import Screen
from fleetctl.common.clock import SystemClock
from fleetctl.common.install import install_hint
from fleetctl.manifest import Document, load_manifests
from fleetctl.stores.sqlite.store import open_store
from tests.unit.planning.repositories import job, repository

POLICY = """apiVersion: fleetctl.dev/v1alpha1
kind: Policy
metadata: {name: limits}
spec:
  match: {kinds: [BatchJob]}
  rules:
    - expression: object.spec.completions <= 10
      message: at most 10 tasks
    - expression: "!cost.known || cost.usd < 6.0"
      messageExpression: "'it may cost ' + string(cost.usd)"
      action: Warn
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FLEETCTL_HOME", str(tmp_path / "home"))
    made = repository(
        tmp_path / "repository",
        {"jobs/a.yaml": job("a"), "policies/deep/limits.yaml": POLICY},
        {"jobs/a.yaml": job("a", tasks=11), "policies/deep/limits.yaml": POLICY},
        {"jobs/a.yaml": job("a", seconds=3600), "policies/deep/limits.yaml": POLICY},
    )
    monkeypatch.chdir(made)
    return made


def fleetctl(*words: str) -> tuple[int, str, str]:
    out, talk = io.StringIO(), io.StringIO()
    code = run_guarded(list(words), Screen(out, talk))
    return code, out.getvalue(), talk.getvalue()


def test_files_are_checked_at_their_place_and_warned_of_costs(place: Path) -> None:
    flags = ("-f", "jobs", "--policy", "policies", "--allow-missing")
    code, out, said = fleetctl("validate", *flags)
    assert (code, out) == (0, "batchjob/a valid\n")
    assert "warning: batchjob/a: warning of policy/limits: it may cost 2" in said
    (place / "jobs/a.yaml").write_text("\n" + job("a", tasks=11))
    for verb in ("validate", "plan", "apply"):
        code, out, said = fleetctl(verb, *flags, *(["--dry-run"] if verb == "apply" else []))
        assert code == 3, said
        assert "jobs/a.yaml:2: batchjob/a is denied by policy/limits: at most 10 tasks" in said
        assert ("Plan: 1 to create" in out) == (verb == "plan")
    code, _, said = fleetctl("plan", *flags, "--fail-on", "policy")
    assert code == 3 and "--fail-on policy: batchjob/a" in said


def test_a_pull_request_tells_what_policies_say_first(place: Path) -> None:
    flags = ("-f", "jobs", "--diff-from", "v0", "--policy", "policies", "-o", "markdown")
    code, out, said = fleetctl("plan", *flags, "--diff-to", "v1")
    assert code == 3 and "batchjob/a is denied by policy/limits: at most 10 tasks" in said
    assert out.splitlines()[3].startswith("> **Refused:** batchjob/a is denied by policy/limits")
    assert "- **policy** `batchjob/a`: policy/limits: at most 10 tasks" in out
    code, out, said = fleetctl("plan", *flags, "--diff-to", "v2")
    assert (code, said) == (0, "")
    assert "- **policy-warning** `batchjob/a`: policy/limits: it may cost 2" in out
    code, _, said = fleetctl("plan", *flags, "--diff-to", "v2", "--fail-on", "policy-warning")
    assert code == 3 and "--fail-on policy-warning: batchjob/a" in said


def test_a_policy_of_the_pull_request_itself_holds_and_a_change_of_it_is_told(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loose = POLICY.replace("<= 10", "<= 20")
    files = {"jobs/a.yaml": job("a"), "jobs/p.yaml": POLICY}
    more = {"jobs/a.yaml": job("a", tasks=20), "jobs/p.yaml": loose}
    monkeypatch.chdir(repository(place / "own", files, more, {**more, "jobs/p.yaml": POLICY}))
    flags = ("plan", "-f", "jobs", "--diff-from", "v0", "-o", "json")
    code, out, _ = fleetctl(*flags, "--diff-to", "v1")
    risks = [(it["risk"], it["object"]) for it in json.loads(out)["risks"]]
    assert code == 0 and ("policy-warning", "policy/limits") in risks
    assert fleetctl(*flags, "--diff-to", "v2")[0] == 3


def test_what_is_stored_is_checked_without_a_file(place: Path, tmp_path: Path) -> None:
    store = open_store(tmp_path / "home", SystemClock())
    text = job("small") + "---\n" + job("large", tasks=11)
    commit.apply_manifests(store, load_manifests([Document("x", text, "/")]), 1.0)
    store.close()
    code, out, said = fleetctl("validate", "--policy", "policies")
    assert (code, out) == (3, "batchjob/small valid\n")
    assert "error: batchjob/large is denied by policy/limits: at most 10 tasks" in said
    code, _, said = fleetctl("validate")
    assert code == 2 and "`-f` is missing" in said


def test_policies_that_are_wrong_or_are_none_are_told(place: Path) -> None:
    (place / "bad.yaml").write_text(POLICY.replace("completions <= 10", "completions <"))
    code, _, said = fleetctl("validate", "-f", "jobs", "--policy", "bad.yaml")
    assert code == 2 and "bad.yaml:7:19: spec.rules[0].expression is not an expr" in said
    code, _, said = fleetctl("validate", "-f", "jobs", "--policy", "jobs")
    assert code == 2 and "jobs/a.yaml:1: batchjob/a is not a policy" in said
    (place / "jobs/bad.yaml").write_text(POLICY.replace("completions <= 10", "completions <"))
    code, _, said = fleetctl("validate", "-f", "jobs")
    assert code == 2 and "jobs/bad.yaml:7:19" in said


def test_without_the_library_a_policy_denies_and_says_what_to_install(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cel", None)
    (place / "p.yaml").write_text(POLICY.replace("<= 10", "<= 123456"))
    code, _, said = fleetctl("validate", "-f", "jobs", "--policy", "p.yaml")
    assert code == 3 and f"hint: {install_hint('policies')}" in said


def test_the_hint_of_a_denial_names_the_policy(place: Path) -> None:
    (place / "b.yaml").write_text(job("b", tasks=11))
    code, _, said = fleetctl(
        "validate", "-f", "b.yaml", "--policy", "policies/deep", "--allow-missing"
    )
    assert code == 3
    assert "`fleetctl describe policy/limits` shows the rule" in said


def test_optional_values_are_part_of_the_language() -> None:
    data = ExpressionData({"object": {"spec": {"n": 3}}})
    for text, value in (
        ("optional.of(object.spec.n).orValue(1) == 3", True),
        ("optional.none().hasValue()", False),
    ):
        assert evaluate_expression(compile_expression(text), data) is value
