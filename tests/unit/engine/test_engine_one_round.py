"""All that refuses an apply in one round: one mistake of each level, by validate, plan, apply."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from fleetctl.apply.write import commit
from fleetctl.cli.main import run_guarded
from fleetctl.cli.output.screen import Screen
from fleetctl.common.clock import SystemClock
from fleetctl.manifest import Document, load_manifests
from fleetctl.stores.sqlite.store import open_store
from tests.unit.engine.test_engine_api import served

HEAD = "apiVersion: fleetctl.dev/v1alpha1\nkind: {kind}\nmetadata: {{name: {name}}}\n"
STORED = (
    HEAD.format(kind="Provider", name="mine")
    + "spec: {type: modal, account: {profile: a}}\n---\n"
    + HEAD.format(kind="Policy", name="limits")
    + "spec: {match: {kinds: [BatchJob]}, rules: [{message: at most 10 tasks,"
    " expression: '!has(object.spec.completions) || object.spec.completions <= 10'}]}\n---\n"
    + HEAD.format(kind="Volume", name="data")
    + "spec: {provider: modal}\n"
)
FILES = {
    # cannot be read at all
    "a.yaml": HEAD.format(kind="BatchJob", name="torn") + "spec: {template: {script: [x}}\n",
    # a value, an unknown field, a rule on the text and two of a provider, in one object
    "b.yaml": HEAD.format(kind="BatchJob", name="mixed")
    + """spec:
  parallelism: many
  retrys: 2
  template:
    script: x
    env: {FLEETCTL_RESULT: x}
    resources: {gpu: H10O}
    kubernetes: {serviceAccount: x}
  placement: {provider: daytona}
""",
    # another object's place, and a Secret that is not there
    "c.yaml": HEAD.format(kind="BatchJob", name="refers")
    + """spec:
  template:
    script: x
    secrets: [nobody]
    volumes: [{name: data, mountPath: /d}]
""",
    # what is stored does not become another type
    "d.yaml": HEAD.format(kind="Provider", name="mine")
    + "spec: {type: daytona, account: {apiKeyEnv: SOME_KEY}}\n",
    # a policy, and a provider
    "e.yaml": HEAD.format(kind="BatchJob", name="large")
    + """spec:
  completions: 11
  template: {script: x, kubernetes: {serviceAccount: x}}
""",
}
TORN = ["a.yaml:4:29: the list that begins at 4:27 lacks"]
REST = [
    "b.yaml:5:16: spec.parallelism is `many`; it must be a whole number",
    "b.yaml:6:3: spec.retrys is an unknown field",
    "b.yaml:9:11: spec.template.env.FLEETCTL_RESULT is set",
    "b.yaml:10:22: spec.template.resources.gpu is `H10O`, which Daytona does not have",
    "b.yaml:11:5: spec.template.kubernetes: provider `daytona` has no pods",
    "c.yaml:7:15: spec.template.secrets[0] is `nobody`, and there is no Secret of that name",
    "c.yaml:8:22: spec.template.volumes[0].name is `data`, which volume/data keeps on `modal`",
    "d.yaml:1: provider/mine is of type `modal`, which never changes",
    "e.yaml:1: batchjob/large is denied by policy/limits: at most 10 tasks",
    "e.yaml:6:25: spec.template.kubernetes: provider `local` has no pods",
]


def fleetctl(*words: str) -> tuple[int, str]:
    out, talk = io.StringIO(), io.StringIO()
    code = run_guarded(list(words), Screen(out, talk))
    return code, talk.getvalue()


def errors_in(text: str) -> list[str]:
    return [it.removeprefix("error: ") for it in text.splitlines() if it.startswith("error: ")]


def assert_all(found: list[str], wanted: list[str]) -> None:
    found = [it for it in found if "there is no key for" not in it]
    assert len(found) == len(wanted), "\n".join(found)
    for one, place in zip(found, wanted, strict=True):
        assert one.startswith(place), one


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FLEETCTL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("SOME_KEY", "x")
    (tmp_path / "home").mkdir()
    store = open_store(tmp_path / "home", SystemClock())
    commit.apply_manifests(store, load_manifests([Document("s.yaml", STORED, "/")]), 1.0)
    store.close()
    files = tmp_path / "files"
    files.mkdir()
    monkeypatch.chdir(files)
    return files


@pytest.mark.parametrize("verb", [["validate"], ["plan"], ["apply", "--dry-run"]])
@pytest.mark.parametrize("torn", [True, False])
def test_mistakes_of_all_levels_come_in_one_round(place: Path, verb: list[str], torn: bool) -> None:
    for name, text in FILES.items():
        if torn or name != "a.yaml":
            (place / name).write_text(text)
    code, said = fleetctl(*verb, "-f", ".")
    assert code == 2, said
    assert_all(errors_in(said), [*(TORN if torn else ()), *REST])


@pytest.mark.parametrize("verb", [["validate"], ["plan"], ["apply", "--dry-run"]])
def test_manifests_that_can_be_read_are_refused_by_all_levels_at_once(
    place: Path, verb: list[str]
) -> None:
    for name in ("c.yaml", "d.yaml", "e.yaml"):
        (place / name).write_text(FILES[name])
    code, said = fleetctl(*verb, "-f", ".")
    assert code == 2, said
    # A plan warns of an object that may come later.
    missing = [it for it in REST[5:] if verb != ["plan"] or "nobody" not in it]
    assert_all(errors_in(said), missing)


async def test_an_apply_returns_the_findings_as_data(tmp_path: Path) -> None:
    async with served(tmp_path) as api:
        assert (await api.apply(STORED))["ok"]
        documents = [{"path": name, "text": text, "dir": "/"} for name, text in FILES.items()]
        reply = await api.ask("apply", documents=documents)
        assert (reply["ok"], reply["code"]) == (False, 2)
        # This fleet has provider `local` alone, which refuses no template.
        unknown = (
            "b.yaml:12:25: spec.placement.provider is `daytona`, and there is no such provider"
        )
        assert_all(reply["errors"], [*TORN, *REST[:3], unknown, *REST[5:9]])
        severities = ["never"] * 4 + ["later", "later", "never", "conflict", "denied"]
        assert [it["severity"] for it in reply["findings"]] == severities
        assert [it["hint"] for it in reply["findings"]][2] == "did you mean `retry`?"
        assert not any("hint" in it for it in reply["errors"])
