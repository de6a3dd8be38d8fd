"""The check of a real cluster does not rot: the same code, with the emulator as the cluster."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.emulators.kubernetes.running import KubernetesEmulator

ROOT = Path(__file__).parents[2]
# The suite's other tests run in tests/contracts; these two make a volume and lose a machine.
SOME = "volume_outlives or machine_died_is_lost"


@pytest.mark.only_all(reason="whole runs of the checks of real services, against emulators")
@pytest.mark.parametrize("spoilt", [False, True], ids=["well", "spoilt"])
def test_it_runs_the_suite_and_leaves_nothing(spoilt: bool) -> None:
    with KubernetesEmulator() as emulator:
        if spoilt:
            emulator.fault(verb="create", resource="persistentvolumeclaims", code=403, count=10**6)
        before = {it["metadata"]["name"] for it in emulator.objects("namespaces")}
        done = subprocess.run(
            [sys.executable, "-m", "tests.live", "kubernetes", "-k", SOME],
            cwd=ROOT,
            env={**os.environ, **emulator.env},
            capture_output=True,
            text=True,
        )
        assert done.returncode == int(spoilt), done.stdout + done.stderr
        assert ("1 failed" if spoilt else "2 passed") in done.stdout
        assert {it["metadata"]["name"] for it in emulator.objects("namespaces")} == before
        for plural, group in (("jobs", "batch"), ("pods", ""), ("persistentvolumeclaims", "")):
            assert emulator.objects(plural, group) == []
        assert emulator.processes() == []
