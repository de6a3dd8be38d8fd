"""`fleetctl apply --watch`: apply the files again whenever one of them is saved, until Ctrl-C.

What cannot be applied is told, and the old state stays: a file in the middle of an edit stops
nothing. Never asks; what would lose running work needs `--yes`.
"""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.cli.apply.request import apply
from fleetctl.cli.apply.screens.outcomes import show
from fleetctl.cli.apply.watching.reread import Reread
from fleetctl.cli.follow.supervise import detached
from fleetctl.cli.output.render import Screen
from fleetctl.cli.targets.files import assignment, documents_of
from fleetctl.common.errors import FleetctlError, NotFound
from fleetctl.common.home import home
from fleetctl.common.text import safe
from fleetctl.daemon.reach.client import results_of
from fleetctl.manifest.files.documents import SUFFIXES

if TYPE_CHECKING:
    from fleetctl.manifest.files.documents import Document

# An editor writes a file in several steps, some milliseconds apart; a save is over when it is quiet
# for so long. Beyond the second bound it is taken as it is.
QUIET_MS, NOISY_MS_MAX = 10, 60
# What no notification told of (a network disk, the moment before the watching began) is found so.
LOOK_EVERY_MS = 250
# Editors that save by renaming take the file away for a moment.
AWAY_S, AWAY_LOOK_S = 0.5, 0.01
DATA_SUFFIXES = (".jsonl", ".ndjson", ".csv")  # of `tasks.fromFile`


def watch(args: Namespace, order: Mapping[str, object], screen: Screen) -> int:
    """130 after Ctrl-C. Raises NotFound when a file is not there at the start."""
    files: Sequence[str] = args.files
    turns = _Turns(order, screen)
    read = partial(_read, args)
    turns.take(read())
    announced, code = False, Reread()
    try:
        for touched in _saves([*files, *args.values], recursive=args.recursive):
            if not announced:
                # The first look comes when the watching has begun: said earlier it would not hold.
                screen.talk(f"watching {' '.join(map(safe, files))}; Ctrl-C ends the watching")
                announced = True
            documents = _documents(read, screen)
            touched = code.touched(turns.read) or touched
            if documents is not None and (touched or documents != turns.seen):
                turns.take(documents)
    except KeyboardInterrupt:
        pass
    keys = [key for key in turns.keys if not key.startswith(("volume/", "secret/"))]
    again = " ".join(f"-f {name}" for name in files) + (" -R" if args.recursive else "")
    again += "".join(f" --values {it}" for it in args.values)
    again += "".join(f" --set {it}" for it in args.set)
    return detached(keys or list(turns.keys), f"fleetctl apply {again} --watch", screen)


class _Turns:
    """What was applied last, so that only news is told."""

    def __init__(self, order: Mapping[str, object], screen: Screen) -> None:
        self._order = order
        self._screen = screen
        self._told = ""  # the last error: it is told once, however often the file is touched
        self.seen: list[Document] | None = None
        self.read: tuple[str, ...] = ()  # what the manifests name: data files, directories of code
        self.keys: dict[str, None] = {}

    def take(self, documents: list[Document]) -> None:
        first, self.seen = self.seen is None, documents
        try:
            # Nobody is asked: whoever edits looks at the editor.
            order = {**self._order, "tellRead": True}
            reply = apply(home(), documents, order, self._screen, piped=True)
        except FleetctlError as error:
            if str(error) != self._told:
                self._screen.talk(f"-- {time.strftime('%H:%M:%S')}")
                self._screen.error(str(error), hint=error.hint)
                self._screen.talk("nothing was applied; the old state stays")
            self._told = str(error)
            # What overlays are made of may be what is wrong, and is to be looked at again.
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
        show(news, reply if news else {}, self._screen)
        self._screen.flush()


def _read(args: Namespace) -> list[Document]:
    """A setting of what is no variable is told by the loader: variables come and go with edits."""
    found = documents_of(
        args.files, values=args.values, recursive=args.recursive, may_be_empty=args.prune
    )
    return [*found, *map(assignment, args.set)]


def _bases_of(documents: Sequence[Document]) -> tuple[str, ...]:
    if not any("Overlay" in it.text for it in documents):
        return ()
    from fleetctl.manifest.rendering.render import bases_named

    return bases_named(documents)


def _saves(files: Sequence[str], *, recursive: bool) -> Iterator[bool]:
    """After every save, and now and then: whether a file of data was touched, whose content the
    manifests do not tell.
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


def _documents(read: Callable[[], list[Document]], screen: Screen) -> list[Document] | None:
    """The files as they are; None, after a while and with a word, when one is gone."""
    until_s = time.monotonic() + AWAY_S
    while True:
        try:
            return read()
        except NotFound as error:
            if time.monotonic() >= until_s:
                screen.warn(f"{error}; the old state stays")
                return None
            time.sleep(AWAY_LOOK_S)
