"""`doctor`: what is well, what is not, and whether that matters for what is declared.

Each in a process of its own, as a person runs it, with an empty home directory.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fleetctl.common.install import install_hint
from fleetctl.common.state_paths import LOCK
from fleetctl.common.version import VERSION
from fleetctl.controllers.model import Resource
from fleetctl.stores.sqlite.store import open_store
from tests.cli_controller import controller
from tests.servers.forked_program import make_program_directory

WITHOUT_MODAL = (
    "import sys; sys.modules['modal'] = None\n"
    "from fleetctl.cli.main import main; sys.exit(main(sys.argv[1:]))"
)
ON_MODAL = {"template": {"python": "1"}, "placement": {"provider": "modal"}}


class FixedClock:
    def now_s(self) -> float:
        return 1_800_000_000.0


class Machine:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.env = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        self.env |= {"HOME": str(directory), "FLEETCTL_HOME": str(directory / "home")}

    def declare(self, kind: str, spec: dict[str, object], *, phase: str = "Pending") -> None:
        store = open_store(self.directory / "home", FixedClock())
        status = json.dumps({"phase": phase, "observedGeneration": 1})
        with store.transaction():
            row = Resource("u", kind, "x", 1, 0, json.dumps(spec), "", {}, {}, 5.0)
            stored = store.resources.put(row, expected_version=None)
            store.resources.put_status("u", status, expected_version=stored.version)
        store.close()

    def doctor(self, *words: str, program: str = "", **env: str) -> tuple[int, str]:
        own = [sys.executable, "-c", program]
        start = own if program else [str(make_program_directory() / "fleetctl")]
        done = subprocess.run(
            [*start, "doctor", *words],
            env=self.env | env,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stderr == ""
        return done.returncode, done.stdout

    def findings(self, **env: str) -> tuple[int, dict[str, dict[str, object]]]:
        code, out = self.doctor("-o", "json", **env)
        return code, {f"{one['topic']} {one['what']}": one for one in json.loads(out)}


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_a_machine_without_any_account_is_well_as_long_as_nothing_needs_one(
    machine: Machine,
) -> None:
    code, found = machine.findings()
    assert code == 0
    assert found["state directory"]["ok"] and found["controller process"]["ok"]
    assert str(found["local isolation"]["says"]).startswith("tier ")
    assert str(found["git program"]["says"]).startswith("git version")
    assert (found["modal package"]["ok"], found["modal token"]["ok"]) == (True, False)
    assert found["modal token"]["fix"] == "modal token new"
    assert not (machine.directory / "home").exists()


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        ("BatchJob", ON_MODAL),
        ("Sweep", {"placement": {"ordered": [{"provider": "local"}, {"provider": "modal"}]}}),
        ("Volume", {"provider": "modal"}),
    ],
)
def test_what_a_declared_object_needs_is_bad_when_it_is_missing(
    machine: Machine, kind: str, spec: dict[str, object]
) -> None:
    machine.declare(kind, spec)
    code, said = machine.doctor()
    assert code == 1
    assert "bad         modal       token: there is none\n" in said
    assert "fix: modal token new\n" in said


def test_an_object_that_is_over_needs_nothing(machine: Machine) -> None:
    machine.declare("BatchJob", ON_MODAL, phase="Succeeded")
    code, said = machine.doctor()
    assert (code, "absent      modal       token" in said) == (0, True)


def test_a_missing_package_comes_with_the_command_that_installs_it(machine: Machine) -> None:
    machine.declare("BatchJob", ON_MODAL)
    code, said = machine.doctor(program=WITHOUT_MODAL)
    assert code == 1
    assert "bad         modal       package: `modal` is not installed\n" in said
    assert f"fix: {install_hint('modal')}\n" in said


def test_a_server_that_does_not_answer_is_told_and_a_token_never(machine: Machine) -> None:
    machine.declare("BatchJob", ON_MODAL)
    env = {"MODAL_TOKEN_ID": "ak-hush", "MODAL_TOKEN_SECRET": "as-hush"}
    env |= {"MODAL_SERVER_URL": "http://127.0.0.1:1"}
    code, said = machine.doctor(**env)
    assert code == 1
    assert "modal       token: from the environment\n" in said
    unreachable = "access: unreachable: cannot use Modal at `http://127.0.0.1:1`"
    assert f"bad         modal       {unreachable}" in said
    assert "fix: curl -sS http://127.0.0.1:1\n" in said
    assert "hush" not in said


def test_a_tier_that_cannot_be_had_is_found_by_trying(machine: Machine) -> None:
    machine.declare("BatchJob", {"template": {"python": "1"}})
    code, found = machine.findings(FLEETCTL_LOCAL_TIER="dungeon")
    assert (code, found["local isolation"]["ok"], found["local isolation"]["needed"]) == (
        1, False, True,
    )  # fmt: skip
    assert "dungeon" in str(found["local isolation"]["says"])


def test_uv_and_git_are_needed_by_templates_that_use_them(machine: Machine) -> None:
    template = {"image": {"pip": ["numpy"]}, "source": {"git": {"url": "https://example.org/a"}}}
    machine.declare("BatchJob", {"template": template})
    _, found = machine.findings()
    assert (found["uv program"]["needed"], found["git program"]["needed"]) == (True, True)


def test_a_state_directory_that_is_none_is_told(machine: Machine) -> None:
    (machine.directory / "home").write_text("not a directory")
    code, found = machine.findings()
    assert (code, found["state directory"]["ok"]) == (1, False)


@pytest.mark.parametrize(("version", "well"), [(VERSION, True), ("0.0.1", False), (None, False)])
def test_a_controller_of_another_version_is_bad_and_told_how_to_be_replaced(
    machine: Machine, version: str | None, well: bool
) -> None:
    home = machine.directory / "home"
    machine.declare("Volume", {})
    fields = {"ok": True, "pid": 1, "ready": True, "live": 0, "version": version}
    reply = json.dumps(fields).encode() + b"\n"
    with open(home / LOCK, "w") as lock, controller(home, lambda _: reply):
        lock.write("4121 boot")
        lock.flush()
        fcntl.flock(lock, fcntl.LOCK_EX)
        _, found = machine.findings()
    assert found["controller process"]["ok"] is well
    assert "pid 4121" in str(found["controller process"]["says"])
    if not well:
        assert found["controller process"]["fix"] == "fleetctl down && fleetctl up --detach"
