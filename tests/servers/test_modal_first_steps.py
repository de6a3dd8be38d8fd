"""The first steps of somebody with Modal, as screens: without the package, without a token, with a
wrong one, with a file that is no TOML, and when nobody answers. And what mends each of them.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from fleetctl.common.install import install_hint
from tests.contracts.modal_worlds import emulated
from tests.emulators.driving.modal import ASKING_PAUSE_S, eventually
from tests.emulators.modal.running import ModalEmulator
from tests.emulators.modal.state import NO_ACCESS_TOKEN_ID
from tests.servers.modal_life import ModalLife, job

TASK = {"python": "SUBMIT(n=1)"}
# Read by every Python that starts with it: the SDK and what it brings are not there.
MISSING = """
import sys
for name in ("modal", "modal_proto", "grpclib", "synchronicity"):
    sys.modules[name] = None
"""


@pytest.fixture(scope="module")
def emulator() -> Iterator[ModalEmulator]:
    with emulated() as one:
        yield one


@pytest.fixture
def life(tmp_path: Path, emulator: ModalEmulator) -> Iterator[ModalLife]:
    life = ModalLife(tmp_path, Random(1))
    yield life
    assert life.end() == []
    assert emulator.live() == []


def sick(life: ModalLife, case: str) -> None:
    """Make the world as `case` says."""
    match case:
        case "no package":
            (life.root / "without").mkdir()
            (life.root / "without" / "sitecustomize.py").write_text(MISSING)
            life.changes["PYTHONPATH"] = str(life.root / "without")
        case "no token":
            life.changes |= {"MODAL_TOKEN_ID": None, "MODAL_TOKEN_SECRET": None}
        case "wrong token":
            life.changes["MODAL_TOKEN_SECRET"] = "as-canary"
        case "no access":
            life.changes["MODAL_TOKEN_ID"] = NO_ACCESS_TOKEN_ID
        case "broken file":
            (life.root / "modal.toml").write_text("[default")
            life.changes["MODAL_CONFIG_PATH"] = str(life.root / "modal.toml")


def told(life: ModalLife, why: str) -> str:
    """What `describe` shows once it says this."""
    shown: list[str] = []

    def says_it() -> bool:
        shown.append(life.command("describe", "job/job").stdout)
        return why in shown[-1]

    eventually(says_it, pause_s=ASKING_PAUSE_S)
    return shown[-1]


KNOWN_WITHOUT_ASKING = ("no package", "no token", "broken file")


@pytest.mark.parametrize(
    ("case", "why", "fix", "doctor"),
    [
        (
            "no package",
            "provider `modal` needs the package `modal`, which is not installed",
            install_hint("modal"),
            "package: `modal` is not installed",
        ),
        ("no token", "there is no token for Modal", "modal token new", "token: there is none"),
        ("wrong token", "Modal does not accept the token", "modal token new", "access: cannot use"),
        ("no access", "the token has no access", "modal token new", "access: cannot use Modal at"),
        ("broken file", "cannot be read: Expected ']'", "fix or remove", "token: Modal's conf"),
    ],
)
def test_what_keeps_a_job_from_modal_is_told_at_once_with_its_cure(
    life: ModalLife, emulator: ModalEmulator, case: str, why: str, fix: str, doctor: str
) -> None:
    before = len(emulator.state()["sandboxes"])
    sick(life, case)
    if case in KNOWN_WITHOUT_ASKING:
        refused = life.command("apply", "-f", "-", stdin=job(TASK))
        assert refused.returncode == 2
        assert ": spec.placement.provider is `modal`: " in refused.stderr
        assert fix in refused.stderr and "--allow-missing" in refused.stderr
        assert life.phases() == {}
    life.command("apply", "-f", "-", "--allow-missing", stdin=job(TASK))
    screen = told(life, why)
    assert fix in screen
    assert "as-canary" not in screen
    assert "Traceback" not in screen
    # What concerns the account ends nothing: it waits until somebody mends it.
    assert life.phases() == {"job": "Pending"}
    checked = life.command("doctor").stdout
    assert f"bad         modal       {doctor}" in checked
    assert "unreachable" not in checked
    assert len(emulator.state()["sandboxes"]) == before


@pytest.mark.parametrize("listens", [False, True], ids=["closed", "silent"])
def test_a_modal_that_does_not_answer_is_told_within_ten_seconds_and_holds_up_no_deletion(
    life: ModalLife, listens: bool
) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        if listens:
            server.listen()
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        life.changes["MODAL_SERVER_URL"] = url
        life.changes["FLEETCTL_MODAL_CONNECT_S"] = None  # as everybody has it
        life.start()
        began_s = time.monotonic()
        life.apply_job(TASK)
        why, sentence = "", f"Unreachable: cannot use Modal at `{url}`: Modal does not answer"
        while sentence not in why:
            assert time.monotonic() - began_s < 60, why  # a hang; the promise is measured below
            why = life.command("describe", "job/job").stdout
            time.sleep(ASKING_PAUSE_S)
        assert "Fix:         fleetctl doctor" in why
        deleted = life.command("delete", "job/job", "--timeout", "400s")
        assert (deleted.returncode, deleted.stdout) == (0, "batchjob/job deleted\n")


def test_our_own_deadline_leaves_room_within_the_ten_seconds() -> None:
    from fleetctl.providers.modal.connection.modal_connection import ModalSettings

    assert ModalSettings().connect_s <= 5.0


def test_a_token_that_comes_while_the_controller_runs_is_used_by_the_next_apply(
    life: ModalLife, emulator: ModalEmulator
) -> None:
    config = life.root / "modal.toml"
    sick(life, "no token")
    life.changes["MODAL_CONFIG_PATH"] = str(config)
    life.command("apply", "-f", "-", "--allow-missing", stdin=job(TASK))
    told(life, "there is no token for Modal")
    secret = emulator.env["MODAL_TOKEN_SECRET"]
    token = {"token_id": emulator.env["MODAL_TOKEN_ID"], "token_secret": secret + "-wrong"}

    def log_in() -> None:
        lines = [f"{name} = {json.dumps(value)}" for name, value in token.items()]
        config.write_text("\n".join(["[default]", *lines, ""]))

    log_in()
    life.apply_job(TASK)
    told(life, "Modal does not accept the token")
    token["token_secret"] = secret
    log_in()
    life.apply_job(TASK)
    life.succeed()


def test_a_job_that_waits_for_a_limit_says_so_and_goes_on_when_it_is_applied_again(
    life: ModalLife, emulator: ModalEmulator
) -> None:
    emulator.do(
        "fault", rpc="SandboxCreateV2", status="RESOURCE_EXHAUSTED", count=None,
        message="Workspace spend limit reached",
    )  # fmt: skip
    life.apply_job(TASK)
    why = "Why:         SpendLimit: "
    eventually(lambda: why in life.command("describe", "job/job").stdout, pause_s=ASKING_PAUSE_S)
    assert "Fix:         raise the limit" in life.command("describe", "job/job").stdout
    emulator.do("clear_faults")
    assert "unchanged" in life.command("apply", "-f", "-", stdin=job(TASK)).stdout
    # Modal's limits are asked about every two minutes otherwise, which is longer than this waits.
    life.succeed()
