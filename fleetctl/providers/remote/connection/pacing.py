"""The pacing of a provider with remote sandboxes: numbers, each of which the controller's
environment can set.

Called by the settings of each such provider, a frozen dataclass of numbers with defaults.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, TypeVar

from fleetctl.common.errors import Refused

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")


def read_settings(
    settings: type[T],
    prefix: str,
    environ: Mapping[str, str],
) -> T:
    """Field `call_s` is the variable `<prefix>CALL_S`. Raises Refused for a value that is no
    positive number.
    """
    names = {field.name: f"{prefix}{field.name.upper()}" for field in fields(settings)}
    return settings(
        **{
            field: _parse_number(name, environ[name])
            for field, name in names.items()
            if environ.get(name)
        }
    )


def _parse_number(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise Refused(
            f"{name} is `{text}`; it must be a number above 0",
            hint=f"unset {name} for the default",
        )
    return value
