"""What a pull request changes, found out from two revisions of a repository alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetctl.apply.plan.compare import ReviewRequest, compare_revisions
from fleetctl.apply.plan.plan_report import PlanAction, PlanReport, RevisionComparison, RiskType
from fleetctl.common.errors import NotFound, Refused, UsageError
from fleetctl.controllers.model import RunState
from fleetctl.manifest import load_manifests
from fleetctl.manifest.document.envelope import NamespaceChoice
from fleetctl.manifest.files.documents import Document
from fleetctl.manifest.problems import ManifestErrors
from tests.unit.planning.repositories import commit, git, job, repository, volume
from tests.unit.planning.test_planning_report import stored


def as_they_are(documents: list[Document], lenient: bool) -> list[Document]:
    return documents


def review(
    place: Path,
    before: str = "v0",
    after: str = "v1",
    *files: str,
    values: tuple[str, ...] = (),
    home: Path | None = None,
) -> PlanReport:
    return compare_revisions(
        ReviewRequest(
            directory=place,
            before=before,
            after=after,
            files=files or ("jobs",),
            values=values,
            recursive=True,
            namespace=NamespaceChoice(),
            settle=as_they_are,
            home=home,
        )
    )


def sides(found: PlanReport) -> RevisionComparison:
    assert found.comparison is not None
    return found.comparison


def test_each_object_says_what_becomes_of_it_and_costs_before_and_after(tmp_path: Path) -> None:
    place = repository(
        tmp_path,
        {"jobs/a.yaml": job("a"), "jobs/b.yaml": job("b"), "jobs/same.yaml": job("same")},
        {
            "jobs/a.yaml": job("a", tasks=20, seconds=1200),
            "jobs/c.yaml": job("c"),
            "jobs/same.yaml": job("same"),
        },
    )
    found = review(place)
    turns = {it.key: it.action for it in found.changes}
    assert turns == {
        "batchjob/b": PlanAction.DESTROY,
        "batchjob/a": PlanAction.UPDATE,
        "batchjob/c": PlanAction.CREATE,
    }
    assert found.count(PlanAction.KEEP) == 1
    by_key = {it.key: it for it in found.changes}
    a = by_key["batchjob/a"]
    fields = {field.path: (field.before, field.after) for field in a.fields}
    assert fields == {"completions": (10, 20), "template.timeoutSeconds": (600.0, 1200.0)}
    assert a.work is not None and (a.work.kept, a.work.new, a.work.again.units) == (10, 10, 0)
    # Twice the tasks of twice the time, and the grace of each; what nobody ran has a bound alone.
    assert a.before is not None and a.cost is not None
    assert a.before.high is not None and a.cost.high is not None
    assert 3.8 < a.cost.high / a.before.high < 4.0
    assert a.before.expected is None
    both = sides(found)
    assert both.cost.high is not None and found.cost.high is not None
    assert both.most_difference == pytest.approx(found.cost.high - both.cost.high)
    assert found.cost.high == pytest.approx(a.cost.high + 2 * a.before.high)


def test_what_nobody_knows_of_others_hides_no_difference(tmp_path: Path) -> None:
    unbound = job("u").replace("    timeoutSeconds: 600\n", "")
    place = repository(
        tmp_path,
        {"jobs/u.yaml": unbound},
        {"jobs/u.yaml": unbound, "jobs/a.yaml": job("a")},
        {"jobs/u.yaml": unbound.replace('"1"', '"2"'), "jobs/a.yaml": job("a")},
    )
    found = review(place)
    assert found.cost.high is None and found.risks_of(RiskType.UNKNOWN) == []
    assert sides(found).difference == found.changes[0].cost.high  # type: ignore[union-attr]
    changed = review(place, "v1", "v2")
    assert [it.key for it in changed.risks_of(RiskType.UNKNOWN)] == ["batchjob/u"]


def test_what_was_done_under_an_old_content_runs_again_and_what_is_gone_is_said(
    tmp_path: Path,
) -> None:
    place = repository(
        tmp_path,
        {"jobs/a.yaml": job("a", tasks=12) + "---\n" + volume("data", "Delete")},
        {"jobs/a.yaml": job("a", tasks=12, program="2")},
    )
    found = review(place)
    assert [(it.sort, it.key, it.count) for it in found.risks] == [
        (RiskType.DATA, "volume/data", 1),
        (RiskType.WORK, "batchjob/a", 1),
        (RiskType.AGAIN, "batchjob/a", 12),
        (RiskType.DELETES, "volume/data", 1),
    ]
    assert "12 tasks done under the old content" in found.risks_of(RiskType.AGAIN)[0].sentence
    kept = repository(tmp_path / "kept", {"jobs/a.yaml": volume("data")}, {"jobs/a.yaml": job("a")})
    assert [it.sort for it in review(kept).risks] == [RiskType.DELETES]


def test_files_beside_the_manifests_count_as_they_are_in_each_revision(tmp_path: Path) -> None:
    text = job("a").replace("  completions: 10\n", "  tasks: {fromFile: {path: ../rows.csv}}\n")
    text = text.replace("    image:", "    source: {path: ../src}\n    image:")
    secret = (
        "---\napiVersion: fleetctl.dev/v1alpha1\nkind: Secret\nmetadata: {name: s}\n"
        "spec: {fromFile: {KEY: ../key.txt}}\n"
    )
    before = {"jobs/a.yaml": text + secret, "rows.csv": "x\n1\n2\n", "src/train.py": "1\n"}
    same = {**before, "README.md": "words\n"}
    more = {**same, "rows.csv": "x\n1\n2\n3\n", "src/train.py": "2\n"}
    place = repository(tmp_path, before, same, more)
    (place / "rows.csv").write_text("not this\n")  # of the work tree nothing is read
    assert review(place, "v0", "v1").changes == ()
    [a] = review(place, "v1", "v2").changes
    assert a.work is not None and (a.work.again.units, a.work.new) == (2, 1)
    told = {field.path: field.difference for field in a.fields}
    assert told["source"] == "1 file: train.py"


def test_a_branch_is_compared_with_where_it_left(tmp_path: Path) -> None:
    place = repository(tmp_path, {"jobs/a.yaml": job("a")}, {"jobs/a.yaml": job("a", tasks=11)})
    git(place, "checkout", "-q", "-b", "pr", "v0")
    commit(place, {"jobs/a.yaml": job("a"), "jobs/b.yaml": job("b")}, "pr1")
    found = review(place, "main", "pr")
    assert [it.key for it in found.changes] == ["batchjob/b"]
    both = sides(found)
    assert both.asked is not None and both.asked.said == "main"
    assert both.before.digits == git(place, "rev-parse", "v0")
    # To go back is a change, too.
    assert [it.action for it in review(place, "v1", "v0").changes] == [PlanAction.UPDATE]


def test_an_overlay_and_its_values_are_read_from_the_revision(tmp_path: Path) -> None:
    base = (
        "apiVersion: fleetctl.dev/v1alpha1\nkind: Variables\n"
        "variables: {tasks: {type: integer, default: 2}}\n---\n"
    ) + job("a").replace("completions: 10", "completions: ${{ tasks }}")
    place = repository(
        tmp_path,
        {"jobs/a.yaml": base, "prod.yaml": "tasks: 3\n"},
        {"jobs/a.yaml": base, "prod.yaml": "tasks: 5\n"},
    )
    assert review(place).changes == ()
    [a] = review(place, values=("prod.yaml",)).changes
    assert [(it.path, it.before, it.after) for it in a.fields] == [("completions", 3, 5)]


def test_a_store_tells_what_runs_now_what_is_left_and_which_policies_hold(tmp_path: Path) -> None:
    budget = (
        "apiVersion: fleetctl.dev/v1alpha1\nkind: Budget\nmetadata: {name: team}\n"
        "spec: {maxCost: 1000}\n---\n"
    )
    policy = (
        "apiVersion: fleetctl.dev/v1alpha1\nkind: Policy\nmetadata: {name: few}\n"
        'spec: {rules: [{expression: "!has(object.spec.completions)'
        ' || object.spec.completions <= 10"}]}\n---\n'
    )
    was, now = job("a", tasks=3), job("a", tasks=11, program="2")
    place = repository(
        tmp_path / "r",
        {"jobs/a.yaml": budget + was},
        {"jobs/a.yaml": budget + now},
        {"jobs/a.yaml": budget},
        {"jobs/a.yaml": budget + was + "---\n" + job("b")},
    )
    home = tmp_path / "home"
    running = [(index, RunState.RUNNING, 5.0) for index in range(2)]
    manifests = load_manifests([Document("x", was + "---\n" + budget + policy, "/")])
    stored(home, manifests, *running)
    for after in ("v1", "v2"):
        found = review(place, "v0", after, home=home)
        [work] = found.risks_of(RiskType.WORK)
        assert (work.key, work.sentence) == (
            "batchjob/a", "2 running tasks would be stopped"
        )  # fmt: skip
        assert [it.key for it in found.risks_of(RiskType.POLICY)] == ["batchjob/a"] * (
            after == "v1"
        )
    # What stays as it is stops nothing, though more is stored than the repository has.
    found = review(place, "v0", "v3", home=home)
    assert found.risks_of(RiskType.WORK) == [] and sides(found).live
    assert "budget/team: $0.00 of $1,000.00 used" in found.budgets[0]


def test_a_new_side_that_is_wrong_is_refused_and_an_old_one_is_told(tmp_path: Path) -> None:
    place = repository(
        tmp_path,
        {"jobs/a.yaml": job("a").replace("completions", "completion")},
        {"jobs/a.yaml": job("a")},
    )
    found = review(place)
    assert [it.action for it in found.changes] == [PlanAction.CREATE]
    assert sides(found).difference is None and not sides(found).known
    assert "jobs/a.yaml:5" in found.warnings[0] and "unknown field" in found.warnings[0]
    with pytest.raises(ManifestErrors, match=r"^jobs/a.yaml:5"):
        review(place, "v1", "v0")


def test_nothing_outside_of_a_revision_is_read(tmp_path: Path) -> None:
    outside = tmp_path / "key.csv"
    outside.write_text("x\nhidden\n")
    text = job("a").replace("  completions: 10\n", "  tasks: {fromFile: {path: rows.csv}}\n")
    place = repository(tmp_path / "r", {"jobs/b.yaml": job("b")})
    git(place, "rm", "-rfq", ".")
    (place / "jobs").mkdir()
    (place / "jobs/a.yaml").write_text(text)
    (place / "jobs/rows.csv").symlink_to(outside)
    git(place, "add", "-A")
    git(place, "commit", "-q", "-m", "link")
    with pytest.raises(ManifestErrors, match="it cannot be read: no such file"):
        review(place, "v0", "main")
    commit(place, {"jobs/a.yaml": text.replace("rows.csv", str(outside))}, "v1")
    with pytest.raises(ManifestErrors, match="it is outside of the repository"):
        review(place, "v0", "v1")
    (tmp_path / "environ").write_text("TOKEN=canary\0PATH=/bin")
    wrong = job("a").replace('python: "3.12"', f"pip: [-r {tmp_path}/environ]")
    commit(place, {"jobs/a.yaml": wrong}, "v2")
    with pytest.raises(ManifestErrors) as caught:
        review(place, "v0", "v2")
    assert "canary" not in str(caught.value)
    with pytest.raises(UsageError, match="outside of the repository"):
        review(place, "v0", "v0", "../key.csv")


def test_a_bare_clone_will_do_and_a_shallow_one_says_what_to_fetch(tmp_path: Path) -> None:
    place = repository(
        tmp_path / "r", {"jobs/a.yaml": job("a")}, {"jobs/a.yaml": job("a", tasks=11)}
    )
    git(tmp_path, "clone", "-q", "--bare", str(place), "bare.git")
    assert len(review(tmp_path / "bare.git").changes) == 1
    git(tmp_path, "clone", "-q", "--depth", "1", place.as_uri(), "shallow")
    shallow = tmp_path / "shallow"
    with pytest.raises(NotFound) as unknown:
        review(shallow, "v0", "HEAD")
    assert "git fetch --unshallow" in unknown.value.hint and "fetch-depth: 0" in unknown.value.hint
    git(shallow, "fetch", "-q", "--depth", "1", "origin", "tag", "v0")
    with pytest.raises(Refused, match="no common commit") as apart:
        review(shallow, "v0", "HEAD")
    assert "fetch-depth: 0" in apart.value.hint
    # Of another repository than that of the working directory, which is in one, too.
    assert len(review(tmp_path, "v0", "v1", str(place / "jobs")).changes) == 1
    with pytest.raises(NotFound, match="not in a git repository"):
        review(tmp_path, "v0", "v1", str(tmp_path / "nowhere"))


@pytest.mark.parametrize("said", ["--output=x", "a..b", "a b", "", "x" * 300])
def test_what_is_not_one_revision_never_reaches_git(tmp_path: Path, said: str) -> None:
    place = repository(tmp_path, {"jobs/a.yaml": job("a")})
    with pytest.raises(UsageError, match="not one revision"):
        review(place, said, "HEAD")


WINE = """\
apiVersion: fleetctl.dev/v1alpha1
kind: Sweep
metadata: {{name: wine}}
spec:
  searchFrom: {{file: sweep.yaml}}
  parallelism: {parallelism}
  template: {{image: {{pip: [wandb]}}, source: {{path: .}}, timeoutSeconds: 10m}}
"""
SEARCH = (
    "program: train.py\nmethod: random\nparameters: {{x: {{min: 0.1, max: 1.0}}}}\nrun_cap: {cap}\n"
)


def test_an_edit_of_a_manifest_beside_its_program_runs_nothing_again(tmp_path: Path) -> None:
    def tree(parallelism: int, cap: int, program: str = "pass") -> dict[str, str]:
        return {
            "jobs/wine.yaml": WINE.format(parallelism=parallelism) + f"# {cap}\n",
            "jobs/sweep.yaml": SEARCH.format(cap=cap),
            "jobs/train.py": program,
        }

    place = repository(tmp_path, tree(2, 4), tree(1, 6), tree(1, 6, "print(1)"))
    for after, reruns in (("v1", False), ("v2", True)):
        found = review(place, after=after)
        assert bool(found.risks_of(RiskType.AGAIN)) == reruns
        [sweep] = found.changes
        assert any("train.py" in it for it in map(str, sweep.fields)) == reruns
