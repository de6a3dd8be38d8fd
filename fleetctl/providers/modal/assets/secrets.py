"""Secrets that Modal keeps, by name. Their values never come here. Called before a start."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from fleetctl.common.errors import Refused
from fleetctl.providers.modal.connection.modal_errors import retryable_call

if TYPE_CHECKING:
    import modal

FRESH_S = 60.0  # for this time a secret that was found is not looked up again
ASK_S = 30.0


class Secrets:
    """The secrets that one provider has found, by client."""

    def __init__(self) -> None:
        self._found: WeakKeyDictionary[modal.Client, dict[str, tuple[float, modal.Secret]]]
        self._found = WeakKeyDictionary()

    async def named(self, client: modal.Client, refs: Sequence[str]) -> list[modal.Secret]:
        """The secrets of these names, for `Sandbox.create`. Raises Refused for one that is not
        there, and Unavailable.
        """
        found = self._found.setdefault(client, {})
        now_s = time.monotonic()
        for name in refs:
            if name not in found or now_s - found[name][0] > FRESH_S:
                found[name] = (now_s, await _find_secret(client, name))
        return [found[name][1] for name in refs]


async def _find_secret(client: modal.Client, name: str) -> modal.Secret:
    import modal
    from modal.exception import NotFoundError

    async with retryable_call(
        f"the secret `{name}` of Modal cannot be looked up", deadline_s=ASK_S
    ):
        secret = modal.Secret.from_name(name, client=client)
        try:
            await secret.hydrate.aio()
        except NotFoundError as error:
            raise Refused(
                f"Modal keeps no secret `{name}`, which `fromProvider` names",
                hint=f"modal secret create {name} KEY=VALUE",
            ) from error
        return secret
