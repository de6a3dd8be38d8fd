"""`fleetctl doctor`: what this machine can do, and the command that mends what it cannot."""

from __future__ import annotations

import asyncio
import json
import os
from argparse import Namespace
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.cli.command.flags import Parser, add_output
from fleetctl.cli.output.render import Screen
from fleetctl.common.clock import SystemClock
from fleetctl.common.errors import StoreError
from fleetctl.common.home import LOG, home
from fleetctl.common.text import plural, safe
from fleetctl.daemon.reach.client import ping
from fleetctl.daemon.reach.patience import Unanswered
from fleetctl.daemon.reach.spawn import holder
from fleetctl.specs.builtin import DEFAULT_PROVIDER, runs_here
from fleetctl.views.lines.assets import endpoint_servers
from fleetctl.views.objects import View, fix, mapping, why
from fleetctl.views.reading import open_reading

if TYPE_CHECKING:
    from fleetctl.providers.contract.diagnostics import Finding

ENDPOINT, SETTINGS = "Endpoint", "Settings"
NOTICES_S = 7 * 86400.0
# What every command needs.
ALWAYS = ("state", "controller", "disk", "clock", "python", "sqlite", "notices")


PAGE = """\
[-o table|json]

Try what this machine and its accounts can do. Every line that is not well has the
command that would mend it. `absent` is what nothing that is declared needs, and
`away` a service of that sort that does not answer.

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
    found, needed = asyncio.run(examine(home()))
    if args.output == "json":
        screen.data(json.dumps([{**one._asdict(), "needed": one.topic in needed} for one in found]))
    else:
        for one in found:
            _show(one, screen, needed=one.topic in needed)
    return int(any(not one.ok and one.topic in needed for one in found))


async def examine(state_dir: Path) -> tuple[list[Finding], set[str]]:
    """Everything that was found, and the topics that something needs."""
    from fleetctl.cli.system.machine import look

    state, needed = _state(state_dir)
    # Each may wait for servers that do not answer; together they wait once.
    machine, reports = await asyncio.gather(
        asyncio.to_thread(lambda: list(look(state_dir))), _providers(state_dir)
    )
    endpoints = [*_endpoints(state_dir), *_backups(state_dir)]
    endpoints += _notices(state_dir)
    controller = _controller(state_dir)
    return [state, *machine, controller, *endpoints, *reports], needed | set(ALWAYS)


def _endpoints(state_dir: Path) -> Iterator[Finding]:
    """How the gateway found each, as long as a controller keeps it."""
    from fleetctl.providers.contract.diagnostics import Finding

    try:
        with open_reading(state_dir) as reading:
            seen = [one for one in reading.views() if one.kind.name == ENDPOINT]
    except (StoreError, OSError):
        return  # `_state` has said it
    running = holder(state_dir) is not None if seen else False
    for one in seen:
        what = one.key.partition("/")[2]
        if not running:
            yield Finding(ENDPOINT.lower(), what, True, "not asked: no controller runs")
        elif one.phase == "Ready" and not one.text("warning"):
            servers = endpoint_servers(one)
            ready = sum(it.get("state") == "Ready" for it in servers)
            yield Finding(ENDPOINT.lower(), what, True, f"{ready} of {len(servers)} servers answer")
        else:
            reason = one.text("warning") or why(one)
            yield Finding(ENDPOINT.lower(), what, False, reason, fix(one))


def _backups(state_dir: Path) -> Iterator[Finding]:
    """How the last backup went, where the settings ask for any."""
    from fleetctl.providers.contract.diagnostics import Finding

    try:
        with open_reading(state_dir) as reading:
            seen = [one for one in reading.views() if one.kind.name == SETTINGS]
    except (StoreError, OSError):
        return  # `_state` has said it
    for one in seen:
        kept = one.map("backup")
        if not mapping(one.spec().get("backup")):
            continue
        if kept.get("error"):
            again = "fleetctl describe settings/default"
            yield Finding("backup", "last", False, str(kept["error"]), again)
        else:
            last = kept.get("file") or "none was due yet"
            yield Finding("backup", "last", True, str(last))


def _notices(state_dir: Path) -> Iterator[Finding]:
    """Whether notices reach their sinks; nothing where nobody asked for any."""
    from fleetctl.providers.contract.diagnostics import Finding
    from fleetctl.views.lines.notices import title_of

    try:
        with open_reading(state_dir) as reading:
            found = reading.notices()
    except (StoreError, OSError):
        return  # `_state` has said it
    since_s = SystemClock().now_s() - NOTICES_S
    found = [it for it in found if it.at_s >= since_s]
    failing = [it for it in found if it.state == "Undelivered" or (it.problem and it.tries)]
    failing = [it for it in failing if it.state != "Delivered"]
    if failing:
        text = f"{title_of(failing[-1])}: {failing[-1].problem or 'nothing was sent in time'}"
        what = f"{len(failing)} of {len(found)} in a week not delivered"
        yield Finding("notices", what, False, text, "fleetctl get notices")
    elif found:
        yield Finding("notices", "delivery", True, f"{plural(len(found), 'notice')} in a week")


async def _providers(state_dir: Path) -> list[Finding]:
    from fleetctl.cli.targets.accounts import accounts
    from fleetctl.providers.contract.account import built_in
    from fleetctl.specs.builtin import BUILT_IN
    from fleetctl.wiring.accounts import check_providers

    try:
        with open_reading(state_dir) as reading:
            known = list(accounts(reading).values())
    except (StoreError, OSError):
        known = [built_in(name) for name in BUILT_IN]  # what is wrong with it, `_state` has said
    return await check_providers(state_dir, known)


def _show(one: Finding, screen: Screen, *, needed: bool) -> None:
    status = "ok" if one.ok else "bad" if needed else "away" if one.away else "absent"
    screen.data(f"{status:<7} {one.topic:<11} {one.what}: {safe(one.says)}")
    if not one.ok and one.fix:
        screen.data(f"{'':<19} fix: {safe(one.fix)}")


def _state(state_dir: Path) -> tuple[Finding, set[str]]:
    """How the state directory is, and what the objects in it need."""
    from fleetctl.providers.contract.diagnostics import Finding
    from fleetctl.stores.filesystem import refuse_shared_filesystem

    nearest = state_dir
    while not os.path.lexists(nearest):
        nearest = nearest.parent
    if not os.access(nearest, os.W_OK | os.X_OK):
        problem, fix = f"`{nearest}` cannot be written to", "export FLEETCTL_HOME=~/fleetctl"
        return Finding("state", "directory", False, problem, fix), set()
    try:
        refuse_shared_filesystem(nearest)
        with open_reading(state_dir) as reading:
            seen = reading.views()
    except StoreError as error:
        return Finding("state", "store", False, str(error), error.hint), set()
    held = plural(len(seen), "object") if state_dir.exists() else "made at the first apply"
    needed = {topic for one in seen for topic in _needs(one)}
    return Finding("state", "directory", True, f"`{state_dir}`, {held}"), needed


def _controller(state_dir: Path) -> Finding:
    from fleetctl.common.version import VERSION
    from fleetctl.providers.contract.diagnostics import Finding

    try:
        pid = holder(state_dir)
        if pid is None:
            return Finding("controller", "process", True, "does not run; `apply` starts one")
        answer = ping(state_dir)
    except PermissionError as error:
        message = f"`{error.filename}` is not open to you"
        return Finding("controller", "process", False, message, "export FLEETCTL_HOME=~/fleetctl")
    except Unanswered as error:
        fix = "fleetctl down --force && fleetctl up --detach"
        return Finding("controller", "process", False, str(error), fix)
    if answer is None:
        message = f"process {pid} holds the store and does not listen; it may be starting or ending"
        return Finding("controller", "process", False, message, f"tail {state_dir / LOG}")
    version = str(answer.get("version") or "")
    if version != VERSION:
        message = f"runs, pid {pid}, and is version `{version or 'unknown'}`; this is `{VERSION}`"
        return Finding(
            "controller", "process", False, message, "fleetctl down && fleetctl up --detach"
        )
    loop = f", event loop of {answer['loop']}" if answer.get("loop") else ""
    return Finding("controller", "process", True, f"runs, pid {pid}, version {version}{loop}")


def _needs(seen: View) -> Iterator[str]:
    """The topics that an object cannot do without which is not over, or which was refused."""
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
    stages = [mapping(it) for it in _list(spec.get("stages"))]
    places = [mapping(it["placement"]) for it in stages if it.get("placement")]
    if len(places) < len(stages) or not stages:
        places.append(mapping(spec.get("placement")))
    providers = {name for place in places for name in _placed(place)}
    yield from providers
    if not any(runs_here(name) for name in providers):
        return
    template = mapping(spec.get("template"))
    images = [mapping(it.get("image")) for it in (template, *stages)]
    if any(image.get("pip") or image.get("python") for image in images):
        yield "uv"
    if mapping(template.get("source")).get("git"):
        yield "git"


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _placed(placement: Mapping[str, object]) -> Iterator[str]:
    """Names of providers where work may run."""
    candidates = placement.get("ordered") or placement.get("anyOf")
    if isinstance(candidates, list):
        yield from (str(mapping(one).get("provider")) for one in candidates)
    else:
        yield str(placement.get("provider") or DEFAULT_PROVIDER)
