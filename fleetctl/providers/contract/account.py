"""The account that a provider works with, its name and the source of its credentials, and the
results that `fleetctl doctor` gets about it and the machine.

Made of Provider objects by wiring and the CLI, read by the providers. Holds no credential: names
of variables and profiles alone, looked up at each connection.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.providers.paths import provider_dir

Lookup = Callable[[str], str | None]  # of a variable


@dataclass(frozen=True, slots=True)
class Account:
    """An account of a provider. name: of the Provider object, or of the built-in provider. sort:
    the name of that provider.
    declared: the object's `account`, in its own words; settings: its block of the sort's name.
    environ: where variables are looked up.
    """

    name: str
    sort: str
    declared: Mapping[str, str] = field(default_factory=dict)
    environ: Lookup = field(
        default=os.environ.get,
        repr=False,
        compare=False,
    )
    settings: Mapping[str, object] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """The account's name in messages; "" where it is not needed."""
        if self.name == self.sort:
            return ""
        return f"provider `{self.name}`: "

    def directory(self, home: Path) -> Path:
        """Returns the directory of its provider's records."""
        return provider_dir(home, self.name)

    def value(self, key: str) -> str:
        """The value of the variable that `key` of the object's `account` names. Raises Refused when
        it is not set.
        """
        variable = self.declared[key]
        found = self.environ(variable)
        if not found:
            raise Refused(
                f"provider `{self.name}` takes its credentials from `{variable}`, which is not set",
                hint=f"export {variable}=... and apply provider/{self.name} again from that shell",
            )
        return found

    def where(self) -> str:
        """Returns the declared source of its credentials; "" when the object names no source."""
        for named in ("profile", "context", "kubeconfig"):
            if text := self.declared.get(named):
                return f"{named} `{text}`"
        variables = [text for key, text in self.declared.items() if key.endswith("Env")]
        return ", ".join(f"`{name}`" for name in variables)

    def hint(self, usual: str) -> str:
        """Returns the fix for wrong credentials; `usual` where the object names no source."""
        where = self.where()
        if where:
            return f"fix {where}, and apply provider/{self.name} again"
        return usual


AccountNow = Callable[[], Account]  # as its object stands when it is asked


def built_in(sort: str) -> Account:
    """The account that the sort's own program would use."""
    return Account(sort, sort)


def account_of(
    name: str,
    spec: Mapping[str, object],
    environ: Lookup = os.environ.get,
) -> Account:
    """The account that the stored spec of a Provider object describes."""
    found_value = spec.get("account")
    texts = (
        {key: str(value) for key, value in found_value.items()}
        if isinstance(found_value, Mapping)
        else {}
    )
    sort = str(spec.get("type") or name)
    block = spec.get(sort)
    return Account(
        name,
        sort,
        texts,
        environ,
        block if isinstance(block, Mapping) else {},
    )


class CheckResult(NamedTuple):
    """A line of `doctor`. `says`, its text, never holds a credential; `fix` is the exact command
    that would help.
    """

    topic: str  # a provider's name, or what it shares with others: `uv`, `git`
    what: str  # such as `package`, `token`, `server`
    ok: bool
    says: str
    fix: str = ""
    away: bool = False  # the fault is that a service does not answer


def explain_no_access(topic: str, error: Refused | Unavailable, fix: str) -> CheckResult:
    """Returns the check of a server that refuses, or that cannot be reached; then `fix` helps."""
    if isinstance(error, Unavailable) and not error.account:
        return CheckResult(topic, "access", False, f"unreachable: {error}", fix, away=True)
    return CheckResult(topic, "access", False, str(error), error.hint)


# called with the state directory and the account that is looked at
Check = Callable[[Path, Account], Awaitable[list[CheckResult]]]
