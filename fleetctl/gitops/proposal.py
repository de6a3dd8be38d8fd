"""Finds the changes of a repository's commit over rows as they are, before anything is stored, and
carries them as JSON from the process that reads to the one that keeps.

A proposal is plain data, for it goes from one process to another.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from fleetctl.apply.change import PRUNED, UNCHANGED, Change
from fleetctl.apply.consent import losses_of
from fleetctl.apply.policies.judge import digest_policies
from fleetctl.apply.policies.report import raise_if_denied
from fleetctl.apply.propose import propose_changes
from fleetctl.apply.request import ApplyOptions, pruning_of
from fleetctl.common.errors import Conflict, FleetctlError, Refused, Unavailable, UsageError
from fleetctl.controllers.model import Resource
from fleetctl.manifest import Manifest, ManifestErrors
from fleetctl.manifest.files.documents import VALUES, Document
from fleetctl.manifest.problems import ManifestProblem
from fleetctl.specs.kinds.source import FINISH_RUNNING, SourceSpec
from fleetctl.stores.base import ReadableStore
from fleetctl.tracking.annotations import APPLYSET
from fleetctl.tracking.by_hand import digest_fields, digest_of, set_name
from fleetctl.tracking.kept_by import KEPT_BY, KeptBy, read_owner

_ERRORS: Mapping[str, type[FleetctlError]] = {
    it.__name__: it for it in (Conflict, FleetctlError, Refused, Unavailable, UsageError)
}


@dataclass(frozen=True, slots=True)
class SourceClaim:
    """The facts on a Source that a reading needs. set: the apply set of its objects. within:
    namespace of manifests that name none. variables: a JSON object.
    """

    key: str
    set: str
    commit: str
    path: str = "."
    within: str = "default"
    variables: str = "{}"
    prune: bool = False
    max_prune: str = ""
    on_disruption: str = "Wait"


@dataclass(frozen=True, slots=True)
class ProposalLoss:
    sort: str
    sentence: str


@dataclass(frozen=True, slots=True)
class ProposedObject:
    """One object that changes. told: its text for an event. noted: only the program's own
    annotations change.
    """

    outcome: str
    before: Resource | None
    after: Resource
    told: str = ""
    losses: tuple[ProposalLoss, ...] = ()
    asked_again: bool = False
    noted: bool = False


@dataclass(frozen=True, slots=True)
class CommitProposal:
    """One proposal. objects: how many manifests there are, with volumes that are named and not
    declared. left: objects without a manifest that stay. policies: by which it was judged; see
    `standing`. author, subject: of the commit; empty where git did not say.
    """

    claim: SourceClaim
    items: tuple[ProposedObject, ...]
    objects: int
    left: int = 0
    warnings: tuple[str, ...] = ()
    policies: str = ""
    author: str = ""
    subject: str = ""

    @property
    def commit(self) -> str:
        return self.claim.commit


@dataclass(frozen=True, slots=True)
class Neighbour:
    """Another Source of the same repository and ref. declares: keys of objects, at the commit.
    reads: it applies the objects that it declares.
    """

    key: str
    declares: frozenset[str]
    reads: bool


def claim_of(
    source: Resource,
    spec: SourceSpec,
    commit: str,
) -> SourceClaim:
    return SourceClaim(
        key=source.key,
        set=set_name(source.name, source.namespace),
        commit=commit,
        path=spec.git.path,
        within=spec.namespace,
        variables=json.dumps(spec.variables),
        prune=spec.prune,
        max_prune=spec.max_prune or "",
        on_disruption=spec.on_disruption,
    )


def values_of(claim: SourceClaim, directory: str) -> list[Document]:
    """Returns the values of variables that a Source gives."""
    if claim.variables == "{}":
        return []
    return [Document(f"spec.variables of {claim.key}", claim.variables, directory, role=VALUES)]


def order_of(claim: SourceClaim, neighbours: Sequence[Neighbour] = ()) -> ApplyOptions:
    """Returns the options. neighbours: objects that they declare are theirs, and not pruned."""
    pruning = None
    if claim.prune:
        spared = frozenset(key for it in neighbours if it.reads for key in it.declares)
        limit = pruning_of(claim.max_prune)
        pruning = replace(limit, said="`maxPrune: {}`", spared=spared)
    return ApplyOptions(
        rollout=FINISH_RUNNING if claim.on_disruption == FINISH_RUNNING else "",
        applyset=claim.set,
        pruning=pruning,
        namespace=claim.within,
        everywhere=True,
    )


def changes_by(
    stored: ReadableStore,
    manifests: Sequence[Manifest],
    claim: SourceClaim,
    options: ApplyOptions,
    now_s: float,
    neighbours: Sequence[Neighbour] = (),
) -> list[Change]:
    """Returns the changes. options: as `order_of`, with the fetched sources. Raises ManifestErrors
    for objects of another owner, and Refused, Conflict and UsageError as an apply does.
    """
    problems = list(_find_conflicts(stored, manifests, claim, neighbours))
    if problems:
        raise ManifestErrors(problems)
    # Objects of another Source were given up by it at this commit.
    changes = propose_changes(stored, manifests, replace(options, take_over=True), now_s)
    raise_if_denied(changes, manifests)
    return changes


def proposal_of(
    stored: ReadableStore,
    manifests: Sequence[Manifest],
    claim: SourceClaim,
    changes: Sequence[Change],
    now_s: float,
) -> CommitProposal:
    files = {it.key: f"{it.path}:{it.line}" for it in manifests}
    items = [
        it for change in changes if (it := _build_item(change, files, claim, now_s)) is not None
    ]
    kept = {it.key for it in changes if it.outcome != PRUNED and it.key in files}
    mine = [
        it.key
        for it in stored.resources.list()
        if it.labels.get(APPLYSET) == claim.set and it.deleted_at_s is None
    ]
    left = 0 if claim.prune else sum(key not in files for key in mine)
    warnings = tuple(text for it in manifests for text in it.warnings)
    policies = digest_policies(stored, now_s)
    return CommitProposal(
        claim,
        tuple(items),
        len(kept) + left,
        left,
        warnings,
        policies,
    )


def _find_conflicts(
    stored: ReadableStore,
    manifests: Sequence[Manifest],
    claim: SourceClaim,
    neighbours: Sequence[Neighbour],
) -> Iterator[ManifestProblem]:
    declares = {it.key: it.declares for it in neighbours}
    for it in manifests:
        if it.key == claim.key:
            text = f"{it.key} cannot keep itself"
            yield ManifestProblem(
                it.path,
                it.line,
                1,
                text,
                "apply its own manifest by hand",
            )
            continue
        known = stored.resources.get(it.kind, it.name, it.namespace)
        owner = known.labels.get(APPLYSET) if known is not None else None
        if known is None or owner is None or owner == claim.set:
            continue
        note = read_owner(known.annotations)
        if note is not None and it.key not in declares.get(note.source, (it.key,)):
            continue  # its manifest has moved here from there
        if note is not None:
            text = f"{it.key} is kept by {note.source}, and {claim.key} claims it as well"
            hint = "declare it in one of the two"
        else:
            text = f"{it.key} belongs to the apply set `{owner}`, and {claim.key} claims it"
            hint = f"fleetctl label {it.key} {APPLYSET}-"
        yield ManifestProblem(
            it.path,
            it.line,
            1,
            text,
            hint,
        )


def _build_item(
    change: Change,
    files: Mapping[str, str],
    claim: SourceClaim,
    now_s: float,
) -> ProposedObject | None:
    """Returns the item; None where there is no change to write."""
    after = change.after
    losses = tuple(ProposalLoss(it.sort.value, it.sentence) for it in losses_of(change, (), now_s))
    if change.outcome == PRUNED:
        after = replace(after, annotations={**after.annotations})
        after.annotations.pop(KEPT_BY, None)
        return ProposedObject(
            change.outcome,
            change.before,
            after,
            _describe_change(change),
            losses,
        )
    if change.key not in files:  # a volume that is named, or a caller of a changed Function
        return ProposedObject(
            change.outcome,
            change.before,
            after,
            _describe_change(change),
            losses,
            change.asked_again,
        )
    known = read_owner(after.annotations)
    digest = digest_of(after)
    file = files[change.key]
    same = change.outcome == UNCHANGED
    if same and known is not None and known.source == claim.key:
        if (known.digest, known.file) == (digest, file) and after == change.before:
            return None
        note = known._replace(digest=digest, file=file, fields=digest_fields(after))
    else:
        note = KeptBy(claim.key, file, claim.commit, digest, digest_fields(after))
    after = replace(after, annotations={**after.annotations, KEPT_BY: note.text()})
    if same:
        return ProposedObject(change.outcome, change.before, after, noted=True)
    return ProposedObject(
        change.outcome,
        change.before,
        after,
        _describe_change(change),
        losses,
        change.asked_again,
    )


def _describe_change(change: Change) -> str:
    return change.record.partition(f"{change.key} {change.outcome}")[2].removeprefix(": ")


def dump_proposal(proposal: CommitProposal) -> dict[str, Any]:
    return {"proposal": asdict(proposal)}


def dump_error(error: FleetctlError) -> dict[str, Any]:
    problems = []
    if isinstance(error, ManifestErrors):
        problems = [asdict(it) for it in error.problems]
    sort = next(it.__name__ for it in type(error).__mro__ if it.__name__ in _ERRORS)
    about = {"sort": sort, "message": str(error), "hint": error.hint, "problems": problems}
    return {"error": about}


def load_proposal(reply: Mapping[str, Any]) -> CommitProposal:
    """Returns the proposal of a reply. Raises the error that the child raised."""
    if (error := reply.get("error")) is not None:
        if error["problems"]:
            raise ManifestErrors([ManifestProblem.of_document(it) for it in error["problems"]])
        raise _ERRORS[error["sort"]](error["message"], hint=error["hint"])
    found = reply["proposal"]
    return CommitProposal(
        claim=SourceClaim(**found["claim"]),
        items=tuple(map(_load_item, found["items"])),
        objects=found["objects"],
        left=found["left"],
        warnings=tuple(found["warnings"]),
        policies=found["policies"],
    )


def _load_item(found: Mapping[str, Any]) -> ProposedObject:
    before = found["before"]
    return ProposedObject(
        outcome=found["outcome"],
        before=Resource(**before) if before is not None else None,
        after=Resource(**found["after"]),
        told=found["told"],
        losses=tuple(ProposalLoss(**it) for it in found["losses"]),
        asked_again=found["asked_again"],
        noted=found["noted"],
    )
