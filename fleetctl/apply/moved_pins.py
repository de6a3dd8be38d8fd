"""Finds the changes of an object's work behind an equal spec.

An object has notes (pins) on the parts of its work that other objects and sources hold: a revision,
a Function's content, the best trial's parameters. propose.py lists the moved ones.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from fleetctl.apply.draft import winner_told
from fleetctl.apply.impact import results_told
from fleetctl.apply.request import ApplyOptions
from fleetctl.controllers.model import Resource
from fleetctl.specs.values.changes import UNSET, FieldChange
from fleetctl.tracking.annotations import COMMAND, FUNCTION, MODELS, PARAMS, RESULTS, REVISION

FUNCTION_MOVED = "what it runs in changed"
MODELS_MOVED = "the models that it asks changed"
NO_MORE = "gives it nothing more"


def list_pins(resource: Resource) -> tuple[str, ...]:
    """Returns the notes that change the object's work without a change of its spec."""
    notes = (REVISION, FUNCTION, MODELS, PARAMS, COMMAND, RESULTS)
    return tuple(resource.annotations.get(it, "") for it in notes)


def list_moved_pins(
    known: Resource, after: Resource, options: ApplyOptions
) -> Iterator[FieldChange]:
    """Yields the changes behind an equal spec: in the objects and sources that its names refer
    to."""
    old, new = known.annotations, after.annotations

    def moved(note: str) -> bool:
        return old.get(note, "") != new.get(note, "")

    def values(note: str) -> tuple[object, object]:
        return old.get(note) or UNSET, new.get(note) or UNSET

    looked = options.looked.get(after.key)
    sources = options.sources
    if moved(REVISION) and new.get(REVISION) and looked is not None and sources is not None:
        changed = sources.changed(old, looked)
        yield FieldChange("source", *values(REVISION), changed)
    if moved(FUNCTION):
        yield FieldChange("function", *values(FUNCTION), FUNCTION_MOVED)
    if moved(MODELS):
        yield FieldChange("models", *values(MODELS), MODELS_MOVED)
    if moved(PARAMS):
        yield FieldChange("paramsFrom", *values(PARAMS), winner_told(after) or NO_MORE)
    if moved(COMMAND):
        commands = _pinned_command(known), _pinned_command(after)
        yield FieldChange("template.command", *commands, "of its sweep changed")
    if moved(RESULTS):
        results = results_told(after)
        before = results_told(known) or UNSET
        yield FieldChange("tasks.fromResults", before, results or UNSET, results or NO_MORE)


def _pinned_command(resource: Resource) -> object:
    """Returns the command that its sweep passed on; UNSET without any."""
    command = resource.annotations.get(COMMAND)
    return json.loads(command) if command else UNSET
