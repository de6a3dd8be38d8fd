"""Fields with a new name whose old one is still read. Pure.

YAML 1.1, which kubectl, helm, kustomize, Argo CD and Flux read, has `on` for true: a field with
that name never reaches a cluster. A warning names the new one (manifest/checks/clusters.py).
"""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import model_validator

from fleetctl.specs.values.scalars import Spec

OLD_NAME = "The old name of `when`, which kubectl reads as `true`."


class WhenSpec(Spec):
    """A block with `when`, which was called `on`. Both are declared by each such block."""

    when_needed: ClassVar[bool] = False

    @property
    def named_when(self) -> tuple[Any, ...] | None:
        """Returns the given value, by either name."""
        given: tuple[Any, ...] | None = getattr(self, "when", None)
        if given is not None:
            return given
        return getattr(self, "on", None)

    @model_validator(mode="after")
    def _has_one_name(self) -> WhenSpec:
        if getattr(self, "when", None) is not None and getattr(self, "on", None) is not None:
            raise ValueError("`on` is the old name of `when`; give `when` alone")
        if self.when_needed and self.named_when is None:
            raise ValueError("`when` is missing")
        return self
