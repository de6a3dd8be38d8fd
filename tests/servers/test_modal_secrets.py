"""Values of secrets: in the environment of the task, and nowhere else. A canary is used by real
commands, and then looked for in everything that was written, shown or sent.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.contracts.modal_worlds import emulated
from tests.emulators.modal.running import ModalEmulator
from tests.servers.modal_life import ModalLife

CANARY = "canary-7f3a9c51e0"
USES = """
import hashlib, os
SUBMIT(seen=hashlib.sha256(os.environ["CANARY"].encode()).hexdigest()[:8])
"""
SEEN = hashlib.sha256(CANARY.encode()).hexdigest()[:8]
FAILS = """
import os
token = os.environ["CANARY"]
assert token == "another", "the token is another"
"""
# What may carry values: the parts of requests that Modal keeps secrets in.
SECRET_SOURCES = {"TaskExecStart.secret_sources", "SecretGetOrCreate.env_dict"}


@pytest.fixture(scope="module")
def emulator() -> Iterator[ModalEmulator]:
    with emulated() as one:
        yield one


@pytest.fixture
def life(tmp_path: Path, emulator: ModalEmulator) -> Iterator[ModalLife]:
    life = ModalLife(tmp_path, Random(1))
    life.start()  # without the canary, which comes with the apply
    life.changes["CANARY"] = CANARY
    yield life
    assert life.end() == []
    assert emulator.live() == []


def manifests() -> str:
    def document(kind: str, name: str, **spec: object) -> str:
        about = {"apiVersion": "fleetctl.dev/v1alpha1", "kind": kind, "metadata": {"name": name}}
        return json.dumps({**about, "spec": spec})

    def job(name: str, code: str, **template: object) -> str:
        whole = {"python": code, "secrets": ["token"], **template}
        tasks = {"completions": 1}
        return document(
            "BatchJob", name, tasks=tasks, placement={"provider": "modal"}, template=whole
        )

    return "\n---\n".join(
        [
            document("Secret", "token", fromEnv=["CANARY"]),
            job("uses", USES),
            job("queued", USES, resources={"gpu": "T4"}),
            job("large", USES + "# " + "x" * 100_000),
            job("called", USES, runtime="function"),
            job("fails", FAILS),
        ]
    )


def test_a_value_is_in_the_task_and_in_no_file_screen_or_request(
    life: ModalLife, emulator: ModalEmulator
) -> None:
    emulator.do("watch", text=CANARY)
    screens = [life.command("apply", "-f", "-", "--wait", stdin=manifests())]
    screens += [
        life.command(*words.split())
        for words in (
            "get all -o json",
            "get all -o yaml",
            "describe job/uses",
            "describe job/fails",
            "describe secret/token",
            "events",
            "logs job/fails",
            "results job/uses -o json",
            "get attempts job/fails -o json",
            "status -o json",
            "doctor",
        )
    ]
    for name in ("uses", "queued", "large", "called"):
        [row] = json.loads(life.command("results", f"job/{name}", "-o", "json").stdout)
        assert row["result"] == {"seen": SEEN}, name
    assert life.phases()["fails"] == "Failed"
    assert not [one.args for one in screens if CANARY in one.stdout + one.stderr]

    kept = [path for path in life.root.rglob("*") if path.is_file()]
    assert len(kept) > 10
    assert not [path for path in kept if CANARY.encode() in read(path)]

    carriers = emulator.do("watch", text="")
    assert carriers, "the canary was never sent, and still the tasks had it"
    assert set(carriers) <= SECRET_SOURCES
    assert CANARY not in json.dumps([emulator.state(), emulator.log()])
    assert not any(CANARY in text for text in orders(emulator))


def read(path: Path) -> bytes:
    """Nothing of what is gone: the controller lives on, and replaces files of its own."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def orders(emulator: ModalEmulator) -> list[str]:
    """What guests were told in arguments of commands."""
    argvs = [one["argv"] for box in emulator.state()["sandboxes"] for one in box["execs"]]
    given = [argv[argv.index("--order") + 1] for argv in argvs if "--order" in argv]
    parts = [base64.b64decode(text).decode() for text in given if text != "-"]
    assert parts
    return parts
