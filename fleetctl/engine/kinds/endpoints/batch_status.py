"""Describes the batches that model servers work on, in words. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

NAMED_MAX = 3  # batches that a sentence names


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
