"""Warnings about values that look like credentials: a manifest is stored, shown and shared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fleetctl.manifest.problems import CREDENTIAL_NAME
from specs.function import FunctionSpec
from specs.scalars import Spec
from specs.template import Template
from specs.trainingrun import TrainingRunSpec

# Shorter ones are names and switches, such as KEY=name; real credentials are long.
CREDENTIAL_LENGTH_MIN = 16


def warnings(spec: Spec, where: str) -> Iterator[str]:
    """One sentence for each variable; its value is in none of them. where: file and line."""
    for name in _suspicious(spec):
        yield (
            f"{where}: the variable `{name}` holds what looks like a credential; "
            "put it into a Secret and name that in `secrets`"
        )


def _suspicious(spec: Spec) -> Iterator[str]:
    for env in _environments(spec):
        for name, value in env.items():
            if (
                CREDENTIAL_NAME.search(name)
                and len(value) >= CREDENTIAL_LENGTH_MIN
                and not any(character in value for character in " /")
            ):
                yield name


def _environments(spec: Spec) -> Iterator[Mapping[str, str]]:
    template = getattr(spec, "template", None)
    if isinstance(template, Template):
        yield template.env
        if template.image is not None:
            yield template.image.env
    if isinstance(spec, FunctionSpec):
        yield spec.env
        if spec.image is not None:
            yield spec.image.env
    if isinstance(spec, TrainingRunSpec):
        yield from (stage.env for stage in spec.stages)
