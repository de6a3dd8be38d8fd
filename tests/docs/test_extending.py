"""What CONTRIBUTING.md promises of a change: in a copy of the source, a kind and a provider are
added by the files that it names and no other, and every verb knows them.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from tests.docs.fleet import ROOT, Fleet

KIND = {
    "specs/kinds/dice.py": """
        from pydantic import Field

        from fleetctl.specs.blocks.common import Execution
        from fleetctl.specs.blocks.template import Template
        from fleetctl.specs.values.scalars import PositiveCount


        class DiceSpec(Execution):
            \"\"\"Rolls dice.\"\"\"

            template: Template = Field(description="How one is rolled.")
            rolls: PositiveCount = Field(default=1, description="How often; default 1.")
    """,
    "controllers/dice.py": """
        from fleetctl.controllers.planning.kind import KindController, Unit, Verdict
        from fleetctl.controllers.planning.kind import limits_of, policy_of
        from fleetctl.specs.content import NO_PINS, content_of, template_hash
        from fleetctl.specs.values.hashing import params_hash


        class Dice(KindController):
            def __init__(self, spec, allocated, pins=NO_PINS):
                self.spec, self.total = spec, spec.rolls
                self.policy, self.limits = policy_of(spec, pins), limits_of(spec)
                self.template_hash = template_hash(spec.template, spec.placement, pins)
                self.contents = self.contents_of(spec, pins)
                self.unit = self._unit

            @staticmethod
            def contents_of(spec, pins):
                return (content_of(spec.template, pins),)

            def _unit(self, index):
                params = {"roll": index}
                digest = params_hash(params)
                known = (index, params, digest, self.template_hash, self.contents[0])
                return Unit(*known) if index < self.total else None

            def template(self, index):
                return self.spec.template

            def next(self, history):
                return map(self.unit, history.fresh(0, self.total))

            def verdict(self, history):
                over = len(history.succeeded) == self.total
                return Verdict(True, "Completed", "all rolled") if over else None
    """,
}
KIND_ROWS = {
    "specs/kinds/registry.py": (
        "KINDS: dict[str, Kind] = {",
        ' "Dice": Kind("Dice", "dices", ("die",), "fleetctl.specs.kinds.dice:DiceSpec", "roll"),',
    ),
    "controllers/kinds/registry.py": (
        "CONTROLLERS: dict[str, type[KindController]] = {",
        ' "Dice": __import__("fleetctl.controllers.dice", fromlist=["Dice"]).Dice,',
    ),
}
# A provider that leans upon another, so that what is tried is the way in and not the work.
PROVIDER = {
    "fleetctl/providers/toy/__init__.py": "",
    "fleetctl/providers/toy/plugin.py": """
        from fleetctl.providers.contract.plugin import Plugin

        PLUGIN = Plugin(
            backend="fleetctl.providers.toy.provider:ToyProvider",
            volume_files="fleetctl.providers.local.assets.volume_files:LocalFiles",
            orphans="fleetctl.providers.local.orphans:LocalOrphans",
            exec="fleetctl.providers.local.runs.exec:LocalEntering",
            check="fleetctl.providers.toy.provider:check",
            session="fleetctl.providers.local.interpreter.session:open_session",
        )
    """,
    "fleetctl/providers/toy/provider.py": """
        from fleetctl.providers.contract.diagnostics import Finding
        from fleetctl.providers.local.provider import LocalProvider


        class ToyProvider(LocalProvider):
            def __init__(self, home, *, store_id, notify):
                super().__init__(home, store_id=store_id, notify=notify)
                (home / "local").mkdir(mode=0o700, exist_ok=True)
                if not (home / "toy").exists():
                    (home / "toy").symlink_to("local")


        async def check(home, account):
            return [Finding(account.name, "greeting", True, "is well")]
    """,
}
PROVIDER_ROWS = {"specs/builtin.py": ("SORTS = {", ' "toy": Sort(),')}

DICE = """
apiVersion: fleetctl.dev/v1alpha1
kind: Dice
metadata: {name: d6}
spec:
  rolls: 2
  template: {python: 'print("rolled"); SUBMIT(n=roll + 1)'}
"""
TOYS = """
apiVersion: fleetctl.dev/v1alpha1
kind: BatchJob
metadata: {name: away}
spec:
  placement: {provider: toy}
  template:
    script: |
      echo hello from there; echo kept > note
      if [ ! -e /box/go ]; then touch /box/here; while [ ! -e /box/go ]; do sleep 0.05; done; fi
    volumes: [{name: box, mountPath: /box}]
---
apiVersion: fleetctl.dev/v1alpha1
kind: Volume
metadata: {name: box}
spec: {provider: toy}
"""


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    place = tmp_path_factory.mktemp("source")
    for name in ("fleetctl", "specs", "controllers"):
        # With what is compiled, which stays good as the times of the files do.
        shutil.copytree(ROOT / name, place / name, symlinks=True)
    for path, text in (KIND | PROVIDER).items():
        (place / path).parent.mkdir(exist_ok=True)
        (place / path).write_text(dedent(text))
    for path, (line, row) in (KIND_ROWS | PROVIDER_ROWS).items():
        text = (place / path).read_text()
        assert line in text
        (place / path).write_text(text.replace(line, f"{line}\n{row}"))
    made = Fleet(tmp_path_factory.mktemp("home"), {"PYTHONPATH": str(place)}, own_code=True)
    written = made.shell(
        f"cd {place} && python -m fleetctl.manifest.schemas"
    )  # as `make reference` does
    assert written.code == 0, written
    yield made
    made.close()


def test_a_kind_is_two_files_and_two_rows(fleet: Fleet, tmp_path: Path) -> None:
    path = tmp_path / "dice.yaml"
    path.write_text(DICE)
    assert "rolls" in fleet.ok("explain", "dice.spec")
    fleet.ok("validate", "-f", str(path))
    assert "d6" in fleet.run("plan", "-f", str(path)).out
    assert "dice/d6 succeeded: 2 rolls done" in fleet.ok("apply", "-f", str(path), "--wait")
    assert "2/2" in fleet.ok("get", "dices")
    assert [row["result"] for row in fleet.results("die/d6")] == [{"n": 1}, {"n": 2}]
    assert "Rolls:       2 = 2 succeeded" in fleet.ok("describe", "dice/d6")
    assert "rolled" in fleet.ok("logs", "dice/d6", "--index", "1")
    nightly = "{kind: Dice, spec: {rolls: 2, template: {python: pass}}}"
    head = DICE[: DICE.index("spec:")].replace("Dice", "Schedule")
    nights = f'{head}spec: {{schedule: "@daily", template: {nightly}}}\n'
    assert "schedule/d6" in fleet.ok("validate", "-f", "-", stdin=nights)
    wrong = fleet.run("validate", "-f", "-", stdin=DICE.replace("rolls", "roll"))
    assert (wrong.code, "did you mean `rolls`" in wrong.talk) == (2, True), wrong


def test_a_provider_is_a_package_and_a_row(fleet: Fleet, tmp_path: Path) -> None:
    path = tmp_path / "toy.yaml"
    path.write_text(TOYS)
    fleet.ok("apply", "-f", str(path))
    volume = fleet.home / "local" / "volumes" / "box"
    fleet.shell(f"until [ -e {volume}/here ]; do sleep 0.05; done")
    assert fleet.status("job/away")["where"] == {"toy": 1}
    assert fleet.ok("exec", "job/away", "--", "cat", "note").strip() == "kept"
    fleet.ok("cp", "job/away:note", str(tmp_path / "note"))
    assert (tmp_path / "note").read_text() == "kept\n"
    (tmp_path / "go").touch()
    fleet.ok("cp", str(tmp_path / "go"), "vol/box:/go")
    fleet.ok("wait", "job/away", "--for=condition=Complete", "--timeout", "400s")
    assert "hello from there" in fleet.ok("logs", "job/away")
    assert {"/go", "/here"} <= set(fleet.ok("ls", "vol/box").split())
    assert "no orphans" in fleet.run("orphans").talk + fleet.run("orphans").out
    assert "is well" in fleet.run("doctor").out
