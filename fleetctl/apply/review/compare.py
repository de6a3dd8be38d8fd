"""Compares two revisions of a repository: their objects, what they cost, and what is at risk.

Called by the CLI. Decides nothing itself: changes come from propose.py, costs from the planner.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fleetctl.apply.change import CREATED, UNCHANGED, Change
from fleetctl.apply.cost.estimate import FREE, Cost
from fleetctl.apply.cost.forecast import costs_of
from fleetctl.apply.cost.report import ObjectPlan
from fleetctl.apply.policies.given import policies_among, policies_in, refuse_wrong, together
from fleetctl.apply.policies.judge import judged
from fleetctl.apply.predictions.policies import wrong_in
from fleetctl.apply.review.again import units_of
from fleetctl.apply.review.budgets import budgets_of
from fleetctl.apply.review.checkout import Tree, checked_out, named
from fleetctl.apply.review.live import Live, live_of
from fleetctl.apply.review.repository import Commit, repository_of
from fleetctl.apply.review.review import Bill, Review, Reviewed, Turn
from fleetctl.apply.review.risks import in_order, of_changes, risks_of
from fleetctl.apply.review.sides import Room, Side, changes_between, side_of, stored_of
from fleetctl.controllers.model import Resource
from fleetctl.manifest.document.namespaces import Chosen
from fleetctl.manifest.files.documents import MANIFEST, VALUES, Document
from fleetctl.manifest.files.fence import fenced
from fleetctl.specs.kinds.registry import KINDS
from fleetctl.stores.read.read_only import Snapshot

# The texts of a side, with what `--set` says. lenient: what this side does not know is left out.
Settle = Callable[[list[Document], bool], list[Document]]


@dataclass(frozen=True, slots=True)
class Asked:
    """before, after: revisions. files, values: as a person wrote them. home: of a store that is
    looked at, too.
    """

    directory: Path
    before: str
    after: str
    files: tuple[str, ...]
    values: tuple[str, ...]
    recursive: bool
    namespace: Chosen
    settle: Settle
    policies: tuple[str, ...] = ()
    home: Path | None = None


def compare(asked: Asked) -> Review:
    """Raises ManifestErrors for what is wrong on the new side, NotFound and Refused for what the
    clone does not have.
    """
    repository = repository_of([_directory_of(asked), asked.directory])
    named_before, after = repository.commit(asked.before), repository.commit(asked.after)
    before = repository.parting(named_before, after)
    with (
        checked_out(repository, (before, after)) as (old_tree, new_tree),
        tempfile.TemporaryDirectory(prefix="fleetctl-review-") as home,
    ):
        trees = (old_tree, new_tree)
        files, values, beside = (
            named(repository, trees, names, asked.directory)
            for names in (asked.files, asked.values, asked.policies)
        )
        room = Room(Path(home), asked.namespace, float(after.at_s))
        new = _side(new_tree, files, values, asked, room, lenient=False)
        if new.wrong is not None:
            raise new.wrong
        refuse_wrong(new.manifests, wrong_in)
        with fenced(new_tree.root):
            texts = new_tree.documents(beside, recursive=True)
            policies = policies_in(texts, wrong_in) if texts else []
        old = _side(old_tree, files, values, asked, room, lenient=True)
        stored = stored_of(old, room.at_s)
        changes = changes_between(stored, old, new, room.at_s)
        gone = _gone(stored, old, new)
        live = None if asked.home is None else live_of(asked.home, new, [it.key for it in gone])
        holding = policies_among(new.manifests) if live is None else live.policies
        policies = together(holding, policies)
        changes = judged(changes, policies, room.at_s, costs=costs_of(new.report))
    found = _review(before, after, old, new, changes, gone, live)
    return found if named_before == before else replace(found, asked=named_before)


def _directory_of(asked: Asked) -> Path:
    """That of the first file, or the nearest that is there: the file may be in one revision alone,
    and of another repository than that of the working directory.
    """
    place = Path(asked.directory / asked.files[0]).absolute()
    return next(it for it in (place, *place.parents) if it.is_dir())


def _side(
    tree: Tree,
    files: Sequence[tuple[str, str]],
    values: Sequence[tuple[str, str]],
    asked: Asked,
    room: Room,
    *,
    lenient: bool,
) -> Side:
    with fenced(tree.root):
        documents = [
            *tree.documents(files, recursive=asked.recursive, role=MANIFEST),
            *tree.documents(values, role=VALUES),
        ]
        return side_of(asked.settle(documents, lenient), tree.root, room)


def _gone(stored: Snapshot, old: Side, new: Side) -> list[Resource]:
    """Objects that the new side does not declare. A volume that only was named stays."""
    there = new.by_key
    rows = (stored.resources.get(it.kind, it.name, it.namespace) for it in old.manifests)
    return [row for row in rows if row is not None and row.key not in there]


def _review(
    before: Commit,
    after: Commit,
    old: Side,
    new: Side,
    changes: Sequence[Change],
    gone: Sequence[Resource],
    live: Live | None,
) -> Review:
    planned_before = {it.change.key: it for it in old.report.objects}
    planned = {it.change.key: it for it in new.report.objects}
    moving = [it for it in changes if it.outcome != UNCHANGED]
    objects = [_reviewed(it, planned_before.get(it.key), planned.get(it.key)) for it in moving]
    objects += [_deleted(it, planned_before.get(it.key)) for it in gone]
    found = Review(
        before,
        after,
        tuple(sorted(objects, key=_order)),
        _bill(old, new, planned_before, planned),
        unchanged=len(changes) - len(moving),
        budgets=live.budgets if live is not None else budgets_of(new.report),
        prices=new.report.sources,
        warnings=tuple(_warnings(before, old, new)),
        live=live is not None,
    )
    rows = {it.after.key: it.after for it in changes} | {it.key: it for it in gone}
    risks = risks_of(found, rows, (old.report, new.report), live)
    return replace(found, risks=tuple(in_order([*risks, *of_changes(moving)])))


def _bill(
    old: Side,
    new: Side,
    planned_before: Mapping[str, ObjectPlan],
    planned: Mapping[str, ObjectPlan],
) -> Bill:
    left = come = FREE
    for key in {**planned_before, **planned}:
        was, now = _cost_of(planned_before.get(key)), _cost_of(planned.get(key))
        if was != now:
            left, come = left + was, come + now
    known = old.wrong is None
    return Bill(old.report.now, new.report.now, known_before=known, left=left, come=come)


def _cost_of(it: ObjectPlan | None) -> Cost:
    return FREE if it is None or it.work is None else it.work.now


def _order(it: Reviewed) -> tuple[int, str]:
    return (Turn.DELETED, Turn.CHANGED, Turn.CREATED).index(it.turn), it.key


def _reviewed(change: Change, old: ObjectPlan | None, new: ObjectPlan | None) -> Reviewed:
    created = change.outcome == CREATED
    units = units_of(change.before, change.after)
    return Reviewed(
        change.key,
        Turn.CREATED if created else Turn.CHANGED,
        fields=change.fields,
        notes=() if new is None else new.notes,
        unit=KINDS[change.after.kind].unit,
        units=units,
        total=None if new is None or new.work is None else new.work.to_run,
        before=None if old is None or old.work is None else old.work.now,
        after=None if new is None or new.work is None else new.work.now,
        standing="" if new is None or new.warm is None else new.warm.sentence,
        where="" if new is None else _where(new),
    )


def _deleted(row: Resource, old: ObjectPlan | None) -> Reviewed:
    return Reviewed(
        row.key,
        Turn.DELETED,
        unit=KINDS[row.kind].unit,
        units=units_of(row, None),
        before=None if old is None or old.work is None else old.work.now,
    )


def _where(planned: ObjectPlan) -> str:
    taken: Counter[str] = Counter()
    for place in planned.work.places if planned.work is not None else ():
        taken[place.judged.provider] += place.units
    return ", ".join(f"{name} {count:,}" for name, count in taken.items() if count)


def _warnings(before: Commit, old: Side, new: Side) -> Iterator[str]:
    if old.wrong is not None:
        first = str(old.wrong).splitlines()[0].removeprefix("error: ")
        yield (
            f"the manifests of {before.shown} cannot be read, so everything is shown as new and"
            f" nothing is known of the cost before: {first}"
        )
    yield from (text for manifest in new.manifests for text in manifest.warnings)
    yield from (text for it in new.looked.values() for text in it.warnings)
