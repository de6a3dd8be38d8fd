"""How an Endpoint stands, for its status: what its gateway found of the servers, and what they were
asked. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fleetctl.controllers.vocabulary.status_keys import Status
from fleetctl.engine.kinds.endpoints import batches
from fleetctl.specs.kinds.endpoint import EndpointSpec
from fleetctl.stores.base import Calls

NOT_LOOKED = ("EndpointNotReady", "its servers have not been asked yet", "")
FINE = ("Ready", "Asleep", "Starting")  # of a server that can be asked
NOT_LISTED = "ModelNotListed"  # so can such a one
_MS = ("waiting_ms_p50", "waiting_ms_p95", "answer_ms_p50", "answer_ms_p95")


def lacking(spec: EndpointSpec, health: Mapping[str, Any] | None) -> tuple[str, str, str] | None:
    """Reason, sentence and hint of one that cannot be asked; None of one that can."""
    if spec.reach == "Direct":
        return None
    if health is None:
        return NOT_LOOKED
    if health.get("ready"):
        return None
    return str(health["reason"]), str(health["message"]), str(health.get("hint") or "")


def standing(spec: EndpointSpec, health: Mapping[str, Any] | None, asked: Calls) -> Status:
    """All but phase, reason and message."""
    unpriced = {"unpricedCalls": asked.unpriced} if asked.unpriced else {}
    status: Status = {
        "calls": asked.calls,
        "tries": asked.tries,
        "fallbacks": asked.fallbacks,
        "cacheHits": asked.hits,
        "refusedCalls": asked.refused,
        "tokens": asked.tokens_in + asked.tokens_out,
        "tokensIn": asked.tokens_in,
        "tokensOut": asked.tokens_out,
        "cost": {"actual": round(asked.usd, 6), **unpriced},
    }
    if spec.reach == "Direct":
        return {"message": "tasks ask its server themselves, and nobody counts"}
    if health is None:
        return status
    status |= {
        "concurrency": int(health.get("concurrency") or 0),
        "inFlight": sum(int(it.get("in_flight") or 0) for it in health.get("servers") or ()),
        "queue": int(health.get("queue") or 0),
        "servers": [_server(it) for it in health.get("servers") or ()],
    }
    if found := batches.told(health):
        status["batches"] = found
    if gathering := int(health.get("gathering") or 0):
        status["gathering"] = gathering
    known = {_camel(it): round(float(health[it]), 1) for it in _MS if health.get(it) is not None}
    if known:
        status["latency"] = known
    if health.get("reason") in FINE and health.get("message"):
        status["message"] = str(health["message"])
    if warning := _warning(health):
        status["warning"], status["hint"] = warning, str(health.get("hint") or "")
    return status


def _warning(health: Mapping[str, Any]) -> str:
    """Of one that can be asked, and does not do all that it could."""
    if not health.get("ready"):
        return ""
    if health.get("reason") not in (None, "", *FINE):
        return f"{health['reason']}: {health['message']}"
    servers = health.get("servers") or ()
    bad = [f"{it['url']} {it['state']}" for it in servers if it["state"] not in (*FINE, NOT_LISTED)]
    return f"{len(bad)} of {len(servers)} servers cannot be asked: {', '.join(bad)}" if bad else ""


def _server(row: Mapping[str, Any]) -> Mapping[str, object]:
    resting = {"restingSeconds": round(float(row["resting_s"]), 1)} if row.get("resting_s") else {}
    return {
        "url": row["url"],
        **({"function": row["function"]} if row.get("function") else {}),
        "state": row["state"],
        "inFlight": row["in_flight"],
        "slots": row["slots"],
        **resting,
    }


def _camel(name: str) -> str:
    """`waiting_ms_p50` -> `waitingMsP50`."""
    first, *others = name.split("_")
    return first + "".join(it[:1].upper() + it[1:] for it in others)
