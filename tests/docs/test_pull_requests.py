"""The action and the script that put a plan on a pull request, run by a shell as a runner
does, against a forge on loopback: what counts is which comments are there.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import yaml

from tests.docs.fleet import EXAMPLES, ROOT, Answer
from tests.docs.fleet import Fleet as Shell
from tests.docs.forges import TOKEN, Forge, forge
from tests.servers.forked_program import make_program_directory
from tests.unit.planning.repositories import commit, git, job, repository, volume

SCRIPT = EXAMPLES / "ci" / "pull-request.sh"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return repository(
        tmp_path / "repository",
        {"jobs/a.yaml": job("a"), "jobs/v.yaml": volume("data", "Delete")},
        {"jobs/a.yaml": job("a", tasks=20)},
    )


@pytest.fixture
def there() -> Iterator[Forge]:
    with forge() as made:
        yield made


def run(place: Path, argv: list[str], more: Mapping[str, str]) -> Answer:
    kept = Shell(place.parent / "home").env
    left = {name: text for name, text in kept.items() if not name.startswith(("GITHUB_", "CI_"))}
    env = {**left, **more, "PLAN": str(place.parent / "plan.md")}
    env["PATH"] = f"{make_program_directory()}{os.pathsep}{env['PATH']}"
    done = subprocess.run(argv, cwd=place, env=env, capture_output=True, text=True, timeout=300)
    return Answer(done.returncode, done.stdout, done.stderr)


def github(there: Forge) -> dict[str, str]:
    return {
        "GITHUB_API_URL": there.address, "GITHUB_REPOSITORY": "o/r", "GITHUB_TOKEN": TOKEN,
        "GITHUB_REF": "refs/pull/7/merge",
    }  # fmt: skip


def gitlab(there: Forge) -> dict[str, str]:
    return {
        "CI_API_V4_URL": there.address, "CI_PROJECT_ID": "5", "CI_MERGE_REQUEST_IID": "7",
        "GITLAB_TOKEN": TOKEN,
    }  # fmt: skip


@pytest.mark.parametrize(
    "sort",
    [github, pytest.param(gitlab, marks=pytest.mark.only_all(reason="the comment on GitLab"))],
)
def test_one_comment_is_made_then_left_alone_then_updated(
    place: Path, there: Forge, sort: object
) -> None:
    assert callable(sort)
    there.comments = {at: f"words {at}" for at in range(1, 121)}  # two pages of other comments
    there.comments[9], there.strangers = "<!-- fleetctl-plan -->\nall is well", {9}
    script = ["sh", str(SCRIPT), "-f", "jobs", "--diff-from", "v0"]
    there.down = 1
    first = run(place, [*script, "--diff-to", "v1"], sort(there))
    assert first.code == 0 and "comment created" in first.talk, first
    assert len(there.comments) == 121
    assert there.comments[121].startswith("<!-- fleetctl-plan -->\n### fleetctl plan: 1 to update")
    again = run(place, [*script, "--diff-to", "v1"], sort(there))
    assert "comment unchanged" in again.talk and there.edits == 0
    commit(place, {"jobs/a.yaml": job("a", tasks=30)}, "v2")
    changed = run(place, [*script, "--diff-to", "v2", "--fail-on", "cost>2"], sort(there))
    assert changed.code == 3 and "--fail-on cost>2" in changed.talk
    assert len(there.comments) == 121 and there.edits == 1
    assert "> **Refused:** cost>2: it may cost $" in there.comments[121]
    assert "10 kept, 20 new" in there.comments[121]
    commit(place, {"jobs/a.yaml": job("a").replace("completions", "complet")}, "v3")
    wrong = run(place, [*script, "--diff-to", "v3"], sort(there))
    assert wrong.code == 2 and "unknown field" in there.comments[121]


def test_without_a_token_or_with_one_that_only_reads_the_plan_still_decides(
    place: Path, there: Forge
) -> None:
    script = ["sh", str(SCRIPT), "-f", "jobs", "--diff-from", "v0", "--diff-to", "v1"]
    assert run(place, script, {}).code == 0
    there.read_only = True
    answer = run(place, [*script, "--fail-on", "destroys-data"], github(there))
    assert answer.code == 3 and "403" in answer.talk and there.comments == {}
    assert "destroys-data" in (place.parent / "plan.md").read_text("utf-8")


def test_the_steps_of_the_action_plan_and_comment(place: Path, there: Forge) -> None:
    action = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))
    install, plan = action["runs"]["steps"]
    inputs = {name: it.get("default", "") for name, it in action["inputs"].items()}
    inputs |= {"files": "\n  jobs\n", "diff-from": "v0", "diff-to": "v1", "id": "prod/eu"}
    inputs |= {"set": "template.timeoutSeconds=60\n", "fail-on": "destroys-data", "token": TOKEN}
    env = {
        name: inputs[text.split("inputs.")[1].split()[0]] if "inputs." in text else "7"
        for name, text in plan["env"].items()
    }
    files = {name: place.parent / name for name in ("summary", "output")}
    env |= {
        **github(there), "GITHUB_REF": "refs/heads/main", "PULL_REQUEST": "7",
        "GITHUB_ACTION_PATH": str(ROOT), "RUNNER_TEMP": str(place.parent),
        "GITHUB_STEP_SUMMARY": str(files["summary"]), "GITHUB_OUTPUT": str(files["output"]),
    }  # fmt: skip
    # As the runner has it: `shell: bash` ends at the first command that fails.
    bash = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c"]
    assert run(place, [*bash, install["run"]], env).code == 0
    answer = run(place, [*bash, plan["run"]], env)
    assert answer.code == 3, answer
    [comment] = there.comments.values()
    assert comment.startswith("<!-- fleetctl-plan prod-eu -->\n")
    assert "destroys-data: volume/data" in comment
    assert files["summary"].read_text("utf-8").startswith("<!-- fleetctl-plan -->\n")
    assert "code=3" in files["output"].read_text("utf-8").splitlines()
    for name in ("github-pull-request.yml", "gitlab-ci.yml"):
        assert "pull" in (EXAMPLES / "ci" / name).read_text("utf-8")
    used = yaml.safe_load((EXAMPLES / "ci" / "github-pull-request.yml").read_text("utf-8"))
    given = used["jobs"]["plan"]["steps"][-1]["with"]
    assert set(given) <= set(action["inputs"])
    assert git(place, "status", "--porcelain") == ""
