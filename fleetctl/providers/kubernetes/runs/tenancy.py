"""Refuses pods with references to other owners' objects: Secrets, ConfigMaps, accounts and claims
of a namespace that all teams' pods share. Called by job_creator.py before a Job is made.

A user with the right to write one team's objects must not read through them the secrets of another
team, or of the operator: such an object has to carry a label that names the namespace of the
fleetctl object.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from fleetctl.common.errors import Unavailable
from fleetctl.kubernetes.answers import ApiError
from fleetctl.providers.kubernetes.connection.kubernetes_connection import ClusterLink
from fleetctl.providers.kubernetes.connection.kubernetes_errors import cluster_call, is_not_found
from fleetctl.providers.kubernetes.runs.pod_statuses import SECRET_MISSING

USE_BY = "fleetctl.dev/use-by"
AGAIN_S = 30.0  # until a refused reference is checked again; it may have the label by then
FRESH_S = 10.0  # lifetime of a cached reply: a thousand tasks name the same Secret
KNOWN_MAX = 10_000
_CALLED = {
    "secrets": "Secret",
    "configmaps": "ConfigMap",
    "serviceaccounts": "ServiceAccount",
    "persistentvolumeclaims": "PersistentVolumeClaim",
}


class Tenancy:
    """Refuses foreign references. call_s: deadline of a call, seconds."""

    def __init__(self, call_s: float) -> None:
        self._call_s = call_s
        self._known: dict[
            tuple[ClusterLink, str, str], tuple[str, float]
        ] = {}  # label, and until when

    async def check(
        self,
        link: ClusterLink,
        namespace: str,
        named: Iterable[tuple[str, str]],
    ) -> None:
        """Checks references. namespace: the object's namespace; named: (plural, name) of resources
        in the pod's namespace. Raises Unavailable for a missing resource, and for one without a
        label for that namespace.
        """
        if not link.tenants or link.namespace == namespace:
            return
        for plural, name in sorted(named):
            if await self._label(link, plural, name) != namespace:
                raise Unavailable(
                    f"{_CALLED[plural]} `{name}` of namespace `{link.namespace}`, where its pods"
                    f" run, is not for namespace `{namespace}`",
                    reason=SECRET_MISSING,
                    retry_after_s=AGAIN_S,
                    hint=f"kubectl label {plural} {name} -n {link.namespace} {USE_BY}={namespace}",
                )

    async def _label(
        self,
        link: ClusterLink,
        plural: str,
        name: str,
    ) -> str:
        key = (link, plural, name)
        now_s = time.monotonic()
        known = self._known.get(key)
        if known is not None and now_s < known[1]:
            return known[0]
        text = await self._look_up(link, plural, name)
        if len(self._known) >= KNOWN_MAX:
            self._known.clear()
        self._known[key] = text, now_s + FRESH_S
        return text

    async def _look_up(
        self,
        link: ClusterLink,
        plural: str,
        name: str,
    ) -> str:
        what = f"{_CALLED[plural]} `{name}` of namespace `{link.namespace}` cannot be looked up"
        try:
            async with cluster_call(what, deadline_s=self._call_s):
                found = await link.get(plural, name)
        except ApiError as error:
            if is_not_found(error):
                raise Unavailable(
                    f"namespace `{link.namespace}` has no {_CALLED[plural]} `{name}`",
                    reason=SECRET_MISSING,
                    retry_after_s=AGAIN_S,
                ) from error
            raise
        return str(((found.get("metadata") or {}).get("labels") or {}).get(USE_BY) or "")
