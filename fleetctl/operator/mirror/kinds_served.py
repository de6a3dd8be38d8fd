"""The kinds that the API server serves, and those of its definitions that are older than this
operator.

A definition that is missing, or that may not be listed, keeps objects of its kind alone from being
looked at. An older one drops fields that it does not know: the server's own document of its types
shows that, which every account may read. Called by resource_mirror.py; read by /readyz and
/metrics.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Any

from fleetctl.common.errors import FleetctlError
from fleetctl.kubernetes.answers import ApiError
from fleetctl.kubernetes.connection import ApiConnection
from fleetctl.kubernetes.informer import Informer
from fleetctl.manifest.schemas import remove_bare_texts
from fleetctl.operator.crds.definition import GROUP, VERSION, build_structural_schema
from fleetctl.specs.kinds.registry import KINDS, Kind

log = logging.getLogger("fleetctl.operator")

SCHEMAS = files("fleetctl.specs").joinpath("schemas")
DOCUMENT = f"/openapi/v3/apis/{GROUP}/{VERSION}"
APPLY = "kubectl apply --server-side -f deploy/crds"
FIRST_LOOK_S = 0.05
LOOK_S = 60.0
NOTICE_S = 30.0
FIELDS_SHOWN_MAX = 3


class KindsServed:
    """The served kinds. informers: of each kind, by its name."""

    def __init__(self, connection: ApiConnection, informers: Mapping[str, Informer]) -> None:
        self._connection = connection
        self._informers = informers
        self._older: dict[str, str] = {}  # kind -> the fields that its definition does not know

    def serves(self, kind: Kind) -> bool:
        """Returns whether the objects of the kind are known; until then the mirror concludes no
        deletion.
        """
        return self._informers[kind.name].synced.is_set()

    def problems(self) -> dict[str, str]:
        """Returns, by plural, a sentence for each kind that the server does not serve as this
        operator has it.
        """
        found = {}
        for name, informer in self._informers.items():
            plural = KINDS[name].plural
            if not informer.synced.is_set() or isinstance(informer.trouble, ApiError):
                found[plural] = _describe_trouble(informer)
            elif name in self._older:
                found[plural] = f"its definition is older: {self._older[name]}; {APPLY}"
        return found

    async def first(self) -> None:
        """Waits until each kind is listed, or is known not to be there."""
        alarm = asyncio.get_running_loop().time() + NOTICE_S
        while waiting := [it for it in self._informers.values() if not _is_settled(it)]:
            if asyncio.get_running_loop().time() > alarm:
                paths = [it.path for it in waiting]
                log.warning("kinds are not listed yet", extra={"paths": paths})
                alarm += NOTICE_S
            await asyncio.sleep(FIRST_LOOK_S)
        for plural, problem in self.problems().items():
            log.warning("a kind is not served", extra={"kind": plural, "error": problem})

    async def watch(self) -> None:
        """Compares the server's definitions with ours, once a minute until they are the same."""
        while True:
            try:
                document = await self._connection.request("GET", DOCUMENT, tries=1)
                self._older = dict(_older_in(document))
                if not self.problems():
                    return
            except FleetctlError as error:
                log.info("definitions are not compared", extra={"error": str(error)})
            await asyncio.sleep(LOOK_S)


def _is_settled(informer: Informer) -> bool:
    trouble = informer.trouble
    account = getattr(trouble, "account", False)  # the role does not know the kind
    return informer.synced.is_set() or isinstance(trouble, ApiError) or bool(account)


def _describe_trouble(informer: Informer) -> str:
    trouble = informer.trouble
    if isinstance(trouble, ApiError) and trouble.not_found:
        return f"its definition is missing; {APPLY}"
    if trouble is not None:
        return f"it cannot be listed: {trouble}"
    return "it is not listed yet"


def _older_in(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields (kind, fields of ours that the server's schema lacks)."""
    schemas = (document.get("components") or {}).get("schemas") or {}
    by_kind = {it["kind"]: node for node in schemas.values() for it in node.get(_MARK, ())}
    for name in KINDS:
        theirs = by_kind.get(name)
        if theirs is None:
            continue
        missing = list(
            _missing_fields(read_spec_schema(name), _field_schema(theirs, "spec"), "spec")
        )
        if missing:
            more = len(missing) - FIELDS_SHOWN_MAX
            shown = ", ".join(missing[:FIELDS_SHOWN_MAX]) + (f" and {more} more" * (more > 0))
            yield name, f"it does not know {shown}"


def read_spec_schema(kind: str) -> Mapping[str, Any]:
    """Returns the spec's part of a kind's definition, without rules: made of the schema that this
    version ships. To derive all of them from the models takes a third of a second.
    """
    whole = json.loads(SCHEMAS.joinpath(f"{kind.lower()}.json").read_bytes())
    remove_bare_texts(whole["$defs"])  # files may be short, custom resources may not
    return build_structural_schema(whole["properties"]["spec"], whole["$defs"])


_MARK = "x-kubernetes-group-version-kind"


def _field_schema(node: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = (node.get("properties") or {}).get(name) or {}
    return found


def _missing_fields(
    ours: Mapping[str, Any],
    theirs: Mapping[str, Any],
    at: str,
) -> Iterator[str]:
    """Fields that stand in our schema and are dropped by theirs."""
    if theirs.get("x-kubernetes-preserve-unknown-fields") or not ours.get("properties"):
        return
    known = theirs.get("properties") or {}
    for name, node in ours["properties"].items():
        if name not in known:
            yield f"{at}.{name}"
        else:
            yield from _missing_fields(node, known[name], f"{at}.{name}")
            if "items" in node:
                yield from _missing_fields(
                    node["items"], known[name].get("items") or {}, f"{at}.{name}[]"
                )
