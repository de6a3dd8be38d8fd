"""Stores the objects that a Schedule makes as an apply of their manifest would: same checks, same
volumes that are named and not declared, same annotations.

A directory as source is the copy from when the schedule was applied; a repository is asked for its
commit each time.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pydantic import ValidationError

from fleetctl.apply.change import Change
from fleetctl.apply.propose import propose_changes
from fleetctl.apply.request import ApplyOptions, parallelism_of
from fleetctl.apply.write.store_changes import write_changes
from fleetctl.common.errors import Conflict, UsageError
from fleetctl.controllers.model import Resource
from fleetctl.engine.kinds.schedules import RequestedObject
from fleetctl.manifest import Manifest
from fleetctl.providers.contract.base import Backend
from fleetctl.specs.blocks.common import Metadata
from fleetctl.specs.kinds.batchjob import awaits_listing
from fleetctl.specs.kinds.registry import find_kind, parse_spec
from fleetctl.specs.kinds.schedule import ScheduleSpec
from fleetctl.tracking.annotations import ORIGIN, SCHEDULED_AT, SCHEDULED_BY
from fleetctl.tracking.manifest_sources import ManifestSources, source_of
from fleetctl.tracking.source_state import SourceState, load_source_state, read_in

if TYPE_CHECKING:
    from fleetctl.stores.base import Store

# `fleetctl get jobs -l fleetctl.dev/schedule=nightly`
LABEL = "fleetctl.dev/schedule"
STEM_CHARS_MAX = 48  # of the schedule's name in a name of ours, which has at most 63

Read = tuple[Manifest, Mapping[str, SourceState]]


class ScheduleMaker:
    """The engine's Maker. providers: by name, as they are now."""

    def __init__(
        self,
        store: Store,
        providers: Mapping[str, Backend],
        sources: ManifestSources | None = None,
    ) -> None:
        self._store = store
        self._providers = providers
        self.sources = sources

    def asks(self, wanted: RequestedObject) -> bool:
        return self.sources is not None and (
            _is_of_repository(wanted.spec) or awaits_listing(wanted.spec)
        )

    async def look(self, wanted: RequestedObject) -> Read:
        assert self.sources is not None
        manifest = manifest_of(wanted)
        looked = dict(_recorded_source(wanted, manifest))
        if _is_of_repository(wanted.spec):
            looked = await self.sources.look([manifest])
            known = load_source_state(wanted.schedule.annotations)
            if known.revision and not looked.get(manifest.key, SourceState()).revision:
                looked[manifest.key] = known  # the remote is unreachable; its last commit is used
        (manifest,) = await self.sources.required([manifest], looked, self._store)
        return manifest, looked

    def make(
        self,
        wanted: RequestedObject,
        looked: object | None,
        now_s: float,
    ) -> Resource:
        manifest = manifest_of(wanted)
        found = _recorded_source(wanted, manifest)
        if isinstance(looked, tuple):
            manifest, found = looked
        at = "" if wanted.at_s is None else str(int(wanted.at_s))
        notes = {SCHEDULED_BY: wanted.schedule.uid, SCHEDULED_AT: at}
        there = self._store.resources.get(manifest.kind, manifest.name, manifest.namespace)
        if there is not None:
            if at and notes.items() <= there.annotations.items():
                return there
            not_ours = ", and is not of this schedule" if at else ""
            hint = f"fleetctl delete {there.key}" if at else "give the new one another name"
            raise Conflict(f"{there.key} is there already{not_ours}", hint=hint)
        changes = self._changes(
            manifest,
            notes,
            found,
            wanted,
            now_s,
        )
        write_changes(self._store, changes, now_s)
        row = self._store.resources.get(manifest.kind, manifest.name, manifest.namespace)
        assert row is not None
        return row

    def _changes(
        self,
        manifest: Manifest,
        notes: Mapping[str, str],
        looked: Mapping[str, SourceState],
        wanted: RequestedObject,
        now_s: float,
    ) -> Sequence[Change]:
        options = ApplyOptions(
            parallelism=parallelism_of(self._providers),
            looked=looked,
            sources=self.sources,
            namespace=manifest.namespace,
        )
        by = f"by schedule/{wanted.schedule.name}"
        return [
            replace(it, after=_add_annotations(it.after, notes), note=by)
            if it.key == manifest.key
            else it
            for it in propose_changes(self._store, [manifest], options, now_s)
        ]


def _is_of_repository(spec: object) -> bool:
    source = source_of(spec)
    return source is not None and source.git is not None


def by_hand(
    schedule: Resource,
    kind: str,
    named: str,
) -> RequestedObject:
    """Makes one object of the schedule now. kind: as the user wrote it. named: empty for a
    generated name. Raises UsageError.
    """
    spec = parse_spec(schedule.kind, schedule.spec)
    if not isinstance(spec, ScheduleSpec):
        raise UsageError(
            f"{schedule.key} is not a schedule", hint="fleetctl create job --from schedule/NAME"
        )
    found = find_kind(kind)
    if found is None or found.name != spec.template.kind:
        right = spec.template.kind.lower()
        raise UsageError(
            f"{schedule.key} makes objects of kind {spec.template.kind}",
            hint=f"fleetctl create {right} --from {schedule.key}",
        )
    name = named or f"{schedule.name[:STEM_CHARS_MAX]}-manual-{secrets.token_hex(3)}"
    try:
        Metadata(name=name)
    except ValidationError as error:
        raise UsageError(
            f"`{name}` cannot name an object",
            hint="1 to 63 lower case letters, digits and `-`, a letter or digit at both ends",
        ) from error
    return RequestedObject(schedule, spec, None, name)


def manifest_of(wanted: RequestedObject) -> Manifest:
    """Returns the manifest that a user would have written to get the same object."""
    schedule = wanted.schedule
    template = wanted.spec.template
    metadata = Metadata(
        name=wanted.name,
        namespace=schedule.namespace,
        labels={**template.metadata.labels, LABEL: schedule.name},
        annotations=template.metadata.annotations,
    )
    origin = schedule.annotations.get(ORIGIN, "")
    read = read_in(schedule.annotations)
    spec = wanted.spec.makes
    return Manifest(
        template.kind,
        wanted.name,
        metadata,
        spec,
        schedule.key,
        0,
        origin=origin,
        read=read,
    )


def _recorded_source(wanted: RequestedObject, manifest: Manifest) -> Mapping[str, SourceState]:
    """Returns the source as it was when the schedule was applied."""
    known = load_source_state(wanted.schedule.annotations)
    if known.revision or known.origin:
        return {manifest.key: known}
    return {}


def _add_annotations(row: Resource, notes: Mapping[str, str]) -> Resource:
    return replace(row, annotations={**row.annotations, **{k: v for k, v in notes.items() if v}})
