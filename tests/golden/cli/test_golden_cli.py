"""Every screen, compared with a file. A file is a script: commands, and what they answered.

After a wanted change: `FLEETCTL_GOLDEN=write pytest tests/golden/cli`, then read the difference.
"""

from __future__ import annotations

import io
import json
import os
import shlex
import shutil
from contextlib import nullcontext
from pathlib import Path

import pytest
import yaml

from fleetctl.cli.main import run_guarded
from fleetctl.cli.output.screen import Screen
from fleetctl.common.clock import SystemClock
from tests.cli_controller import controller
from tests.golden.cli.cli_world import NOW_S, build

HERE = Path(__file__).parent
PROMPT = "$ fleetctl "
ON_A_TERMINAL = "  # on a terminal"
MANIFESTS = {
    "done.yaml": [("BatchJob", "nightly-ev"), ("Sweep", "seed"), ("Volume", "ckpt")],
    "failed.yaml": [("BatchJob", "resize"), ("BatchJob", "nightly-ev")],
    "running.yaml": [("BatchJob", "embed-docs"), ("BatchJob", "big-eval"), ("BatchJob", "paused")],
    "refused.yaml": [("BatchJob", "docker")],
    "volume.yaml": [("Volume", "ckpt")],
    "gone.yaml": [("BatchJob", "leaving")],
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("golden") / "home"
    build(place)
    return place


def answered(command: str) -> str:
    """stdout as it is, stderr with `2> ` before each line, an exit code that is not 0 last."""
    terminal = command.endswith(ON_A_TERMINAL)
    words = shlex.split(command.removesuffix(ON_A_TERMINAL))
    # Through a text layer over bytes, as a process has it.
    raw, talk = io.BytesIO(), io.StringIO()
    out = io.TextIOWrapper(raw, encoding="utf-8", errors="backslashreplace", newline="")
    screen = Screen(out, talk, out_is_terminal=terminal, talk_is_terminal=terminal)
    code = run_guarded(words, screen)
    out.flush()
    text = raw.getvalue().decode("utf-8", "backslashreplace")
    message = "".join(f"2> {line}\n" for line in talk.getvalue().splitlines())
    return text + message + (f"exit {code}\n" if code else "")


def stored(line: bytes) -> bytes:
    """What a controller answers that finds every object of a manifest as it is desired."""
    (text,) = (document["text"] for document in json.loads(line)["documents"])
    keys = [f"{desired['kind'].lower()}/{desired['name']}" for desired in yaml.safe_load_all(text)]
    results = [{"key": key, "outcome": "unchanged", "message": ""} for key in keys]
    return json.dumps({"ok": True, "results": results, "warnings": []}).encode() + b"\n"


def write_manifests() -> None:
    """One for each way to end, as far as `stored` reads them."""
    for name, manifests in MANIFESTS.items():
        documents = [f"{{kind: {kind}, name: {desired}}}\n" for kind, desired in manifests]
        Path(name).write_text("---\n".join(documents), encoding="utf-8")
    for path in (HERE / "manifests").iterdir():
        shutil.copy(path, path.name)


@pytest.mark.parametrize("script", sorted(HERE.glob("*.txt")), ids=lambda path: path.stem)
def test_screens_are_as_recorded(
    script: Path, home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FLEETCTL_HOME", str(home))
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("HF_TOKEN", "HF_HOME"):
        monkeypatch.setenv(name, "x")  # a Secret of set.yaml has its values from them
    for name in ("MODAL_TOKEN_ID", "DAYTONA_API_KEY", "DAYTONA_JWT_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MODAL_CONFIG_PATH", str(tmp_path / "none.toml"))
    monkeypatch.setattr(SystemClock, "now_s", lambda _: NOW_S)
    monkeypatch.chdir(tmp_path)
    recorded = script.read_bytes().decode()
    commands = [line for line in recorded.split("\n") if line.startswith(PROMPT)]
    write_manifests()
    with controller(home, stored) if script.stem == "apply" else nullcontext():
        played = "\n".join(
            f"{line}\n{answered(line.removeprefix(PROMPT))}".replace(str(home), "$FLEETCTL_HOME")
            for line in commands
        )
    if os.environ.get("FLEETCTL_GOLDEN") == "write":
        script.write_bytes(played.encode())
    assert played == recorded


def test_every_verb_has_a_recorded_screen() -> None:
    from fleetctl.cli.command.verbs import VERBS

    recorded = "".join(path.read_text(encoding="utf-8") for path in HERE.glob("*.txt"))
    for verb in VERBS:
        assert f"{PROMPT}{verb} " in recorded, verb
