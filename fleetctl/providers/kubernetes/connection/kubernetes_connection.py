"""The provider's one connection to its cluster, shared by all calls, with its pacing and the
namespace of the cluster for each object's work.

The connection is made at the first call that needs it; several callers share one attempt.

With custom resources each namespace has an owner of its own, and work runs where its object is.
Elsewhere the controller has a single owner, and all of its work runs in one namespace. The names of
used namespaces are kept as empty files, so that objects that are left there are found again.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fleetctl.common.errors import FleetctlError
from fleetctl.kubernetes import connection as api
from fleetctl.kubernetes.connection import Object, Query
from fleetctl.providers.contract.account import Account, AccountNow, built_in
from fleetctl.providers.paths import checked_name, make_private
from fleetctl.providers.remote.service_calls import LastFailure, read_settings
from fleetctl.specs.blocks.kubernetes import ClusterSettings
from fleetctl.specs.values.namespaces import DEFAULT_NAMESPACE

SORT = "kubernetes"

PREFIX = "FLEETCTL_KUBERNETES_"

# The namespace of all work in earlier versions of deploy/; handles of those versions name no
# namespace.
EARLIER = "fleetctl-runs"
_DIRECTORY = "namespaces-used"


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
                    self._api = await self._make_connection()
                except FleetctlError as error:
                    self._failure.remember(error)
                    raise
            return self._api, self._settings

    async def _make_connection(self) -> api.ApiConnection:
        account = self._account()
        self._settings = of_account(account)
        context = account.declared.get("context", "")
        made = await api.connect_cluster(
            context=context, kubeconfig=account.declared.get("kubeconfig", "")
        )
        self._linked_as = account
        return made


@dataclass(frozen=True, slots=True)
class KubernetesSettings:
    """Each can be set in the environment."""

    # An API server takes some hundreds of creates a second; priority and fairness share them out.
    creates_per_s: float = 50.0
    creates_burst: float = 200.0
    making_max: float = 2000.0  # Jobs whose pods are waited for at once; they cost no calls
    # For a pod whose task names no timeoutSeconds: our dead-man's switch. It cuts no task that
    # names a timeoutSeconds.
    lifetime_s: float = 7 * 86_400.0
    # An ended Job stays for this time unless it is deleted: longer than any holiday of a
    # controller, and its pod's log shows the end of the work.
    finished_s: float = 7 * 86_400.0
    call_s: float = 30.0  # our own deadline for a call, with all its tries
    patience_s: float = 20.0  # a pod with a free node runs by then
    begin_s: float = 600.0  # an inert pod whose work does not begin ends by itself


def from_environment(environ: Mapping[str, str] | None = None) -> KubernetesSettings:
    """Reads the settings from `FLEETCTL_KUBERNETES_*`. Raises Refused for a value that is not a
    positive number.
    """
    return read_settings(KubernetesSettings, PREFIX, os.environ if environ is None else environ)


def of_account(account: Account) -> ClusterSettings:
    """Returns the cluster's settings from the Provider object; defaults for missing ones."""
    return ClusterSettings.model_validate(dict(account.settings))


def namespace_of(
    settings: ClusterSettings,
    namespace: str,
    *,
    context: str,
    tenants: bool,
) -> str:
    """Returns the cluster's namespace for the work of an object. namespace: the object's namespace;
    context: the namespace of our own credentials; tenants: objects are custom resources.
    """
    mapped = settings.namespaces.get(namespace) or settings.namespace
    return mapped or (namespace if tenants else context)


def default_namespace(
    settings: ClusterSettings,
    *,
    context: str,
    tenants: bool,
) -> str:
    """Returns the namespace of objects that name no namespace."""
    return settings.namespace or (EARLIER if tenants else context)


def namespace_in(asset: str) -> str:
    """Returns the object's namespace from a Volume's name at providers; see
    specs/values/namespaces.py.
    """
    return asset.rpartition(".")[0] or DEFAULT_NAMESPACE


def note_namespace(provider: Path, namespace: str) -> None:
    """Notes a namespace, before an object is made there. provider: the directory of its account."""
    (make_private(provider / _DIRECTORY) / checked_name(namespace)).touch(mode=0o600)


def used_namespaces(provider: Path) -> list[str]:
    place = provider / _DIRECTORY
    if place.is_dir():
        return sorted(path.name for path in place.iterdir())
    return []
