"""Recognizes replies with status 200 that are not an answer: an error in the form of an answer, a
page made for browsers, JSON that ends too soon, no choice at all. Pure.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

COMPLETIONS = ("/v1/chat/completions", "/v1/completions")
WORDS_MAX = 500
# Retried like an error that the server reported, or like a fault of the server.
OF_THE_SERVER = 500
_TITLE = re.compile(r"<title[^>]*>([^<]*)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class BadAnswer:
    """The fault of a reply. status: the status it is treated as. message: the server's own words,
    if it has any. page: made for browsers, so that no model wrote it.
    """

    status: int
    message: str
    page: bool = False

    @property
    def body(self) -> bytes:
        return json.dumps({"error": {"message": self.message, "code": self.status}}).encode()


def parse_answer(answer: bytes) -> Any:
    """Returns the JSON document, or None if the answer is not JSON."""
    try:
        return json.loads(answer)
    except (ValueError, RecursionError):
        return None


def bad_answer(
    path: str,
    answer: bytes,
    reply: Any,
) -> BadAnswer | None:
    """Returns the fault of a reply, or None for a good answer.

    reply: the document that `parse` made of the answer.
    """
    if not isinstance(reply, dict):
        text = answer[:4096].decode(errors="replace").strip()
        return BadAnswer(OF_THE_SERVER, _describe_unread(text), text.startswith("<"))
    if found := bad_piece(reply):
        return found
    if path in COMPLETIONS and not reply.get("choices"):
        return BadAnswer(OF_THE_SERVER, "the server answered without any choice")
    return None


def bad_piece(reply: Mapping[str, Any]) -> BadAnswer | None:
    """Returns the error in a whole answer or in the first piece of a stream; None without one."""
    error = reply.get("error")
    if not error or reply.get("choices"):
        return None
    detail = error if isinstance(error, dict) else {"message": error}
    code = detail.get("code", reply.get("code"))
    message = str(detail.get("message") or "an error without a message")[:WORDS_MAX]
    if not isinstance(code, int) or not 400 <= code <= 599:
        code = OF_THE_SERVER
    return BadAnswer(code, message)


def _describe_unread(text: str) -> str:
    if text.startswith("<"):
        title = _TITLE.search(text)
        named = f" `{' '.join(title.group(1).split())[:100]}`" if title else ""
        return f"the server answered with a page{named}, not with JSON"
    if text:
        return "the server's answer is not whole JSON"
    return "the server's answer is empty"
