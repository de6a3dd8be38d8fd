"""Providers: where runs run. Siblings do not know each other.

The names here are the public face for providers of other projects' packages: they, and no other
name of fleetctl, keep their meaning until API_VERSION rises. `fleetctl.testing` holds a provider to
its contract; docs/how-to/write-a-provider.md says how one is made. Found when asked for: lists come
through this package.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fleetctl.common.errors import Refused, Unavailable
    from fleetctl.common.finding import Finding, Severity
    from fleetctl.controllers.model import Alive, Ended, Gone, Observation
    from fleetctl.providers.contract.account import Account, CheckResult
    from fleetctl.providers.contract.base import (
        Backend,
        FunctionAsset,
        LogChunk,
        Owned,
        RunRef,
        RunRequest,
    )
    from fleetctl.providers.contract.plugin import Plugin
    from fleetctl.providers.contract.terms import Contract
    from fleetctl.providers.remote.runs.follower import GuestEnded, SandboxOver
    from fleetctl.providers.remote.sandbox_backend import (
        GuestCommand,
        HostedOrphans,
        HostedSandbox,
        SandboxBackend,
        SandboxHost,
        SandboxOrder,
        VolumeHost,
        guest_program,
    )
    from fleetctl.providers.remote.sandboxes.sandbox_protocol import Cause, Fate
    from fleetctl.specs.blocks.template import Template
    from fleetctl.specs.builtin import API_VERSION, BuiltInProvider
    from fleetctl.specs.values.scalars import CredentialVariable, NonEmptyText, Spec

_HOMES = {
    "API_VERSION": "fleetctl.specs.builtin",
    "Account": "fleetctl.providers.contract.account",
    "Alive": "fleetctl.controllers.model",
    "Backend": "fleetctl.providers.contract.base",
    "BuiltInProvider": "fleetctl.specs.builtin",
    "Cause": "fleetctl.providers.remote.sandboxes.sandbox_protocol",
    "CheckResult": "fleetctl.providers.contract.account",
    "Contract": "fleetctl.providers.contract.terms",
    "CredentialVariable": "fleetctl.specs.values.scalars",
    "Ended": "fleetctl.controllers.model",
    "Fate": "fleetctl.providers.remote.sandboxes.sandbox_protocol",
    "Finding": "fleetctl.common.finding",
    "FunctionAsset": "fleetctl.providers.contract.base",
    "Gone": "fleetctl.controllers.model",
    "GuestCommand": "fleetctl.providers.remote.sandbox_backend",
    "GuestEnded": "fleetctl.providers.remote.runs.follower",
    "HostedOrphans": "fleetctl.providers.remote.sandbox_backend",
    "HostedSandbox": "fleetctl.providers.remote.sandbox_backend",
    "LogChunk": "fleetctl.providers.contract.base",
    "NonEmptyText": "fleetctl.specs.values.scalars",
    "Observation": "fleetctl.controllers.model",
    "Owned": "fleetctl.providers.contract.base",
    "Plugin": "fleetctl.providers.contract.plugin",
    "Refused": "fleetctl.common.errors",
    "RunRef": "fleetctl.providers.contract.base",
    "RunRequest": "fleetctl.providers.contract.base",
    "SandboxBackend": "fleetctl.providers.remote.sandbox_backend",
    "SandboxHost": "fleetctl.providers.remote.sandbox_backend",
    "SandboxOrder": "fleetctl.providers.remote.sandbox_backend",
    "SandboxOver": "fleetctl.providers.remote.runs.follower",
    "Severity": "fleetctl.common.finding",
    "Spec": "fleetctl.specs.values.scalars",
    "Template": "fleetctl.specs.blocks.template",
    "Unavailable": "fleetctl.common.errors",
    "VolumeHost": "fleetctl.providers.remote.sandbox_backend",
    "guest_program": "fleetctl.providers.remote.sandbox_backend",
}
__all__ = [
    "API_VERSION",
    "Account",
    "Alive",
    "Backend",
    "BuiltInProvider",
    "Cause",
    "CheckResult",
    "Contract",
    "CredentialVariable",
    "Ended",
    "Fate",
    "Finding",
    "FunctionAsset",
    "Gone",
    "GuestCommand",
    "GuestEnded",
    "HostedOrphans",
    "HostedSandbox",
    "LogChunk",
    "NonEmptyText",
    "Observation",
    "Owned",
    "Plugin",
    "Refused",
    "RunRef",
    "RunRequest",
    "SandboxBackend",
    "SandboxHost",
    "SandboxOrder",
    "SandboxOver",
    "Severity",
    "Spec",
    "Template",
    "Unavailable",
    "VolumeHost",
    "guest_program",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module `{__name__}` has no attribute `{name}`")
    return getattr(import_module(_HOMES[name]), name)
