"""Copies out of a task that has ended: `fleetctl cp job/x:3/out.txt .`.

Volumes outlast a task, and on this machine the files of a failed one do. For a path in neither, the
message names the setting that would have preserved it.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from fleetctl.cli.access.cp_outputs import select_outputs
from fleetctl.cli.access.tar import CopySummary, means_contents, pack_archive, unpack_archive
from fleetctl.cli.targets.accounts import load_accounts
from fleetctl.cli.targets.task import describe_task, template_of
from fleetctl.cli.targets.volume import VolumePath
from fleetctl.common.errors import NotFound, Refused
from fleetctl.common.state_paths import find_state_dir
from fleetctl.common.text import escape_line
from fleetctl.controllers.model import LIVE_STATES
from fleetctl.views.kinds import Target, kind_of
from fleetctl.views.objects import View, as_mapping
from fleetctl.views.run_outputs import TaskOutputs, find_task_outputs
from fleetctl.views.store_reading import StoreReading, must_find, open_reading

if TYPE_CHECKING:
    from fleetctl.providers.contract.account import Account
    from fleetctl.providers.rundir.kept_outputs import KeptOutputs
    from fleetctl.views.tasks import Task


class EndedTaskPath(NamedTuple):
    """The location of the requested path: a volume, what is kept of the task, or a directory of
    this machine.

    top: the directory of all that the task left, which its links must not leave.
    """

    volume: VolumePath | None
    path: Path
    top: Path
    outputs: KeptOutputs | None = None


def find_left_path(
    wanted: Target,
    index: int | None,
    path: str,
) -> EndedTaskPath | None:
    """Returns the location; None for a running task, or where the words name no single task: the
    caller enters the task instead.

    Raises NotFound, and Refused where the path is gone.
    """
    with open_reading(find_state_dir()) as reading:
        seen = must_find(wanted, reading)
        task = _find_ended_task(seen, index, reading) if seen.kind.runs else None
        if task is None:
            return None
        template = template_of(seen, task.run)
        account = load_accounts(reading).get(task.run.provider)
        outputs = find_task_outputs(find_state_dir(), seen, task, reading)
    volume = _in_volume(template, path, seen.resource.namespace)
    if volume is not None:
        return EndedTaskPath(volume, Path(), Path())
    kept = _find_work_dir(seen, task, account)
    if outputs is not None and kept is None and select_outputs(outputs.kept, path):
        return EndedTaskPath(None, Path(), Path(), outputs.kept)
    if kept is None or path.startswith("/"):
        raise _explain_missing_path(
            seen,
            task,
            template,
            path,
            kept=kept is not None,
            outputs=outputs,
        )
    place = Path(os.path.realpath(kept / path))
    top = kept.parent.resolve()
    if not place.is_relative_to(top) or not place.exists():
        raise NotFound(
            f"{describe_task(seen, task.run)} of {escape_line(seen.key)} left no "
            f"`{escape_line(path)}`",
            hint=f"fleetctl cp "
            f"{escape_line(seen.resource.kind.lower())}/{escape_line(seen.resource.name)}:"
            f"{task.run.index}/. ./left   copies all that it left",
        )
    return EndedTaskPath(None, place, top)


def copy_left_files(
    left: EndedTaskPath,
    path: str,
    target: str,
) -> CopySummary:
    """Copies by the rules of a copy out of a running task."""
    contents = means_contents(path)
    with tempfile.TemporaryFile() as file:
        name = "." if contents else left.path.name
        packed = pack_archive(left.path, name, file, within=left.top)
        file.seek(0)
        moved = unpack_archive(file, target, contents=contents)
    return moved._replace(skipped=(*packed.skipped, *moved.skipped))


def _find_ended_task(
    seen: View,
    index: int | None,
    reading: StoreReading,
) -> Task | None:
    if index is not None:
        found = reading.task(seen, index)
        if found is not None and found.run.state not in LIVE_STATES:
            return found
        return None
    tasks = list(reading.tasks(seen))
    only = tasks[0] if len(tasks) == 1 else None
    if only is not None and only.run.state not in LIVE_STATES:
        return only
    return None


def _in_volume(
    template: Mapping[str, object],
    path: str,
    namespace: str,
) -> VolumePath | None:
    """Returns the path in the volume that the task saw at `path`."""
    start = str(template.get("workdir") or "")
    whole = os.path.normpath(os.path.join(start, path))
    if not whole.startswith("/"):
        return None
    whole = f"/{whole.lstrip('/')}"  # POSIX lets two slashes stand

    # Of two mounts the inner one holds the path.
    mounts = sorted(_list_mounts(template), key=lambda it: len(it[0]), reverse=True)
    for top, name in mounts:
        if whole != top and not whole.startswith(top + "/"):
            continue
        volume = Target(kind_of("volume"), name, namespace)
        inside = whole[len(top) :] or "/"
        ends = path[len(path.rstrip("/.")) :] if path.endswith(("/", "/.")) else ""
        return VolumePath(volume, inside + ends)
    return None


def _list_mounts(template: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Yields each path at which the task sees a volume, links included, and the volume's name."""
    mounts = template.get("volumes")
    if not isinstance(mounts, list):
        return
    for mount in map(as_mapping, mounts):
        links = mount.get("links")
        paths = [mount.get("mountPath")]
        if isinstance(links, list):
            paths += links
        for path in filter(None, paths):
            yield os.path.normpath(str(path)), str(mount.get("name"))


def _find_work_dir(
    seen: View,
    task: Task,
    account: Account | None,
) -> Path | None:
    """Returns the task's directory. account: None for a provider whose object is gone; its disks
    are too."""
    if account is None:
        return None
    from fleetctl.wiring.plugins import find_left_files

    return find_left_files(account.sort, find_state_dir(), seen.resource.uid, task.run.name)


def _explain_missing_path(
    seen: View,
    task: Task,
    template: Mapping[str, object],
    path: str,
    *,
    kept: bool,
    outputs: TaskOutputs | None,
) -> Refused:
    unit = f"{describe_task(seen, task.run)} of {escape_line(seen.key)}"
    if outputs is not None:
        where = f"{escape_line(seen.key)}:{task.run.index}"
        what = f"`{escape_line(path)}` is not among the outputs that are kept of {unit}"
        return Refused(what, hint=f"fleetctl ls {where}")
    names = [str(as_mapping(it).get("name")) for it in _as_list(template.get("volumes"))]
    if kept:
        what = (
            f"{unit} left the files of its work directory, and `{escape_line(path)}` is "
            f"not among them"
        )
    elif seen.status.get("scratchFreed"):
        what = f"{unit} has ended ({task.state.lower()}), and what it left is past retention"
    else:
        what = f"{unit} has ended ({task.state.lower()}), and its own disk was deleted with it"
    if names:
        stays = f"its volumes stay: fleetctl ls volume/{escape_line(names[0])}"
    else:
        stays = "`template.outputs` keeps files of a task, and a volume what tasks write to it"
    results = f"what it submitted: fleetctl results {escape_line(seen.key)}"
    local = "; on `local` a failed task's files are kept too" if not kept else ""
    return Refused(what, hint=f"{stays}{local}; {results}")


def _as_list(value: object) -> list[object]:
    if isinstance(value, list):
        return value
    return []
