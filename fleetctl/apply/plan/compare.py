"""Compares two revisions of a repository: their objects, costs and risks, the running work of a
store that would end, and the units that the other side would not run again.

Decides nothing itself: changes come from propose.py, costs from build_plan.py. A store is read on
request alone, as `plan` reads it and without a controller: with it, the same revisions give another
report tomorrow.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fleetctl.apply.change import CREATED, PRUNED, UNCHANGED, Change
from fleetctl.apply.cost.estimate import FREE, Cost
from fleetctl.apply.cost.offers import market_of
from fleetctl.apply.impact import impact_on
from fleetctl.apply.plan.build_plan import (
    build_report,
    costs_of,
    list_comparison_risks,
    list_verdict_risks,
    sort_risks,
    sum_budgets,
)
from fleetctl.apply.plan.plan_report import (
    ObjectPlan,
    PlanAction,
    PlannedWork,
    PlanReport,
    RevisionComparison,
)
from fleetctl.apply.plan.repository import (
    GitCommit,
    RevisionTree,
    checked_out,
    repository_of,
    resolve_names,
)
from fleetctl.apply.plan.revision_plan import (
    ReviewContext,
    RevisionPlan,
    changes_between,
    side_of,
    stored_of,
)
from fleetctl.apply.policies.judge import (
    LoadedPolicy,
    judge_changes,
    merge_policies,
    policies_among,
    policies_in,
    policies_of,
    refuse_wrong,
)
from fleetctl.apply.policies.report import refuse_problems
from fleetctl.apply.predictions.predict import find_wrong, make_predictions
from fleetctl.apply.predictions.world import world_of
from fleetctl.apply.propose import propose_changes
from fleetctl.apply.request import ApplyOptions, parallelism_of, select_providers
from fleetctl.common.clock import SystemClock
from fleetctl.common.finding import Severity
from fleetctl.controllers.kinds.registry import CONTROLLERS, choose_controller
from fleetctl.controllers.model import Resource
from fleetctl.controllers.planning.kind_controller import KindController, Unit
from fleetctl.controllers.reuse.impact import RepeatedWork
from fleetctl.engine.capacity.price_book import KIND as PROVIDER
from fleetctl.manifest.document.envelope import NamespaceChoice
from fleetctl.manifest.files.documents import MANIFEST, VALUES, Document
from fleetctl.manifest.files.fence import fence_directory
from fleetctl.specs.kinds.registry import dump_spec, find_kind, parse_spec
from fleetctl.specs.values.namespaces import split_key
from fleetctl.stores.base import ReadableStore
from fleetctl.stores.read.read_only import StoreSnapshot, open_readonly
from fleetctl.tracking.annotations import pins_of
from fleetctl.tracking.manifest_sources import ManifestSources
from fleetctl.tracking.task_inputs import list_volumes
from fleetctl.wiring.account_registry import AccountRegistry

_SORTED = (PlanAction.DESTROY, PlanAction.UPDATE, PlanAction.CREATE, PlanAction.KEEP)
# The texts of a side, with `--set` applied. lenient: settings unknown to this side are left out.
Settle = Callable[[list[Document], bool], list[Document]]

# A second of hashing on a small machine; beyond it the plan does not count units.
UNITS_MAX = 50_000


@dataclass(frozen=True, slots=True)
class ReviewRequest:
    """A comparison. before, after: revisions. files, values: as the user wrote them. home: of a
    store to read as well.
    """

    directory: Path
    before: str
    after: str
    files: tuple[str, ...]
    values: tuple[str, ...]
    recursive: bool
    namespace: NamespaceChoice
    settle: Settle
    policies: tuple[str, ...] = ()
    home: Path | None = None


def compare_revisions(asked: ReviewRequest) -> PlanReport:
    """Compares. Raises ManifestErrors for errors on the new side, NotFound and Refused for
    revisions that the clone does not have.
    """
    repository = repository_of([_directory_of(asked), asked.directory])
    named_before = repository.commit(asked.before)
    after = repository.commit(asked.after)
    before = repository.parting(named_before, after)

    with (
        checked_out(repository, (before, after)) as trees,
        tempfile.TemporaryDirectory(prefix="fleetctl-review-") as home,
    ):
        old_tree, new_tree = trees
        files, values, policy_files = (
            resolve_names(repository, trees, names, asked.directory)
            for names in (asked.files, asked.values, asked.policies)
        )
        room = ReviewContext(Path(home), asked.namespace, float(after.at_s))
        new = _plan_side(new_tree, files, values, asked, room, lenient=False)
        if new.wrong is not None:
            raise new.wrong
        refuse_wrong(new.manifests, find_wrong)
        policies = _read_policies(new_tree, policy_files)
        old = _plan_side(old_tree, files, values, asked, room, lenient=True)

        stored = stored_of(old, room.at_s)
        changes = changes_between(stored, old, new, room.at_s)
        _refuse_what_never_works(stored, new, changes)
        gone = _list_deleted(stored, old, new)

        live = None
        if asked.home is not None:
            live = live_of(asked.home, new, [it.key for it in gone])
        holding = policies_among(new.manifests) if live is None else live.policies
        held = merge_policies(holding, policies)
        changes = judge_changes(changes, held, room.at_s, costs=costs_of(new.report))

    both = RevisionComparison(
        before,
        after,
        asked=None if named_before == before else named_before,
        cost=old.report.cost,
        known=old.wrong is None,
        live=live is not None,
    )
    return _build_comparison(both, old, new, changes, gone, live)


def _read_policies(tree: RevisionTree, files: Sequence[tuple[str, str]]) -> list[LoadedPolicy]:
    """Returns the policies of files that are given beside the manifests."""
    with fence_directory(tree.root):
        documents = tree.documents(files, recursive=True)
        return policies_in(documents, find_wrong) if documents else []


def _directory_of(asked: ReviewRequest) -> Path:
    """Returns the directory of the first file, or the nearest existing one: the file may be in one
    revision alone, and in another repository than the working directory.
    """
    place = Path(asked.directory / asked.files[0]).absolute()
    return next(it for it in (place, *place.parents) if it.is_dir())


def _plan_side(
    tree: RevisionTree,
    files: Sequence[tuple[str, str]],
    values: Sequence[tuple[str, str]],
    asked: ReviewRequest,
    room: ReviewContext,
    *,
    lenient: bool,
) -> RevisionPlan:
    with fence_directory(tree.root):
        documents = [
            *tree.documents(files, recursive=asked.recursive, role=MANIFEST),
            *tree.documents(values, role=VALUES),
        ]
        return side_of(asked.settle(documents, lenient), tree.root, room)


def _refuse_what_never_works(
    stored: StoreSnapshot,
    new: RevisionPlan,
    changes: Sequence[Change],
) -> None:
    """Raises ManifestErrors for errors with which every machine would refuse an apply of the new
    side. Missing parts of a machine (a Secret, a key, a provider) are no such errors.
    """

    def unknown(_: str) -> None:
        return None  # no variable of this machine is part of a revision

    # Provider objects are among the changes.
    world = world_of(
        stored,
        changes,
        new.providers,
        {},
        unknown,
        starts_here=False,
    )
    found = asyncio.run(make_predictions(new.manifests, changes, world))
    certain = [it for it in found if it.severity is Severity.NEVER]
    refuse_problems([problem for it in certain for problem in it.problems()], new.manifests)


def _list_deleted(
    stored: StoreSnapshot,
    old: RevisionPlan,
    new: RevisionPlan,
) -> list[Resource]:
    """Returns the objects that the new side does not declare. A volume that was only named
    stays."""
    there = new.by_key
    rows = (stored.resources.get(it.kind, it.name, it.namespace) for it in old.manifests)
    return [row for row in rows if row is not None and row.key not in there]


def _build_comparison(
    both: RevisionComparison,
    old: RevisionPlan,
    new: RevisionPlan,
    changes: Sequence[Change],
    gone: Sequence[Resource],
    live: LiveState | None,
) -> PlanReport:
    before = {it.key: it for it in old.report.objects}
    after = {it.key: it for it in new.report.objects}
    objects = [_compare_object(it, before.get(it.key), after.get(it.key)) for it in changes]
    objects += [_compare_deletion(it, before.get(it.key)) for it in gone]
    objects.sort(key=lambda it: (_SORTED.index(it.action), it.key))

    moving = [it for it in objects if it.action is not PlanAction.KEEP]
    rows = {it.after.key: it.after for it in changes}
    rows |= {it.key: it for it in gone}
    risks = [
        *list_comparison_risks(
            moving,
            rows,
            (old.report, new.report),
            None if live is None else live.stopped,
        ),
        *list_verdict_risks(it for it in changes if it.outcome != UNCHANGED),
    ]

    left = come = FREE
    for key in {**before, **after}:
        was = _cost_of(before.get(key))
        now = _cost_of(after.get(key))
        if was != now:
            left += was
            come += now

    if live is None:
        budgets = tuple(it.sentence for it in sum_budgets(new.report) if it.shared)
    else:
        budgets = live.budgets
    return replace(
        new.report,
        objects=tuple(objects),
        risks=sort_risks(risks),
        budgets=budgets,
        warnings=tuple(_list_warnings(both.before, old, new)),
        comparison=replace(both, left=left, come=come),
    )


def _cost_of(it: ObjectPlan | None) -> Cost:
    return (None if it is None else it.cost) or FREE


def _compare_object(
    change: Change,
    old: ObjectPlan | None,
    new: ObjectPlan | None,
) -> ObjectPlan:
    if change.outcome == UNCHANGED:
        return ObjectPlan(change.key, PlanAction.KEEP)
    work = None if new is None else new.work
    units = units_of(change.before, change.after)
    return ObjectPlan(
        change.key,
        PlanAction.CREATE if change.outcome == CREATED else PlanAction.UPDATE,
        message=change.message,
        fields=change.fields,
        notes=() if new is None else new.notes,
        work=work if work is None or units is None else _count_again(work, units),
        warm=None if new is None else new.warm,
        before=None if old is None else old.cost,
    )


def _compare_deletion(row: Resource, old: ObjectPlan | None) -> ObjectPlan:
    work = None if old is None else old.work
    units = units_of(row, None)
    if work is not None and units is not None:
        work = replace(
            _count_again(work, units), to_run=0, places=(), now=FREE, total=FREE, caps=()
        )
    return ObjectPlan(
        row.key,
        PlanAction.DESTROY,
        work=work,
        before=None if old is None else old.cost,
    )


def _count_again(work: PlannedWork, units: UnitChanges) -> PlannedWork:
    """Returns the work of a side with the units that would run, had all of the other been done. Its
    cost stays that of all of the work."""
    if units.kept is None or units.again is None or units.new is None:
        return replace(work, kept=None)
    return replace(
        work,
        to_run=units.again + units.new,
        kept=units.kept,
        again=RepeatedWork(units.again),
        gone=units.gone or 0,
    )


def _list_warnings(
    before: GitCommit,
    old: RevisionPlan,
    new: RevisionPlan,
) -> Iterator[str]:
    if old.wrong is not None:
        first = str(old.wrong).splitlines()[0].removeprefix("error: ")
        yield (
            f"the manifests of {before.shown} cannot be read, so everything is shown as new and"
            f" nothing is known of the cost before: {first}"
        )
    yield from (text for manifest in new.manifests for text in manifest.warnings)
    yield from (text for it in new.looked.values() for text in it.warnings)


@dataclass(frozen=True, slots=True)
class LiveState:
    """stopped: of each object, how many running units would end. budgets: sentences. policies: that
    hold there once the new side is applied.
    """

    stopped: Mapping[str, int]
    budgets: tuple[str, ...]
    policies: tuple[LoadedPolicy, ...]


def live_of(
    home: Path,
    new: RevisionPlan,
    gone: Sequence[str],
) -> LiveState:
    """Reads the store. gone: keys of objects that the new side has no more."""
    now_s = SystemClock().now_s()
    with open_readonly(home) as stored:
        accounts = AccountRegistry(home, store_id=stored.store_id)
        for resource in stored.resources.living(PROVIDER):
            accounts.open(resource.name, json.loads(resource.spec))
        for name, spec in select_providers(new.manifests).items():
            accounts.open(name, json.loads(dump_spec(spec)))
        order = replace(
            new.order, parallelism=parallelism_of(accounts.backends), sources=ManifestSources(home)
        )
        manifests = asyncio.run(list_volumes(new.manifests, stored, home))
        changes = propose_changes(stored, manifests, order, now_s)
        changes += _propose_deletions(stored, gone, order, now_s)
        market = market_of(stored, changes, accounts.backends)
        found = build_report(stored, changes, market, now_s)
        policies = tuple(policies_of(stored, changes))
    stopped = {it.key: len(it.destroyed) for it in changes}
    some = {key: count for key, count in stopped.items() if count}
    return LiveState(some, found.budgets, policies)


def _propose_deletions(
    stored: ReadableStore,
    gone: Sequence[str],
    order: ApplyOptions,
    now_s: float,
) -> list[Change]:
    found = []
    for key in gone:
        word, name, namespace = split_key(key)
        kind = find_kind(word)
        row = None if kind is None else stored.resources.get(kind.name, name, namespace)
        if row is not None:
            doomed = replace(row, deleted_at_s=now_s)
            impact = impact_on(stored, doomed, order)
            found.append(Change(PRUNED, row, doomed, impact=impact))
    return found


@dataclass(frozen=True, slots=True)
class UnitChanges:
    """An object's units. kept: on both sides with one content. again: the same units with another
    content, so that finished work on them is outdated. new: on the new side alone. gone: on the old
    side alone. None: unknown, because a side does not know its units yet, or has too many.
    """

    kept: int | None = None
    again: int | None = None
    new: int | None = None
    gone: int | None = None


def units_of(before: Resource | None, after: Resource | None) -> UnitChanges | None:
    """Returns the counts, or None for kinds that run no work."""
    resource = after or before
    if resource is None or resource.kind not in CONTROLLERS:
        return None
    old = {} if before is None else _index_contents(before)
    new = {} if after is None else _index_contents(after)
    if old is None or new is None:
        return UnitChanges()
    both = new.keys() & old.keys()
    kept = sum(1 for it in both if new[it] == old[it])
    return UnitChanges(kept, len(both) - kept, len(new) - len(both), len(old) - len(both))


def _index_contents(resource: Resource) -> dict[tuple[int, str], str] | None:
    """Returns contents by the unit's identity: its parameters, and its number among equals."""
    controller = _make_controller(resource)
    if controller.total is None or controller.total > UNITS_MAX:
        return None
    found: dict[tuple[int, str], str] = {}
    for index in controller.indexes():
        unit = controller.unit(index)
        if unit is None:
            return None  # a search that works its points out one by one
        found[_identify_unit(controller, unit)] = unit.content
    return found


def _make_controller(resource: Resource) -> KindController:
    spec = parse_spec(resource.kind, resource.spec)
    make = choose_controller(resource.kind, spec)
    assert make is not None, f"{resource.key} runs no work"
    return make(spec, {}, pins_of(resource.annotations))


def _identify_unit(controller: KindController, unit: Unit) -> tuple[int, str]:
    """Returns the unit's identity. Where the index is part of the parameters, it adds nothing."""
    if controller.keeps_indexes:
        return -1, unit.params_hash
    number = unit.index if controller.repeats else controller.equal_before(unit.index)
    return number, unit.params_hash
