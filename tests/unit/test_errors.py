"""Every error that a person may read keeps to one way of speaking: what is, what would be right, in
lower case, without a final period, values in backticks, then a hint.

All classes are found by importing all of fleetctl, and all places that make one by reading it; a
new class needs a sample below.
"""

from __future__ import annotations

import ast
import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import pytest

import fleetctl
from fleetctl.apply.change import CREATED, PRUNED, Change, PolicyVerdict
from fleetctl.apply.consent import NeedsConsent, check_consent
from fleetctl.apply.policies.report import PolicyDenied, raise_if_denied
from fleetctl.apply.write import commit
from fleetctl.cli.targets.files import documents_of
from fleetctl.client.fleet import Fleet
from fleetctl.client.fleet_base import TimedOut
from fleetctl.client.waits import GoalMissed
from fleetctl.common.errors import (
    Conflict,
    FleetctlError,
    NotFound,
    Refused,
    StoreError,
    Unavailable,
    UsageError,
)
from fleetctl.common.finding import Severity
from fleetctl.common.program import tree_of
from fleetctl.controllers.model import Resource
from fleetctl.daemon.client import spawn
from fleetctl.daemon.client.lock_holder import (
    ControllerHung,
    ControllerUnanswered,
    build_hung_error,
)
from fleetctl.daemon.client.socket_client import RequestRefused, raise_refusal, send_request
from fleetctl.engine.execute.secrets import SecretValues
from fleetctl.engine.kinds.source_status import ObjectsChanged
from fleetctl.gitops.git_keeper import store_proposal
from fleetctl.gitops.proposal import CommitProposal, ProposedObject, SourceClaim
from fleetctl.interpreter.result import InterpreterError
from fleetctl.interpreter.session.conversation import Conversation, DriverProblem
from fleetctl.kubernetes.answers import ApiError, error_of
from fleetctl.manifest import Document, ManifestErrors, load_manifests
from fleetctl.manifest.loader import LoadErrors
from fleetctl.manifest.problems import ManifestProblem, PredictedErrors
from fleetctl.operator.operator_process import LeaseLost, fence_store
from fleetctl.providers.contract.account import Account
from fleetctl.server.callers import Caller, HttpError
from fleetctl.stores.sqlite.store import open_store
from fleetctl.stores.sqlite_errors import DiskFull, disk_full
from fleetctl.views.kinds import kind_of
from tests.cli_controller import controller

ROOT = Path(fleetctl.__file__).parent
# What is written with a capital wherever it stands, and a message may begin with it.
PROPER = ("Daytona", "JSONPath", "Modal", "Parquet", "Python", "FLEETCTL_", "W&B")
VALUE = "\0"  # stands for what is only known when it happens
VOLUME = Resource("u", "Volume", "data", 1, 1, '{"deletionPolicy": "Delete"}', "", {}, {}, 1.0)


JOB = """
apiVersion: fleetctl.dev/v1alpha1
kind: BatchJob
metadata: {name: a}
spec: {template: {script: "true"}}
"""


class FixedClock:
    def now_s(self) -> float:
        return 1_800_000_000.0


def flaws(message: str) -> Iterator[str]:
    """What is wrong with the wording of a message."""
    for line in re.split(r"\n(?:error: )?", message):
        if not line.strip():
            yield "has an empty line"
            continue
        if line[0].isupper() and not line.startswith(PROPER):
            yield f"begins with a capital: {line}"
        if line.endswith(".") and not line.endswith("..."):
            yield f"ends with a period: {line}"
        if line.count("`") % 2:
            yield f"has a backtick that is not closed: {line}"
        if re.search(rf"['\"]{VALUE}['\"]", line):
            yield f"has a value in quotes: {line}"
        if re.search(r"\. [A-Z][a-z]* ", line):
            yield f"is more than one sentence: {line}"


# How each class comes about, in the code that people run.


def _no_answer(place: Path) -> None:
    with controller(place, lambda _: b""):
        send_request(place, {"verb": "ping"})


def _hangs(_place: Path) -> None:
    raise build_hung_error(7, "it is stopped by a signal")


def _no_place_for_a_home(place: Path) -> None:
    (place / "file").write_text("in the way")
    spawn.start_controller(place / "file" / "home")


_PROBLEM = ManifestProblem("job.yaml", 3, 1, "spec.parallelism is `0`; it must be at least 1")


def _a_bad_manifest(place: Path) -> None:
    load_manifests([Document("job.yaml", "kind: Job\n", str(place))])


def _a_problem(_place: Path) -> None:
    raise ManifestErrors([_PROBLEM])


def _a_predicted_problem(_place: Path) -> None:
    raise PredictedErrors([_PROBLEM])


def _no_file(place: Path) -> None:
    documents_of([str(place / "sweep.yaml")])


def _twice(place: Path) -> None:
    store = open_store(place / "home", FixedClock())
    try:
        with store.transaction():
            store.resources.put(VOLUME, expected_version=None)
            store.resources.put(VOLUME, expected_version=None)
    finally:
        store.close()


def _no_credentials(_place: Path) -> None:
    Account("team-b", "modal", {"tokenIdEnv": "NO_SUCH_ID"}).value("tokenIdEnv")


def _data_would_go(_place: Path) -> None:
    check_consent([Change(PRUNED, VOLUME, VOLUME)], (), 5.0)


def _no_such_secret(place: Path) -> None:
    store = open_store(place / "home", FixedClock())
    try:
        SecretValues(store, {}).resolve(("keys",))
    finally:
        store.close()


def _not_a_store(place: Path) -> None:
    (place / "home" / "store").mkdir(parents=True, mode=0o700)
    (place / "home" / "store" / "state.db").write_bytes(b"something else altogether" * 50)
    open_store(place / "home", FixedClock())


def _no_room(place: Path) -> None:
    raise disk_full(place)


def _a_refusing_controller(_place: Path) -> None:
    raise_refusal({"errors": ["batchjob/x changed after you read it"], "code": 5})


class Driver:
    """A session whose driver says these lines and ends."""

    place_root = workspace = ""

    def __init__(self, *said: str) -> None:
        self.said = said

    async def send(self, line: str) -> None:
        pass

    async def lines(self) -> AsyncIterator[str]:
        for line in self.said:
            await asyncio.sleep(0.01)
            yield line

    def ending(self) -> str:
        return "it used more memory than it may"

    async def reload(self) -> None:
        pass

    async def stop(self) -> None:
        pass


def _a_sandbox_that_ends(_place: Path) -> None:
    async def play() -> None:
        await Conversation(Driver(), {}).ask("execute")

    asyncio.run(play())


def _a_driver_that_cannot(_place: Path) -> None:
    async def play() -> None:
        message = '{"id": 1, "problem": "there is no file `/data/x`"}'
        await Conversation(Driver(message), {}).ask("load")

    asyncio.run(play())


def _a_goal_that_cannot_be_met(place: Path) -> None:
    failed = {"phase": "Failed", "observedGeneration": 1, "reason": "FailedIndexes"}
    store = open_store(place, FixedClock())
    made = commit.apply_manifests(store, load_manifests([Document("a", JOB, str(place))]), 0.0)
    with store.transaction():
        store.resources.put_status(made[0].uid, json.dumps(failed), expected_version=1)
    store.close()
    Fleet(place).wait("job/a")


def _a_goal_that_takes_long(place: Path) -> None:
    store = open_store(place, FixedClock())
    commit.apply_manifests(store, load_manifests([Document("a", JOB, str(place))]), 0.0)
    store.close()
    Fleet(place).wait("job/a", timeout_s=0.0)


def _a_lease_that_is_over(place: Path) -> None:
    with fence_store(open_store(place, FixedClock()), lambda: False).transaction():
        pass


def _denied_by_a_policy(_place: Path) -> None:
    verdict = PolicyVerdict((), "at most 8 GPUs", severity=Severity.DENIED, policy="small")
    raise_if_denied([Change(CREATED, None, VOLUME, verdicts=(verdict,))])


def _no_such_object(_place: Path) -> None:
    raise error_of(404, b'{"reason": "NotFound", "message": "no such job"}', "GET /x")


def _somebody_was_faster(place: Path) -> None:
    store = open_store(place / "home", FixedClock())
    claim = SourceClaim("source/x", "source.x", "a" * 40)
    try:
        with store.transaction():
            store.resources.put(VOLUME, expected_version=None)
            store_proposal(
                store,
                CommitProposal(claim, (ProposedObject("created", None, VOLUME),), 1),
                (),
                approved=True,
                now_s=5.0,
            )
    finally:
        store.close()


def _no_right(_: Path) -> None:
    Caller("ada", "viewer", "team").require("editor", "team")


SAMPLES: dict[type[FleetctlError], Callable[[Path], None]] = {
    FleetctlError: _no_place_for_a_home,
    HttpError: _no_right,
    ControllerUnanswered: _no_answer,
    ControllerHung: _hangs,
    UsageError: lambda _: void(kind_of("bachjob")),
    ManifestErrors: _a_problem,
    LoadErrors: _a_bad_manifest,
    PredictedErrors: _a_predicted_problem,
    NotFound: _no_file,
    Conflict: _twice,
    Refused: _no_credentials,
    NeedsConsent: _data_would_go,
    Unavailable: _no_such_secret,
    StoreError: _not_a_store,
    DiskFull: _no_room,
    RequestRefused: _a_refusing_controller,
    GoalMissed: _a_goal_that_cannot_be_met,
    TimedOut: _a_goal_that_takes_long,
    PolicyDenied: _denied_by_a_policy,
    LeaseLost: _a_lease_that_is_over,
    ApiError: _no_such_object,
    InterpreterError: _a_sandbox_that_ends,
    DriverProblem: _a_driver_that_cannot,
    ObjectsChanged: _somebody_was_faster,
}


def void(_value: object) -> None:
    """A lambda's way to return nothing."""


@cache
def all_classes() -> frozenset[type[FleetctlError]]:
    for module in walk_packages([str(ROOT)], "fleetctl."):
        # What is shipped to tasks has no error of ours, and knows its neighbours by other names.
        shipped = module.name.startswith("fleetctl.guest.library.")
        if not shipped and not module.name.endswith("__main__"):
            import_module(module.name)
    found: set[type[FleetctlError]] = set()
    rest: list[type[FleetctlError]] = [FleetctlError]
    while rest:
        one = rest.pop()
        found.add(one)
        rest.extend(it for it in one.__subclasses__() if it.__module__.startswith("fleetctl"))
    return frozenset(found)


def test_every_class_of_error_has_a_sample() -> None:
    assert all_classes() - set(SAMPLES) == set()


@pytest.mark.parametrize("sort", SAMPLES, ids=lambda it: it.__name__)
def test_an_error_of_each_class_is_well_said(sort: type[FleetctlError], tmp_path: Path) -> None:
    with pytest.raises(sort) as caught:
        SAMPLES[sort](tmp_path)
    error = caught.value
    assert type(error) is sort
    assert [*flaws(str(error)), *(flaws(error.hint) if error.hint else ())] == []
    assert 0 < error.exit_code < 126
    if issubclass(sort, Refused | StoreError):
        assert error.hint


def template(node: ast.expr) -> str | None:
    """A text with VALUE for what it is filled with; None for one that is made elsewhere."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(template(part) or VALUE for part in parts)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            first, second = template(left), template(right)
            return None if first is second is None else (first or VALUE) + (second or VALUE)
    return None


@cache
def made_errors() -> tuple[tuple[str, str, ast.Call], ...]:
    """(where, name of the class, the call) for all that fleetctl raises."""
    return tuple(_made_errors({one.__name__ for one in all_classes()}))


def _made_errors(names: set[str]) -> Iterator[tuple[str, str, ast.Call]]:
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.walk(tree_of(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and node.args:
                name = getattr(node.func, "id", getattr(node.func, "attr", ""))
                if name in names:
                    yield f"{path.relative_to(ROOT)}:{node.lineno}", name, node


def test_every_error_that_is_made_is_well_said() -> None:
    wrong, seen = [], 0
    for where, _, call in made_errors():
        hints = [word.value for word in call.keywords if word.arg == "hint"]
        for text in map(template, [call.args[0], *hints]):
            if text:
                seen += 1
                wrong += [f"{where} {flaw}" for flaw in flaws(text)]
    assert wrong == []
    assert seen > 400  # the walk finds them


def test_who_must_change_something_is_told_what() -> None:
    wanted = {sort.__name__ for sort in all_classes() if issubclass(sort, Refused | StoreError)}
    bare = [
        where
        for where, name, call in made_errors()
        if name in wanted and not any(word.arg == "hint" for word in call.keywords)
    ]
    assert bare == []
