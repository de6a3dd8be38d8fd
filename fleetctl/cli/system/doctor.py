"""`fleetctl doctor`: checks the features of this machine, and prints the commands that fix missing
ones."""

from __future__ import annotations

import asyncio
import json
import os
from argparse import Namespace
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.cli.command.flags import Parser, add_output
from fleetctl.cli.output.screen import Screen
from fleetctl.common.clock import SystemClock
from fleetctl.common.errors import StoreError
from fleetctl.common.state_paths import LOG, find_state_dir
from fleetctl.common.text import count_noun, escape_line
from fleetctl.daemon.client.lock_holder import ControllerUnanswered
from fleetctl.daemon.client.socket_client import ping_controller
from fleetctl.daemon.client.spawn import find_holder_pid
from fleetctl.specs.builtin import DEFAULT_PROVIDER, runs_here
from fleetctl.views.objects import View, as_mapping, explain_status, suggest_fix
from fleetctl.views.sections.endpoints import endpoint_servers
from fleetctl.views.store_reading import open_reading

if TYPE_CHECKING:
    from fleetctl.providers.contract.account import CheckResult

ENDPOINT = "Endpoint"
SETTINGS = "Settings"
NOTICES_S = 7 * 86400.0
# Every command needs these.
ALWAYS = ("state", "controller", "disk", "files", "clock", "python", "sqlite", "notices")


PAGE = """\
[-o table|json]

Try what this machine and its accounts can do. Every line that is not well has the
command that would fix it. `absent` is what nothing that is declared needs, and
`unreachable` a service of that sort that does not answer.

examples:
  fleetctl doctor
  fleetctl doctor -o json
  fleetctl doctor -o json | jq '.[] | select(.ok | not)'

exit codes:
  0 all that is needed is well, 1 something is not, 2 wrong usage
"""


def parser(verb: str) -> Parser:
    made = Parser(verb, PAGE)
    add_output(made, "table", "json")
    return made


def run(args: Namespace, screen: Screen) -> int:
    found, needed = asyncio.run(run_checks(find_state_dir()))
    if args.output == "json":
        screen.data(json.dumps([{**one._asdict(), "needed": one.topic in needed} for one in found]))
    else:
        for one in found:
            _print_finding(one, screen, needed=one.topic in needed)
    return int(any(not one.ok and one.topic in needed for one in found))


async def run_checks(state_dir: Path) -> tuple[list[CheckResult], set[str]]:
    """Returns all findings, and the topics that something needs."""
    from fleetctl.cli.system.machine import check_machine

    state, needed = _check_state(state_dir)
    # Each may wait for unreachable servers; together they wait once.
    machine, reports = await asyncio.gather(
        asyncio.to_thread(lambda: list(check_machine(state_dir))), _check_providers(state_dir)
    )
    endpoints = [*_check_endpoints(state_dir), *_check_backups(state_dir)]
    endpoints += _check_notices(state_dir)
    controller = _check_controller(state_dir)
    return [state, *machine, controller, *endpoints, *reports], needed | set(ALWAYS)


def _check_endpoints(state_dir: Path) -> Iterator[CheckResult]:
    """Yields the gateway's last finding on each, for as long as a controller keeps it."""
    from fleetctl.providers.contract.account import CheckResult

    try:
        with open_reading(state_dir) as reading:
            seen = [one for one in reading.views() if one.kind.name == ENDPOINT]
    except (StoreError, OSError):
        return  # `_state` has reported it
    running = find_holder_pid(state_dir) is not None if seen else False
    for one in seen:
        what = one.key.partition("/")[2]
        if not running:
            yield CheckResult(ENDPOINT.lower(), what, True, "not asked: no controller runs")
        elif one.phase == "Ready" and not one.text("warning"):
            servers = endpoint_servers(one)
            ready = sum(it.get("state") == "Ready" for it in servers)
            yield CheckResult(
                ENDPOINT.lower(), what, True, f"{ready} of {len(servers)} servers answer"
            )
        else:
            reason = one.text("warning") or explain_status(one)
            yield CheckResult(
                ENDPOINT.lower(),
                what,
                False,
                reason,
                suggest_fix(one),
            )


def _check_backups(state_dir: Path) -> Iterator[CheckResult]:
    """Yields the state of the last backup, where the settings have a schedule."""
    from fleetctl.providers.contract.account import CheckResult

    try:
        with open_reading(state_dir) as reading:
            seen = [one for one in reading.views() if one.kind.name == SETTINGS]
    except (StoreError, OSError):
        return  # `_state` has reported it
    for one in seen:
        kept = one.map("backup")
        if not as_mapping(one.spec().get("backup")):
            continue
        if kept.get("error"):
            again = "fleetctl describe settings/default"
            yield CheckResult(
                "backup",
                "last",
                False,
                str(kept["error"]),
                again,
            )
        else:
            last = kept.get("file") or "none was due yet"
            yield CheckResult("backup", "last", True, str(last))


def _check_notices(state_dir: Path) -> Iterator[CheckResult]:
    """Yields a finding on the delivery of notices; empty where no object has any."""
    from fleetctl.providers.contract.account import CheckResult
    from fleetctl.views.sections.notice_section import title_of

    try:
        with open_reading(state_dir) as reading:
            found = reading.notices()
    except (StoreError, OSError):
        return  # `_state` has reported it
    since_s = SystemClock().now_s() - NOTICES_S
    found = [it for it in found if it.at_s >= since_s]
    failing = [it for it in found if it.state == "Undelivered" or (it.problem and it.tries)]
    failing = [it for it in failing if it.state != "Delivered"]
    if failing:
        text = f"{title_of(failing[-1])}: {failing[-1].problem or 'nothing was sent in time'}"
        what = f"{len(failing)} of {len(found)} in a week not delivered"
        yield CheckResult(
            "notices",
            what,
            False,
            text,
            "fleetctl get notices",
        )
    elif found:
        yield CheckResult(
            "notices", "delivery", True, f"{count_noun(len(found), 'notice')} in a week"
        )


async def _check_providers(state_dir: Path) -> list[CheckResult]:
    from fleetctl.providers.contract.account import built_in
    from fleetctl.specs.builtin import BUILT_IN
    from fleetctl.views.exec_targets import load_accounts
    from fleetctl.wiring.account_registry import check_providers
    from fleetctl.wiring.plugins import check_packages

    try:
        with open_reading(state_dir) as reading:
            known = list(load_accounts(reading, unusable=True).values())
    except (StoreError, OSError):
        # `_state` has reported that the store is unreadable.
        known = [built_in(name) for name in BUILT_IN]
    return [*check_packages(), *await check_providers(state_dir, known)]


def _print_finding(
    one: CheckResult,
    screen: Screen,
    *,
    needed: bool,
) -> None:
    status = "ok" if one.ok else "bad" if needed else "unreachable" if one.away else "absent"
    screen.data(f"{status:<11} {one.topic:<11} {one.what}: {escape_line(one.says)}")
    if not one.ok and one.fix:
        screen.data(f"{'':<23} fix: {escape_line(one.fix)}")


def _check_state(state_dir: Path) -> tuple[CheckResult, set[str]]:
    """Returns the state of the state directory, and the topics that its objects need."""
    from fleetctl.providers.contract.account import CheckResult
    from fleetctl.stores.state_dir import refuse_shared_filesystem

    nearest = state_dir
    while not os.path.lexists(nearest):
        nearest = nearest.parent
    if not os.access(nearest, os.W_OK | os.X_OK):
        problem = f"`{nearest}` cannot be written to"
        fix = "export FLEETCTL_HOME=~/fleetctl"
        return CheckResult(
            "state",
            "directory",
            False,
            problem,
            fix,
        ), set()
    try:
        refuse_shared_filesystem(nearest)
        with open_reading(state_dir) as reading:
            seen = reading.views()
    except StoreError as error:
        return CheckResult(
            "state",
            "store",
            False,
            str(error),
            error.hint,
        ), set()
    held = count_noun(len(seen), "object") if state_dir.exists() else "made at the first apply"
    needed = {topic for one in seen for topic in _list_needs(one)}
    return CheckResult("state", "directory", True, f"`{state_dir}`, {held}"), needed


def _check_controller(state_dir: Path) -> CheckResult:
    from fleetctl.common.version import VERSION
    from fleetctl.providers.contract.account import CheckResult

    try:
        pid = find_holder_pid(state_dir)
        if pid is None:
            return CheckResult("controller", "process", True, "does not run; `apply` starts one")
        answer = ping_controller(state_dir)
    except PermissionError as error:
        message = f"`{error.filename}` is not open to you"
        return CheckResult(
            "controller",
            "process",
            False,
            message,
            "export FLEETCTL_HOME=~/fleetctl",
        )
    except ControllerUnanswered as error:
        fix = "fleetctl down --force && fleetctl up --detach"
        return CheckResult(
            "controller",
            "process",
            False,
            str(error),
            fix,
        )
    if answer is None:
        message = f"process {pid} holds the store and does not listen; it may be starting or ending"
        return CheckResult(
            "controller",
            "process",
            False,
            message,
            f"tail {state_dir / LOG}",
        )
    version = str(answer.get("version") or "")
    if version != VERSION:
        message = f"runs, pid {pid}, and is version `{version or 'unknown'}`; this is `{VERSION}`"
        return CheckResult(
            "controller",
            "process",
            False,
            message,
            "fleetctl down && fleetctl up --detach",
        )
    loop = f", event loop of {answer['loop']}" if answer.get("loop") else ""
    return CheckResult("controller", "process", True, f"runs, pid {pid}, version {version}{loop}")


def _list_needs(seen: View) -> Iterator[str]:
    """Yields the topics that an unfinished or refused object needs."""
    over = seen.over and seen.text("reason") != "Refused"
    if over or seen.kind.name == "Secret":
        return
    spec = seen.spec()
    if seen.kind.name == ENDPOINT:
        yield ENDPOINT.lower()
        return
    if seen.kind.name == SETTINGS:
        yield "backup"
        return
    if seen.kind.name == "Provider":
        if spec.get("account"):
            yield seen.resource.name
        return
    if not seen.kind.runs:
        yield str(spec.get("provider") or DEFAULT_PROVIDER)
        return
    stages = [as_mapping(it) for it in _as_list(spec.get("groups") or spec.get("stages"))]
    places = [as_mapping(it["placement"]) for it in stages if it.get("placement")]
    if len(places) < len(stages) or not stages:
        places.append(as_mapping(spec.get("placement")))
    providers = {name for place in places for name in _list_providers(place)}
    yield from providers
    if not any(runs_here(name) for name in providers):
        return
    template = as_mapping(spec.get("template"))
    images = [as_mapping(it.get("image")) for it in (template, *stages)]
    if any(image.get("pip") or image.get("python") for image in images):
        yield "uv"
    if as_mapping(template.get("source")).get("git"):
        yield "git"


def _as_list(value: object) -> list[object]:
    if isinstance(value, list):
        return value
    return []


def _list_providers(placement: Mapping[str, object]) -> Iterator[str]:
    """Yields names of providers where work may run."""
    candidates = placement.get("ordered") or placement.get("anyOf")
    if isinstance(candidates, list):
        yield from (str(as_mapping(one).get("provider")) for one in candidates)
    else:
        yield str(placement.get("provider") or DEFAULT_PROVIDER)
