"""The refusal of an apply, by all findings on its manifests and changes. Called before anything is
stored, and by screens that show the refusals of an apply.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from fleetctl.apply.change import Change, PolicyVerdict
from fleetctl.common.errors import Conflict, Refused
from fleetctl.common.finding import Severity
from fleetctl.manifest.problems import (
    ManifestProblem,
    PredictedErrors,
    join_sentences,
    sort_problems,
)
from fleetctl.specs.values.exempt import EXEMPT

if TYPE_CHECKING:
    from fleetctl.manifest import Manifest


class PolicyDenied(Refused):
    """Raised before the store was written, for certain."""

    def __init__(self, problems: Sequence[ManifestProblem], *, hint: str) -> None:
        super().__init__("\nerror: ".join(map(str, problems)), hint=hint)
        self.problems = tuple(problems)


def warnings_of(changes: Iterable[Change]) -> list[str]:
    """Returns the objects that pass in spite of a policy, with the reason."""
    return [
        _describe_warning(change, it) for change in changes for it in change.verdicts if not it.deny
    ]


def problems_of(
    changes: Iterable[Change], manifests: Sequence[Manifest] = ()
) -> list[ManifestProblem]:
    """Returns the refusals by policies and by stored objects. manifests: the ones read for it, for
    the places.
    """
    places = {it.key: (it.path, it.line) for it in manifests if it.line}
    found = []
    for change in changes:
        at = (*places.get(change.key, ("", 0)), 0)
        if (conflict := change.conflict) is not None:
            found.append(ManifestProblem(*at, conflict.what, conflict.fix, conflict.severity))
        for it in change.verdicts:
            if it.deny:
                text = f"{change.key} is denied by {_describe_verdict(it)}"
                hint = it.fix or _explain_policy(it.policy)
                found.append(ManifestProblem(*at, text, hint, it.severity))
    return found


def _explain_policy(name: str) -> str:
    return (
        f"`fleetctl describe policy/{name}` shows the rule; the annotation {EXEMPT} makes an"
        " exception for a while"
    )


def refuse_problems(
    problems: Sequence[ManifestProblem], manifests: Sequence[Manifest] = ()
) -> None:
    """Raises the error that all findings of an apply make together, by file and line."""
    if not problems:
        return
    found = sort_problems(problems, manifests)
    code = exit_code_of(found)
    if code == PolicyDenied.exit_code:
        raise PolicyDenied(found, hint=found[-1].hint)
    if code == Conflict.exit_code:
        raise Conflict("\nerror: ".join(map(str, found)), hint=found[-1].hint)
    raise PredictedErrors(found)


def exit_code_of(problems: Iterable[ManifestProblem]) -> int:
    """Returns the exit code of a refusal by these findings; 0 without any."""
    severities = {it.severity for it in problems}
    if len(severities) > 1:
        return PredictedErrors.exit_code
    codes = {Severity.DENIED: PolicyDenied.exit_code, Severity.CONFLICT: Conflict.exit_code}
    return next((codes.get(it, PredictedErrors.exit_code) for it in severities), 0)


def raise_if_denied(changes: Sequence[Change], manifests: Sequence[Manifest] = ()) -> None:
    """Raises PolicyDenied where a policy denies a change, Conflict where a stored object does."""
    refuse_problems(problems_of(changes, manifests), manifests)


def _describe_warning(change: Change, it: PolicyVerdict) -> str:
    if it.exempt:
        return f"{change.key} is exempt from {_describe_verdict(it)} ({it.exempt})"
    return join_sentences(f"{change.key}: warning of {_describe_verdict(it)}", it.fix)


def _describe_verdict(it: PolicyVerdict) -> str:
    return f"policy/{it.policy}: {it.what}"
