"""`make live-modal`: the suite of all providers against the Modal of the environment's token, and
what the emulator only guesses, measured.

Everything is made in an environment of its own at Modal, which is deleted at the end with all that
is in it; nothing that was there before is looked at or touched.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from typing import Any

from fleetctl.prices.table import load
from specs.template import Resources

ROOT = Path(__file__).parents[2]
SUITE = "tests/live/modal_suite.py"
# Most that is ever spent: sandboxes at once, times how long the suite may take and a sandbox lives
# after that if even the deletion fails, times the price of the smallest one. Modal bills what is
# used where that is more than what was asked for.
AT_ONCE, SUITE_S, LIFETIME_S, USED_ABOVE_ASKED = 5, 900.0, 400.0, 2.0
LIMIT_USD = 0.10
TOKEN_WORDS = """error: there is no token for Modal
hint: run `modal token new`, or export MODAL_TOKEN_ID and MODAL_TOKEN_SECRET; then again"""


def main(words: list[str]) -> int:
    """The exit code. words: handed on to pytest."""
    if not _has_token():
        print(TOKEN_WORDS, file=sys.stderr)
        return 2
    most_usd = worst_case_usd()
    assert most_usd <= LIMIT_USD
    print(
        f"at most {AT_ONCE} sandboxes at once for {SUITE_S + LIFETIME_S:.0f} s, at the prices of "
        f"{load('modal').updated}: never more than ${most_usd:.3f}",
        flush=True,
    )
    with environment() as (client, name):
        variables = {
            **os.environ,
            "MODAL_ENVIRONMENT": name,
            "FLEETCTL_MODAL_LIFETIME_S": str(LIFETIME_S),
        }
        code = _suite(words, variables)
        if code == 0:
            os.environ["MODAL_ENVIRONMENT"] = name
            _tell_what_is_guessed(client)
    return code


def _tell_what_is_guessed(client: Any) -> None:
    from tests.live import modal_guesses

    print("what is guessed of the service, measured:")
    for line in modal_guesses.measured(client):
        print(f"  {line}", flush=True)


def worst_case_usd() -> float:
    price = load("modal").usd_per_s(Resources())
    assert price is not None
    return AT_ONCE * (SUITE_S + LIFETIME_S) * price * USED_ABOVE_ASKED


@contextmanager
def environment() -> Iterator[tuple[Any, str]]:
    """A client and the name of a new environment; at the end it is gone, and nothing of it runs."""
    import modal

    client = modal.Client.from_env()
    name = f"fleetctl-live-{token_hex(4)}"
    modal.Environment.objects.create(name, client=client)
    print(f"everything is in the environment `{name}`", flush=True)
    try:
        yield client, name
    finally:
        try:
            apps = _apps(client, name)
        finally:
            modal.Environment.objects.delete(name, client=client)
        left = _left(client, apps)
        print(f"environment `{name}` deleted, with {len(apps)} apps; sandboxes left: {len(left)}")
        for sandbox in left:
            sandbox.terminate()


def _apps(client: Any, name: str) -> list[str]:
    import modal

    listed = modal.Environment.from_name(name, client=client).apps.list()
    return [app.app_id for app in listed]


def _left(client: Any, apps: list[str]) -> list[Any]:
    """Sandboxes that the deletion of their environment did not end; it may take a moment."""
    import modal

    found: list[Any] = []
    for _ in range(10):
        found = []
        for app_id in apps:
            try:
                found += list(modal.Sandbox.list(app_id=app_id, client=client))
            except modal.exception.NotFoundError:
                continue  # the app went with its environment
        if not found:
            break
        time.sleep(1.0)
    return found


def _suite(words: list[str], variables: dict[str, str]) -> int:
    """pytest's exit code; 1 when it took too long."""
    command = [sys.executable, "-m", "pytest", "-v", "-x", "-p", "no:cacheprovider", SUITE, *words]
    try:
        return subprocess.run(command, cwd=ROOT, env=variables, timeout=SUITE_S).returncode
    except subprocess.TimeoutExpired:
        print(f"error: the suite took more than {SUITE_S:.0f} s", file=sys.stderr)
        return 1


def _has_token() -> bool:
    from modal.config import config

    return bool((config["token_id"] and config["token_secret"]) or config["oauth_refresh_token"])
