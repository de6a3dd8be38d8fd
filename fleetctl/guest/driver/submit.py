"""SUBMIT of an interpreter, in its two manners, and what may be handed in.

Part of the guest; used by the driver. Unlike a task's result, a value that cannot be written as
JSON is an ordinary error of the code that submits it, so that a session survives it.
"""

from __future__ import annotations

import inspect
import json
from typing import Any, Callable, Optional, Sequence

from fleetctl.guest.task.task import Submitted
from fleetctl.guest.task.text import wrong_field

FINAL_BYTES_MAX = 8 * 1024 * 1024  # what one line to the host carries; larger things go to a volume


class Submission:
    """What one execution hands in. The first SUBMIT counts, whatever the code catches."""

    def __init__(self, fields: Sequence[str]) -> None:
        self.text: Optional[str] = None
        self._fields = list(fields)

    def by_any(self) -> Callable[..., None]:
        """SUBMIT(value), SUBMIT(a, b) or SUBMIT(name=value); keywords win over the others."""

        def submit(*args: Any, **kwargs: Any) -> None:
            if kwargs:
                self._take(kwargs)
            elif not self._fields:
                self._take({"output": args[0] if len(args) == 1 else list(args)})
            elif len(args) == len(self._fields):
                self._take({name: args[place] for place, name in enumerate(self._fields)})
            else:
                wanted = f"{len(self._fields)} positional values ({self._fields})"
                self._take({"error": f"SUBMIT expected {wanted}, got {len(args)}"})

        return submit

    def by_name(self) -> Callable[..., None]:
        """SUBMIT(name=value); with declared fields exactly those, which may then be positional."""
        if not self._fields:
            return self._by_any_name
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        signature = inspect.Signature([inspect.Parameter(name, kind) for name in self._fields])

        def submit(*args: Any, **kwargs: Any) -> None:
            try:
                bound = signature.bind(*args, **kwargs)
            except TypeError as error:
                raise TypeError(f"SUBMIT{signature}: {error}") from None
            self._take(dict(bound.arguments))

        return submit

    def _by_any_name(self, *args: Any, **kwargs: Any) -> None:
        if args:
            raise TypeError(
                f"SUBMIT takes named values here, such as SUBMIT(output={args[0]!r:.60});"
                f" it was called with {len(args)} without a name"
            )
        self._take(kwargs)

    def offer(self, value: Any) -> None:
        """What the variable `Final` holds; a SUBMIT of the same execution goes before it."""
        if self.text is None:
            self.text = encode_final(value)

    def _take(self, value: dict[str, Any]) -> None:
        self.offer(value)
        raise Submitted


def encode_final(value: Any) -> str:
    """As JSON text in ASCII. Raises TypeError or ValueError with the field that is wrong."""
    try:
        text = _encode_final(value)
    except (TypeError, ValueError, RecursionError, OverflowError) as error:
        sort = ValueError if isinstance(error, ValueError) else TypeError
        wrong = wrong_field(value, _encode_final) or "the value"
        raise sort(f"SUBMIT: {wrong} cannot be written as JSON: {error}") from None
    if len(text) > FINAL_BYTES_MAX:
        raise ValueError(
            f"SUBMIT: the values have {len(text)} bytes as JSON, and {FINAL_BYTES_MAX} is the most"
            " (write large data to a volume and submit its path)"
        )
    return text


def _plain(value: Any) -> Any:
    """Numbers of numeric libraries, one value each."""
    item = getattr(value, "item", None)
    if item is not None and getattr(value, "ndim", None) == 0:
        return item()
    raise TypeError(f"it is or holds a value of type {type(value).__name__}")


# NaN and infinities pass: both ends are Python, and losses are what they are.
_encode_final = json.JSONEncoder(default=_plain).encode
