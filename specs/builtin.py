"""The sorts of providers that are built in: one row each. Imported where nothing heavy may be: has
no model.

The row's other half is `fleetctl/providers/<sort>/plugin.py`.
"""

from __future__ import annotations

from typing import NamedTuple


class Sort(NamedTuple):
    """account: what tells whose account it is, in the words of a Provider object; each entry is one
    complete way, none: it has no accounts. also: what an account may say besides.
    """

    account: tuple[tuple[str, ...], ...] = ()
    also: tuple[str, ...] = ()


# A provider of each sort is there without being declared, under the same name.
SORTS = {
    "daytona": Sort(account=(("apiKeyEnv",),), also=("apiUrl", "target")),
    "local": Sort(),
    "modal": Sort(account=(("profile",), ("tokenIdEnv", "tokenSecretEnv"))),
}
BUILT_IN = tuple(SORTS)
