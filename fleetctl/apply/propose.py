"""Finds out the changes that applying manifests would make before anything is stored, and stores
them.

`propose` only reads, so a dry run and a plan call it too; `store_changes` writes the proposal.
Called by the socket server and by `plan`, `diff` and dry runs. draft.py turns a manifest into an
object, impact.py finds the effect on work, change.py describes it; consent.py has what the user
must allow first, deletion.py the objects that `--prune` deletes.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from fleetctl.apply.change import (
    CONFIGURED,
    CREATED,
    PRUNED,
    UNCHANGED,
    Change,
    Leaving,
    list_differences,
    list_replaced,
)
from fleetctl.apply.deletion import find_pruned, list_going_with
from fleetctl.apply.draft import (
    draft_resource,
    draft_volumes,
    fires_note,
    function_content,
    models_content,
    prior_kept,
    refuse_another_sweep,
    refuse_another_type,
    stored_function_content,
    winner_note,
    winner_params,
    winner_told,
)
from fleetctl.apply.impact import (
    GOES_ON,
    depends_note,
    fresh_impact,
    impact_on,
    may_go_on,
    results_kept,
    results_told,
    revive_dependents,
    sort_manifests,
)
from fleetctl.apply.merge import list_named_defaults, with_hand_fields
from fleetctl.apply.policies.judge import judge_proposal
from fleetctl.apply.policies.report import raise_if_denied
from fleetctl.apply.request import ApplyOptions
from fleetctl.common.errors import Conflict
from fleetctl.common.finding import Finding, Severity
from fleetctl.controllers.kinds.registry import CONTROLLERS
from fleetctl.controllers.model import LIVE_STATES, Resource, RunState
from fleetctl.controllers.planning.plan import Rollout
from fleetctl.controllers.trials.prior import NO_PRIOR
from fleetctl.controllers.trials.winner import NO_BEST
from fleetctl.specs.blocks.common import WorkSpec
from fleetctl.specs.blocks.template import Template
from fleetctl.specs.content import content_of_function, list_called_endpoints
from fleetctl.specs.kinds.function import FunctionSpec
from fleetctl.specs.kinds.provider import ProviderSpec
from fleetctl.specs.kinds.registry import KINDS
from fleetctl.specs.kinds.sweep import SweepSpec
from fleetctl.specs.values.changes import UNSET, FieldChange, is_same_json
from fleetctl.stores.base import EventRow, ReadableStore, Store
from fleetctl.tracking.annotations import (
    COMMAND,
    FINISHING,
    FUNCTION,
    INDEXES,
    KEPT,
    MODELS,
    NOTES,
    PARAMS,
    PRIOR,
    RERUN,
    RESULTS,
    REVISION,
    ROLLOUT,
    pins_of,
)
from fleetctl.tracking.by_hand import (
    FieldNote,
    field_note,
    format_paths,
    note_fields,
    note_of_edit,
)
from fleetctl.tracking.kept_by import name_left_owner, read_owner
from fleetctl.tracking.manifest_sources import source_of
from fleetctl.tracking.result_cache import format_row_indexes
from fleetctl.tracking.track import track_of

if TYPE_CHECKING:
    from fleetctl.manifest import Manifest

MOVED = "what it runs in changed"
ASKED = "the models that it asks changed"


def propose_changes(
    stored: ReadableStore,
    manifests: Sequence[Manifest],
    options: ApplyOptions,
    now_s: float,
) -> list[Change]:
    """Returns the change of each manifest, in their order, then the pruned objects.

    A volume that a template names and no manifest declares is created with deletionPolicy Retain,
    as Modal's create_if_missing does, so that no data is stored where `get volumes` does not show
    it.
    """
    if not options.by_hand:
        manifests = with_hand_fields(stored, manifests)
    options = _settle_revisions(stored, manifests, options)
    changes: list[Change] = []
    functions, endpoints = (
        {(it.name, it.namespace): it for it in manifests if it.kind == kind}
        for kind in ("Function", "Endpoint")
    )
    volumes = {(it.name, it.namespace) for it in manifests if it.kind == "Volume"}
    gone = list(_list_pruned(stored, manifests, options, now_s))
    leaving = Leaving(
        (it.before for it in gone if it.before is not None),
        lambda row: impact_on(stored, row, options),
    )
    found: dict[str, Change] = {}
    moving: set[str] = set()
    # An object that depends on another, or takes values from it, must know whether that one
    # changes.
    for manifest in sort_manifests(manifests):
        template = getattr(manifest.spec, "template", None)
        asks = template.asks if isinstance(template, Template) else ()
        taken = {
            FUNCTION: function_content(stored, manifest, functions, options),
            MODELS: models_content(stored, asks, manifest.namespace, endpoints),
        }
        make = partial(_propose_change, stored, manifest, options, now_s, taken, moving)
        known = stored.resources.get(manifest.kind, manifest.name, manifest.namespace)
        try:
            change = make(known)
            if known is None:
                change = leaving.renamed(change, manifest, make) or change
        except Conflict as error:
            if known is None or not options.gathers:
                raise
            no = Finding((), str(error), error.hint, Severity.CONFLICT)
            change = Change(UNCHANGED, known, known, conflict=no)
        found[manifest.key] = change
        if _is_new_generation(change):
            moving.add(change.key)
    for manifest in manifests:
        for volume in draft_volumes(stored, manifest, volumes, now_s):
            volumes.add((volume.name, volume.namespace))
            changes.append(Change(CREATED, None, volume, note=f"named by {manifest.name}"))
        changes.append(found[manifest.key])
    changes += _propose_users(stored, functions, endpoints, manifests, options)
    changes += revive_dependents(stored, moving, manifests, options)
    going = {it.key: it for it in gone if it.after.uid not in leaving.taken}
    # A pruned object gets no other change before, and neither does one with a new name.
    passed = {*going, *leaving.taken.values()}
    changes = [*(it for it in changes if it.key not in passed), *going.values()]
    changes = _inherit_impacts(stored, changes, manifests, options)
    if options.unjudged:
        return changes
    return judge_proposal(stored, changes, now_s, costs=options.costs)


def _settle_revisions(
    stored: ReadableStore,
    manifests: Sequence[Manifest],
    options: ApplyOptions,
) -> ApplyOptions:
    """Returns the options with the revisions of objects whose sources are unchanged."""
    looked = dict(options.looked)
    for manifest in manifests if options.sources is not None else ():
        known = stored.resources.get(manifest.kind, manifest.name, manifest.namespace)
        if known is not None and (found := looked.get(manifest.key)) is not None:
            assert options.sources is not None
            source = source_of(manifest.spec)
            looked[manifest.key] = options.sources.settled(source, known.annotations, found)
    return replace(options, looked=looked)


def store_changes(
    store: Store,
    changes: Sequence[Change],
    now_s: float,
) -> None:
    """Stores the proposal, all or none. Raises Conflict when an object changed in between."""
    with store.transaction():
        write_changes(store, changes, now_s)


def write_changes(
    store: Store,
    changes: Sequence[Change],
    now_s: float,
) -> None:
    """Stores the proposal inside a transaction that is begun. Raises Denied for a policy's
    denial."""
    raise_if_denied(changes)
    for change in changes:
        if change.after == change.before:
            continue
        if change.asked_again:
            _forget_refusals(store, change.after)
        if change.rerun:
            put_aside(store, change.after.uid)
        version = change.before.version if change.before is not None else None
        store.resources.put(change.after, expected_version=version)
    _hand_on_results(store, changes)
    store.events.record(
        [
            EventRow(
                it.after.uid,
                now_s,
                "Normal",
                it.outcome.title(),
                it.record,
            )
            for it in changes
            if it.outcome != UNCHANGED
        ]
    )


def _hand_on_results(store: Store, changes: Sequence[Change]) -> None:
    """Passes the results of pruned objects on to the objects that replace them."""
    for change in changes:
        if change.outcome == CREATED and read_owner(change.after.annotations) is not None:
            store.cache.hand_on(name_left_owner(change.key), change.after.uid)
            store.cache.forget(name_left_owner(change.key))
        for row in list_replaced(change, changes):
            store.cache.hand_on(row.uid, change.after.uid)
    for change in changes:
        if change.outcome == PRUNED:
            if change.before is not None and read_owner(change.before.annotations) is not None:
                store.cache.hand_on(change.after.uid, name_left_owner(change.key))
            store.cache.forget(change.after.uid)


def _inherit_impacts(
    stored: ReadableStore,
    changes: Sequence[Change],
    manifests: Sequence[Manifest],
    options: ApplyOptions,
) -> list[Change]:
    """Returns the changes; new objects have inherited from the ones that they replace."""
    by_key = {manifest.key: manifest for manifest in manifests}
    found = []
    for change in changes:
        replaced = list_replaced(change, changes) if change.impact is not None else ()
        if replaced:
            manifest = by_key[change.key]
            impact = fresh_impact(
                stored,
                manifest,
                change.after,
                options,
                replaced,
            )
            change = replace(change, impact=impact)
        found.append(change)
    return found


def _list_pruned(
    stored: ReadableStore,
    manifests: Sequence[Manifest],
    options: ApplyOptions,
    now_s: float,
) -> Iterator[Change]:
    """Yields the pruned objects, each after the objects that are deleted with it."""
    if options.pruning is None:
        return
    kept = {manifest.key for manifest in manifests}
    namespaced = (it.namespace for it in manifests if KINDS[it.kind].namespaced)
    within = None if options.everywhere else {options.namespace, *namespaced}
    for doomed in find_pruned(
        stored,
        options.applyset,
        kept,
        options.pruning,
        within,
    ):
        for row in (*list_going_with(stored, doomed), doomed):
            if row.key in kept:
                continue  # it goes along with another, and is declared here
            gone = replace(row, deleted_at_s=now_s)
            # As the pass of a deleted object reads it: an unreadable one is deleted too.
            yield Change(PRUNED, row, gone, impact=impact_on(stored, gone, options))


def _is_new_generation(change: Change) -> bool:
    """Returns true where the spec differs from the stored one."""
    return change.before is None or change.before.generation != change.after.generation


def _propose_change(
    stored: ReadableStore,
    manifest: Manifest,
    options: ApplyOptions,
    now_s: float,
    taken: Mapping[str, str],
    moving: Collection[str],
    known: Resource | None,
) -> Change:
    """Returns a manifest's change. taken: values from other objects, by annotation. moving: keys of
    objects that get another spec in this apply. known: the object as it is stored, by the
    manifest's name.
    """
    params = winner_params(stored, manifest, known, moving)
    results = results_kept(stored, manifest, known, moving)
    taken = {
        **taken, **params, RESULTS: results, PRIOR: prior_kept(stored, manifest, known),
        INDEXES: format_row_indexes(stored.runs, manifest.spec, known),
    }  # fmt: skip
    desired = _note_fields(
        draft_resource(manifest, options, known, now_s, taken), manifest, options, known
    )
    rerun = options.rerun and KINDS[manifest.kind].runs
    if known is None:
        return _propose_new(stored, manifest, options, desired, now_s, rerun=rerun)
    if isinstance(manifest.spec, ProviderSpec):
        refuse_another_type(known, manifest.spec)
    if isinstance(manifest.spec, SweepSpec):
        refuse_another_sweep(known, manifest.spec, rerun=rerun)
    same_spec = is_same_json(json.loads(known.spec), json.loads(desired.spec))
    same_work = same_spec and _list_pins(known) == _list_pins(desired)
    same_words = known.labels == desired.labels and _user_annotations(known) == _user_annotations(
        desired
    )
    if same_work and same_words and not rerun:
        return _same_again(stored, manifest, options, known, desired, moving)
    after = replace(
        known,
        spec=known.spec if same_spec else desired.spec,
        labels=desired.labels,
        annotations=_with_consequences(known, desired, manifest, options, now_s),
        generation=known.generation + (rerun or not same_work),
    )
    if rerun:
        after = replace(after, annotations={**after.annotations, RERUN: repr(now_s)})
    affected = None
    if rerun or not same_work:
        affected = impact_on(stored, after, options, rerun=rerun)
    fields = (*list_differences(known, after), *_list_moved_pins(known, after, options))
    rerun_note = "asked to run again" if rerun else fires_note(manifest.spec, now_s)
    note = "; ".join(filter(None, (rerun_note, _describe_kept_fields(manifest))))
    # A refused object is tried again, also where the change concerns no refused part.
    anew = not same_work and _was_refused(known)
    return Change(
        CONFIGURED, known, after, fields, affected, note=note, rerun=rerun, asked_again=anew,
        by="hand" if options.by_hand else manifest.path,
    )  # fmt: skip


def _propose_new(
    stored: ReadableStore,
    manifest: Manifest,
    options: ApplyOptions,
    desired: Resource,
    now_s: float,
    *,
    rerun: bool,
) -> Change:
    """Returns the change of a manifest that has no stored object yet."""
    if rerun:
        desired = replace(desired, annotations={**desired.annotations, RERUN: repr(now_s)})
    impact = fresh_impact(stored, manifest, desired, options)
    tasks = f"its tasks are {told}" if (told := results_told(desired)) else ""
    next_run = fires_note(manifest.spec, now_s)
    notes = filter(None, (depends_note(desired), tasks, winner_note(desired), next_run))
    return Change(
        CREATED,
        None,
        desired,
        impact=impact,
        note="; ".join(notes),
    )


def _note_fields(
    desired: Resource,
    manifest: Manifest,
    options: ApplyOptions,
    known: Resource | None,
) -> Resource:
    """Returns the object with the note on fields that were set by hand."""
    if options.by_hand:
        assert known is not None
        note = note_of_edit(known, desired)
    else:
        said = list_named_defaults((manifest.filed or manifest).spec)
        note = FieldNote(manifest.by_hand, said)
    return replace(desired, annotations=note_fields(desired.annotations, note))


def _describe_kept_fields(manifest: Manifest) -> str:
    """Returns a phrase on fields that the file does not have and a user set; empty without any."""
    if manifest.by_hand:
        return f"{format_paths(manifest.by_hand)} set by hand stays"
    return ""


def _same_again(
    stored: ReadableStore,
    manifest: Manifest,
    options: ApplyOptions,
    known: Resource,
    desired: Resource,
    moving: Collection[str],
) -> Change:
    """Returns the change for an equal file: none, unless the obstacle to its work may be gone."""
    noted = field_note(known.annotations) == field_note(desired.annotations)
    if not noted:
        notes = note_fields(known.annotations, field_note(desired.annotations))
    same = known if noted else replace(known, annotations=notes)
    again = replace(same, generation=known.generation + 1)
    if _was_refused(known):
        note = "it was refused; trying again"
        return Change(
            CONFIGURED,
            known,
            again,
            note=note,
            asked_again=True,
        )
    if isinstance(manifest.spec, WorkSpec) and may_go_on(stored, known, manifest.spec, moving):
        affected = impact_on(stored, again, options)
        return Change(
            CONFIGURED,
            known,
            again,
            impact=affected,
            note=GOES_ON,
            asked_again=True,
        )
    return Change(UNCHANGED, known, same, note=_describe_kept_fields(manifest))


def _propose_users(
    stored: ReadableStore,
    functions: Mapping[tuple[str, str], Manifest],
    endpoints: Mapping[tuple[str, str], Manifest],
    among: Sequence[Manifest],
    options: ApplyOptions,
) -> Iterator[Change]:
    """Yields running objects outside of this apply that call a changed Function or Endpoint: their
    finished work is outdated. A finished object gets the change at its own next apply.
    """
    applied = {it.key for it in among}
    moved = dict(_list_changed_functions(stored, functions.values(), options))
    for row in stored.resources.list() if moved or endpoints else ():
        if row.key in applied or row.deleted_at_s is not None:
            continue
        spec = json.loads(row.spec)
        fields = []
        told = []
        taken = dict(row.annotations)
        within = row.namespace
        name = str((spec.get("template") or {}).get("function") or "")
        if content := moved.get((name, within)):
            fields.append(FieldChange("function", taken.get(FUNCTION) or UNSET, content, MOVED))
            taken[FUNCTION] = content
            told.append(f"calls function/{name}")
        asks = list_called_endpoints(spec)
        if any((it, within) in endpoints for it in asks):
            models = models_content(stored, asks, within, endpoints)
            if models != taken.get(MODELS, ""):
                fields.append(FieldChange("models", taken.get(MODELS) or UNSET, models, ASKED))
                taken[MODELS] = models
                told.append(f"asks endpoint/{', endpoint/'.join(asks)}")
        if fields and not track_of(row).dormant:
            after = replace(row, annotations=taken, generation=row.generation + 1)
            impact = impact_on(stored, after, options)
            yield Change(
                CONFIGURED,
                row,
                after,
                tuple(fields),
                impact,
                note=", ".join(told),
            )


def _list_changed_functions(
    stored: ReadableStore,
    functions: Iterable[Manifest],
    options: ApplyOptions,
) -> Iterator[tuple[tuple[str, str], str]]:
    """Yields (name and namespace, content) of Functions whose content changes."""
    for it in functions:
        looked = options.looked.get(it.key)
        assert isinstance(it.spec, FunctionSpec)
        content = content_of_function(it.spec, looked.revision if looked is not None else "")
        if stored_function_content(stored, it.name, it.namespace) not in ("", content):
            yield (it.name, it.namespace), content


def _list_pins(resource: Resource) -> tuple[str, ...]:
    """Returns the notes that change the object's work without a change of its spec."""
    notes = (REVISION, FUNCTION, MODELS, PARAMS, COMMAND, RESULTS)
    return tuple(resource.annotations.get(it, "") for it in notes)


def _user_annotations(resource: Resource) -> dict[str, str]:
    """Returns the annotations without the path of a source on this machine, which is no part of the
    spec."""
    return {key: text for key, text in resource.annotations.items() if key not in NOTES}


def _with_consequences(
    known: Resource,
    desired: Resource,
    manifest: Manifest,
    options: ApplyOptions,
    now_s: float,
) -> dict[str, str]:
    """Returns the annotations with the consequences, of this apply alone, for work whose content
    changes; notes of an earlier apply do not hold for this one.
    """
    notes, kind = dict(desired.annotations), CONTROLLERS.get(desired.kind)
    if kind is None:
        return notes
    before = json.loads(known.status or "{}").get("contents")
    if before is None or list(kind.contents_of(manifest.spec, pins_of(notes))) != before:
        for outcome in (KEPT, FINISHING, ROLLOUT, RERUN):
            notes.pop(outcome, None)
        if options.keep_finished:
            notes[KEPT] = repr(now_s)
        assert isinstance(manifest.spec, WorkSpec)
        if (options.rollout or manifest.spec.rollout) == Rollout.FINISH_RUNNING:
            notes[FINISHING] = repr(now_s)
    if options.rollout:
        notes[ROLLOUT] = options.rollout
    return notes


def _list_moved_pins(
    known: Resource, after: Resource, options: ApplyOptions
) -> Iterator[FieldChange]:
    """Yields the changes behind an equal spec: in the objects and sources that its names refer
    to."""
    old, new = known.annotations, after.annotations
    before, revision = old.get(REVISION, ""), new.get(REVISION, "")
    looked = options.looked.get(after.key)
    if before != revision and revision and looked is not None and options.sources is not None:
        changed = options.sources.changed(old, looked)
        yield FieldChange("source", before or UNSET, revision, changed)
    if old.get(FUNCTION, "") != new.get(FUNCTION, ""):
        was, now = old.get(FUNCTION) or UNSET, new.get(FUNCTION) or UNSET
        yield FieldChange("function", was, now, MOVED)
    if old.get(MODELS, "") != new.get(MODELS, ""):
        was, now = old.get(MODELS) or UNSET, new.get(MODELS) or UNSET
        yield FieldChange("models", was, now, ASKED)
    was, now = old.get(PARAMS) or UNSET, new.get(PARAMS) or UNSET
    if was != now:
        yield FieldChange("paramsFrom", was, now, winner_told(after) or "gives it nothing more")
    if old.get(COMMAND, "") != new.get(COMMAND, ""):
        was, now = (json.loads(it[COMMAND]) if it.get(COMMAND) else UNSET for it in (old, new))
        yield FieldChange("template.command", was, now, "of its sweep changed")
    if old.get(RESULTS, "") != new.get(RESULTS, ""):
        was, now = results_told(known) or UNSET, results_told(after) or UNSET
        yield FieldChange(
            "tasks.fromResults", was, now, results_told(after) or "gives it nothing more"
        )


def _was_refused(resource: Resource) -> bool:
    status = json.loads(resource.status or "{}")
    current = status.get("observedGeneration") == resource.generation
    refused = status.get("reason") in ("Refused", NO_BEST, NO_PRIOR)
    return bool(current and status.get("phase") == "Failed" and refused)


def _forget_refusals(store: Store, refused: Resource) -> None:
    """Lets refused runs be tried again: the machine may have since got the missing feature, and
    applying the same file again asks for a new try."""
    for run, _ in list(store.runs.of(refused.uid)):
        if run.state is RunState.REFUSED:
            # Without a template hash it does not count for the present spec; its message stays.
            passed = replace(run, template_hash="")
            store.runs.advance(passed, from_states=frozenset({RunState.REFUSED}))


def put_aside(store: Store, uid: str, indexes: Collection[int] | None = None) -> None:
    """Excludes ended units of an object from its result, and from reuse for equal work. indexes
    None: all indexes, desired or not.
    """
    ends = {run.index: run for run, _ in store.runs.of(uid) if run.state not in LIVE_STATES}
    aside = [run for run in ends.values() if indexes is None or run.index in indexes]
    for run in aside:
        store.runs.advance(replace(run, put_aside=True), from_states=frozenset({run.state}))
    store.cache.put_aside([run.name for run in aside if run.state is RunState.SUCCEEDED])
