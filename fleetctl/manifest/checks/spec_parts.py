"""The parts of a spec that the checks look at, each with its path. Called by the other checks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fleetctl.common.finding import Path
from fleetctl.specs.blocks.file_tasks import FILE, FILES
from fleetctl.specs.blocks.services import ServiceSpec
from fleetctl.specs.blocks.template import Image, Source, Template, VolumeMount
from fleetctl.specs.kinds.batchjob import BatchJobSpec
from fleetctl.specs.kinds.function import FunctionSpec
from fleetctl.specs.kinds.sweep import SweepSpec
from fleetctl.specs.kinds.trainingrun import TrainingRunSpec
from fleetctl.specs.values.scalars import Spec

TEMPLATE: Path = ("spec", "template")


def template_of(spec: Spec) -> Template | None:
    found = getattr(spec, "template", None)
    if isinstance(found, Template):
        return found
    return None


def values_of(spec: Spec, name: str) -> Iterator[tuple[Path, Any]]:
    """A field of the template, and of each stage or group that has its own."""
    template = template_of(spec)
    if template is not None and getattr(template, name):
        yield (*TEMPLATE, name), getattr(template, name)
    if isinstance(spec, TrainingRunSpec):
        for number, part in enumerate(spec.named_parts):
            if getattr(part, name):
                yield ("spec", f"{spec.noun}s", number, name), getattr(part, name)


def list_services(spec: Spec) -> Iterator[tuple[Path, ServiceSpec]]:
    """Yields the services beside the work."""
    for at, found in values_of(spec, "services"):
        for number, service in enumerate(found):
            yield (*at, number), service


def list_commands(spec: Spec) -> Iterator[tuple[Path, Sequence[str]]]:
    """Yields the commands of the work, of services, and of their readiness probes."""
    yield from values_of(spec, "command")
    for at, service in list_services(spec):
        if service.command is not None:
            yield (*at, "command"), service.command
        if service.ready is not None and service.ready.command is not None:
            yield (*at, "ready", "command"), service.ready.command


def list_environments(spec: Spec) -> Iterator[tuple[Path, Mapping[str, str]]]:
    yield from values_of(spec, "env")
    if isinstance(spec, FunctionSpec) and spec.env:
        yield ("spec", "env"), spec.env
    for at, image in list_images(spec):
        if image.env:
            yield (*at, "env"), image.env


def list_images(spec: Spec) -> Iterator[tuple[Path, Image]]:
    if isinstance(spec, FunctionSpec) and spec.image is not None:
        yield ("spec", "image"), spec.image
    yield from values_of(spec, "image")


def list_sources(spec: Spec) -> Iterator[tuple[Path, Source]]:
    at, holder = _sandbox_holder(spec)
    if holder is not None and holder.source is not None:
        yield (*at, "source"), holder.source


def list_volume_mounts(spec: Spec) -> Iterator[tuple[Path, VolumeMount]]:
    named = list(values_of(spec, "volumes"))
    if isinstance(spec, FunctionSpec):
        named.append((("spec", "volumes"), spec.volumes))
    for at, mounts in named:
        for number, mount in enumerate(mounts):
            yield (*at, number), mount


def _sandbox_holder(spec: Spec) -> tuple[Path, Template | FunctionSpec | None]:
    """Returns the part of the spec that describes a sandbox, and its path."""
    if isinstance(spec, FunctionSpec):
        return ("spec",), spec
    return TEMPLATE, template_of(spec)


def list_rows(spec: Spec) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """Yields the parameters of a unit as the file lists them: each item, or the names that all
    have, with no values.
    """
    if isinstance(spec, SweepSpec):
        yield ("spec", "search", "parameters"), dict.fromkeys(spec.search.parameters or (), "")
    elif isinstance(spec, BatchJobSpec) and spec.tasks is not None:
        if spec.tasks.matrix:
            yield ("spec", "tasks", "matrix"), dict.fromkeys(spec.tasks.matrix, "")
        for number, item in enumerate(spec.tasks.items or ()):
            yield ("spec", "tasks", "items", number), item


def list_parameters(spec: Spec) -> Iterator[tuple[Path, str]]:
    """Each name of a parameter once, where it is first given."""
    if isinstance(spec, SweepSpec):
        for name in spec.search.parameters or ():
            yield ("spec", "search", "parameters", name), name
    elif isinstance(spec, BatchJobSpec) and spec.tasks is not None:
        for name in spec.tasks.matrix or ():
            yield ("spec", "tasks", "matrix", name), name
        if spec.tasks.files is not None:
            yield ("spec", "tasks", "fromFiles"), FILE if spec.tasks.files.chunk is None else FILES
        seen: set[str] = set()
        for number, item in enumerate(spec.tasks.items or ()):
            if item.keys() <= seen:
                continue
            for name in item.keys() - seen:
                yield ("spec", "tasks", "items", number, name), name
            seen |= item.keys()
