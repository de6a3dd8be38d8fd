"""Work that may outlive its sandbox: some providers end a sandbox at a maximal age, and the next
attempt continues, as often as needed. Then an attempt's limit does not bound the cost of the whole.

Pure; called by cost_parts.py and plan.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fleetctl.common.text import HOUR_S
from fleetctl.providers.contract.terms import Contract
from fleetctl.specs.blocks.template import Template


@dataclass(frozen=True, slots=True)
class LifetimeLimit:
    """A provider ends a sandbox at this age though its task may continue. timeout_s: the task's own
    limit, None without one.
    """

    provider: str
    age_s: float
    timeout_s: float | None

    @property
    def short(self) -> str:
        return f"{self.provider} ends each sandbox after {self.age_s / HOUR_S:g} h"


def limit_of(
    provider: str,
    contract: Contract,
    template: Template,
) -> LifetimeLimit | None:
    """Returns the limit, or None where the task's own limit comes first or there is no limit."""
    timeout_s = template.timeout_seconds
    if template.is_function:
        return None
    ages_s = [contract.max_lifetime_s]
    if timeout_s is None:
        ages_s.append(contract.usual_lifetime_s)
    age_s = min((it for it in ages_s if it is not None), default=None)
    if age_s is None or (timeout_s is not None and timeout_s < age_s):
        return None
    return LifetimeLimit(provider, age_s, timeout_s)


def describe_lifetimes(limits: Sequence[LifetimeLimit], *, long: bool) -> str:
    """Returns the warning for work that keeps no checkpoint; "" where there is no cause. long: the
    work is of a kind that is made to last; a task of another kind without a limit counts as short.
    """
    parts = [it for it in limits if long or it.timeout_s is not None]
    if not parts:
        return ""
    first = parts[0]
    why = "" if first.timeout_s is None else f", before timeoutSeconds {first.timeout_s:g} passes"
    places = " and ".join(dict.fromkeys(it.short for it in parts))
    return f"{places}{why}: without a checkpoint, unfinished work starts over each time"
