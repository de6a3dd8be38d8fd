"""Chooses the namespace of a manifest: its own, `-n`, or the default. Called by loader.py with
metadata that its model accepted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fleetctl.common.finding import Finding
from fleetctl.specs.blocks.common import Metadata, WorkSpec
from fleetctl.specs.kinds.function import FunctionSpec
from fleetctl.specs.kinds.registry import Kind
from fleetctl.specs.kinds.schedule import NAME_CHARS_MAX, ScheduleSpec
from fleetctl.specs.kinds.volume import VolumeSpec
from fleetctl.specs.values.namespaces import ASSET_CHARS_MAX, DEFAULT_NAMESPACE, asset_name
from fleetctl.specs.values.scalars import Spec

_AT = ("metadata", "namespace")


@dataclass(frozen=True, slots=True)
class NamespaceChoice:
    """The namespace for documents that name no namespace. binding: the others must name the same
    one.
    """

    name: str = DEFAULT_NAMESPACE
    binding: bool = False


def apply_namespace(
    metadata: Metadata,
    kind: Kind,
    chosen: NamespaceChoice,
) -> Metadata:
    """Returns the metadata with the namespace that the object is going to have."""
    if not kind.namespaced:
        return metadata.model_copy(update={"namespace": DEFAULT_NAMESPACE})
    if "namespace" in metadata.model_fields_set:
        return metadata
    return metadata.model_copy(update={"namespace": chosen.name})


def check_namespace(
    metadata: Metadata,
    kind: Kind,
    chosen: NamespaceChoice,
) -> Iterator[Finding]:
    """Checks as kubectl does: a file that names one namespace is not applied to another."""
    message = metadata.namespace if "namespace" in metadata.model_fields_set else ""
    if message and not kind.namespaced and message != DEFAULT_NAMESPACE:
        yield Finding(_AT, f" is `{message}`, and a {kind.name} has no namespace", "leave it out")
    elif message and kind.namespaced and chosen.binding and message != chosen.name:
        hint = f"write `-n {message}`, or leave one of the two out"
        yield Finding(_AT, f" is `{message}`, and `-n` says `{chosen.name}`", hint)


def too_long(metadata: Metadata, spec: Spec) -> Iterator[Finding]:
    """A schedule whose objects would have longer names than there are, and assets whose name at the
    provider is longer than providers take.
    """
    if isinstance(spec, ScheduleSpec) and len(metadata.name) > NAME_CHARS_MAX:
        message = f" has {len(metadata.name)} characters; a schedule's may have {NAME_CHARS_MAX}"
        hint = "the objects that it makes are called NAME-29000000"
        yield Finding(("metadata", "name"), message, hint)
    own = [metadata.name] if isinstance(spec, VolumeSpec | FunctionSpec) else []
    held = spec.volumes if isinstance(spec, FunctionSpec) else ()
    if isinstance(spec, WorkSpec):
        held = tuple(mount for part in spec.parts() for mount in part.template.volumes)
    mounts = dict.fromkeys(mount.name for mount in held)
    for name in (*own, *mounts):
        if len(asset_name(name, metadata.namespace)) > ASSET_CHARS_MAX:
            message = f" is `{metadata.namespace}`, which is too long before `{name}`"
            hint = f"both together may have {ASSET_CHARS_MAX - 1} characters"
            yield Finding(_AT, message, hint)
