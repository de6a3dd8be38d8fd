"""Listing sandboxes: the filters, the order and the pages, over the index and never the truth."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from typing import Any

from multidict import MultiMapping

from .errors import bad_request
from .state import World

LIMIT = 100
LIMIT_MAX = 200
SORTS = {"memoryGib": "memory", "diskGib": "disk"}
# Query parameter to the item's key, and how the two are compared.
_LEAST: Callable[[Any, Any], bool] = lambda item, asked: item >= asked  # noqa: E731
_MOST: Callable[[Any, Any], bool] = lambda item, asked: item <= asked  # noqa: E731
NUMBERS = {
    "minCpu": ("cpu", _LEAST),
    "maxCpu": ("cpu", _MOST),
    "minMemoryGiB": ("memory", _LEAST),
    "maxMemoryGiB": ("memory", _MOST),
    "minDiskGiB": ("disk", _LEAST),
    "maxDiskGiB": ("disk", _MOST),
}
MOMENTS = {
    "createdAtAfter": ("createdAt", _LEAST),
    "createdAtBefore": ("createdAt", _MOST),
    "lastEventAfter": ("lastActivityAt", _LEAST),
    "lastEventBefore": ("lastActivityAt", _MOST),
    "autoDestroyAtAfter": ("autoDestroyAt", _LEAST),
    "autoDestroyAtBefore": ("autoDestroyAt", _MOST),
}
CHOICES = {
    "states": "state",
    "snapshots": "snapshot",
    "regionIds": "target",
    "sandboxClasses": "sandboxClass",
}
FLAGS = {"isPublic": "public", "isRecoverable": "recoverable"}


def page_of(world: World, asked: MultiMapping[str]) -> dict[str, Any]:
    limit = number(asked, "limit", LIMIT)
    if not 1 <= limit <= LIMIT_MAX:
        raise bad_request(f"limit must be between 1 and {LIMIT_MAX}")
    failed = asked.get("includeErroredDeleted") == "true"
    items = [
        item
        for item in world.index.entries.values()
        if _fits(item, asked) and (failed or _wanted(item))
    ]
    key = SORTS.get(asked.get("sort", ""), asked.get("sort", "createdAt"))
    items.sort(key=lambda item: (item.get(key, ""), item["id"]))
    if asked.get("order", "desc") == "desc":
        items.reverse()
    begin = _position(asked.get("cursor"), items)
    page = items[begin : begin + limit]
    more = begin + limit < len(items)
    return {"items": page, "nextCursor": _cursor(page[-1]["id"], begin + limit) if more else None}


def number(asked: MultiMapping[str], name: str, default: int) -> int:
    try:
        return int(asked.get(name, default))
    except ValueError as error:
        raise bad_request(f"{name} must be an integer number") from error


def _wanted(item: Mapping[str, Any]) -> bool:
    return not (item["state"] in ("error", "build_failed") and item["desiredState"] == "destroyed")


def _fits(item: Mapping[str, Any], asked: MultiMapping[str]) -> bool:
    """Every filter that was given holds; several values of one filter are alternatives."""
    for name, key in CHOICES.items():
        values = [part for value in asked.getall(name, []) for part in value.split(",")]
        if values and item.get(key) not in values:
            return False
    for name, (key, holds) in NUMBERS.items():
        if name in asked and not holds(item[key], float(asked[name])):
            return False
    for name, (key, holds) in MOMENTS.items():
        if name in asked and (key not in item or not holds(_at(item[key]), _at(asked[name]))):
            return False
    for name, key in FLAGS.items():
        if name in asked and str(item.get(key, False)).lower() != asked[name].lower():
            return False
    return _named(item, asked) and _labelled(item, asked.get("labels"))


def _at(text: str) -> datetime:
    # A `+` that was not escaped in a query arrives as a space.
    try:
        moment = datetime.fromisoformat(text.replace(" ", "+").replace("Z", "+00:00"))
    except ValueError as error:
        raise bad_request(f"`{text}` is not a valid ISO 8601 date string") from error
    return moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)


def _named(item: Mapping[str, Any], asked: MultiMapping[str]) -> bool:
    """Both are prefixes, and case does not count."""
    one: str = item["id"]
    name: str = item["name"]
    return one.startswith(asked.get("id", "").lower()) and name.lower().startswith(
        asked.get("name", "").lower()
    )


def _labelled(item: Mapping[str, Any], labels: str | None) -> bool:
    if not labels:
        return True
    try:
        wanted = json.loads(labels)
    except ValueError as error:
        raise bad_request("Invalid labels filter: it must be a JSON object") from error
    if not isinstance(wanted, dict):
        raise bad_request("Invalid labels filter: it must be a JSON object")
    has: dict[str, str] = item["labels"]
    return all(has.get(key) == value for key, value in wanted.items())


def _cursor(last_id: str, position: int) -> str:
    return base64.urlsafe_b64encode(json.dumps([last_id, position]).encode()).decode()


def _position(cursor: str | None, items: list[dict[str, Any]]) -> int:
    """After the entry that the last page ended with; where it was, if that is gone by now."""
    if not cursor:
        return 0
    try:
        last_id, position = json.loads(base64.urlsafe_b64decode(cursor))
    except ValueError as error:
        raise bad_request("Invalid cursor") from error
    for place, item in enumerate(items):
        if item["id"] == last_id:
            return place + 1
    return int(position)
