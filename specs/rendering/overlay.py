"""Overlay: what an environment has otherwise than the manifests that it is made of.

A document of this kind is no object: what is applied are the manifests of its base, changed.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from fleetctl.specs.blocks.common import LabelKey, LabelValue
from fleetctl.specs.rendering.variables import VariableName
from fleetctl.specs.values.scalars import Name, NonEmptyText, Spec

BASES_MAX, PATCHES_MAX = 100, 1_000


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


class Overlay(Spec):
    """What an environment has otherwise than the manifests that it is made of."""

    api_version: Literal["fleetctl.dev/v1alpha1"] = Field(description="The form of this document.")
    kind: Literal["Overlay"] = Field(description="What it is.")
    base: Annotated[
        tuple[NonEmptyText, ...],
        BeforeValidator(_listed),
        Field(
            min_length=1,
            max_length=BASES_MAX,
            description="Files or directories of manifests, relative to this file; a text is one.",
        ),
    ]
    variables: dict[VariableName, Any] = Field(
        default_factory=dict, description="Values of variables that the base declares."
    )
    namespace: Name | None = Field(
        default=None, description="Where the objects go, whatever they say; default as they say."
    )
    labels: dict[LabelKey, LabelValue] = Field(
        default_factory=dict, description="Added to the labels of each object; default none."
    )
    patches: tuple[dict[str, Any], ...] = Field(
        default=(),
        max_length=PATCHES_MAX,
        description="Parts of manifests: `kind` and `metadata.name` say of which object.",
    )
