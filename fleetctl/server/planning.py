"""Makes the plan of a request, as `fleetctl plan -o json` makes it. Called in a thread; imported
with the first plan alone, for it loads the models.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.apply.local_proposal import check_manifests, format_diff, plan_locally
from fleetctl.apply.plan.document import dump_report, render_plan
from fleetctl.apply.policies.report import exit_code_of
from fleetctl.apply.request import (
    RequestActor,
    document_of,
    list_sent_paths,
    namespace_of,
    reads_for,
    refuse_changes_beyond,
    refuse_reach,
)
from fleetctl.manifest import Document
from fleetctl.manifest.loader import load_manifests
from fleetctl.stores.read.read_only import open_readonly

if TYPE_CHECKING:
    from fleetctl.server.callers import Caller
    from fleetctl.server.response_types import Planned


def plan_in_process(
    home: Path,
    caller: Caller,
    documents: Sequence[Mapping[str, object]],
    order: Mapping[str, object],
    *,
    by_limits: bool = False,
    diff: bool = False,
    strict: bool = False,
    report: bool = False,
) -> Planned:
    """Returns {ok, code, plan, warnings, findings}. Raises ManifestErrors, and Refused for
    objects that are not the caller's to change. by_limits: past runs are no part of the estimate,
    so that its high end is a bound. diff: with the lines of `fleetctl diff`. strict: refuses
    what is missing and may come later, as an apply now would. report: with all that a command line
    shows."""
    actor = RequestActor(caller.user, caller.role, caller.namespace) if caller.token else None
    texts = [document_of(it) for it in documents]
    with reads_for(actor, texts), open_readonly(home) as stored:
        if actor is not None:
            _refuse_reach(actor, texts, order)
        if by_limits:
            stored = stored.without_durations()
        doubts = check_manifests(home, stored, texts, order)[1] if strict else []
        found = plan_locally(home, stored, texts, order)
        refuse_changes_beyond(actor, found.changes)
    code = exit_code_of(found.problems)
    reply: Planned = {
        "ok": code == 0,
        "code": code,
        "plan": render_plan(found.report),
        "warnings": list(dict.fromkeys([*found.report.warnings, *doubts])),
        "findings": [asdict(it) for it in found.problems],
    }
    if report:
        reply["report"] = dump_report(found.report)
    if diff:
        reply["diff"] = [line for it in found.changes for line in format_diff(it)]
    return reply


def _refuse_reach(
    actor: RequestActor,
    texts: Sequence[Document],
    order: Mapping[str, object],
) -> None:
    """Checks what manifests name before their sources are looked at."""
    may_be_empty = bool(order.get("prune"))
    manifests = load_manifests(texts, namespace_of(order), may_be_empty=may_be_empty)
    refuse_reach(actor, manifests, sent=list_sent_paths(texts))
