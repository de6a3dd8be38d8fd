"""Runs `validate` on mutated manifests, in this process: each gets a reply without a traceback, in
at most two seconds of CPU.
"""

from __future__ import annotations

import io
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from types import FrameType
from unittest import mock

from fleetctl.cli.apply import validate as verb
from fleetctl.cli.main import run_guarded
from fleetctl.cli.output.screen import Screen
from fleetctl.common.clock import SystemClock
from fleetctl.stores.sqlite.store import open_store
from tests.campaign.mutating import mutated
from tests.campaign.power_cuts import MEMORY
from tests.record.results import ROOT

CODES = (0, 2, 3, 4, 5)  # of a manifest that is right, wrong, refused, or names what is not there
SLOW_S = 2.0  # of CPU, so that a busy machine makes none slow
ENDLESS_S = 30.0
# Files that the manifests of the corpus name.
FILES = {
    "rows.csv": "prompt,answer\na,b\n",
    "rows.jsonl": '{"prompt": "a"}\n',
    "train.py": "print(1)\n",
    "requirements.txt": "numpy\n",
}


class Endless(BaseException):
    """Not an Exception, so that no handler takes it for an error of the manifest."""


def validate_mutated(seed: int, *, count: int) -> tuple[int, list[str]]:
    """Returns (the number of validated manifests, a sentence for each wrong reply)."""
    dice, findings = Random(seed), []
    with _in_a_project():
        for number in range(count):
            manifest = mutated(dice)
            if sentence := validate(manifest):
                findings.append(f"seed {seed}, manifest {number}: {sentence}")
    return count, findings


def validate(manifest: bytes) -> str:
    """Returns the fault of the reply; empty for a correct one."""
    talk, data = io.StringIO(), io.StringIO()
    began_s = time.process_time()
    try:
        with mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(manifest))), _bounded():
            code = run_guarded(["validate", "-f", "-"], Screen(data, talk))
    except Endless:
        return f"no answer after {ENDLESS_S:.0f} s of CPU"
    except BaseException as error:
        return f"{type(error).__name__} came out: {error}"
    took_s = time.process_time() - began_s
    said = talk.getvalue()
    if "has a bug" in said or "Traceback" in said:
        return f"{said.partition('; the details')[0].strip()}; {_traceback(said)}"
    if code not in CODES:
        return f"exit code {code}"
    if code and "error: " not in said:
        return f"exit code {code} without an error: {said}"
    return f"{took_s:.1f} s of CPU" if took_s > SLOW_S else ""


def _traceback(said: str) -> str:
    """The last lines of the file that the line of a bug names, with paths from the root."""
    file = Path(said.partition("details are in `")[2].partition("`")[0])
    lines = file.read_text("utf-8").splitlines()[-5:] if file.is_file() else []
    return " | ".join(it.strip() for it in lines if it.strip("^~ ")).replace(f"{ROOT}/", "")


@contextmanager
def _in_a_project() -> Iterator[Path]:
    """A directory to be in with the files that manifests name, and a state directory of its own."""
    before = Path.cwd()
    with TemporaryDirectory(prefix="fleetctl-manifests-", dir=MEMORY) as folder:
        for name, text in FILES.items():
            Path(folder, name).write_text(text, "utf-8")
        home = Path(folder, "home")
        home.mkdir(mode=0o700)
        # As most users have; without it each manifest would found a store in memory.
        open_store(home, SystemClock()).close()
        os.chdir(folder)
        try:
            with (
                mock.patch.dict(os.environ, {"FLEETCTL_HOME": str(home)}),
                mock.patch.object(verb, "parser", cache(verb.parser)),
            ):
                yield Path(folder)
        finally:
            os.chdir(before)


@contextmanager
def _bounded() -> Iterator[None]:
    """Raises Endless in the block after ENDLESS_S of CPU."""

    def end(number: int, frame: FrameType | None) -> None:
        raise Endless

    before = signal.signal(signal.SIGPROF, end)
    signal.setitimer(signal.ITIMER_PROF, ENDLESS_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
