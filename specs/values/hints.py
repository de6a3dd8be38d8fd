"""What is wrong and what would help, in one text: a run, a wait and an event keep one text each.

Joined where an error becomes such a text, parted where it is shown.
"""

from __future__ import annotations

_BETWEEN = "; hint: "


def with_hint(message: str, hint: str) -> str:
    return f"{message}{_BETWEEN}{hint}" if hint else message


def words_of(error: Exception) -> str:
    """What an error says, with its hint where it has one; its type where it says nothing."""
    return with_hint(str(error) or type(error).__name__, getattr(error, "hint", ""))


def parted(text: str) -> tuple[str, str]:
    """(message, hint); the hint is empty where none was joined."""
    message, _, hint = text.partition(_BETWEEN)
    return message, hint


def message_of(text: str) -> str:
    return parted(text)[0]
