"""One row a provider that is built in: what specs and pure decisions know of it.

Adding a provider: a row here, and its package in fleetctl/providers/ with a `plugin.py`. Imported
where nothing heavy may be: has no model.
"""

from __future__ import annotations

from typing import NamedTuple


class Sort(NamedTuple):
    """One sort of provider. accounts: each line is one complete way to say whose account, in fields
    of ProviderAccount; none where there is but one. extras: what may stand beside any of them.
    here: it is this machine, with its files and its network, and nobody sends a bill."""

    accounts: tuple[tuple[str, ...], ...] = ()
    extras: tuple[str, ...] = ()
    here: bool = False


# By name; a provider of each sort is there without being declared, under the same name.
SORTS = {
    "daytona": Sort(accounts=(("apiKeyEnv",),), extras=("apiUrl", "target")),
    "endpoint": Sort(here=True),
    "kubernetes": Sort(accounts=(("context",), ("kubeconfig",), ("context", "kubeconfig"))),
    "local": Sort(here=True),
    "modal": Sort(accounts=(("profile",), ("tokenIdEnv", "tokenSecretEnv"))),
}
BUILT_IN = tuple(SORTS)
DEFAULT_PROVIDER = "local"  # where work runs of which nobody says where
CLUSTER = "kubernetes"  # whose Provider objects have a block of that name
PROMPT_PROVIDER = "endpoint"  # where prompts are asked, and nothing else is


def runs_here(provider: str) -> bool:
    """Whether what a provider runs is on this machine. Others that people declare never are."""
    return provider in SORTS and SORTS[provider].here
