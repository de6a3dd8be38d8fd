"""The base of models that are written as W&B writes them."""

from __future__ import annotations

from pydantic import ConfigDict

from fleetctl.specs.values.scalars import Spec


class WandbSpec(Spec):
    """W&B's own spelling: snake_case, outside as well as inside."""

    model_config = ConfigDict(alias_generator=None)
