"""SUBMIT of an interpreter, in its two manners, and the values that it accepts.

Part of the guest; used by the driver. Takes the values that a task's SUBMIT takes. Unlike
there, NaN stays, and a value without a rule is an ordinary error of the code that submits it, so
that a session survives it.
"""

from __future__ import annotations

import inspect
import json
from typing import Any, Callable, Optional, Sequence

from fleetctl.guest.task.finite import whole_text
from fleetctl.guest.task.plain import NoRule, key_text, plain
from fleetctl.guest.task.task import Submitted
from fleetctl.guest.task.text import wrong_field

FINAL_BYTES_MAX = 8 * 1024 * 1024  # the limit of a line to the host; larger values go to a volume


class Submission:
    """The value that one execution submits. The first SUBMIT counts, whatever the code catches."""

    def __init__(self, fields: Sequence[str]) -> None:
        self.text: Optional[str] = None
        self._fields = list(fields)

    def by_any(self) -> Callable[..., None]:
        """Returns SUBMIT(value), SUBMIT(a, b) or SUBMIT(name=value); keywords win over values."""

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
        """Returns SUBMIT(name=value); it takes declared fields exactly, which may be positional."""
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
        """Takes the value of the variable `Final`, unless the execution called SUBMIT."""
        if self.text is None:
            self.text = encode_final(value)

    def _take(self, value: dict[str, Any]) -> None:
        self.offer(value)
        raise Submitted


def encode_final(value: Any) -> str:
    """Encodes as JSON text in ASCII. Raises TypeError or ValueError with the faulty field."""
    try:
        text = _encode_final(value)
    except Exception as error:  # also what the methods of a value raise
        sort = ValueError if isinstance(error, ValueError) else TypeError
        wrong = wrong_field(value, _encode_final) or "the value"
        raise sort(f"SUBMIT: {wrong} cannot be written as JSON: {error}") from None
    if len(text) > FINAL_BYTES_MAX:
        raise ValueError(
            f"SUBMIT: the values have {len(text)} bytes as JSON, and {FINAL_BYTES_MAX} is the most"
            " (write large data to a volume and submit its path)"
        )
    return text


def _encode_final(value: Any) -> str:
    try:
        text = _encode_plain(value)
    except NoRule:
        raise
    except TypeError:  # of a key, too, for which an encoder takes no rule
        return _encode_plain(_copy_value(value))
    # An escape of a surrogate may be a lone one, which no UTF-8 has.
    if "\\ud" in text:
        return _encode_plain(_copy_value(value))
    return text


def _copy_value(value: Any) -> Any:
    """Returns an equal value of JSON's own types."""
    if isinstance(value, dict):
        parts = ((key_text(key), one) for key, one in value.items())
        return {_copy_value(key): _copy_value(one) for key, one in parts}
    if isinstance(value, (list, tuple)):
        return [_copy_value(one) for one in value]
    if isinstance(value, str):
        return whole_text(value)
    if value is None or isinstance(value, (int, float)):
        return value
    return _copy_value(plain(value))


# NaN and infinities pass: both ends are Python, and a loss keeps its value.
_encode_plain = json.JSONEncoder(default=plain).encode
