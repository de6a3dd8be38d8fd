"""A plugin of pytest by which a worker takes the list of all tests from the process that it was
forked from, and collects a file when the first test of it is to run.

The process of __main__.py collects all tests once, with `CollectedTests`, and forks. A worker walks
the directories, so that each conftest.py and the nodes of files are there, reports the list as its
own, and makes the items of those files alone whose tests pytest-xdist gives to it: a collection of
all takes three seconds of CPU, in each of twelve workers. Where the list is empty, as after an
error, a worker collects everything itself and reports the error.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, overload

import pytest

from tests.order import in_turns

_known: list[str] = []  # node ids, in the order of all workers; forks have it


class CollectedTests:
    """A plugin of the process that forks: keeps the node ids of a collection without an error."""

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        _known[:] = [] if session.testsfailed else in_turns(item.nodeid for item in session.items)
        for item in session.items:
            for mark in item.iter_markers("parametrize"):
                forget_ids(mark)


def forget_ids(mark: pytest.Mark) -> None:
    """Lets the next collection of this process make ids anew: pytest keeps those of a mark, and
    would escape what is escaped in them once more. An iterator of ids has no others.
    """
    if not isinstance(mark.kwargs.get("ids"), Iterator):
        for one in (mark, mark._param_ids_from):
            if one is not None:
                object.__setattr__(one, "_param_ids_generated", None)


@dataclass(frozen=True, slots=True)
class KnownTest:
    """A test that has a name and is not collected yet."""

    nodeid: str


class ItemsOnDemand(Sequence[Any]):
    """The tests of a session by their place: the items of a file are made when one is asked for,
    and iteration yields names alone.

    files: the nodes of all files, by node id.
    """

    def __init__(self, session: pytest.Session, files: dict[str, pytest.File]) -> None:
        self._session, self._files = session, files
        self._items: dict[str, pytest.Item] = {}

    def __len__(self) -> int:
        return len(_known)

    def __iter__(self) -> Iterator[KnownTest]:
        return map(KnownTest, _known)

    @overload
    def __getitem__(self, at: int) -> pytest.Item: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[pytest.Item]: ...
    def __getitem__(self, at: int | slice) -> pytest.Item | Sequence[pytest.Item]:
        if isinstance(at, slice):
            return [self[index] for index in range(*at.indices(len(self)))]
        nodeid = _known[at]
        if nodeid not in self._items:
            self._collect(self._files[nodeid.partition("::")[0]])
        return self._items[nodeid]

    def _collect(self, file: pytest.File) -> None:
        items = [*self._session.genitems(file)]
        config = self._session.config
        config.hook.pytest_collection_modifyitems(session=self._session, config=config, items=items)
        self._items.update((item.nodeid, item) for item in items)


class CollectingOnDemand:
    """A plugin of a worker, which leaves its items to ItemsOnDemand."""

    def __init__(self) -> None:
        self._files: dict[str, pytest.File] | None = {}  # None once the directories were walked

    @pytest.hookimpl(tryfirst=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> pytest.CollectReport | None:
        if self._files is None or not isinstance(collector, pytest.File):
            return None
        self._files[collector.nodeid] = collector
        return pytest.CollectReport(collector.nodeid, "passed", None, [])

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, session: pytest.Session) -> None:
        if self._files is not None:
            # Code of pytest and its plugins takes lengths, places and names of the items.
            session.items = ItemsOnDemand(session, self._files)  # type: ignore[assignment]
            self._files = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> None:
        session.testscollected = len(session.items)


def pytest_configure(config: pytest.Config) -> None:
    if _known and hasattr(config, "workerinput"):
        config.pluginmanager.register(CollectingOnDemand(), "collecting on demand")
