"""Copies a value into JSON's types, with remarks on replaced parts: NaN and infinities, the loss of
a training that diverged, become null; a value without a rule becomes its repr. A metric that is not
finite has its name in journals, which `float` reads.

Called when writing a value failed: valid values never come here.
"""

from __future__ import annotations

from fleetctl.guest.task.plain import NoRule, Unkeepable, key_text, plain, shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Union

NODES_MAX = 256 * 1024  # a result with more cannot be kept anyway
NAMED_MAX = 3


NAMES = ("NaN", "Infinity", "-Infinity")


class ResultCopy:
    """One copy of a value. remarks: sentences about replaced parts."""

    def __init__(self) -> None:
        self._null: list[str] = []
        self._other: list[str] = []
        self._left = 0

    @property
    def remarks(self) -> list[str]:
        texts = (
            (self._null, ", which JSON cannot hold: kept as null"),
            (self._other, ": kept as its repr"),
        )
        return [_list_names(found) + text for found, text in texts if found]

    def made(self, one: Any, path: str = "") -> Any:
        """Returns the copy. path: of the value, for messages. Raises Unkeepable."""
        self._left = NODES_MAX
        try:
            return self._made(one, path, ())
        except RecursionError:
            raise Unkeepable(f"it is nested more than {DEPTH_MAX} deep") from None

    def _made(
        self,
        one: Any,
        path: str,
        above: tuple[int, ...],
    ) -> Any:
        """Returns the copy. above: ids of the values that contain it."""
        self._left -= 1
        if self._left < 0:
            raise Unkeepable(f"more than {NODES_MAX} values")
        if id(one) in above:
            raise Unkeepable("it holds itself")
        if len(above) > DEPTH_MAX:
            raise Unkeepable(f"it is nested more than {DEPTH_MAX} deep")
        if one is None or isinstance(one, (bool, int)):
            return one
        if isinstance(one, str):
            return whole_text(one)
        if isinstance(one, float):
            if one - one == 0:
                return one
            self._null.append(f"`{path.lstrip('.') or 'it'}` is {float(one)}")
            return None
        return self._made_of_parts(one, path, (*above, id(one)))

    def _made_of_parts(
        self,
        one: Any,
        path: str,
        below: tuple[int, ...],
    ) -> Any:
        if isinstance(one, dict):
            parts = ((_whole_key(key), it) for key, it in one.items())
            return {key: self._made(it, f"{path}.{key}", below) for key, it in parts}
        if isinstance(one, (list, tuple)):
            return [self._made(it, f"{path}[{at}]", below) for at, it in enumerate(one)]
        try:
            found = plain(one)
        except NoRule as error:
            self._other.append(f"`{path.lstrip('.') or 'it'}` is {error}")
            return whole_text(shown(one))
        except Unkeepable:
            raise
        except Exception as error:  # raised by its own methods
            raise Unkeepable(f"a value of type {type(one).__name__}: {error!r}") from None
        return self._made(found, path, below)


def whole_text(text: str) -> str:
    """Escapes halves of surrogate pairs, as decoding by `surrogateescape` leaves them."""
    try:
        text.encode("utf-8")
    except UnicodeError:
        return text.encode("utf-8", "backslashreplace").decode()
    return text


def named(value: float) -> Union[float, str]:
    """Returns a metric's value as a journal has it."""
    if value - value == 0:
        return value
    if value != value:
        return NAMES[0]
    if value > 0:
        return NAMES[1]
    return NAMES[2]


def _whole_key(key: Any) -> Any:
    found = key_text(key)
    if isinstance(found, str):
        return whole_text(found)
    return found


def _list_names(found: list[str]) -> str:
    more = f" and {len(found) - NAMED_MAX} more like it" if len(found) > NAMED_MAX else ""
    return ", ".join(found[:NAMED_MAX]) + more


DEPTH_MAX = 32  # of a result
