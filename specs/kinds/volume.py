"""Volume: a directory that outlives sandboxes."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from fleetctl.specs.builtin import DEFAULT_PROVIDER
from fleetctl.specs.values.scalars import Name, Size, Spec


class VolumeSpec(Spec):
    """Storage that templates mount by name."""

    provider: Name = Field(
        default=DEFAULT_PROVIDER, description="Provider that keeps it; default `local`."
    )
    size: Size | None = Field(default=None, description="Bytes or `100Gi`; default: no limit.")
    deletion_policy: Literal["Retain", "Delete"] = Field(
        default="Retain",
        description="Whether deleting the object deletes its data; default Retain.",
    )
