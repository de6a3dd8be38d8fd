"""One row a provider that is built in: its properties for specs and pure decisions.

Adding a provider: a row here, and its package in fleetctl/providers/ with a `plugin.py`. Imported
where no heavy import is allowed: has no model.
"""

from __future__ import annotations

from typing import NamedTuple


class BuiltInProvider(NamedTuple):
    """A sort of provider.

    accounts: each row is a complete way to select the account, in fields of ProviderAccount; empty
    for a provider with a single account. extras: fields that may stand beside any row. here: the
    provider is this machine, with its files and its network, and no bill comes. keys: names of
    variables that hold the credentials of its usual account.
    """

    accounts: tuple[tuple[str, ...], ...] = ()
    extras: tuple[str, ...] = ()
    here: bool = False
    keys: tuple[str, ...] = ()


# By name; a provider of each sort is there without being declared, under the same name.
SORTS = {
    "daytona": BuiltInProvider(
        accounts=(("apiKeyEnv",),),
        extras=("apiUrl", "target"),
        keys=("DAYTONA_API_KEY", "DAYTONA_JWT_TOKEN"),
    ),
    "endpoint": BuiltInProvider(here=True),
    "kubernetes": BuiltInProvider(
        accounts=(("context",), ("kubeconfig",), ("context", "kubeconfig"))
    ),
    "local": BuiltInProvider(here=True),
    "modal": BuiltInProvider(
        accounts=(("profile",), ("tokenIdEnv", "tokenSecretEnv")),
        keys=("MODAL_TOKEN_ID", "MODAL_TOKEN_SECRET"),
    ),
    # Machines are an account without a field: their block and OpenSSH's own files name them.
    "slurm": BuiltInProvider(accounts=((),)),
    "ssh": BuiltInProvider(accounts=((),)),
}
BUILT_IN = tuple(SORTS)
DEFAULT_PROVIDER = "local"  # the provider of work without a placement
CLUSTER = "kubernetes"  # providers whose Provider objects have a block with this name
PROMPT_PROVIDER = "endpoint"  # the provider of prompts, and of no other work


def runs_here(provider: str) -> bool:
    """Returns True if a provider's work runs on this machine. Providers that users declare never
    do.
    """
    return provider in SORTS and SORTS[provider].here
