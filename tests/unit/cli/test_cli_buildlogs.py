"""`logs --build -f`: lines as they come, and an end when nothing is built any more."""

from __future__ import annotations

import io
import json
import threading
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetctl.cli.follow import logs
from fleetctl.cli.output.screen import Screen
from fleetctl.cli.show import describe
from fleetctl.controllers.model import Resource, Run, RunState
from fleetctl.providers.rundir.build_logs import BuildLog, link_log
from fleetctl.stores.sqlite.store import SqliteStore, open_store
from fleetctl.views.kinds import parse_target
from fleetctl.views.store_reading import must_find, open_reading

FOLLOW = Namespace(follow=True, failed=False, index=None, attempt=None, previous=False, tail=None)


class FixedClock:
    def now_s(self) -> float:
        return 1_800_000_000.0


class Silent:
    """A controller is not what these tests are about."""

    def __init__(self, *_: object) -> None:
        pass

    def __enter__(self) -> Silent:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def check(self) -> None:
        pass


class Spoken(io.StringIO):
    """What was printed; `says` waits until it holds a text."""

    def __init__(self) -> None:
        super().__init__()
        self._more = threading.Condition()

    def write(self, text: str) -> int:
        with self._more:
            count = super().write(text)
            self._more.notify_all()
        return count

    def says(self, text: str) -> bool:
        with self._more:
            return self._more.wait_for(lambda: text in self.getvalue(), timeout=60)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SqliteStore]:
    """One job that has begun its first run."""
    monkeypatch.setattr(logs, "WaitSupervisor", Silent)
    made = open_store(tmp_path, FixedClock())
    with made.transaction():
        row = Resource("u", "BatchJob", "x", 1, 0, "{}", "{}", {}, {}, 5.0)
        made.resources.put(row, expected_version=None)
        run = Run(
            name="r", uid="u", index=0, attempt=1, state=RunState.STARTING, provider="modal",
            sandbox="r", template_hash="t", params="{}", params_hash="p", created_at_s=5.0,
        )  # fmt: skip
        made.runs.begin([run])
    yield made
    made.close()


def followed(home: Path, out: io.StringIO) -> int:
    with open_reading(home) as reading:
        seen = must_find(parse_target("job/x"), reading)
        return logs.show_build_logs(home, seen, FOLLOW, reading, Screen(out, io.StringIO()))


def test_lines_are_shown_while_the_image_is_built(store: SqliteStore, tmp_path: Path) -> None:
    log = tmp_path / "modal" / "builds" / "k.log"
    link_log(tmp_path / "modal" / "jobs" / "u", log)
    out, codes = Spoken(), []
    with BuildLog(log) as written:
        written.write("=> RUN make\nhalf a ")
        thread = threading.Thread(target=lambda: codes.append(followed(tmp_path, out)))
        thread.start()
        assert out.says("=> RUN make\n")
        assert "half" not in out.getvalue()
        written.write("line\nthe last one")
        assert out.says("half a line\n")
        assert thread.is_alive()
    thread.join(60)
    assert codes == [0]
    assert out.getvalue() == "=> RUN make\nhalf a line\nthe last one\n"


def test_a_log_that_is_not_there_yet_is_waited_for(store: SqliteStore, tmp_path: Path) -> None:
    out, codes = Spoken(), []
    thread = threading.Thread(target=lambda: codes.append(followed(tmp_path, out)))
    thread.start()
    log = tmp_path / "modal" / "builds" / "k.log"
    link_log(tmp_path / "modal" / "jobs" / "u", log)
    with BuildLog(log) as written:
        written.write("here\n")
        assert out.says("here\n")
    thread.join(60)
    assert (codes, out.getvalue()) == ([0], "here\n")


def test_describe_says_that_the_image_is_being_built_until_it_is(
    store: SqliteStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEETCTL_HOME", str(tmp_path))
    status = {"observedGeneration": 1, "reason": "InProgress", "active": 1, "starting": 1}
    with store.transaction():
        row = store.resources.of("u")
        assert row is not None
        store.resources.put_status("u", json.dumps(status), expected_version=row.version)
    log = tmp_path / "local" / "envs" / "k.log"
    link_log(tmp_path / "local" / "jobs" / "u", log)
    with BuildLog(log):
        shown = described()
        assert "Why:         the image is being built" in shown
        assert "Fix:         fleetctl logs --build batchjob/x -f" in shown
    assert not any(line.startswith(("Why:", "Fix:")) for line in described())


def described() -> list[str]:
    out = io.StringIO()
    words = Namespace(object="job/x", name=None, namespace="default")
    assert describe.run(words, Screen(out, io.StringIO())) == 0
    return out.getvalue().splitlines()
