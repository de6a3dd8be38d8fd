"""The provider's one connection to its cluster, shared by all calls and all namespaces. Made at the
first call that needs it; several callers share one attempt.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from fleetctl.common.errors import FleetctlError
from fleetctl.kubernetes import connection as api
from fleetctl.kubernetes.connection import Object, Query
from fleetctl.providers.contract.account import Account, AccountNow, built_in
from fleetctl.providers.kubernetes.connection.kubernetes_settings import of_account
from fleetctl.providers.kubernetes.connection.namespaces import default_namespace, namespace_of
from fleetctl.providers.remote.connection.last_failure import LastFailure
from fleetctl.specs.blocks.kubernetes import ClusterSettings
from fleetctl.specs.values.namespaces import DEFAULT_NAMESPACE

SORT = "kubernetes"


@dataclass(
    frozen=True,
    slots=True,
    eq=False,
)
class ClusterLink:
    """A namespace of a cluster. settings: the Provider object's settings of the cluster. tenants:
    whether a namespace of the cluster belongs to the objects' namespace of the same name.
    """

    api: api.ApiConnection
    namespace: str
    settings: ClusterSettings
    tenants: bool = False

    def path(
        self,
        plural: str,
        name: str = "",
        sub: str = "",
    ) -> str:
        """Returns the path of an object in the namespace; only Jobs are not core objects."""
        group = "/apis/batch/v1" if plural == "jobs" else "/api/v1"
        parts = [group, "namespaces", self.namespace, plural, name, sub]
        return "/".join(part for part in parts if part)

    async def get(self, plural: str, name: str) -> Object:
        return await self.api.request("GET", self.path(plural, name))

    async def create(self, plural: str, body: Object) -> Object:
        return await self.api.request("POST", self.path(plural), body=body)

    async def delete(
        self,
        plural: str,
        name: str,
        options: Object,
    ) -> Object:
        return await self.api.request("DELETE", self.path(plural, name), body=options)

    async def list(self, plural: str, query: Query) -> list[Object]:
        """Returns all objects that match: callers ask for few."""
        answer = await self.api.request("GET", self.path(plural), query=query)
        return list(answer.get("items") or ())


class KubernetesConnection:
    """The links to one cluster. account: the account of the context; when its context changes, the
    next caller connects again. tenants: as in ClusterLink.
    """

    def __init__(
        self, *, account: AccountNow = lambda: built_in(SORT), tenants: bool = False
    ) -> None:
        self._account = account
        self._tenants = tenants
        self._linked_as: Account | None = None
        self._api: api.ApiConnection | None = None
        self._settings = ClusterSettings()
        self._links: dict[str, ClusterLink] = {}  # by namespace
        self._left: list[api.ApiConnection] = []  # of an account that was changed
        self._lock = asyncio.Lock()
        self._failure = LastFailure()

    @property
    def is_open(self) -> bool:
        return self._api is not None

    @property
    def tenants(self) -> bool:
        return self._tenants

    def is_current(self, link: ClusterLink) -> bool:
        """Returns whether the Provider object still has the settings that this link was made
        with.
        """
        return self._account() == self._linked_as and self._links.get(link.namespace) is link

    async def link(self, namespace: str = "") -> ClusterLink:
        """Returns the link to a namespace; by default to the one for objects without a namespace.
        Raises Refused without the package or a usable kubeconfig; calls no server.
        """
        made, settings = await self._connected()
        if not namespace:
            context = made.namespace or DEFAULT_NAMESPACE
            namespace = default_namespace(settings, context=context, tenants=self._tenants)
        return self._linked(made, settings, namespace)

    async def link_for(self, namespace: str) -> ClusterLink:
        """Returns the link to the namespace in which the work of a namespace's objects runs. Raises
        as `link`.
        """
        made, settings = await self._connected()
        context = made.namespace or DEFAULT_NAMESPACE
        there = namespace_of(settings, namespace, context=context, tenants=self._tenants)
        return self._linked(made, settings, there)

    async def close(self) -> None:
        left = [*self._left, *([self._api] if self._api else [])]
        self._left = []
        self._api = None
        self._links = {}
        for one in left:
            await one.close()

    def _linked(
        self,
        made: api.ApiConnection,
        settings: ClusterSettings,
        namespace: str,
    ) -> ClusterLink:
        known = self._links.get(namespace)
        if known is None:
            known = self._links[namespace] = ClusterLink(made, namespace, settings, self._tenants)
        return known

    async def _connected(self) -> tuple[api.ApiConnection, ClusterSettings]:
        if self._api is not None and self._account() == self._linked_as:
            return self._api, self._settings
        async with self._lock:
            if self._api is not None and self._account() != self._linked_as:
                self._left.append(self._api)  # calls that are under way still use it
                self._api = None
                self._links = {}
                self._failure.forget()
            if self._api is None:
                self._failure.raise_again()
                try:
                    self._api = await self._made()
                except FleetctlError as error:
                    self._failure.remember(error)
                    raise
            return self._api, self._settings

    async def _made(self) -> api.ApiConnection:
        account = self._account()
        self._settings = of_account(account)
        context = account.declared.get("context", "")
        made = await api.connect_cluster(
            context=context, kubeconfig=account.declared.get("kubeconfig", "")
        )
        self._linked_as = account
        return made
