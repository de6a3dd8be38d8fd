"""`fleetctl apply --watch`: applies the files again at every save of a path that they name, until
Ctrl-C.

An error is printed, and the old state stays: a file in the middle of an edit stops no work. The
command never asks; a loss of running work needs `--yes`.
"""

from __future__ import annotations

import os
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.cli.apply.request import print_outcomes, send_apply, with_sweeps
from fleetctl.cli.follow.wait_supervisor import report_detached
from fleetctl.cli.output.screen import Screen
from fleetctl.cli.targets.files import documents_of, parse_assignment
from fleetctl.common.errors import FleetctlError, NotFound
from fleetctl.common.state_paths import find_state_dir
from fleetctl.common.text import escape_line
from fleetctl.daemon.client.socket_client import results_of
from fleetctl.manifest.files.documents import SUFFIXES

if TYPE_CHECKING:
    from fleetctl.manifest.files.documents import Document


# An editor writes a file in several steps, some milliseconds apart; a save has ended when the file
# is quiet for so long. Beyond the second bound it is read as it is.
QUIET_MS = 10
NOISY_MS_MAX = 60
# Finds changes without a notification (on a network disk, or just before the watching began).
LOOK_EVERY_MS = 250
# Editors that save by renaming remove the file for a moment.
AWAY_S = 0.5
AWAY_LOOK_S = 0.01
DATA_SUFFIXES = (".jsonl", ".ndjson", ".csv")  # of `tasks.fromFile`

POLL_S = 2.0  # where the system reports no changes, such as for want of watches
ASK_MS = 1  # the watcher collects by itself; a call takes the collected changes


def watch_manifests(
    args: Namespace,
    order: Mapping[str, object],
    screen: Screen,
) -> int:
    """Returns 130 after Ctrl-C. Raises NotFound when a file is missing at the start."""
    files: Sequence[str] = args.files
    turns = _WatchState(order, screen)
    read = partial(_read_files, args)
    turns.take(read())
    announced = False
    code = SourceWatcher()
    try:
        for touched in _watch_saves([*files, *args.values], recursive=args.recursive):
            if not announced:
                # The watching has begun by the first look: an earlier message could be untrue.
                screen.talk(
                    f"watching {' '.join(map(escape_line, files))}; Ctrl-C ends the watching"
                )
                announced = True
            documents = _load_documents(read, screen)
            touched = code.has_touched(turns.read) or touched
            if documents is not None and (touched or documents != turns.seen):
                turns.take(documents)
    except KeyboardInterrupt:
        pass
    keys = [key for key in turns.keys if not key.startswith(("volume/", "secret/"))]
    again = " ".join(f"-f {name}" for name in files) + (" -R" if args.recursive else "")
    again += "".join(f" --values {it}" for it in args.values)
    again += "".join(f" --set {it}" for it in args.set)
    return report_detached(keys or list(turns.keys), f"fleetctl apply {again} --watch", screen)


class _WatchState:
    """The state of the last apply, so that only changes are printed."""

    def __init__(self, order: Mapping[str, object], screen: Screen) -> None:
        self._order = order
        self._screen = screen
        self._told = ""  # the last error: printed once, however often the file is touched
        self.seen: list[Document] | None = None
        # The paths in the manifests: data files, directories of code.
        self.read: tuple[str, ...] = ()
        self.keys: dict[str, None] = {}

    def take(self, documents: list[Document]) -> None:
        first = self.seen is None
        self.seen = documents
        try:
            # No question to the user: a user who edits looks at the editor.
            order = {**self._order, "tellRead": True}
            reply = send_apply(
                find_state_dir(),
                documents,
                order,
                self._screen,
                piped=True,
            )
        except FleetctlError as error:
            if str(error) != self._told:
                self._screen.talk(f"-- {time.strftime('%H:%M:%S')}")
                self._screen.report(error)
                self._screen.talk("nothing was applied; the old state stays")
            self._told = str(error)
            # The bases of overlays may hold the error, and need to be read again.
            self.read = tuple(dict.fromkeys((*self.read, *_bases_of(documents))))
            return
        self._told = ""
        read = reply.get("read")
        self.read = tuple(map(str, read)) if isinstance(read, list) else ()
        results = results_of(reply)
        for result in results:
            key = str(result.get("key", ""))
            if result.get("outcome") == "pruned":
                self.keys.pop(key, None)
            else:
                self.keys[key] = None
        news = [it for it in results if first or it.get("outcome") != "unchanged"]
        if news:
            self._screen.talk(f"-- {time.strftime('%H:%M:%S')}")
        print_outcomes(news, reply if news else {}, self._screen)
        self._screen.flush()


def _read_files(args: Namespace) -> list[Document]:
    """Reads the documents. The loader reports a setting without a variable: variables come and go
    with edits."""
    found = documents_of(
        args.files,
        values=args.values,
        recursive=args.recursive,
        may_be_empty=args.prune,
    )
    return [*with_sweeps(found, args), *map(parse_assignment, args.set)]


def _bases_of(documents: Sequence[Document]) -> tuple[str, ...]:
    if not any("Overlay" in it.text for it in documents):
        return ()
    from fleetctl.manifest.rendering.render import bases_named

    return bases_named(documents)


def _watch_saves(files: Sequence[str], *, recursive: bool) -> Iterator[bool]:
    """Yields after every save, and at intervals: true where a file of data was touched, whose
    content is not in the manifests.
    """
    import watchfiles

    places = {Path(name) if Path(name).is_dir() else Path(name).absolute().parent for name in files}
    for changes in watchfiles.watch(
        *places,
        watch_filter=lambda _, path: path.endswith((*SUFFIXES, *DATA_SUFFIXES)),
        debounce=NOISY_MS_MAX,
        step=QUIET_MS,
        rust_timeout=LOOK_EVERY_MS,
        yield_on_timeout=True,
        recursive=recursive,
    ):
        yield any(path.endswith(DATA_SUFFIXES) for _, path in changes)


def _load_documents(read: Callable[[], list[Document]], screen: Screen) -> list[Document] | None:
    """Returns the files as they are; None, after a while and with a message, when one is
    missing."""
    until_s = time.monotonic() + AWAY_S
    while True:
        try:
            return read()
        except NotFound as error:
            if time.monotonic() >= until_s:
                screen.warn(f"{error}; the old state stays")
                return None
            time.sleep(AWAY_LOOK_S)


class SourceWatcher:
    """Follows the files that the last apply has read. Reports only that a file was touched; the
    controller finds out if the spec differs.
    """

    def __init__(self) -> None:
        self._read: tuple[str, ...] = ()
        self._files: dict[str, tuple[int, int] | None] = {}
        self._changes: Iterator[object] | None = None
        self._poll_at = 0.0

    def has_touched(self, read: Sequence[str]) -> bool:
        """Returns true where a file was touched since the last call, or may have been."""
        if tuple(read) != self._read:
            self._follow(tuple(read))
            self._has_changed()  # the first call begins the watching
            return True  # no notification reports an edit between the apply and that moment
        before, self._files = self._files, {name: _stat_mark(name) for name in self._files}
        return self._files != before or self._has_changed()

    def _follow(self, read: tuple[str, ...]) -> None:
        self._read = read
        directories = [name for name in read if Path(name).is_dir()]
        self._files = {name: _stat_mark(name) for name in read if name not in directories}
        self._changes = _watch_directories(directories) if directories else iter(())

    def _has_changed(self) -> bool:
        if self._changes is not None:
            try:
                return bool(next(self._changes, ()))
            except (OSError, RuntimeError):
                self._changes = None  # no watches left: poll now and then instead
        now = time.monotonic()
        due = now >= self._poll_at
        if due:
            self._poll_at = now + POLL_S
        return due


def _watch_directories(directories: Sequence[str]) -> Iterator[object]:
    import watchfiles

    return watchfiles.watch(
        *directories,
        debounce=ASK_MS,
        step=ASK_MS,
        rust_timeout=ASK_MS,
        yield_on_timeout=True,
        recursive=True,
    )


def _stat_mark(name: str) -> tuple[int, int] | None:
    """Returns a mark that changes with every save; None for a missing file."""
    try:
        found = os.stat(name)  # a few times a second
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino
