"""What JSON cannot hold and programs write all the same: NaN and infinities, the loss of a training
that diverged. In a result they become null, and whoever hands them in is told which; a metric has
their names in journals, which `float` reads.

Called when writing a value failed: what is well never comes here.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Optional, Union

NODES_MAX = 256 * 1024  # a result with more cannot be kept anyway
NAMED_MAX = 3


NAMES = ("NaN", "Infinity", "-Infinity")


class TooMuch(Exception):
    """More than could be a result."""


def without_nan(value: Any, plain: Optional[Callable[[Any], Any]] = None) -> tuple[Any, str]:
    """(a copy in which null stands for each number that is not finite, a sentence that names them
    or ""). plain: makes an ordinary value of one that JSON does not know, or raises TypeError.
    """
    found: list[str] = []
    left = [NODES_MAX]

    def copied(one: Any, path: str, above: tuple[int, ...]) -> Any:
        left[0] -= 1
        if left[0] < 0 or id(one) in above:
            raise TooMuch
        if isinstance(one, dict):
            below = (*above, id(one))
            return {key: copied(it, f"{path}.{key}", below) for key, it in one.items()}
        if isinstance(one, (list, tuple)):
            below = (*above, id(one))
            return [copied(it, f"{path}[{place}]", below) for place, it in enumerate(one)]
        if plain is not None and not isinstance(one, (str, int, float, type(None))):
            one = plain(one)
        if isinstance(one, float) and one - one != 0:
            found.append(f"`{path.lstrip('.') or 'it'}` is {one}")
            return None
        return one

    try:
        return copied(value, "", ()), _sentence(found)
    except (TooMuch, RecursionError, TypeError):
        return value, ""  # it fails again where it is written, and says why


def named(value: float) -> Union[float, str]:
    """A metric's value as it stands in a journal."""
    if value - value == 0:
        return value
    return NAMES[0] if value != value else NAMES[1] if value > 0 else NAMES[2]


def _sentence(found: list[str]) -> str:
    if not found:
        return ""
    more = f" and {len(found) - NAMED_MAX} more like it" if len(found) > NAMED_MAX else ""
    return f"{', '.join(found[:NAMED_MAX])}{more}, which JSON cannot hold: kept as null"
