"""Secret: the sources of values at the start of a run. A Secret never contains the
values themselves.
"""

from __future__ import annotations

from collections import Counter

from pydantic import Field, model_validator

from fleetctl.specs.values.scalars import EnvName, NonEmptyText, Spec


class SecretSpec(Spec):
    """Names of environment variables and where each value comes from."""

    from_env: tuple[EnvName, ...] = Field(
        default=(), description="Variables of the controller's own environment; default none."
    )
    from_file: dict[EnvName, NonEmptyText] = Field(
        default_factory=dict,
        description="Variable to file, relative to the manifest's directory; default none.",
    )
    from_provider: NonEmptyText | None = Field(
        default=None, description="Name of a secret that the provider keeps; default none."
    )

    @model_validator(mode="after")
    def _require_a_source(self) -> SecretSpec:
        if not self.from_env and not self.from_file and self.from_provider is None:
            raise ValueError("a secret needs `fromEnv`, `fromFile` or `fromProvider`")
        for name, times in Counter(self.from_env).items():
            if name in self.from_file or times > 1:
                raise ValueError(f"the variable `{name}` is given twice")
        return self
