"""Reads and writes JSON at little cost: encoders made once, no import of `json` beside its C part.

Importing `json` costs a third of an interpreter's start (it pulls in `re`), which every sandbox of
a short command would pay. Used by all readers and writers of journals inside a sandbox.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

DIGITS_MAX = 4000  # in one integer; Python 3.9 would parse longer ones in quadratic time


def encode_canonical(value: Any) -> str:
    """Returns JSON with sorted keys, not escaped. Raises ValueError for values outside JSON."""
    return _join_chunks(_canonical, value)


def encode_compact(value: Any) -> str:
    """Returns a value as JSON in one line of ASCII."""
    return _join_chunks(_compact, value)


def encode_spaced(value: Any) -> str:
    """Returns JSON as `json.dumps` writes it, for readers and scripts."""
    return _join_chunks(_spaced, value)


def encoder_with(default: Callable[[Any], Any]) -> Callable[[Any], str]:
    """Returns `json.JSONEncoder(allow_nan=False, default=default).encode`; called once: an encoder
    for each result would touch more memory than the result itself.
    """
    seen: dict[int, Any] = {}
    encoder = _encoder_with(seen, default)

    def encode(value: Any) -> str:
        seen.clear()  # removes the rest of an earlier value that could not be written
        return _join_chunks(encoder, value)

    return encode


def find_wrong_field(value: Any, encode: Callable[[Any], str]) -> str:
    """Returns the first field that cannot be written; "" when that is unknown."""
    if isinstance(value, dict):
        for key, item in value.items():
            try:
                encode(item)
            except (TypeError, ValueError, RecursionError, OverflowError):
                return f"field `{key}`"
    return ""


def parse_json(text: str) -> Any:
    """Parses strictly: raises ValueError for NaN, overlong integers and text after the value."""
    text = text.strip(" \t\r\n")
    try:
        value, end = _scan(text, 0)
    except (StopIteration, SystemError):  # Python before 3.13 fails so when `json` is not imported
        import json

        json.loads(text)  # raises an error with the problem and its position
        raise ValueError("no JSON value") from None
    if end != len(text):
        raise ValueError(f"more text after the JSON value, at character {end}")
    return value


def parse_as_python(text: str) -> Any:
    """Parses as `parse` does, and NaN and infinities as Python's own `json` writes them."""
    try:
        return parse_json(text)
    except ValueError:
        if "NaN" not in text and "Infinity" not in text:
            raise
        import json

        return json.loads(text, parse_int=_parse_integer, parse_constant=float)


def _join_chunks(encoder: Any, value: Any) -> str:
    return "".join(encoder(value, 0))


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


def _parse_integer(digits: str) -> int:
    if len(digits) > DIGITS_MAX:
        raise ValueError(f"an integer of {len(digits)} digits")
    return int(digits)


def _refuse_value(value: Any) -> Any:
    raise ValueError(f"a value of type {type(value).__name__}")


class _Strict:
    """The attributes that the C scanner reads; those unknown to a version do no harm."""

    strict = True
    object_hook = object_pairs_hook = array_hook = None
    parse_float = float
    parse_int = staticmethod(_parse_integer)
    parse_constant = staticmethod(_refuse_constant)
    memo: dict[str, str]

    def __init__(self) -> None:
        self.memo = {}


_scan: Any
_canonical: Any
_compact: Any
_spaced: Any
quote: Callable[[str], str]
try:
    from _json import (
        encode_basestring,
        encode_basestring_ascii,
        make_encoder,
        make_scanner,
    )

    strict: Any = _Strict()
    _scan = make_scanner(strict)
    _canonical = make_encoder(
        None,
        _refuse_value,
        encode_basestring,
        None,
        ":",
        ",",
        True,
        False,
        False,
    )
    _compact = make_encoder(
        None,
        _refuse_value,
        encode_basestring_ascii,
        None,
        ":",
        ",",
        False,
        False,
        False,
    )
    _spaced = make_encoder(
        None,
        _refuse_value,
        encode_basestring_ascii,
        None,
        ": ",
        ", ",
        False,
        False,
        False,
    )
    quote = encode_basestring_ascii

    def _encoder_with(seen: dict[int, Any], default: Callable[[Any], Any]) -> Any:
        quoted = encode_basestring_ascii
        return make_encoder(
            seen,
            default,
            quoted,
            None,
            ": ",
            ", ",
            False,
            False,
            False,
        )

except (ImportError, AttributeError, TypeError):  # another interpreter: as the library does it
    import json

    decoder: Any = json.JSONDecoder(parse_int=_parse_integer, parse_constant=_refuse_constant)
    _scan = decoder.scan_once
    _canonical = json.JSONEncoder(
        sort_keys=True,
        separators=(",", ":"),
        allow_nan=False,
        ensure_ascii=False,
    ).iterencode
    _compact = json.JSONEncoder(separators=(",", ":"), allow_nan=False).iterencode
    _spaced = json.JSONEncoder(allow_nan=False).iterencode
    quote = json.encoder.encode_basestring_ascii

    def _encoder_with(
        seen: dict[int, Any],
        default: Callable[[Any], Any],
    ) -> Any:
        encoder = json.JSONEncoder(allow_nan=False, default=default)
        return lambda value, _: encoder.iterencode(value)
