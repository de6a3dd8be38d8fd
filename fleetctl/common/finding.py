"""A finding: one reason why a manifest is refused or doubted before it is stored. Text rules, store
rules, rules of providers and policies all return findings; their severity decides what refuses.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

Path = tuple[str | int, ...]  # of a value, in the document or block that a rule looks at


class Severity(StrEnum):
    """How certain it is that the work can never run; DOUBT alone never refuses."""

    NEVER = "never"  # it can never work as it is written
    DENIED = "denied"  # a policy forbids it
    CONFLICT = "conflict"  # the stored object does not allow this change
    LATER = "later"  # something is missing that may come later
    CAPACITY = "capacity"  # there is no such machine now
    DOUBT = "doubt"  # it may be meant


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding before it has a line. Its text is the subject followed by `what`.

    where: an existing path. fix: what the user may write or do instead, or empty. at_key: the key
    is wrong, not its value. row: line, from 1, of a text in lines of its own. about: the subject,
    where that is not at `where`, such as a field that is missing there.
    """

    where: Path
    what: str
    fix: str = ""
    severity: Severity = Severity.NEVER
    at_key: bool = False
    row: int = 0
    about: Path | None = None

    @property
    def subject(self) -> Path:
        return self.where if self.about is None else self.about
