"""Overlay: the differences of an environment from the manifests that it is made of.

A document of this kind is no object: the applied manifests are those of its base, changed.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from fleetctl.specs.blocks.common import LabelKey, LabelValue
from fleetctl.specs.rendering.variables import VariableName
from fleetctl.specs.values.scalars import Name, NonEmptyText, Spec

BASES_MAX = 100
PATCHES_MAX = 1_000


def _as_list(value: Any) -> Any:
    if isinstance(value, str):
        return [value]
    return value


class Overlay(Spec):
    """The differences of an environment from the manifests that it is made of."""

    api_version: Literal["fleetctl.dev/v1alpha1"] = Field(description="The form of this document.")
    kind: Literal["Overlay"] = Field(description="Kind of this document.")
    base: Annotated[
        tuple[NonEmptyText, ...],
        BeforeValidator(_as_list),
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
        default=None, description="Namespace of all the objects; default: their own."
    )
    labels: dict[LabelKey, LabelValue] = Field(
        default_factory=dict, description="Added to the labels of each object; default none."
    )
    patches: tuple[dict[str, Any], ...] = Field(
        default=(),
        max_length=PATCHES_MAX,
        description="Parts of manifests: `kind` and `metadata.name` name the object.",
    )
