"""The hosts that a task's sandbox may reach: no host, or those of a list. So a model's code is run
safely.
"""

from __future__ import annotations

import ipaddress
import re

from pydantic import Field, field_validator

from fleetctl.specs.values.scalars import NonEmptyText, Spec

ALLOWED_MAX = 10  # as many as Daytona takes
_HOST = re.compile(r"(\*\.)?([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z]{2,63}")


def is_block(entry: str) -> bool:
    """Returns True if an entry is a block of addresses, not a host."""
    try:
        ipaddress.ip_network(entry)
    except ValueError:
        return False
    return True


class Network(Spec):
    """Where a sandbox may connect to; what comes in over its provider's own line goes on."""

    allow: tuple[NonEmptyText, ...] = Field(
        default=(),
        max_length=ALLOWED_MAX,
        description="Blocks such as `10.0.0.0/8`, and hosts such as `pypi.org`; default: nothing.",
    )

    @field_validator("allow")
    @classmethod
    def _are_blocks_and_hosts(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for entry in value:
            if not is_block(entry) and not _HOST.fullmatch(entry):
                said = "a block such as `10.0.0.0/8`, or a host such as `pypi.org` or `*.pypi.org`"
                raise ValueError(f"`{entry}` is not {said}")
        return value

    @property
    def blocks(self) -> list[str]:
        return [entry for entry in self.allow if is_block(entry)]

    @property
    def hosts(self) -> list[str]:
        return [entry for entry in self.allow if not is_block(entry)]
