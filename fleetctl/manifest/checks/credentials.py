"""Warnings about values that look like credentials: a manifest is stored, shown and shared."""

from __future__ import annotations

from collections.abc import Iterator

from fleetctl.manifest.checks import works
from fleetctl.manifest.messages import Finding
from fleetctl.manifest.problems import CREDENTIAL_NAME
from fleetctl.specs.values.scalars import Spec

# Shorter ones are names and switches, such as KEY=name; real credentials are long.
CREDENTIAL_LENGTH_MIN = 16


def doubtful(spec: Spec) -> Iterator[Finding]:
    """One for each variable; its value is in none of them."""
    of_services = (((*at, "env"), service.env) for at, service in works.services(spec))
    for at, variables in (*works.environments(spec), *of_services):
        for name, value in variables.items():
            if (
                CREDENTIAL_NAME.search(name)
                and len(value) >= CREDENTIAL_LENGTH_MIN
                and not any(character in value for character in " /")
            ):
                path = (*at, name)
                message = " holds what looks like a credential"
                hint = "put it into a Secret and name that in `secrets`"
                yield Finding(path, path, message, hint, at_key=True)
