"""Joins an error and its hint in one text: a run, a wait and an event keep one text each.

Joined where an error becomes such a text, parted where it is shown.
"""

from __future__ import annotations

_BETWEEN = "; hint: "


def with_hint(message: str, hint: str) -> str:
    if hint:
        return f"{message}{_BETWEEN}{hint}"
    return message


def words_of(error: Exception) -> str:
    """Returns an error's message, with its hint if it has one; its type if the message is empty."""
    return with_hint(str(error) or type(error).__name__, getattr(error, "hint", ""))


def split_hint(text: str) -> tuple[str, str]:
    """Returns (message, hint); the hint is empty if the text was not joined."""
    message, _, hint = text.partition(_BETWEEN)
    return message, hint


def message_of(text: str) -> str:
    return split_hint(text)[0]


class WrongValueError(ValueError):
    """A value with a mistake, with what may be written instead as `hint`."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint
