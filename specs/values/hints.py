"""A sentence for users and what they can do about it, as two fields: stored apart, shown apart."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HintedText:
    """A sentence, with a command or a change that would help as `hint`, or "". False where it says
    nothing.
    """

    text: str = ""
    hint: str = ""

    def __bool__(self) -> bool:
        return bool(self.text)

    def __str__(self) -> str:
        return self.text

    def prefixed(self, before: str) -> HintedText:
        """Returns the same behind another beginning of the sentence."""
        return HintedText(f"{before}{self.text}", self.hint)


NO_TEXT = HintedText()


def hinted_error(error: Exception) -> HintedText:
    """Returns an error's message, with its hint if it has one; its type if the message is empty."""
    return HintedText(str(error) or type(error).__name__, getattr(error, "hint", "") or "")


class WrongValueError(ValueError):
    """A value with a mistake, with what may be written instead as `hint`."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint
