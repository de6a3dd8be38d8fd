"""The provider's one connection to its cluster, shared by all calls. Made at the first call that
needs it; several callers share one attempt.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from fleetctl.common.errors import FleetctlError, Unavailable
from fleetctl.kubernetes import connection as api
from fleetctl.kubernetes.connection import Object, Query
from fleetctl.providers.contract.account import Account, AccountNow, built_in
from fleetctl.providers.kubernetes.connection.settings import of_account
from fleetctl.providers.remote.connection.failures import LastFailure
from fleetctl.specs.blocks.kubernetes import ClusterSettings

SORT = "kubernetes"


@dataclass(frozen=True, slots=True, eq=False)
class Link:
    """One namespace of one cluster. settings: what the Provider object says of it."""

    api: api.Connection
    namespace: str
    settings: ClusterSettings

    def path(self, plural: str, name: str = "", sub: str = "") -> str:
        """Of what is in the namespace; Jobs are the only ones that are no core objects."""
        group = "/apis/batch/v1" if plural == "jobs" else "/api/v1"
        parts = [group, "namespaces", self.namespace, plural, name, sub]
        return "/".join(part for part in parts if part)

    async def get(self, plural: str, name: str) -> Object:
        return await self.api.request("GET", self.path(plural, name))

    async def create(self, plural: str, body: Object) -> Object:
        return await self.api.request("POST", self.path(plural), body=body)

    async def delete(self, plural: str, name: str, options: Object) -> Object:
        return await self.api.request("DELETE", self.path(plural, name), body=options)

    async def list(self, plural: str, query: Query) -> list[Object]:
        """All of them: callers ask for few."""
        answer = await self.api.request("GET", self.path(plural), query=query)
        return list(answer.get("items") or ())


class Connection:
    """account: whose context it is; with another answer, the next caller connects anew."""

    def __init__(self, *, account: AccountNow = lambda: built_in(SORT)) -> None:
        self._account = account
        self._linked_as: Account | None = None
        self._link: Link | None = None
        self._left: list[api.Connection] = []  # of an account that was changed
        self._lock = asyncio.Lock()
        self._failure = LastFailure()

    @property
    def is_open(self) -> bool:
        return self._link is not None

    async def link(self) -> Link:
        """Raises Refused without the package or a usable kubeconfig; asks no server."""
        if self._link is not None and self._account() == self._linked_as:
            return self._link
        async with self._lock:
            if self._link is not None and self._account() != self._linked_as:
                self._left.append(self._link.api)  # calls that are under way still use it
                self._link = None
                self._failure.forget()
            if self._link is None:
                self._failure.raise_again()
                try:
                    self._link = await self._made()
                except FleetctlError as error:
                    self._failure.remember(error)
                    raise
            return self._link

    async def close(self) -> None:
        left, self._left = [*self._left, *([self._link.api] if self._link else [])], []
        self._link = None
        for one in left:
            await one.close()

    async def _made(self) -> Link:
        account = self._account()
        settings = of_account(account)
        context = account.declared.get("context", "")
        made = await api.connect(context=context, kubeconfig=account.declared.get("kubeconfig", ""))
        self._linked_as = account
        return Link(made, settings.namespace or made.namespace or "default", settings)


def unreachable(error: Unavailable, what: str) -> Unavailable:
    """Of a question that only asks whether somebody is there."""
    if error.account or error.reason != "Unavailable":
        return error
    return Unavailable(
        f"{what}: {error}", reason="Unreachable", retry_after_s=error.retry_after_s, hint=error.hint
    )
