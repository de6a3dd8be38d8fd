"""Work that may outlive its sandbox: some providers end one at a certain age, and the next attempt
goes on, as often as it takes. Then no limit of one attempt bounds what the whole costs.

Pure; called by parts.py and plan.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fleetctl.common.text import HOUR_S
from fleetctl.providers.contract.terms import Contract
from fleetctl.specs.blocks.template import Template


@dataclass(frozen=True, slots=True)
class Limit:
    """A provider ends a sandbox at that age though its task may go on. timeout_s: what the task
    says itself; None: nothing.
    """

    provider: str
    age_s: float
    timeout_s: float | None

    @property
    def short(self) -> str:
        return f"{self.provider} ends each sandbox after {self.age_s / HOUR_S:g} h"


def limit_of(provider: str, contract: Contract, template: Template) -> Limit | None:
    """None where the task's own limit comes first, or nobody has one."""
    timeout_s = template.timeout_seconds
    if template.is_function:
        return None
    ages_s = [contract.max_lifetime_s]
    if timeout_s is None:
        ages_s.append(contract.usual_lifetime_s)
    age_s = min((it for it in ages_s if it is not None), default=None)
    if age_s is None or (timeout_s is not None and timeout_s < age_s):
        return None
    return Limit(provider, age_s, timeout_s)


def warning(limits: Sequence[Limit], *, long: bool) -> str:
    """For work that keeps no checkpoint; "" where there is nothing to say. long: it is of a kind
    that is made to last; a task of another that names no limit is taken to be a short one.
    """
    parts = [it for it in limits if long or it.timeout_s is not None]
    if not parts:
        return ""
    first = parts[0]
    why = "" if first.timeout_s is None else f", before timeoutSeconds {first.timeout_s:g} is over"
    places = " and ".join(dict.fromkeys(it.short for it in parts))
    return f"{places}{why}: without a checkpoint, what is not done by then begins anew each time"
