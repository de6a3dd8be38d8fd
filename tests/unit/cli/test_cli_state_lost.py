"""A state directory that is damaged, emptied, full or not ours: said by every verb, with the way
back.
"""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path

import pytest

from fleetctl.cli.main import run_guarded
from fleetctl.cli.output.screen import Screen
from fleetctl.common.errors import StoreError
from fleetctl.common.state_paths import LAST_BACKUP, STATE_DB
from fleetctl.daemon.client.socket_client import send_request
from tests.unit.stores.asking_world import build_costs
from tests.unit.stores.stores_disks import on_a_small_disk


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FLEETCTL_HOME", str(tmp_path / "home"))
    build_costs(tmp_path / "home")
    return tmp_path / "home"


def run(*words: str) -> tuple[int, str]:
    out, talk = io.StringIO(), io.StringIO()
    code = run_guarded(list(words), Screen(out, talk))
    return code, out.getvalue() + talk.getvalue()


READS = [("get", "jobs"), ("describe", "job/x"), ("status",), ("events",), ("cost",), ("top",),
         ("query", "select count(*) from attempts"), ("plan", "-f", "-")]  # fmt: skip


@pytest.mark.parametrize("words", READS, ids=lambda words: words[0])
@pytest.mark.parametrize("loss", ["emptied", "removed"])
def test_a_store_that_is_lost_is_no_empty_list(
    home: Path, words: tuple[str, ...], loss: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(JOB)))
    if loss == "emptied":
        (home / STATE_DB).write_bytes(b"")
    else:
        (home / STATE_DB).unlink()
    code, said = run(*words)
    assert code == 1 and "is gone or empty" in said, said
    assert "fleetctl restore" in said


JOB = b"""
apiVersion: fleetctl.dev/v1alpha1
kind: BatchJob
metadata: {name: y}
spec: {completions: 1, template: {script: "true"}}
"""


@pytest.mark.parametrize("words", READS[:-1], ids=lambda words: words[0])
def test_a_damaged_store_is_called_that_with_the_newest_backup(
    home: Path, words: tuple[str, ...], tmp_path: Path
) -> None:
    size = (home / STATE_DB).stat().st_size
    with (home / STATE_DB).open("r+b") as file:  # the header stays: it opens, and then fails
        file.seek(100)
        file.write(b"\xff" * (size - 100))
    code, said = run(*words)
    assert code == 1 and "is damaged" in said, said
    assert "`fleetctl restore FILE` puts back what `fleetctl backup FILE` wrote" in said
    backup = tmp_path / "a copy.tar"
    backup.touch()
    (home / LAST_BACKUP).write_text(json.dumps({"file": str(backup), "at_s": 1e9}))
    assert f"`fleetctl restore {backup}` puts back the backup of 2001-09-09" in run(*words)[1]


def test_a_home_that_is_not_ours_is_said_by_who_asks_the_controller(tmp_path: Path) -> None:
    """Root may do all but connect to what is no socket; here the kernel itself says no."""
    if os.geteuid() == 0:
        program = (
            "import os, sys; from pathlib import Path\n"
            "from fleetctl.daemon.client.socket_client import send_request\n"
            "import fleetctl.daemon.client.lock_holder, encodings.idna\n"
            "who = (65534,) * 3; os.setgroups([]); os.setresgid(*who); os.setresuid(*who)\n"
            "send_request(Path(sys.argv[1]), {'verb': 'ping'})\n"
        )
        import subprocess

        tmp_path.chmod(0o700)
        words = [sys.executable, "-c", program, str(tmp_path / "home")]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert "is not yours to use: permission denied" in done.stderr
        return
    tmp_path.chmod(0)
    try:
        with pytest.raises(StoreError, match="is not yours to use: permission denied"):
            send_request(tmp_path / "home", {"verb": "ping"})
    finally:
        tmp_path.chmod(0o700)


def test_a_full_disk_is_said_where_objects_wait(tmp_path: Path) -> None:
    program = (
        "import os, sys; from pathlib import Path\n"
        "os.environ['FLEETCTL_HOME'] = sys.argv[1]\n"
        "from tests.unit.stores.asking_world import build_costs\n"
        "build_costs(Path(sys.argv[1]))\n"
        "from fleetctl.cli.main import main\n"
        "main(['get', 'jobs'])\n"
    )
    (tmp_path / "home").mkdir()
    command = [sys.executable, "-c", program, str(tmp_path / "home")]
    done = on_a_small_disk(tmp_path / "home", "3m", command)
    assert "is full (" in done.stderr and "tasks and the controller cannot write" in done.stderr
    assert done.stdout.splitlines()[1].startswith("x ")
