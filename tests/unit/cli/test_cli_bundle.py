"""`bundle`: what is in it, and what never is."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import pytest

from fleetctl.cli.main import run_guarded
from fleetctl.cli.output.screen import Screen
from fleetctl.common.state_paths import LOG
from fleetctl.controllers.model import Resource
from fleetctl.stores.sqlite.store import open_store

CANARIES = ("hunter2-env", "hunter2-stored", "hunter2-file", "ak-hunter2hunter2", "dtn_hunter2222")


class FixedClock:
    def now_s(self) -> float:
        return 1_800_000_000.0


def fleetctl(*words: str) -> tuple[int, str, str]:
    out, talk = io.StringIO(), io.StringIO()
    code = run_guarded(list(words), Screen(out, talk))
    return code, out.getvalue(), talk.getvalue()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store, logs and crashes in which every canary stands."""
    place, secret = tmp_path / "home", tmp_path / "key.txt"
    secret.write_text("hunter2-file\n")
    monkeypatch.setenv("FLEETCTL_HOME", str(place))
    monkeypatch.setenv("MY_API_KEY", "hunter2-env")
    monkeypatch.chdir(tmp_path)
    env = {"template": {"script": "true", "env": {"MODEL": "hunter2-stored"}}}
    store = open_store(place, FixedClock())
    with store.transaction():
        for number, (kind, name, spec) in enumerate(
            [("BatchJob", "private-name", env), ("Secret", "s", {"fromFile": {"K": str(secret)}})]
        ):
            row = Resource(f"u{number}", kind, name, 1, 0, json.dumps(spec), "", {}, {}, 5.0)
            store.resources.put(row, expected_version=None)
    store.close()
    message = "".join(f"something failed with {one} and token={one}\n" for one in CANARIES)
    (place / LOG).write_text("first line\n" + message)
    (place / "crashes").mkdir()
    (place / "crashes" / "crash-20260101-000000-1.log").write_text(f"ZeroDivisionError\n{message}")
    return place


def parts(file: Path) -> dict[str, str]:
    with tarfile.open(file) as archive:
        return {
            entry.name.partition("/")[2]: archive.extractfile(entry).read().decode()  # type: ignore[union-attr]
            for entry in archive
        }


@pytest.mark.usefixtures("home")
def test_a_bundle_has_what_a_report_needs_and_says_so(tmp_path: Path) -> None:
    code, out, talk = fleetctl("bundle", "report.tar.gz")
    assert (code, out) == (0, "report.tar.gz\n")
    held = parts(tmp_path / "report.tar.gz")
    assert set(held) == {
        "about.json", "doctor.json", "store.json", LOG, "crashes/crash-20260101-000000-1.log",
    }  # fmt: skip
    assert [name for name in held if name not in talk] == []
    assert "first line" in held[LOG]
    assert json.loads(held["store.json"])["objects"] == {"BatchJob Pending": 1, "Secret Pending": 1}
    assert json.loads(held["store.json"])["files"]["store/state.db"]["rows"]["resources"] == 2
    assert "python" in json.loads(held["about.json"])
    assert {one["topic"] for one in json.loads(held["doctor.json"])} >= {"state", "disk", "local"}
    assert (tmp_path / "report.tar.gz").stat().st_mode & 0o077 == 0


@pytest.mark.usefixtures("home")
def test_no_secret_no_value_of_an_environment_and_no_name_is_in_a_bundle(tmp_path: Path) -> None:
    assert fleetctl("bundle", "report.tar.gz")[0] == 0
    text = "".join(parts(tmp_path / "report.tar.gz").values())
    assert [one for one in (*CANARIES, "private-name") if one in text] == []
    assert "***" in text


@pytest.mark.usefixtures("home")
def test_a_file_that_is_there_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "report.tar.gz").write_text("mine")
    code, _, talk = fleetctl("bundle", "report.tar.gz")
    assert code == 3 and "is there already" in talk
    assert (tmp_path / "report.tar.gz").read_text() == "mine"


def test_a_store_that_cannot_be_read_is_bundled_as_such(home: Path, tmp_path: Path) -> None:
    (home / "store" / "state.db").write_bytes(b"no database" * 500)
    assert fleetctl("bundle", "report.tar.gz")[0] == 0
    held = json.loads(parts(tmp_path / "report.tar.gz")["store.json"])
    assert "error" in held and "not a database" in held["files"]["store/state.db"]["error"]


def test_where_nothing_was_ever_run_a_bundle_tells_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEETCTL_HOME", str(tmp_path / "none"))
    monkeypatch.chdir(tmp_path)
    code, out, _ = fleetctl("bundle")
    assert code == 0 and out.startswith("fleetctl-bundle-")
    assert not (tmp_path / "none").exists()
