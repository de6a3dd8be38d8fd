"""What no test may do: reach beyond this machine, or leave the environment or the working directory
changed, or many descriptors open, for the tests after it. tests/conftest.py puts this into every
ring.

Only `python -m tests.live`, which is about the real services, asks for BEYOND.
"""

from __future__ import annotations

import gc
import ipaddress
import os
import socket
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.authorities import forget_authorities

BEYOND = "--beyond-loopback"
# Nothing listens there, and no rights are needed to find that out: a connection is refused at once.
NOBODY = "http://127.0.0.1:9"
# Programs that tests start are not seen by the hook below; their SDKs find nobody, unless a fixture
# names its emulator.
SERVICES = {"MODAL_SERVER_URL": NOBODY, "DAYTONA_API_URL": f"{NOBODY}/api"}
# What provider `modal` sets in its own process, as the SDK has no other way; from the beginning, so
# that no test depends on the ones before it. A fixture may take it out; the provider sets it again.
ALWAYS = {"MODAL_MAX_THROTTLE_WAIT": "0"}
ACCOUNTS = ("MODAL_", "DAYTONA_")
NAMES_HERE = {"", "localhost", "localhost.localdomain", socket.gethostname()}
# pytest changes its own between the phases of a test.
FREE = {"PYTEST_CURRENT_TEST", *ALWAYS}
# A test leaves a dozen at most today, and some of them are garbage that is not collected yet. A
# process has 1,024 by default, and `select` takes no descriptor above that number.
DESCRIPTORS_LEFT_MAX = 128


class BeyondLoopback(Exception):
    """Code under test may take it for a failure of its own; the test fails all the same."""


_reached: list[str] = []
_hearing: list[bool] = []  # not empty once the hook is there, also in forks


def begin(*, beyond: bool) -> None:
    """For this process, once and for good, as Python forgets no audit hook; and for its children
    that read the environment.
    """
    if not beyond:
        for name in [name for name in os.environ if name.startswith(ACCOUNTS)]:
            del os.environ[name]
        os.environ.update(SERVICES)
        forget_authorities()
        if not _hearing:
            sys.addaudithook(_hear)
            _hearing.append(True)
    os.environ.update(ALWAYS)


def _hear(event: str, args: tuple[Any, ...]) -> None:
    if event in ("socket.connect", "socket.sendto"):
        one, address = args
        # A Unix socket is here, a netlink one is the kernel; of others the host comes first.
        if one.family in (socket.AF_INET, socket.AF_INET6):
            _check(event, address[0])
    elif event in ("socket.getaddrinfo", "socket.gethostbyname"):
        _check(event, args[0])


def _check(event: str, host: str | bytes | None) -> None:
    name = host.decode("ascii", "replace") if isinstance(host, bytes) else host
    if name is None or name in NAMES_HERE or name.endswith(".localhost") or _is_loopback(name):
        return
    _reached.append(f"{event} {name}")
    raise BeyondLoopback(f"a test reaches for `{name}`; tests stay on loopback")


def _is_loopback(host: str) -> bool:
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


@pytest.fixture(autouse=True)
def _leaves_the_process_as_it_was() -> Iterator[None]:
    """Begins before all other fixtures of a test and ends after them; puts back what it blames."""
    variables, directory, descriptors = dict(os.environ), os.getcwd(), _descriptors()
    yield
    blamed = [*_reached]
    _reached.clear()
    if _descriptors() - descriptors > DESCRIPTORS_LEFT_MAX:
        gc.collect()
        if (left := _descriptors() - descriptors) > DESCRIPTORS_LEFT_MAX:
            blamed.append(f"{left} more descriptors are open than before")
    if (now := _directory()) != directory:
        os.chdir(directory)
        blamed.append(f"working directory is {now} and was {directory}")
    if changed := _changed(variables):
        os.environ.clear()
        os.environ.update(variables)
        blamed.append(f"environment differs in {', '.join(changed)}")
    assert not blamed, "; ".join(blamed)


def _descriptors() -> int:
    return len(os.listdir("/dev/fd"))


def _directory() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        return "gone"


def _changed(before: dict[str, str]) -> list[str]:
    names = {*before, *os.environ} - FREE
    return sorted(name for name in names if before.get(name) != os.environ.get(name))
