"""The verdicts of policies as sentences, and the refusal that follows from them. Called before
anything is stored, and by screens that show the refusals of an apply.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from fleetctl.apply.change import Change, PolicyVerdict
from fleetctl.common.errors import Refused
from fleetctl.specs.values.exempt import EXEMPT

if TYPE_CHECKING:
    from fleetctl.manifest import Manifest

TOLD_MAX = 50  # in one refusal


class PolicyDenied(Refused):
    """Raised before the store was written, for certain."""


def warnings_of(changes: Iterable[Change]) -> list[str]:
    """Returns the objects that pass in spite of a policy, with the reason."""
    return [
        _describe_warning(change, it) for change in changes for it in change.verdicts if not it.deny
    ]


def denials_of(changes: Iterable[Change], manifests: Sequence[Manifest] = ()) -> list[str]:
    """Returns one sentence each, with the file and line of the object. manifests: the ones read for
    it."""
    places = {it.key: f"{it.path}:{it.line}: " for it in manifests if it.line}
    return list(_list_denials(changes, places))


def raise_if_denied(changes: Sequence[Change], manifests: Sequence[Manifest] = ()) -> None:
    """Raises PolicyDenied where a policy denies a change."""
    found = denials_of(changes, manifests)
    if not found:
        return
    shown = found[:TOLD_MAX]
    if len(found) > TOLD_MAX:
        shown.append(f"and {len(found) - TOLD_MAX:,} more")
    policy = next(it.policy for change in changes for it in change.verdicts if it.deny)
    raise PolicyDenied(
        "\nerror: ".join(shown),
        hint=f"`fleetctl describe policy/{policy}` shows the rule; the annotation {EXEMPT} makes an"
        " exception for a while",
    )


def _list_denials(changes: Iterable[Change], places: dict[str, str]) -> Iterator[str]:
    for change in changes:
        for it in change.verdicts:
            if it.deny:
                yield (
                    f"{places.get(change.key, '')}{change.key} is denied by {_describe_verdict(it)}"
                )


def _describe_warning(change: Change, it: PolicyVerdict) -> str:
    if it.exempt:
        return f"{change.key} is exempt from {_describe_verdict(it)} ({it.exempt})"
    return f"{change.key}: warning of {_describe_verdict(it)}"


def _describe_verdict(it: PolicyVerdict) -> str:
    return f"policy/{it.policy}: {it.message}"
