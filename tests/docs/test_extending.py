"""What CONTRIBUTING.md promises of a change: in a copy of the source, a kind, a provider, a field
of the template and a verb are added by the files that it names and no other, and every verb knows
them.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import httpx
import pytest

from tests.docs.fleet import HANG_S, ROOT, Fleet
from tests.servers.forked_program import open_program_of

KIND = {
    "specs/kinds/dice.py": """
        from pydantic import Field

        from fleetctl.specs.blocks.common import WorkSpec
        from fleetctl.specs.blocks.template import Template
        from fleetctl.specs.values.scalars import PositiveCount


        class DiceSpec(WorkSpec):
            \"\"\"Rolls dice.\"\"\"

            template: Template = Field(description="How one is rolled.")
            rolls: PositiveCount = Field(default=1, description="How often; default 1.")
    """,
    "controllers/dice.py": """
        from fleetctl.controllers.planning.kind_controller import KindController, ObjectVerdict
        from fleetctl.controllers.planning.kind_controller import Unit, limits_of, policy_of
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
                return ObjectVerdict(True, "Completed", "all rolled") if over else None
    """,
}
# A kind with behavior of its own: at its time it changes another object.
BEHAVIOR = {
    "specs/kinds/reminder.py": """
        \"\"\"Reminder: at a time, resumes a job that is suspended.\"\"\"

        from __future__ import annotations

        from pydantic import Field

        from fleetctl.specs.values.scalars import Name, Spec


        class ReminderSpec(Spec):
            \"\"\"Resumes a job after some seconds.\"\"\"

            job: Name = Field(description="The BatchJob to resume.")
            after_seconds: float = Field(ge=0, description="Counted from the reminder's creation.")
    """,
    "fleetctl/engine/kinds/reminders.py": """
        \"\"\"Reminders: each resumes its job at its time, and its status shows when.\"\"\"

        from __future__ import annotations

        import json
        from dataclasses import replace
        from typing import TYPE_CHECKING, Self

        from fleetctl.controllers.status_keys import Status
        from fleetctl.engine.shared.part import EnginePart, PartWiring
        from fleetctl.specs.kinds.reminder import ReminderSpec

        if TYPE_CHECKING:
            from fleetctl.engine.shared.engine_state import EngineState
            from fleetctl.tracking.track import Track


        class Reminders(EnginePart):
            kind = "Reminder"
            makes_passes = True

            def __init__(self, state: EngineState) -> None:
                self._state = state

            @classmethod
            def build(cls, wiring: PartWiring) -> Self:
                return cls(wiring.state)

            def run_pass(self, track: Track, now_s: float) -> Status:
                assert isinstance(track.spec, ReminderSpec)
                resource, state = track.resource, self._state
                due_s = resource.created_at_s + track.spec.after_seconds
                status: Status = {
                    "phase": "Ready",
                    "reason": "Waiting",
                    "message": "",
                    "observedGeneration": resource.generation,
                }
                if track.status.get("reason") == "Reminded":
                    return {**status, "reason": "Reminded"}
                if now_s < due_s:
                    state.queue.add(resource.uid, due_s)
                    return status

                job = state.store.resources.get("BatchJob", track.spec.job, resource.namespace)
                if job is None:
                    return {**status, "phase": "Pending", "message": "its job is not there"}
                spec = json.dumps({**json.loads(job.spec), "suspend": False})
                changed = replace(job, spec=spec, generation=job.generation + 1)
                state.store.resources.put(changed, expected_version=job.version)
                state.queue.add(job.uid)
                state.say(resource.uid, "Reminded", f"{job.key} goes on")
                return {**status, "reason": "Reminded"}
    """,
}
BEHAVIOR_ROW = """
    "Reminder": Kind(
        "Reminder",
        "reminders",
        ("rem",),
        "fleetctl.specs.kinds.reminder:ReminderSpec",
        starts=True,
        part="fleetctl.engine.kinds.reminders:Reminders",
    ),"""
KIND_ROWS = {
    "specs/kinds/registry.py": (
        "KINDS: dict[str, Kind] = {",
        ' "Dice": Kind("Dice", "dices", ("die",), "fleetctl.specs.kinds.dice:DiceSpec", "roll"),'
        + BEHAVIOR_ROW,
    ),
    "controllers/kinds/registry.py": (
        "CONTROLLERS: dict[str, type[KindController]] = {",
        ' "Dice": __import__("fleetctl.controllers.dice", fromlist=["Dice"]).Dice,',
    ),
}
# Another look of a kind: words in its row alone.
SHOWN_ROW = {
    '("vol",)': '("disk", "vol")',
    "A directory that outlives sandboxes.": "A disk that outlives sandboxes.",
    'ListColumn("DELETION", ': 'ListColumn("WHEN GONE", ',
    'DescribeField("On delete", ': 'DescribeField("When gone", ',
    '("sw",)': '("hunt", "sw")',
    "A search over parameters;": "A hunt over parameters;",
    'ListColumn("TRIALS", ': 'ListColumn("POINTS", ',
    'DescribeField("Trials", ': 'DescribeField("Points", ',
    '"starters/sweep.yaml"': '"examples/sweep-grid.yaml"',
}
# A provider that leans upon another, so that what is tried is the way in and not the work.
PROVIDER = {
    "fleetctl/providers/toy/__init__.py": "",
    "fleetctl/providers/toy/plugin.py": """
        from fleetctl.providers.contract.plugin import Plugin

        PLUGIN = Plugin(
            backend="fleetctl.providers.toy.provider:ToyProvider",
            volume_files="fleetctl.providers.local.assets.local_volumes:LocalFiles",
            orphans="fleetctl.providers.local.local_orphans:LocalOrphans",
            exec="fleetctl.providers.local.runs.local_access:LocalEntering",
            check="fleetctl.providers.toy.provider:check",
            session="fleetctl.providers.local.local_session:open_session",
        )
    """,
    "fleetctl/providers/toy/provider.py": """
        from fleetctl.providers.contract.account import CheckResult
        from fleetctl.providers.local.local_provider import LocalProvider


        class ToyProvider(LocalProvider):
            def __init__(self, home, *, store_id, notify):
                super().__init__(home, store_id=store_id, notify=notify)
                (home / "local").mkdir(mode=0o700, exist_ok=True)
                if not (home / "toy").exists():
                    (home / "toy").symlink_to("local")


        async def check(home, account):
            return [CheckResult(account.name, "greeting", True, "is well")]
    """,
}
# A field that reaches the work as a variable, by each guest and provider.
FIELD_ROWS = {
    "specs/blocks/template.py": (
        "    services: Services = ()",
        '    motto: Text = Field(default="", description="Said to the work as MOTTO.")',
    ),
    "specs/content.py": ("TEMPLATE: Mapping[str, FieldRole] = {", '    "motto": WORK,'),
    "fleetctl/providers/local/runs/supervisor_messages.py": (
        '    base = {**python.variables, "PYTHONUNBUFFERED": "1"}',
        '    base["MOTTO"] = template.motto',
    ),
}
VERB = {
    "fleetctl/cli/learn/greet.py": """
        from argparse import Namespace

        from fleetctl.cli.command.flags import Parser
        from fleetctl.cli.output.screen import Screen

        PAGE = \"\"\"\\
        NAME

        Greets.

        examples:
          fleetctl greet Ann

        exit codes:
          0 ok, 2 wrong usage
        \"\"\"


        def parser(verb: str) -> Parser:
            made = Parser(verb, PAGE)
            made.add_argument("name", metavar="NAME")
            return made


        def run(args: Namespace, screen: Screen) -> int:
            screen.data(f"hello {args.name}")
            return 0
    """,
}
# Its row, and its place in the help.
VERB_ROWS = (
    ("VERBS = {", '    "greet": CommandVerb("learn.greet", "say hello to somebody"),'),
    ('    "write files, and apply them": (', '        "greet",'),
)
KINDS_PAGE = (
    "from tests.docs.reference import HOME, render_kinds; "
    "print(render_kinds((HOME / 'kinds.md').read_text()))"
)
RULE = {
    "fleetctl/manifest/checks/shouting.py": """
        from fleetctl.common.finding import Finding, Severity


        def find_doubts(spec):
            for name in spec.from_env:
                if name.islower():
                    message = f" names `{name}`, and variables are shouted here"
                    at = ("spec", "fromEnv")
                    yield Finding(at, message, f"write `{name.upper()}`", Severity.DOUBT)
    """,
}
RULE_ROWS = {
    "fleetctl/manifest/rules.py": (
        "RULES: tuple[Rule, ...] = (",
        '    Rule(_TEXT, SecretSpec, "manifest.checks.shouting:find_doubts"),',
    )
}
WHISPERED = """
apiVersion: fleetctl.dev/v1alpha1
kind: Secret
metadata: {name: hub}
spec: {fromEnv: [token]}
"""
PROVIDER_ROWS = {"specs/builtin.py": ("SORTS = {", ' "toy": BuiltInProvider(),')}

DICE = """
apiVersion: fleetctl.dev/v1alpha1
kind: Dice
metadata: {name: d6}
spec:
  rolls: 2
  template: {python: 'print("rolled"); SUBMIT(n=roll + 1)'}
"""
REMINDED = """
apiVersion: fleetctl.dev/v1alpha1
kind: BatchJob
metadata: {name: sums}
spec: {suspend: true, template: {command: ["true"]}}
---
apiVersion: fleetctl.dev/v1alpha1
kind: Reminder
metadata: {name: later}
spec: {job: sums, afterSeconds: 1}
"""
SAYS = """
apiVersion: fleetctl.dev/v1alpha1
kind: BatchJob
metadata: {name: says}
spec:
  template:
    script: echo "$MOTTO"
    motto: onwards
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
    for path, text in (KIND | BEHAVIOR | PROVIDER | RULE | VERB).items():
        (place / path).parent.mkdir(exist_ok=True)
        (place / path).write_text(dedent(text))
    rows = [
        (path, *it) for path, it in (KIND_ROWS | PROVIDER_ROWS | RULE_ROWS | FIELD_ROWS).items()
    ]
    rows += [("fleetctl/cli/command/verbs.py", *it) for it in VERB_ROWS]
    for path, line, row in rows:
        text = (place / path).read_text()
        assert line in text
        (place / path).write_text(text.replace(line, f"{line}\n{row}"))
    registry = place / "specs/kinds/registry.py"
    text = registry.read_text()
    for before, after in SHOWN_ROW.items():
        assert text.count(before) == 1, before
        text = text.replace(before, after)
    registry.write_text(text)
    more, home = {"PYTHONPATH": str(place)}, tmp_path_factory.mktemp("home")
    with open_program_of(place) as programs:
        made = Fleet(home, more, program=programs / "fleetctl")
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


def test_a_kind_with_behavior_is_its_fields_a_part_and_a_row(fleet: Fleet, tmp_path: Path) -> None:
    path = tmp_path / "reminder.yaml"
    path.write_text(REMINDED)
    fleet.ok("apply", "-f", str(path))
    fleet.ok("wait", "job/sums", "--for=condition=Complete", "--timeout", "400s")
    assert fleet.status("reminder/later")["reason"] == "Reminded"
    assert "batchjob/sums goes on" in fleet.ok("events", "rem/later")
    assert "afterSeconds" in fleet.ok("explain", "reminder.spec")
    assert "Reminded" in fleet.ok("describe", "reminder/later")
    fleet.ok("delete", "reminder/later", "--yes")
    assert "later" not in fleet.run("get", "reminders").out


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


def test_what_is_known_of_a_kind_is_its_row(fleet: Fleet, tmp_path: Path) -> None:
    """Each screen, the client, the CRD and the pages show the changed row of Volume."""
    source = fleet.env["PYTHONPATH"]
    named = "apiVersion: fleetctl.dev/v1alpha1\nkind: Volume\nmetadata: {name: shown}\n"
    fleet.ok("apply", "-f", "-", stdin=f"{named}spec: {{}}\n")
    header, line = fleet.ok("get", "disk/shown").splitlines()
    assert header.split() == ["NAME", "STATUS", "PROVIDER", "SIZE", "WHEN", "GONE", "AGE"]
    assert "Retain" in line
    assert "When gone:   Retain" in fleet.ok("describe", "disk/shown")
    assert "volumes (disk)      A disk that outlives sandboxes." in fleet.ok("--help")
    explained = fleet.ok("explain", "disk")
    assert "SHORT:    disk, vol" in explained and "A disk that outlives sandboxes." in explained
    assert "A disk that outlives" in fleet.ok("api-resources", "-o", "wide")

    written = fleet.shell(f"cd {source} && python -m fleetctl.operator.crds.write {tmp_path}")
    assert written.code == 0, written
    crd = (tmp_path / "crds" / "fleetctl.dev_volumes.yaml").read_text()
    assert all(it in crd for it in ("- disk", "name: WHEN GONE", "A disk that outlives sandboxes."))

    client = "from fleetctl import Volume; print(Volume.__doc__, Volume('v').manifest()['kind'])"
    assert _run_python(fleet, client) == "A disk that outlives sandboxes. Volume\n"
    shown = _run_python(fleet, KINDS_PAGE)
    assert "`disk`, `vol` |  | [A disk that outlives sandboxes.]" in shown
    fleet.ok("delete", "disk/shown", "--yes")


def test_what_is_known_of_a_kind_that_runs_work_is_its_row(fleet: Fleet, tmp_path: Path) -> None:
    """Each screen, `init`, the client, the CRD, the pages and the server show the changed row of
    Sweep."""
    source = fleet.env["PYTHONPATH"]
    head = "apiVersion: fleetctl.dev/v1alpha1\nkind: Sweep\nmetadata: {name: shown}\nspec:\n"
    search = "  search: {method: grid, parameters: {a: {values: [1, 2]}}}\n"
    fleet.ok(
        "apply", "-f", "-", "--wait", stdin=f"{head}{search}  template: {{python: SUBMIT(b=a)}}"
    )
    header, line = fleet.ok("get", "hunt/shown").splitlines()
    assert header.split()[:5] == ["NAME", "STATUS", "METHOD", "POINTS", "ACTIVE"]
    assert line.split()[:4] == ["shown", "Succeeded", "grid", "2/2"]
    assert "Points:      2 = 2 succeeded" in fleet.ok("describe", "hunt/shown")
    assert "sweeps (hunt)       A hunt over parameters;" in fleet.ok("--help")
    explained = fleet.ok("explain", "hunt")
    assert "SHORT:    hunt, sw" in explained and "A hunt over parameters;" in explained
    fleet.ok("init", str(tmp_path), "--kind", "sweep")
    first = (tmp_path / "sweep.yaml").read_text()
    assert first.endswith(
        (ROOT / "specs/examples/sweep-grid.yaml").read_text().splitlines()[-1] + "\n"
    )

    assert (
        fleet.shell(f"cd {source} && python -m fleetctl.operator.crds.write {tmp_path}").code == 0
    )
    crd = (tmp_path / "crds" / "fleetctl.dev_sweeps.yaml").read_text()
    assert all(it in crd for it in ("- hunt", "name: POINTS", "A hunt over parameters;"))
    shown = _run_python(fleet, "from fleetctl import Sweep; print(Sweep.__doc__)")
    assert shown.startswith("A hunt over parameters;")
    assert "| `hunt`, `sw` | trials | [A hunt over parameters;" in _run_python(fleet, KINDS_PAGE)

    words = [sys.executable, "-P", "-m", "fleetctl", "serve", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(words, env=fleet.env, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            url = f"{server.stdout.readline().strip()}/api/v1"
            kinds = httpx.get(f"{url}/kinds", timeout=HANG_S).json()["items"]
            listed = httpx.get(f"{url}/sweeps", timeout=HANG_S).json()
        finally:
            server.terminate()
    (row,) = [it for it in kinds if it["kind"] == "Sweep"]
    assert (row["short"], "POINTS" in row["columns"]) == (["hunt", "sw"], True)
    assert row["summary"].startswith("A hunt over parameters;")
    at = listed["metadata"]["columns"].index("POINTS")
    assert [it["cells"][at] for it in listed["items"]] == ["2/2"]
    fleet.ok("delete", "hunt/shown", "--yes")


def _run_python(fleet: Fleet, program: str) -> str:
    """Returns the output of a program that imports the copy, with these tests beside it."""
    source = fleet.env["PYTHONPATH"]
    done = fleet.shell(f'cd {source} && PYTHONPATH={source}:{ROOT} python -c "{program}"')
    assert done.code == 0, done
    return done.out


def test_a_field_of_the_template_is_known_to_all_and_changes_the_work(
    fleet: Fleet, tmp_path: Path
) -> None:
    path = tmp_path / "motto.yaml"
    path.write_text(SAYS)
    assert "motto" in fleet.ok("explain", "job.spec.template")
    fleet.ok("apply", "-f", str(path), "--wait")
    assert "onwards" in fleet.ok("logs", "job/says")
    path.write_text(SAYS.replace("onwards", "upwards"))
    assert "motto" in fleet.run("diff", "-f", str(path)).out
    assert "1 task" in fleet.run("plan", "-f", str(path)).out
    wrong = fleet.run("validate", "-f", "-", stdin=SAYS.replace("motto", "mottoe"))
    assert (wrong.code, "did you mean `motto`" in wrong.talk) == (2, True), wrong


def test_a_rule_is_a_function_and_a_row(fleet: Fleet, tmp_path: Path) -> None:
    path = tmp_path / "secret.yaml"
    path.write_text(WHISPERED)
    found = fleet.run("validate", "-f", str(path), "--allow-missing")
    assert found.code == 0, found
    assert f"{path}:5:" in found.talk and "variables are shouted here" in found.talk
    assert "write `TOKEN`" in found.talk


def test_a_verb_is_a_module_and_a_row(fleet: Fleet) -> None:
    assert "say hello to somebody" in fleet.ok("--help")
    assert "Greets." in fleet.ok("greet", "--help")
    assert fleet.ok("greet", "Ann") == "hello Ann\n"
    assert fleet.run("greet").code == 2
    assert "greet" in fleet.run("great", "Ann").talk
