"""The other form of variables: a list, as Kubernetes has it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def env_of(value: Any) -> Any:
    """Returns a list of {name, value} as a mapping; anything else as it is. Raises ValueError."""
    if isinstance(value, list):
        return _of_list(value)
    return value


def _of_list(entries: list[Any]) -> dict[str, Any]:
    env: dict[str, Any] = {}
    for entry in entries:
        if not isinstance(entry, Mapping) or "name" not in entry:
            raise ValueError("each entry of an env list must be {name: ..., value: ...}")
        if "valueFrom" in entry:
            raise ValueError("`valueFrom` is not read; name a Secret object in `secrets` instead")
        if set(entry) != {"name", "value"}:
            raise ValueError("each entry of an env list must be {name: ..., value: ...}")
        if entry["name"] in env:
            raise ValueError(f"the variable `{entry['name']}` is given twice")
        env[entry["name"]] = entry["value"]
    return env
