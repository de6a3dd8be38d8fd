"""Reading a request: which sandbox it is for, what each field of its body must be, and the 400 when
it is something else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from aiohttp import web

from .errors import bad_request
from .state import Sandbox

SANDBOX = web.RequestKey("sandbox", Sandbox)  # of a request to a toolbox
Check = Callable[[Any], bool]
TEXT_LENGTH_MAX = 1 << 20


def text(value: Any) -> bool:
    # A lone surrogate cannot be sent on, nor be a name.
    return isinstance(value, str) and len(value) <= TEXT_LENGTH_MAX and value.isprintable()


def lines(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= TEXT_LENGTH_MAX and "\0" not in value


def flag(value: Any) -> bool:
    return isinstance(value, bool)


def whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 31


def texts(value: Any) -> bool:
    return isinstance(value, list) and all(text(one) for one in value)


def named_texts(value: Any) -> bool:
    return isinstance(value, dict) and all(lines(k) and lines(v) for k, v in value.items())


def named_texts_list(value: Any) -> bool:
    return isinstance(value, list) and all(named_texts(one) for one in value)


def fields(**checks: Check) -> Check:
    """An object whose known fields, if they are there, are as they must be."""

    def check(value: Any) -> bool:
        return isinstance(value, dict) and all(
            value.get(name) is None or is_right(value[name]) for name, is_right in checks.items()
        )

    return check


def listed(check: Check) -> Check:
    return lambda value: isinstance(value, list) and all(check(one) for one in value)


KINDS: dict[Check, str] = {
    text: "a string",
    lines: "a string",
    flag: "a boolean value",
    whole: "an integer number",
    texts: "an array of strings",
    named_texts: "an object of strings",
    named_texts_list: "an array of objects of strings",
}


async def body_of(request: web.Request, **checks: Check) -> dict[str, Any]:
    """The JSON object that was sent; null fields count as not sent."""
    try:
        body = await request.json() if request.can_read_body else {}
    except (ValueError, RecursionError) as error:
        raise bad_request(f"Unexpected token in JSON: {error}") from error
    if not isinstance(body, dict):
        raise bad_request("Validation failed: the body must be an object")
    sent = {key: value for key, value in body.items() if value is not None}
    _check(sent, checks)
    return sent


def _check(sent: Mapping[str, Any], checks: Mapping[str, Check]) -> None:
    for name, is_right in checks.items():
        if name in sent and not is_right(sent[name]):
            raise bad_request(f"{name} must be {KINDS.get(is_right, 'of the described shape')}")
