"""Programs that some tests need and not every machine has: what they are, and how to get them.

    @pytest.mark.needs("zsh")

A test whose program is not here is skipped, and one line at the end of the run has the command that
installs all that was missing. Where FLEETCTL_TEST_NEEDS is `all`, as `.ci/run` sets it, such a test
fails. `python -m tests.needs` installs what is missing, by apt-get.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable

import pytest

# Packages of Debian by program. A test holds that each is needed by some test.
PACKAGES = {
    "bash": "bash",
    "busybox": "busybox",
    "chromium": "chromium",
    "dash": "dash",
    "fish": "fish",
    "git-lfs": "git-lfs",
    "node": "nodejs",
    "npm": "npm",
    "podman": "podman",
    "prometheus": "prometheus",
    "promtool": "prometheus",
    "runc": "runc",
    "munged": "munge",
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "squeue": "slurm-client",
    "systemd-analyze": "systemd",
    "sshd": "openssh-server",
    "zsh": "zsh",
}
MARK = "needs"
RIGHTS = () if os.geteuid() == 0 else ("sudo", "-n")
VARIABLE, EVERYTHING = "FLEETCTL_TEST_NEEDS", "all"
_SKIPPED = re.compile(r"^Skipped: it needs ([^:]+):")


def missing_of(programs: Iterable[str]) -> list[str]:
    """Those that are not on PATH. Raises KeyError for one that has no row above."""
    return [name for name in programs if PACKAGES[name] and shutil.which(name) is None]


def install_command(programs: Iterable[str]) -> str:
    packages = sorted({PACKAGES[name] for name in programs})
    return " ".join([*RIGHTS, "apt-get install -y --no-install-recommends", *packages])


def require(*programs: str) -> None:
    """Skips the test that calls it, or fails it, where a program is missing."""
    missing = missing_of(programs)
    if not missing:
        return
    message = f"it needs {', '.join(missing)}: {install_command(missing)}"
    if os.environ.get(VARIABLE) == EVERYTHING:
        pytest.fail(message, pytrace=False)
    pytest.skip(message)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark in item.iter_markers(MARK):
        require(*mark.args)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line of what is to be installed, and one of what was skipped for another reason."""
    reports = terminalreporter.getreports("skipped")
    lines = [it.longrepr[2] for it in reports if isinstance(it.longrepr, tuple)]
    found = [match for line in lines if (match := _SKIPPED.match(line))]
    missing = sorted({name for match in found for name in match[1].split(", ")})
    if missing:
        terminalreporter.write_line(
            f"{len(found)} tests were skipped for want of {', '.join(missing)}: "
            f"{install_command(missing)}"
        )
    others = Counter(line.removeprefix("Skipped: ") for line in lines if not _SKIPPED.match(line))
    if others:
        reasons = "; ".join(f"{count} as {reason}" for reason, count in others.most_common())
        terminalreporter.write_line(f"{others.total()} tests were skipped: {reasons}")


def install_missing() -> int:
    """The exit code: 0 when all is there, by now or before."""
    missing = missing_of(PACKAGES)
    if not missing:
        return 0
    command = install_command(missing)
    print(f"tests need {', '.join(missing)}: {command}", flush=True)
    if shutil.which("apt-get"):
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        # Without fresh lists an install may still find its packages, so what counts is the result.
        for words in ([*RIGHTS, "apt-get", "update", "-q"], command.split()):
            subprocess.run(words, env=environment, stdin=subprocess.DEVNULL, check=False)
    if still := missing_of(missing):
        print(f"error: {', '.join(still)} is not there; install: {command}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(install_missing())
