"""What policies said, for people, and the refusal that it comes to. Called before anything is
stored, and by who shows what an apply would be refused for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from fleetctl.apply.change import Change, Verdict
from fleetctl.common.errors import Refused
from fleetctl.specs.values.exempt import EXEMPT

if TYPE_CHECKING:
    from fleetctl.manifest import Manifest

TOLD_MAX = 50  # of one refusal


class PolicyDenied(Refused):
    """Certain: nothing was stored."""


def warnings_of(changes: Iterable[Change]) -> list[str]:
    """What is let pass all the same, and why."""
    return [_warning(change, it) for change in changes for it in change.verdicts if not it.deny]


def denials_of(changes: Iterable[Change], manifests: Sequence[Manifest] = ()) -> list[str]:
    """One sentence each, with where the object is written. manifests: that were read for it."""
    places = {it.key: f"{it.path}:{it.line}: " for it in manifests if it.line}
    return list(_denials(changes, places))


def refuse(changes: Iterable[Change], manifests: Sequence[Manifest] = ()) -> None:
    """Raises PolicyDenied where a policy denies something."""
    found = denials_of(changes, manifests)
    if not found:
        return
    shown = found[:TOLD_MAX]
    if len(found) > TOLD_MAX:
        shown.append(f"and {len(found) - TOLD_MAX:,} more")
    raise PolicyDenied(
        "\nerror: ".join(shown),
        hint=f"`fleetctl describe policy/NAME` shows the rule; the annotation {EXEMPT} makes an"
        " exception for a while",
    )


def _denials(changes: Iterable[Change], places: dict[str, str]) -> Iterator[str]:
    for change in changes:
        for it in change.verdicts:
            if it.deny:
                yield f"{places.get(change.key, '')}{change.key} is denied by {_said(it)}"


def _warning(change: Change, it: Verdict) -> str:
    if it.exempt:
        return f"{change.key} is exempt from {_said(it)} ({it.exempt})"
    return f"{change.key}: warning of {_said(it)}"


def _said(it: Verdict) -> str:
    return f"policy/{it.policy}: {it.message}"
