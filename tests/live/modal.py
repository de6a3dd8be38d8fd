"""`make live-modal`: the suite of all providers against the Modal of the environment's token, and
what the emulator only guesses, measured.

Everything is made in an environment of its own at Modal, which is deleted at the end with all that
is in it; nothing that was there before is looked at or touched.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from secrets import token_hex
from typing import Any

from tests.live.limits import Limits

SUITE = "tests/live/modal_suite.py"
# Modal bills what is used where that is more than what was asked for.
LIMITS = Limits(
    "modal", at_once=5, suite_s=900.0, lifetime_s=400.0, usd=0.10, above_asked=2.0, after_s=400.0
)
TOKEN_WORDS = """error: there is no token for Modal
hint: run `modal token new`, or export MODAL_TOKEN_ID and MODAL_TOKEN_SECRET; then again"""


def main(words: list[str]) -> int:
    """The exit code. words: handed on to pytest."""
    if not _has_token():
        print(TOKEN_WORDS, file=sys.stderr)
        return 2
    print(LIMITS.told(), flush=True)
    with environment() as (client, name):
        variables = {
            **os.environ,
            "MODAL_ENVIRONMENT": name,
            "FLEETCTL_MODAL_LIFETIME_S": str(LIMITS.lifetime_s),
        }
        code = LIMITS.run(SUITE, words, variables)
        if code == 0:
            os.environ["MODAL_ENVIRONMENT"] = name
            _tell_what_is_guessed(client)
    return code


def _tell_what_is_guessed(client: Any) -> None:
    from tests.live import modal_guesses

    print("what is guessed of the service, measured:")
    for line in modal_guesses.measured(client):
        print(f"  {line}", flush=True)


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


def _has_token() -> bool:
    from modal.config import config

    return bool((config["token_id"] and config["token_secret"]) or config["oauth_refresh_token"])
