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
from fleetctl.cli.targets.volume import VolumePath
from fleetctl.common.errors import NotFound, Refused
from fleetctl.common.remote import REMOTE
from fleetctl.common.state_paths import find_state_dir
from fleetctl.common.text import escape_line
from fleetctl.controllers.model import LIVE_STATES
from fleetctl.views.accounts import load_accounts
from fleetctl.views.exec_targets import describe_task, template_of
from fleetctl.views.kinds import Target, kind_of
from fleetctl.views.objects import View, as_mapping
from fleetctl.views.run_outputs import TaskOutputs, find_task_outputs
from fleetctl.views.store_reading import StoreReading, must_find, open_reading

if TYPE_CHECKING:
    from fleetctl.providers.contract.account import Account
    from fleetctl.providers.rundir.kept_outputs import KeptOutputs
    from fleetctl.views.tasks import Task


class EndedTaskPath(NamedTuple):
    """The location of a path of an ended task: in a volume, in its kept outputs, or in the work
    directory that it left on this machine.

    top: the directory of all that the task left; links must not lead out of it.
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
    """Returns the location of a path of an ended task; None for a running task, and where `wanted`
    and `index` name no single task: then the caller enters the running task.

    Raises NotFound for a path that the task did not leave, and Refused for one that was deleted.
    """
    with open_reading(find_state_dir()) as reading:
        seen = must_find(wanted, reading)
        task = _find_ended_task(seen, index, reading) if seen.kind.runs else None
        if task is None:
            return None
        template = template_of(seen, task.run)
        account = load_accounts(reading).get(task.run.provider)
        outputs = find_task_outputs(find_state_dir(), seen, task, reading)
    volume = _find_volume_path(template, path, seen.resource.namespace)
    if volume is not None:
        return EndedTaskPath(volume, Path(), Path())
    work_dir = _find_work_dir(seen, task, account)
    if outputs is not None and work_dir is None and select_outputs(outputs.kept, path):
        return EndedTaskPath(None, Path(), Path(), outputs.kept)
    if work_dir is None or path.startswith("/"):
        raise _explain_missing_path(
            seen,
            task,
            template,
            path,
            has_work_dir=work_dir is not None,
            outputs=outputs,
        )
    location = Path(os.path.realpath(work_dir / path))
    top = work_dir.parent.resolve()
    if not location.is_relative_to(top) or not location.exists():
        raise NotFound(
            f"{describe_task(seen, task.run)} of {escape_line(seen.key)} left no "
            f"`{escape_line(path)}`",
            hint=f"fleetctl cp "
            f"{escape_line(seen.resource.kind.lower())}/{escape_line(seen.resource.name)}:"
            f"{task.run.index}/. ./left   copies all that it left",
        )
    return EndedTaskPath(None, location, top)


def copy_left_files(
    left: EndedTaskPath,
    path: str,
    target: str,
) -> CopySummary:
    """Copies files that a task left to `target`, by the rules of a copy out of a running task.

    path: as the user wrote it; `dir/.` copies the content of `dir`.
    """
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


def _find_volume_path(
    template: Mapping[str, object],
    path: str,
    namespace: str,
) -> VolumePath | None:
    """Returns the volume, and the path in it, that the task saw at `path`; None for a path in
    none.
    """
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
    """Returns the work directory that the task left on this machine; None where there is none.

    account: None for a provider whose object was deleted, and its disks with it.
    """
    if account is None or REMOTE.get() is not None:
        return None
    from fleetctl.wiring.plugins import find_left_files

    return find_left_files(account.sort, find_state_dir(), seen.resource.uid, task.run.name)


def _explain_missing_path(
    seen: View,
    task: Task,
    template: Mapping[str, object],
    path: str,
    *,
    has_work_dir: bool,
    outputs: TaskOutputs | None,
) -> Refused:
    """Returns the refusal for a path that is not there, with the setting that would have kept
    it.
    """
    unit = f"{describe_task(seen, task.run)} of {escape_line(seen.key)}"
    if outputs is not None:
        where = f"{escape_line(seen.key)}:{task.run.index}"
        what = f"`{escape_line(path)}` is not among the outputs that are kept of {unit}"
        return Refused(what, hint=f"fleetctl ls {where}")
    names = [str(as_mapping(it).get("name")) for it in _as_list(template.get("volumes"))]
    if has_work_dir:
        what = (
            f"{unit} left the files of its work directory, and `{escape_line(path)}` is "
            f"not among them"
        )
    elif seen.status.get("scratchFreed"):
        what = f"{unit} has ended ({task.state.lower()}), and what it left is past retention"
    else:
        what = f"{unit} has ended ({task.state.lower()}), and its own disk was deleted with it"
    if names:
        advice = f"its volumes stay: fleetctl ls volume/{escape_line(names[0])}"
    else:
        advice = "`template.outputs` keeps files of a task, and a volume what tasks write to it"
    results = f"what it submitted: fleetctl results {escape_line(seen.key)}"
    local = "; on `local` a failed task's files are kept too" if not has_work_dir else ""
    return Refused(what, hint=f"{advice}{local}; {results}")


def _as_list(value: object) -> list[object]:
    if isinstance(value, list):
        return value
    return []
