"""Copying out of a task that has ended: `fleetctl cp job/x:3/out.txt .`.

What outlives a task are its volumes, and on this machine the files of one that failed. Where a path
is in neither, the message says what would have kept it.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from fleetctl.cli.access.tar import Moved, means_contents, pack, unpack
from fleetctl.cli.targets.accounts import accounts
from fleetctl.cli.targets.task import called, template_of
from fleetctl.cli.targets.volume import VolumePlace
from fleetctl.common.errors import NotFound, Refused
from fleetctl.common.home import home
from fleetctl.common.text import safe
from fleetctl.controllers.model import LIVE_STATES
from fleetctl.views.kinds import Target, kind_of
from fleetctl.views.objects import View, mapping
from fleetctl.views.reading import Reading, must_find, open_reading

if TYPE_CHECKING:
    from fleetctl.providers.contract.account import Account
    from fleetctl.views.tasks import Task


class Left(NamedTuple):
    """Where the asked-for path is: in a volume, or in a directory of this machine."""

    volume: VolumePlace | None
    path: Path


def left(wanted: Target, index: int | None, path: str) -> Left | None:
    """None for a task that has not ended, or that does not say which it is: it is entered instead.

    Raises NotFound, and Refused where the path is gone.
    """
    with open_reading(home()) as reading:
        seen = must_find(wanted, reading)
        task = _ended(seen, index, reading) if seen.kind.runs else None
        if task is None:
            return None
        template = template_of(seen, task.run)
        account = accounts(reading).get(task.run.provider)
    volume = _in_volume(template, path, seen.resource.namespace)
    if volume is not None:
        return Left(volume, Path())
    kept = _kept(seen, task, account)
    if kept is None or path.startswith("/"):
        raise _gone(seen, task, template, path, kept=kept is not None)
    place = Path(os.path.realpath(kept / path))
    if not place.is_relative_to(kept.parent) or not place.exists():
        raise NotFound(
            f"{called(seen, task.run)} of {safe(seen.key)} left no `{safe(path)}`",
            hint=f"fleetctl cp {safe(seen.resource.kind.lower())}/{safe(seen.resource.name)}:"
            f"{task.run.index}/. ./left   copies all that it left",
        )
    return Left(None, place)


def copy(place: Path, path: str, target: str) -> Moved:
    """By the rules of a copy out of a task that runs."""
    contents = means_contents(path)
    with tempfile.TemporaryFile() as file:
        pack(place, "." if contents else place.name, file)
        file.seek(0)
        return unpack(file, target, contents=contents)


def _ended(seen: View, index: int | None, reading: Reading) -> Task | None:
    if index is not None:
        found = reading.task(seen, index)
        return found if found is not None and found.run.state not in LIVE_STATES else None
    tasks = list(reading.tasks(seen))
    only = tasks[0] if len(tasks) == 1 else None
    return only if only is not None and only.run.state not in LIVE_STATES else None


def _in_volume(template: Mapping[str, object], path: str, namespace: str) -> VolumePlace | None:
    """The place in a volume that the task saw at this path."""
    start = str(template.get("workdir") or "")
    ends = path[len(path.rstrip("/.")) :] if path.endswith(("/", "/.")) else ""
    whole = os.path.normpath(os.path.join(start, path))
    if not whole.startswith("/"):
        return None
    whole = f"/{whole.lstrip('/')}"  # POSIX lets two slashes stand
    mounts = template.get("volumes")
    found: list[tuple[str, str]] = []
    for mount in map(mapping, mounts if isinstance(mounts, list) else ()):
        links = mount.get("links")
        shown = [mount.get("mountPath"), *(links if isinstance(links, list) else ())]
        found += [(os.path.normpath(str(one)), str(mount.get("name"))) for one in shown if one]
    for top, name in sorted(found, key=lambda it: len(it[0]), reverse=True):
        if whole == top or whole.startswith(top + "/"):
            inside = whole[len(top) :] or "/"
            return VolumePlace(Target(kind_of("volume"), name, namespace), inside + ends)
    return None


def _kept(seen: View, task: Task, account: Account | None) -> Path | None:
    """account: None for a provider whose object is gone; its disks are too."""
    if account is None:
        return None
    from fleetctl.wiring.plugins import kept_files

    return kept_files(account.sort, home(), seen.resource.uid, task.run.name)


def _gone(
    seen: View, task: Task, template: Mapping[str, object], path: str, *, kept: bool
) -> Refused:
    unit = f"{called(seen, task.run)} of {safe(seen.key)}"
    names = [str(mapping(it).get("name")) for it in _list(template.get("volumes"))]
    if kept:
        what = f"{unit} left the files of its work directory, and `{safe(path)}` is not among them"
    elif seen.status.get("scratchFreed"):
        what = f"{unit} has ended ({task.state.lower()}), and what it left is past retention"
    else:
        what = f"{unit} has ended ({task.state.lower()}), and its own disk went with it"
    if names:
        stays = f"its volumes stay: fleetctl ls volume/{safe(names[0])}"
    else:
        stays = "a volume (`template.volumes`) keeps what tasks write to it"
    results = f"what it submitted: fleetctl results {safe(seen.key)}"
    local = "; on `local` a failed task's files are kept too" if not kept else ""
    return Refused(what, hint=f"{stays}{local}; {results}")


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []
