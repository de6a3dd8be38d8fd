"""Builds the status of an Endpoint: the gateway's health checks of the servers, their requests, and
the batches that they work on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fleetctl.controllers.status_keys import Status
from fleetctl.specs.kinds.endpoint import EndpointSpec
from fleetctl.stores.base import CallSums

NOT_LOOKED = ("EndpointNotReady", "its servers have not been asked yet", "")
FINE = ("Ready", "Asleep", "Starting")  # states of a usable server
NOT_LISTED = "ModelNotListed"  # so can such a one
_MS = ("waiting_ms_p50", "waiting_ms_p95", "answer_ms_p50", "answer_ms_p95")

NAMED_MAX = 3  # batches that a sentence names


def find_lack(spec: EndpointSpec, health: Mapping[str, Any] | None) -> tuple[str, str, str] | None:
    """Returns reason, sentence and hint of an endpoint that is not usable; None for a usable
    one.
    """
    if spec.reach == "Direct":
        return None
    if health is None:
        return NOT_LOOKED
    if health.get("ready"):
        return None
    return str(health["reason"]), str(health["message"]), str(health.get("hint") or "")


def build_status(
    spec: EndpointSpec,
    health: Mapping[str, Any] | None,
    asked: CallSums,
) -> Status:
    """Returns the status except for phase, reason and message."""
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
        return {"message": "tasks ask its server themselves, and no call is counted"}
    if health is None:
        return status
    status |= {
        "concurrency": int(health.get("concurrency") or 0),
        "inFlight": sum(int(it.get("in_flight") or 0) for it in health.get("servers") or ()),
        "queue": int(health.get("queue") or 0),
        "servers": [_server_status(it) for it in health.get("servers") or ()],
    }
    if any((minute := health.get("last_minute") or {}).values()):
        status["lastMinute"] = minute
    if found := list_batches(health):
        status["batches"] = found
    if gathering := int(health.get("gathering") or 0):
        status["gathering"] = gathering
    known = {_to_camel(it): round(float(health[it]), 1) for it in _MS if health.get(it) is not None}
    if known:
        status["latency"] = known
    if health.get("reason") in FINE and health.get("message"):
        status["message"] = str(health["message"])
    if warning := _describe_warning(health):
        status["warning"], status["hint"] = warning, str(health.get("hint") or "")
    return status


def _describe_warning(health: Mapping[str, Any]) -> str:
    """Returns a warning about a usable endpoint that lacks a feature."""
    if not health.get("ready"):
        return ""
    if health.get("reason") not in (None, "", *FINE):
        return f"{health['reason']}: {health['message']}"
    servers = health.get("servers") or ()
    bad = [f"{it['url']} {it['state']}" for it in servers if it["state"] not in (*FINE, NOT_LISTED)]
    if bad:
        return f"{len(bad)} of {len(servers)} servers cannot be asked: {', '.join(bad)}"
    return ""


def _server_status(row: Mapping[str, Any]) -> Mapping[str, object]:
    resting = {"restingSeconds": round(float(row["resting_s"]), 1)} if row.get("resting_s") else {}
    return {
        "url": row["url"],
        **({"function": row["function"]} if row.get("function") else {}),
        "state": row["state"],
        "inFlight": row["in_flight"],
        "slots": row["slots"],
        **resting,
    }


def _to_camel(name: str) -> str:
    """Converts a key: `waiting_ms_p50` -> `waitingMsP50`."""
    first, *others = name.split("_")
    return first + "".join(it[:1].upper() + it[1:] for it in others)


def of_object(endpoints: Iterable[Mapping[str, Any]], uid: str) -> str:
    """Returns where the rows of an object are; empty where none is in a batch. endpoints: the
    gateway's report of each endpoint.
    """
    found = [it for row in endpoints for it in row.get("batches") or () if it["uid"] == uid]
    if not found:
        return ""
    names = [it["id"] or "one that is being sent" for it in found[:NAMED_MAX]]
    more = f" and {len(found) - NAMED_MAX} more" if len(found) > NAMED_MAX else ""
    rows = sum(it["rows"] for it in found)
    done = sum(it["done"] for it in found)
    failed = sum(it["failed"] for it in found)
    faults = f", {failed:,} failed" if failed else ""
    trouble = next((f"; {it['trouble']}" for it in found if it["trouble"]), "")
    batches = "batch" if len(found) == 1 else "batches"
    return f"in {batches} {', '.join(names)}{more} of {rows:,}, {done:,} done{faults}{trouble}"


def list_batches(health: Mapping[str, Any]) -> list[Mapping[str, object]]:
    """Returns the batches for the status of an Endpoint."""
    return [
        {
            "id": it["id"],
            "state": it["state"],
            "rows": it["rows"],
            "done": it["done"],
            "failed": it["failed"],
            **({"trouble": it["trouble"]} if it["trouble"] else {}),
        }
        for it in health.get("batches") or ()
    ]


def find_changed(
    before: Iterable[Mapping[str, Any]], after: Iterable[Mapping[str, Any]]
) -> set[str]:
    """Returns uids of objects whose batches have changed."""
    was, now = map(_by_tag, (before, after))
    return {
        str((now.get(tag) or was[tag])["uid"])
        for tag in was.keys() | now.keys()
        if was.get(tag) != now.get(tag)
    }


def _by_tag(endpoints: Iterable[Mapping[str, Any]]) -> Mapping[str, Mapping[str, Any]]:
    return {it["tag"]: it for row in endpoints for it in row.get("batches") or ()}
