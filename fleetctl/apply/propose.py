"""Finds out the changes that applying manifests would make before anything is stored.

It only reads, so a dry run and a plan call it too; write/store_changes.py stores the proposal.
Called by the socket server and by `plan`, `diff` and dry runs. draft.py turns a manifest into an
object, impact.py finds the effect on work, change.py describes it; consent.py has what the user
must allow first, deletion.py the objects that `--prune` deletes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
from fleetctl.apply.moved_pins import FUNCTION_MOVED, MODELS_MOVED, list_moved_pins, list_pins
from fleetctl.apply.policies.judge import judge_proposal
from fleetctl.apply.request import ApplyOptions
from fleetctl.common.errors import Conflict
from fleetctl.common.finding import Finding, Severity
from fleetctl.controllers.kinds.registry import choose_controller
from fleetctl.controllers.model import Resource
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
from fleetctl.stores.base import ReadableStore
from fleetctl.tracking.annotations import (
    FINISHING,
    FUNCTION,
    INDEXES,
    KEPT,
    MODELS,
    NOTES,
    PRIOR,
    RERUN,
    RESULTS,
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
from fleetctl.tracking.manifest_sources import source_of
from fleetctl.tracking.result_cache import format_row_indexes
from fleetctl.tracking.track import track_of

if TYPE_CHECKING:
    from fleetctl.manifest import Manifest


@dataclass(frozen=True, slots=True)
class _ProposalContext:
    """The context that the changes of one apply share. functions, endpoints: its manifests of these
    kinds, by name and namespace. moving: keys of the objects that get another spec, so far.
    """

    stored: ReadableStore
    options: ApplyOptions
    now_s: float
    functions: Mapping[tuple[str, str], Manifest]
    endpoints: Mapping[tuple[str, str], Manifest]
    moving: set[str] = field(default_factory=set)


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
    context = _ProposalContext(
        stored,
        options,
        now_s,
        functions=_manifests_by_name(manifests, "Function"),
        endpoints=_manifests_by_name(manifests, "Endpoint"),
    )

    pruned = list(_list_pruned(stored, manifests, options, now_s))
    leaving = Leaving(
        (it.before for it in pruned if it.before is not None),
        lambda row: impact_on(stored, row, options),
    )
    proposed = _propose_each(context, manifests, leaving)

    changes = _with_named_volumes(stored, manifests, proposed, now_s)
    changes += _propose_users(context, manifests)
    changes += revive_dependents(stored, context.moving, manifests, options)
    changes = _with_pruned(changes, pruned, leaving)
    changes = _inherit_impacts(stored, changes, manifests, options)

    if options.unjudged:
        return changes
    return judge_proposal(stored, changes, now_s, costs=options.costs)


def _manifests_by_name(manifests: Iterable[Manifest], kind: str) -> dict[tuple[str, str], Manifest]:
    """Returns the manifests of a kind, by name and namespace."""
    return {(it.name, it.namespace): it for it in manifests if it.kind == kind}


def _propose_each(
    context: _ProposalContext,
    manifests: Sequence[Manifest],
    leaving: Leaving,
) -> dict[str, Change]:
    """Returns the manifests' changes by key, and adds the objects that get another spec to
    `context.moving`.
    """
    proposed: dict[str, Change] = {}
    # An object that depends on another, or takes values from it, must know whether that one
    # changes.
    for manifest in sort_manifests(manifests):
        change = _propose_manifest(context, manifest, leaving)
        proposed[manifest.key] = change
        if _is_new_generation(change):
            context.moving.add(change.key)
    return proposed


def _propose_manifest(
    context: _ProposalContext,
    manifest: Manifest,
    leaving: Leaving,
) -> Change:
    """Returns the change of a manifest, which may give another name to an object that is pruned
    otherwise. Where all mistakes are gathered, a conflict is part of the change.
    """
    stored = context.stored
    template = getattr(manifest.spec, "template", None)
    asks = template.asks if isinstance(template, Template) else ()
    contents = {
        FUNCTION: function_content(stored, manifest, context.functions, context.options),
        MODELS: models_content(stored, asks, manifest.namespace, context.endpoints),
    }
    propose = partial(_propose_change, context, manifest, contents)
    known = stored.resources.get(manifest.kind, manifest.name, manifest.namespace)

    try:
        change = propose(known)
        if known is not None:
            return change
        return leaving.renamed(change, manifest, propose) or change
    except Conflict as error:
        if known is None or not context.options.gathers:
            raise
        conflict = Finding((), str(error), error.hint, Severity.CONFLICT)
        return Change(UNCHANGED, known, known, conflict=conflict)


def _with_named_volumes(
    stored: ReadableStore,
    manifests: Sequence[Manifest],
    proposed: Mapping[str, Change],
    now_s: float,
) -> list[Change]:
    """Returns the changes in the manifests' order, each after the undeclared volumes that its
    manifest is the first to name.
    """
    changes: list[Change] = []
    known = {(it.name, it.namespace) for it in manifests if it.kind == "Volume"}
    for manifest in manifests:
        for volume in draft_volumes(stored, manifest, known, now_s):
            known.add((volume.name, volume.namespace))
            changes.append(Change(CREATED, None, volume, note=f"named by {manifest.name}"))
        changes.append(proposed[manifest.key])
    return changes


def _with_pruned(
    changes: Sequence[Change],
    pruned: Sequence[Change],
    leaving: Leaving,
) -> list[Change]:
    """Returns the changes, then the pruned objects except for those that continue under a new
    name.
    """
    gone = {it.key: it for it in pruned if it.after.uid not in leaving.taken}
    # A pruned object gets no other change before, and neither does one with a new name.
    passed = {*gone, *leaving.taken.values()}
    others = [it for it in changes if it.key not in passed]
    return [*others, *gone.values()]


def _settle_revisions(
    stored: ReadableStore,
    manifests: Sequence[Manifest],
    options: ApplyOptions,
) -> ApplyOptions:
    """Returns the options with the revisions of objects whose sources are unchanged."""
    if options.sources is None:
        return options

    looked = dict(options.looked)
    for manifest in manifests:
        known = stored.resources.get(manifest.kind, manifest.name, manifest.namespace)
        found = looked.get(manifest.key)
        if known is not None and found is not None:
            source = source_of(manifest.spec)
            looked[manifest.key] = options.sources.settled(source, known.annotations, found)
    return replace(options, looked=looked)


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
    context: _ProposalContext,
    manifest: Manifest,
    contents: Mapping[str, str],
    known: Resource | None,
) -> Change:
    """Returns a manifest's change. contents: of the Function and the models that it calls, by
    annotation. known: the object as it is stored, by the manifest's name.
    """
    options = context.options
    desired = _draft_desired(context, manifest, contents, known)
    rerun = options.rerun and KINDS[manifest.kind].runs
    if known is None:
        return _propose_new(context, manifest, desired, rerun=rerun)

    if isinstance(manifest.spec, ProviderSpec):
        refuse_another_type(known, manifest.spec)
    if isinstance(manifest.spec, SweepSpec):
        refuse_another_sweep(known, manifest.spec, rerun=rerun)

    same_spec = is_same_json(json.loads(known.spec), json.loads(desired.spec))
    same_work = same_spec and list_pins(known) == list_pins(desired)
    if same_work and not rerun and _has_same_notes(known, desired):
        return _same_again(context, manifest, known, desired)

    annotations = _with_consequences(known, desired, manifest, options, context.now_s)
    if rerun:
        annotations[RERUN] = repr(context.now_s)
    after = replace(
        known,
        spec=known.spec if same_spec else desired.spec,
        labels=desired.labels,
        annotations=annotations,
        generation=known.generation + (rerun or not same_work),
    )

    impact = None
    if rerun or not same_work:
        impact = impact_on(context.stored, after, options, rerun=rerun)
    next_run = "asked to run again" if rerun else fires_note(manifest.spec, context.now_s)
    return Change(
        CONFIGURED,
        known,
        after,
        (*list_differences(known, after), *list_moved_pins(known, after, options)),
        impact,
        note="; ".join(filter(None, (next_run, _describe_kept_fields(manifest)))),
        rerun=rerun,
        # A refused object is tried again, also where the change concerns no refused part.
        asked_again=not same_work and _was_refused(known),
        by="hand" if options.by_hand else manifest.path,
    )


def _draft_desired(
    context: _ProposalContext,
    manifest: Manifest,
    contents: Mapping[str, str],
    known: Resource | None,
) -> Resource:
    """Returns the object that the manifest declares, with notes on all values that it takes from
    other objects.
    """
    stored, moving = context.stored, context.moving
    taken = {
        **contents,
        **winner_params(stored, manifest, known, moving),
        RESULTS: results_kept(stored, manifest, known, moving),
        PRIOR: prior_kept(stored, manifest, known),
        INDEXES: format_row_indexes(stored.runs, manifest.spec, known),
    }
    desired = draft_resource(manifest, context.options, known, context.now_s, taken)
    return _note_fields(desired, manifest, context.options, known)


def _propose_new(
    context: _ProposalContext,
    manifest: Manifest,
    desired: Resource,
    *,
    rerun: bool,
) -> Change:
    """Returns the change of a manifest that has no stored object yet."""
    if rerun:
        annotations = {**desired.annotations, RERUN: repr(context.now_s)}
        desired = replace(desired, annotations=annotations)
    impact = fresh_impact(context.stored, manifest, desired, context.options)

    results = results_told(desired)
    notes = (
        depends_note(desired),
        f"its tasks are {results}" if results else "",
        winner_note(desired),
        fires_note(manifest.spec, context.now_s),
    )
    return Change(CREATED, None, desired, impact=impact, note="; ".join(filter(None, notes)))


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
    context: _ProposalContext,
    manifest: Manifest,
    known: Resource,
    desired: Resource,
) -> Change:
    """Returns the change for an equal file: none, unless the obstacle to its work may be gone."""
    same = known
    by_hand = field_note(desired.annotations)
    if field_note(known.annotations) != by_hand:
        same = replace(known, annotations=note_fields(known.annotations, by_hand))

    again = replace(same, generation=known.generation + 1)
    if _was_refused(known):
        note = "it was refused; trying again"
        return Change(CONFIGURED, known, again, note=note, asked_again=True)

    spec = manifest.spec
    if isinstance(spec, WorkSpec) and may_go_on(context.stored, known, spec, context.moving):
        impact = impact_on(context.stored, again, context.options)
        return Change(CONFIGURED, known, again, impact=impact, note=GOES_ON, asked_again=True)

    return Change(UNCHANGED, known, same, note=_describe_kept_fields(manifest))


def _propose_users(context: _ProposalContext, manifests: Sequence[Manifest]) -> Iterator[Change]:
    """Yields running objects outside of this apply that call a changed Function or Endpoint: their
    finished work is outdated. A finished object gets the change at its own next apply.
    """
    functions = dict(_list_changed_functions(context))
    if not functions and not context.endpoints:
        return

    applied = {it.key for it in manifests}
    for row in context.stored.resources.list():
        if row.key in applied or row.deleted_at_s is not None:
            continue
        change = _propose_user(context, row, functions)
        if change is not None:
            yield change


def _propose_user(
    context: _ProposalContext,
    row: Resource,
    functions: Mapping[tuple[str, str], str],
) -> Change | None:
    """Returns the change of one object; None where it calls no changed part or does not run.
    functions: new contents of changed Functions, by name and namespace.
    """
    spec = json.loads(row.spec)
    annotations = dict(row.annotations)
    fields: list[FieldChange] = []
    notes: list[str] = []

    function = str((spec.get("template") or {}).get("function") or "")
    content = functions.get((function, row.namespace), "")
    if content:
        before = annotations.get(FUNCTION) or UNSET
        fields.append(FieldChange("function", before, content, FUNCTION_MOVED))
        annotations[FUNCTION] = content
        notes.append(f"calls function/{function}")

    asks = list_called_endpoints(spec)
    if any((endpoint, row.namespace) in context.endpoints for endpoint in asks):
        models = models_content(context.stored, asks, row.namespace, context.endpoints)
        if models != annotations.get(MODELS, ""):
            before = annotations.get(MODELS) or UNSET
            fields.append(FieldChange("models", before, models, MODELS_MOVED))
            annotations[MODELS] = models
            notes.append(f"asks endpoint/{', endpoint/'.join(asks)}")

    if not fields or track_of(row).dormant:
        return None
    after = replace(row, annotations=annotations, generation=row.generation + 1)
    impact = impact_on(context.stored, after, context.options)
    return Change(CONFIGURED, row, after, tuple(fields), impact, note=", ".join(notes))


def _list_changed_functions(context: _ProposalContext) -> Iterator[tuple[tuple[str, str], str]]:
    """Yields (name and namespace, content) of Functions whose content changes."""
    for manifest in context.functions.values():
        assert isinstance(manifest.spec, FunctionSpec)
        looked = context.options.looked.get(manifest.key)
        revision = looked.revision if looked is not None else ""
        content = content_of_function(manifest.spec, revision)
        known = stored_function_content(context.stored, manifest.name, manifest.namespace)
        if known not in ("", content):
            yield (manifest.name, manifest.namespace), content


def _has_same_notes(known: Resource, desired: Resource) -> bool:
    """Returns true where the labels and the annotations that a user wrote are the same."""
    same_labels = known.labels == desired.labels
    return same_labels and _user_annotations(known) == _user_annotations(desired)


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
    notes = dict(desired.annotations)
    kind = choose_controller(desired.kind, manifest.spec)
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


def _was_refused(resource: Resource) -> bool:
    status = json.loads(resource.status or "{}")
    current = status.get("observedGeneration") == resource.generation
    refused = status.get("reason") in ("Refused", NO_BEST, NO_PRIOR)
    return bool(current and status.get("phase") == "Failed" and refused)
