"""Commands in odd surroundings, each a process of its own: streams that are closed or full, no home
directory, a state directory that takes no bytes, another locale. Always a line, never a traceback.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.golden.cli.cli_world import build
from tests.unit.cli.ending import end

FLEETCTL = f"{sys.executable} -m fleetctl.cli.main"
# Room for the log of a controller, and for nothing of a store.
TINY = "ulimit -f 1; "


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    place = tmp_path_factory.mktemp("streams") / "home"
    build(place)
    yield place
    end(place)


def shell(
    line: str, home: Path, *, without: tuple[str, ...] = (), **env: str
) -> subprocess.CompletedProcess[str]:
    """`fleetctl` in `line` is the command."""
    kept = {name: value for name, value in os.environ.items() if name not in without}
    return subprocess.run(
        ["bash", "-c", line.replace("fleetctl", FLEETCTL, 1)],
        env={**kept, "FLEETCTL_HOME": str(home), **env}
        if "FLEETCTL_HOME" not in without
        else {**kept, **env},
        cwd=home.parent,
        capture_output=True,
        text=True,
        errors="backslashreplace",
        check=False,
    )


@pytest.mark.parametrize(
    ("line", "code", "says"),
    [
        ("fleetctl get jobs >&-", 0, ""),
        ("fleetctl get jobs >&- 2>&- <&-", 0, ""),
        ("fleetctl get nothing 2>&-", 2, ""),
        ("fleetctl get nothing 2>/dev/full", 2, ""),
        ("fleetctl apply -f - <&-", 2, "there is no manifest here"),
        ("fleetctl get jobs >/dev/full", 1, "the output cannot be written: no space left on"),
        ("fleetctl get all -o json >/dev/full", 1, "the output cannot be written"),
        ("fleetctl --help >/dev/full", 1, "the output cannot be written"),
        (f"{TINY}PYTHONUNBUFFERED=1 fleetctl get all -o json >out", 1, "file too large"),
        (f"{TINY}fleetctl get all -o json >out", 1, "the output cannot be written: file too large"),
        ("fleetctl get jobs | true; exit ${PIPESTATUS[0]}", 0, ""),
        ("fleetctl get nothing 2>&1 >/dev/null | true; exit ${PIPESTATUS[0]}", 2, ""),
        (r"fleetctl get job/$'\xff\xfe'", 2, r"`job/\udcff\udcfe` is not UTF-8 text"),
        (r"fleetctl apply -f $'\xff'", 4, "there is no file or directory"),
        ("mkdir gone; cd gone; rmdir ../gone; fleetctl get jobs", 0, ""),
        ("mkdir gone; cd gone; rmdir ../gone; FLEETCTL_HOME=x fleetctl get jobs", 2, "is gone"),
        ("ulimit -n 7; fleetctl get jobs", 1, "cannot be "),
    ],
)
def test_a_stream_that_fails_is_a_line_and_a_code(
    line: str, code: int, says: str, world: Path
) -> None:
    done = shell(line, world)
    assert "Traceback" not in done.stderr and "has a bug" not in done.stderr
    assert says in done.stderr
    assert done.returncode == code, done.stderr


@pytest.mark.parametrize("locale", ["C", "POSIX", "C.UTF-8", "xx_YY"])
def test_a_screen_is_the_same_in_every_locale(locale: str, world: Path) -> None:
    plain = {"LC_ALL": locale, "LANG": locale, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    for words in ("get all", "describe job/hostile", "logs job/hostile", "events"):
        done = shell(f"fleetctl {words}", world, **plain)
        assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr


@pytest.mark.parametrize(
    "env",
    [
        {"FLEETCTL_HOME": "~nobody-of-that-name/x"},
        {"HOME": "/nonexistent", "XDG_STATE_HOME": ""},
        {"HOME": "/proc/nope"},
        {"FLEETCTL_HOME": "/proc/1/nope"},
    ],
)
def test_a_home_that_cannot_be_is_told(env: dict[str, str], world: Path) -> None:
    (world.parent / "good.yaml").write_text(
        "apiVersion: fleetctl.dev/v1alpha1\nkind: BatchJob\nmetadata: {name: x}\n"
        "spec: {template: {script: 'true'}}\n"
    )
    done = shell("fleetctl get jobs", world, without=("FLEETCTL_HOME", "HOME"), **env)
    assert done.returncode in (0, 2) and "Traceback" not in done.stderr
    if "HOME" in env and env["HOME"].startswith("/non"):
        return  # whoever may write to / can make it
    done = shell("fleetctl apply -f good.yaml", world, without=("FLEETCTL_HOME", "HOME"), **env)
    assert done.returncode in (1, 2) and "Traceback" not in done.stderr
    assert "hint: set FLEETCTL_HOME to a directory on a local disk" in done.stderr


def test_a_disk_without_room_is_told_and_nothing_is_kept(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (tmp_path / "good.yaml").write_text(
        "apiVersion: fleetctl.dev/v1alpha1\nkind: BatchJob\nmetadata: {name: x}\n"
        "spec: {template: {script: 'true'}}\n"
    )
    done = shell(f"{TINY}fleetctl apply -f good.yaml", home)
    assert (done.returncode, "Traceback" in done.stderr) == (1, False), done.stderr
    assert "error: " in done.stderr
    done = shell("fleetctl get jobs", home)
    assert done.stdout == "" and "Traceback" not in done.stderr
