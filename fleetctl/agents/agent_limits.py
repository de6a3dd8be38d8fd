"""Decides which calls of an agent are refused although its role allows them: those that would cost
more than it was given, and changes of the rules that bind it. Pure; called by mcp_server.py with
the plan of what would change.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fleetctl.common.errors import Refused
from fleetctl.specs.kinds.registry import KINDS
from fleetctl.specs.values.namespaces import split_key
from fleetctl.views.kinds import kind_of

# A Budget bounds the agent itself; a Source applies what a repository holds, in its own name.
PERSONS_KINDS = ("Budget", "Source")
# They make or keep work for ever, so no sum bounds them.
UNBOUNDED_KINDS = ("Schedule", "Endpoint")
KEEP = "keep"
ESTIMATE_NAME = "agent-estimate"  # of a manifest that is planned and never stored


@dataclass(frozen=True, slots=True)
class AgentLimits:
    """The limits of `fleetctl mcp`. max_cost_usd: of all calls of one session together; None: none
    but those of budgets and policies."""

    namespace: str
    max_cost_usd: float | None = None
    read_only: bool = False


class SpendLedger:
    """A sum of the most that the accepted calls of a session may cost, in USD."""

    def __init__(self, max_cost_usd: float | None) -> None:
        self._max_usd = max_cost_usd
        self.used_usd = 0.0

    @property
    def bounded(self) -> bool:
        return self._max_usd is not None

    def take(self, cost_usd: float | None) -> None:
        """Takes a cost from what is left. cost_usd: the high estimate; None: unknown. Raises
        Refused, and takes nothing."""
        if self._max_usd is None:
            return
        left_usd = self._max_usd - self.used_usd
        if cost_usd is None:
            raise Refused(
                "nothing bounds what this may cost, and this server was started with"
                f" --max-cost {self._max_usd:g}",
                hint="set timeoutSeconds, and use a provider with a known price; `plan` shows both",
            )
        if cost_usd > left_usd:
            raise Refused(
                f"this may cost ${cost_usd:,.2f}, and ${left_usd:,.2f} of"
                f" --max-cost {self._max_usd:g} is left",
                hint="make it smaller, or ask the person who started this server",
            )
        self.used_usd += cost_usd

    def give_back(self, cost_usd: float | None) -> None:
        """Returns a taken cost of a call that changed nothing."""
        if self._max_usd is not None:
            self.used_usd -= cost_usd or 0.0


def refuse_kinds(keys: Iterable[str], *, bounded: bool) -> None:
    """Raises Refused where an object of these keys is not an agent's to change. bounded: there is
    a limit of cost."""
    for key in keys:
        kind = kind_of(split_key(key)[0])
        if kind.name in PERSONS_KINDS:
            raise Refused(
                f"{key}: a {kind.name} is a person's to change, not an agent's",
                hint="ask for it; a person runs `fleetctl apply` or `fleetctl delete`",
            )
        if bounded and kind.name in UNBOUNDED_KINDS:
            raise Refused(
                f"{key}: a {kind.name} costs without an end, and this server has a --max-cost",
                hint="ask a person to apply it",
            )


def changed_keys(plan: Mapping[str, Any]) -> list[str]:
    """Returns the keys of the objects that a plan would change."""
    return [it["object"] for it in plan["objects"] if it["action"] != KEEP]


def highest_cost(plan: Mapping[str, Any]) -> float | None:
    """Returns the most that an apply of this plan may cost, in USD; None where nothing bounds it.

    An object that changes counts in full: what a change sets free, such as the rest of a suspended
    job, is no part of the cost of the apply alone.
    """
    sum_usd = 0.0
    for it in plan["objects"]:
        work = it.get("work")
        if it.get("standing", {}).get("containers"):
            return None
        if work is None:
            continue
        costs = work["cost"]
        high = costs["thisApply"]["high"]
        if it["action"] not in (KEEP, "destroy"):
            total = costs["total"]["high"]
            high = None if high is None or total is None else max(high, total)
        if high is None:
            return None
        sum_usd += high
    return sum_usd


def manifest_again(document: Mapping[str, Any]) -> str:
    """Returns a manifest for the plan of a stored object as if it started from the beginning: an
    upper bound of the cost of its retry or resumption. Raises Refused for a kind without work.
    """
    kind = KINDS[str(document["kind"])]
    if not kind.runs:
        raise Refused(
            f"nothing bounds what a {kind.name} may cost, and this server has a --max-cost",
            hint="ask a person",
        )
    spec = {name: value for name, value in document["spec"].items() if name != "suspend"}
    metadata = {
        "name": ESTIMATE_NAME,
        "namespace": document["metadata"]["namespace"],
        "labels": document["metadata"].get("labels") or {},
    }
    return json.dumps(
        {
            "apiVersion": document["apiVersion"],
            "kind": kind.name,
            "metadata": metadata,
            "spec": spec,
        }
    )
