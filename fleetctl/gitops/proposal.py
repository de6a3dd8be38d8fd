"""What a commit of a repository would change: found out over rows as they are, before anything is
stored. Asked by child.py, in a process of its own, over a store that it only reads; and by tests
over a store in memory.

A proposal is plain data, for it goes from one process to another.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from fleetctl.apply.change import PRUNED, UNCHANGED, Change
from fleetctl.apply.consent import losses_of
from fleetctl.apply.policies.judge import standing
from fleetctl.apply.policies.told import refuse
from fleetctl.apply.propose import propose
from fleetctl.apply.request.options import Order, pruning_of
from fleetctl.controllers.model import Resource
from fleetctl.manifest import Manifest, ManifestErrors
from fleetctl.manifest.files.documents import VALUES, Document
from fleetctl.manifest.problems import Problem
from fleetctl.specs.kinds.source import FINISH_RUNNING, SourceSpec
from fleetctl.stores.base import Stored
from fleetctl.tracking.annotations import APPLYSET
from fleetctl.tracking.kept_by import KEPT_BY, KeptBy, kept_by
from fleetctl.tracking.ownership import digest_of, set_name


@dataclass(frozen=True, slots=True)
class Claim:
    """What a reading must know of a Source. set: the apply set of its objects. within: where
    manifests go that name no namespace. variables: a JSON object.
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
class Loss:
    sort: str
    sentence: str


@dataclass(frozen=True, slots=True)
class Item:
    """One object that becomes another. told: as an event keeps it. noted: only what we note on it
    ourselves changes.
    """

    outcome: str
    before: Resource | None
    after: Resource
    told: str = ""
    losses: tuple[Loss, ...] = ()
    asked_again: bool = False
    noted: bool = False


@dataclass(frozen=True, slots=True)
class Proposal:
    """objects: how many manifests there are, with volumes that are named and not declared. left:
    objects whose manifest went, and that stay. policies: by which it was judged; see `standing`.
    """

    claim: Claim
    items: tuple[Item, ...]
    objects: int
    left: int = 0
    warnings: tuple[str, ...] = ()
    policies: str = ""

    @property
    def commit(self) -> str:
        return self.claim.commit


def claim_of(source: Resource, spec: SourceSpec, commit: str) -> Claim:
    return Claim(
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


def values_of(claim: Claim, directory: str) -> list[Document]:
    """The values of variables that a Source gives."""
    if claim.variables == "{}":
        return []
    return [Document(f"spec.variables of {claim.key}", claim.variables, directory, role=VALUES)]


def order_of(claim: Claim) -> Order:
    pruning = None
    if claim.prune:
        pruning = replace(pruning_of(claim.max_prune), said="`maxPrune: {}`")
    return Order(
        rollout=FINISH_RUNNING if claim.on_disruption == FINISH_RUNNING else "",
        applyset=claim.set,
        pruning=pruning,
        namespace=claim.within,
        everywhere=True,
    )


def proposed(
    stored: Stored, manifests: Sequence[Manifest], claim: Claim, options: Order, now_s: float
) -> tuple[Proposal, list[Change]]:
    """As `changes_by`, with what is to be stored."""
    changes = changes_by(stored, manifests, claim, options, now_s)
    return proposal_of(stored, manifests, claim, changes, now_s), changes


def changes_by(
    stored: Stored, manifests: Sequence[Manifest], claim: Claim, options: Order, now_s: float
) -> list[Change]:
    """options: as `order_of`, with what was looked up. Raises ManifestErrors for what is another's,
    and Refused, Conflict and UsageError as an apply does.
    """
    problems = list(_claimed(stored, manifests, claim))
    if problems:
        raise ManifestErrors(problems)
    changes = propose(stored, manifests, options, now_s)
    refuse(changes, manifests)
    return changes


def proposal_of(
    stored: Stored,
    manifests: Sequence[Manifest],
    claim: Claim,
    changes: Sequence[Change],
    now_s: float,
) -> Proposal:
    files = {it.key: f"{it.path}:{it.line}" for it in manifests}
    items = [it for change in changes if (it := _item(change, files, claim, now_s)) is not None]
    kept = {it.key for it in changes if it.outcome != PRUNED and it.key in files}
    mine = [
        it.key
        for it in stored.resources.list()
        if it.labels.get(APPLYSET) == claim.set and it.deleted_at_s is None
    ]
    left = 0 if claim.prune else sum(key not in files for key in mine)
    warnings = tuple(text for it in manifests for text in it.warnings)
    policies = standing(stored, now_s)
    return Proposal(claim, tuple(items), len(kept) + left, left, warnings, policies)


def _claimed(stored: Stored, manifests: Sequence[Manifest], claim: Claim) -> Iterator[Problem]:
    for it in manifests:
        if it.key == claim.key:
            text = f"{it.key} cannot keep itself"
            yield Problem(it.path, it.line, 1, text, "apply its own manifest by hand")
            continue
        known = stored.resources.get(it.kind, it.name, it.namespace)
        owner = known.labels.get(APPLYSET) if known is not None else None
        if known is None or owner is None or owner == claim.set:
            continue
        note = kept_by(known.annotations)
        if note is not None:
            text = f"{it.key} is kept by {note.source}, and {claim.key} claims it as well"
            hint = "declare it in one of the two"
        else:
            text = f"{it.key} belongs to the apply set `{owner}`, and {claim.key} claims it"
            hint = f"fleetctl label {it.key} {APPLYSET}-"
        yield Problem(it.path, it.line, 1, text, hint)


def _item(change: Change, files: Mapping[str, str], claim: Claim, now_s: float) -> Item | None:
    """None where nothing is to be written."""
    after = change.after
    losses = tuple(Loss(it.sort.value, it.sentence) for it in losses_of(change, (), now_s))
    if change.outcome == PRUNED:
        after = replace(after, annotations={**after.annotations})
        after.annotations.pop(KEPT_BY, None)
        return Item(change.outcome, change.before, after, _told(change), losses)
    if change.key not in files:  # a volume that is named, or who calls what becomes another
        return Item(change.outcome, change.before, after, _told(change), losses, change.asked_again)
    known = kept_by(after.annotations)
    digest, file = digest_of(after), files[change.key]
    same = change.outcome == UNCHANGED
    if same and known is not None and known.source == claim.key:
        if (known.digest, known.file) == (digest, file) and after == change.before:
            return None
        note = known._replace(digest=digest, file=file)
    else:
        note = KeptBy(claim.key, file, claim.commit, digest)
    after = replace(after, annotations={**after.annotations, KEPT_BY: note.text()})
    if same:
        return Item(change.outcome, change.before, after, noted=True)
    return Item(change.outcome, change.before, after, _told(change), losses, change.asked_again)


def _told(change: Change) -> str:
    return change.record.partition(f"{change.key} {change.outcome}")[2].removeprefix(": ")
