"""Finds in this process the changes that files would make and the errors for which an apply of them
would be refused: for dry runs, `diff`, `plan`, `validate` and the Python client. Stores nothing.

The decision is the one that the controller makes, over the same rows, read without it. The import
loads the models of all specs.
"""

from __future__ import annotations

import asyncio
import difflib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fleetctl.apply.change import Change
from fleetctl.apply.cost.offers import market_of
from fleetctl.apply.draft import draft_partial
from fleetctl.apply.merge import with_hand_fields
from fleetctl.apply.plan.build_plan import build_report, costs_of, list_verdict_risks, sort_risks
from fleetctl.apply.plan.plan_report import PlanReport
from fleetctl.apply.policies.judge import judge_by_policies
from fleetctl.apply.policies.report import problems_of, refuse_problems, warnings_of
from fleetctl.apply.predictions.predict import (
    ANYWAY,
    ANYWAY_SORTS,
    make_predictions,
    read_allowed,
    split_predictions,
)
from fleetctl.apply.predictions.world import Prediction, world_of
from fleetctl.apply.propose import propose_changes
from fleetctl.apply.request import (
    ApplyOptions,
    namespace_of,
    order_of,
    parallelism_of,
    select_providers,
)
from fleetctl.common.clock import SystemClock
from fleetctl.common.errors import FleetctlError, Refused
from fleetctl.common.text import escape_line
from fleetctl.controllers.model import Resource
from fleetctl.engine.capacity.price_book import KIND as PROVIDER
from fleetctl.manifest.files.documents import Document
from fleetctl.manifest.loader import LoadErrors, Manifest, load_manifests
from fleetctl.manifest.problems import ManifestErrors, ManifestProblem
from fleetctl.manifest.yaml.emit import to_yaml
from fleetctl.providers.contract.base import Backend, LivePrices
from fleetctl.specs.blocks.common import WorkSpec
from fleetctl.specs.kinds.provider import ProviderSpec
from fleetctl.specs.kinds.registry import dump_spec, parse_spec
from fleetctl.stores.base import ReadableStore
from fleetctl.stores.read.read_only import StoreSnapshot
from fleetctl.tracking.annotations import NOTES
from fleetctl.tracking.by_hand import field_note, format_paths
from fleetctl.tracking.manifest_sources import ManifestSources, source_of
from fleetctl.tracking.source_state import SourceState
from fleetctl.wiring.account_registry import AccountRegistry

if TYPE_CHECKING:
    from fleetctl.apply.policies.judge import LoadedPolicy
    from fleetctl.controllers.budget import CostEstimate


PRICES_S = 3.0  # for an account to report its prices; the import of its SDK takes most

CONTEXT_LINES = 3


def check_round(
    state_dir: Path,
    stored: ReadableStore,
    error: LoadErrors,
    order: Mapping[str, object],
) -> ManifestErrors:
    """Returns the mistakes, with what else is wrong with these manifests and the sound ones."""
    read = [*error.sound, *error.partial]
    if not read:
        return error.beside([])  # no manifest is left to be asked about
    accounts = AccountRegistry(state_dir, store_id=stored.store_id)
    for resource in stored.resources.living(PROVIDER):
        accounts.open(resource.name, json.loads(resource.spec))
    for name, spec in select_providers(read).items():
        accounts.open(name, json.loads(dump_spec(spec)))
    options = ApplyOptions(gathers=True)
    try:
        changes = propose_changes(stored, error.sound, options, SystemClock().now_s())
    except FleetctlError:
        changes = []  # refusals of the whole set are reported once every manifest is readable
    partial = [draft_partial(stored, it) for it in error.partial]
    found = predictions_of(
        stored,
        read,
        [*changes, *partial],
        accounts.backends,
        {},
    )
    wrong, _ = split_predictions(found, read_allowed(order))
    return error.beside([*wrong, *problems_of(changes, error.sound)])


def predictions_of(
    stored: ReadableStore,
    manifests: Sequence[Manifest],
    changes: Sequence[Change],
    providers: Mapping[str, Backend],
    looked: Mapping[str, SourceState],
) -> list[Prediction]:
    fields = {}
    for resource in stored.resources.living(PROVIDER):
        try:
            spec = parse_spec(PROVIDER, resource.spec)
        except ValueError:
            continue  # the controller cannot read it either; its status reports that
        assert isinstance(spec, ProviderSpec)
        fields[resource.name] = spec
    world = world_of(
        stored,
        changes,
        providers,
        fields,
        os.environ.get,
        starts_here=False,
        looked=looked,
    )
    return asyncio.run(make_predictions(manifests, changes, world))


class LocalProposal(NamedTuple):
    """The changes and their warnings. accounts: the providers as the controller has them; not
    started. warnings: sentences for the user; notes: shown in detailed output alone. looked: the
    present state of sources, by key.
    """

    manifests: list[Manifest]
    changes: list[Change]
    accounts: AccountRegistry
    warnings: list[str]
    notes: list[str]
    looked: Mapping[str, SourceState]


def propose_locally(
    state_dir: Path,
    stored: ReadableStore,
    documents: Sequence[Document],
    order: Mapping[str, object],
    *,
    gathers: bool = False,
) -> LocalProposal:
    """Proposes. gathers: as in ApplyOptions. Raises ManifestErrors, and Refused or Conflict as the
    apply itself would.
    """
    try:
        manifests = load_manifests(
            documents, namespace_of(order), may_be_empty=bool(order.get("prune"))
        )
    except LoadErrors as error:
        raise check_round(state_dir, stored, error, order) from None
    manifests = with_hand_fields(stored, manifests)
    accounts = AccountRegistry(state_dir, store_id=stored.store_id)
    for resource in stored.resources.living(PROVIDER):
        accounts.open(resource.name, json.loads(resource.spec))
    for name, spec in select_providers(manifests).items():
        accounts.open(name, json.loads(dump_spec(spec)))
    sources = ManifestSources(state_dir)
    looked = asyncio.run(sources.look(manifests))
    manifests = asyncio.run(sources.required(manifests, looked, stored))
    whole = replace(
        order_of(order),
        parallelism=parallelism_of(accounts.backends),
        looked=looked,
        sources=sources,
        gathers=gathers,
    )
    changes = propose_changes(stored, manifests, whole, SystemClock().now_s())
    warnings = [text for manifest in manifests for text in manifest.warnings]
    warnings += [text for it in looked.values() for text in it.warnings]
    notes = [text for it in looked.values() for text in it.notes]
    return LocalProposal(
        manifests,
        changes,
        accounts,
        warnings,
        notes,
        looked,
    )


def estimate_proposal(
    state_dir: Path,
    stored: StoreSnapshot,
    documents: Sequence[Document],
    order: Mapping[str, object],
    *,
    gathers: bool = False,
) -> tuple[LocalProposal, PlanReport]:
    """Returns the proposal, its cost and providers: by live prices where an account reports them in
    time. gathers: as in ApplyOptions.
    """
    from fleetctl.apply.cost.offers import market_of
    from fleetctl.apply.plan.build_plan import build_report

    found = propose_locally(state_dir, stored, documents, order, gathers=gathers)
    asyncio.run(_refresh_prices(found))
    market = market_of(stored, found.changes, found.accounts.backends)
    return found, build_report(stored, found.changes, market, SystemClock().now_s())


async def _refresh_prices(found: LocalProposal) -> None:
    """Asks the accounts where work may run for their prices. A slow account keeps the dated table:
    a plan needs no network.
    """
    named = {
        name
        for manifest in found.manifests
        if isinstance(manifest.spec, WorkSpec)
        for name in manifest.spec.providers()
    }
    backends = [it for name, it in found.accounts.backends.items() if name in named]
    asked = [it.ask_prices() for it in backends if isinstance(it, LivePrices)]
    if not asked:
        return
    tasks = [asyncio.ensure_future(one) for one in asked]
    try:
        # A late reply changes nothing: the screen names the prices that were used.
        done, _ = await asyncio.wait(tasks, timeout=PRICES_S)
        for task in done:
            task.result()  # raises an error that is our bug
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await found.accounts.close()


def refuse_above(most_usd: float, found: PlanReport) -> None:
    """Raises Refused when this apply may cost more, or its cost is unknown."""
    for it in found.objects:
        if it.warm is not None:
            asked = it.warm.idle_s is not None
            does = "starts containers while it is asked" if asked else "keeps containers warm"
            drop = "" if asked else ", or leave out `minContainers`"
            raise Refused(
                f"{it.key} {does}, which cost as long as it exists, and"
                f" --max-cost is ${most_usd:,.2f}",
                hint=f"put it under a Budget{drop}",
            )
    high_usd = found.cost.high
    if high_usd is None:
        raise Refused(
            f"this has no upper bound of its cost, and --max-cost is ${most_usd:,.2f}",
            hint="set template.timeoutSeconds, and place it where prices are known",
        )
    if high_usd > most_usd:
        raise Refused(
            f"this may cost ${high_usd:,.2f}, more than --max-cost ${most_usd:,.2f}",
            hint="`fleetctl plan -f` shows what costs how much; nothing was changed",
        )


class LocalPlan(NamedTuple):
    """A proposal with its report, which has the verdicts of policies and all warnings. changes:
    with the same verdicts. problems: all that would refuse an apply.
    """

    proposal: LocalProposal
    report: PlanReport
    changes: list[Change]
    problems: list[ManifestProblem]


def plan_locally(
    state_dir: Path,
    stored: StoreSnapshot,
    documents: Sequence[Document],
    order: Mapping[str, object],
    policies: Sequence[LoadedPolicy] = (),
) -> LocalPlan:
    """Returns the plan of an apply. Raises ManifestErrors for unreadable manifests, and Refused as
    the apply itself would.
    """
    proposal, report = estimate_proposal(state_dir, stored, documents, order, gathers=True)
    providers = proposal.accounts.backends
    problems, doubts = looked_at(
        stored,
        proposal.manifests,
        proposal.changes,
        providers,
        order,
        proposal.looked,
    )
    changes = judge_changes(stored, proposal.changes, policies, providers)
    whole = replace(
        report,
        risks=sort_risks([*report.risks, *list_verdict_risks(changes)]),
        warnings=(*proposal.warnings, *doubts, *warnings_of(changes)),
    )
    problems += problems_of(changes, proposal.manifests)
    return LocalPlan(proposal, whole, changes, problems)


def check_manifests(
    state_dir: Path,
    stored: StoreSnapshot,
    documents: Sequence[Document],
    order: Mapping[str, object],
    policies: Sequence[LoadedPolicy] = (),
) -> tuple[list[Manifest], list[str]]:
    """Returns the manifests, and warnings beyond their own. Raises ManifestErrors, and PolicyDenied
    by stored policies and these.
    """
    try:
        manifests = load_manifests(documents, namespace_of(order))
    except LoadErrors as error:
        raise check_round(state_dir, stored, error, order) from None
    accounts = AccountRegistry(state_dir, store_id="")
    for name, spec in select_providers(manifests).items():
        accounts.open(name, json.loads(dump_spec(spec)))
    local = [it for it in manifests if _is_local_path(it)]
    looked = asyncio.run(ManifestSources(state_dir).look(local)) if local else {}
    whole = replace(order_of(order), looked=looked, gathers=True)
    changes = propose_changes(stored, manifests, whole, SystemClock().now_s())
    doubts = [text for it in looked.values() for text in it.warnings]
    return manifests, doubts + refuse_changes(
        stored,
        manifests,
        changes,
        accounts.backends,
        order,
        looked,
        policies,
    )


def judge_changes(
    stored: StoreSnapshot,
    changes: Sequence[Change],
    policies: Sequence[LoadedPolicy],
    providers: Mapping[str, Backend],
) -> list[Change]:
    """Returns the changes with the verdicts of stored policies and these, also on their cost."""
    now_s = SystemClock().now_s()

    def costs() -> Mapping[str, CostEstimate]:
        found = build_report(stored, changes, market_of(stored, changes, providers), now_s)
        return costs_of(found)

    return judge_by_policies(
        stored,
        changes,
        policies,
        now_s,
        costs,
    )


def _is_local_path(manifest: Manifest) -> bool:
    """Returns true for a local path. Remotes are not read: that takes a network."""
    source = source_of(manifest.spec)
    return source is not None and source.path is not None


def refuse_changes(
    stored: StoreSnapshot,
    manifests: Sequence[Manifest],
    changes: Sequence[Change],
    providers: Mapping[str, Backend],
    order: Mapping[str, object],
    looked: Mapping[str, SourceState],
    policies: Sequence[LoadedPolicy],
) -> list[str]:
    """Returns warnings. Raises the refusal by predictions, stored objects and policies together."""
    found = predictions_of(
        stored,
        manifests,
        changes,
        providers,
        looked,
    )
    wrong, warnings = split_predictions(found, read_allowed(order))
    changes = judge_changes(stored, changes, policies, providers)
    refuse_problems([*wrong, *problems_of(changes, manifests)], manifests)
    return warnings + warnings_of(changes)


def looked_at(
    stored: ReadableStore,
    manifests: Sequence[Manifest],
    changes: Sequence[Change],
    providers: Mapping[str, Backend],
    order: Mapping[str, object],
    looked: Mapping[str, SourceState],
) -> tuple[list[ManifestProblem], list[str]]:
    """Returns errors and warnings by predictions, for changes that are shown and not stored:
    objects that may come later cause a warning, which mentions that an apply would be refused.
    """
    found = predictions_of(
        stored,
        manifests,
        changes,
        providers,
        looked,
    )
    wrong, doubts = split_predictions(found, frozenset({*read_allowed(order), *ANYWAY_SORTS}))
    if any(it.severity in ANYWAY_SORTS and it.severity not in read_allowed(order) for it in found):
        doubts.append(f"until then `fleetctl apply` is refused; {ANYWAY}")
    return wrong, doubts


def format_diff(change: Change) -> Iterator[str]:
    """Yields a unified diff with file names as kubectl gives them; no line for equal objects."""
    if change.outcome == "unchanged":
        return
    gone = change.after.deleted_at_s is not None
    name = escape_line(f"{change.after.kind.lower()}.{change.after.namespace}.{change.after.name}")
    before = _render_yaml(change.before) if change.before is not None else []
    after = [] if gone else _render_yaml(change.after)
    made = difflib.unified_diff(
        before,
        after,
        f"live/{name}",
        f"file/{name}",
        lineterm="",
        n=CONTEXT_LINES,
    )
    line_of_live = 0
    for moved in change.fields:
        if moved.difference and change.before is not None:
            yield f"# {name}: {moved.path} {escape_line(moved.difference)}"
    if change.before is not None and (hand := field_note(change.after.annotations).hand):
        yield f"# {name}: {escape_line(format_paths(hand))} set by hand stays"
    for line in made:
        if line.startswith("@@"):
            line_of_live = int(line[4:].partition(",")[0].partition(" ")[0])
            yield f"{line} {_find_section(before or after, line_of_live)}".rstrip()
        else:
            yield escape_line(line)


def _render_yaml(resource: Resource) -> list[str]:
    """Returns the canonical YAML of the fields that a user may change. Secrets are references here,
    never values."""
    shown: dict[str, object] = {}
    if resource.labels:
        shown["labels"] = dict(sorted(resource.labels.items()))
    fields = {key: text for key, text in resource.annotations.items() if key not in NOTES}
    if fields:
        shown["annotations"] = dict(sorted(fields.items()))
    shown["spec"] = _as_written(json.loads(resource.spec))
    return to_yaml(shown).splitlines()


def _as_written(value: Any) -> Any:
    """Returns whole seconds without `.0`, as users write them."""
    if isinstance(value, dict):
        return {key: _as_written(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_as_written(inner) for inner in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _find_section(lines: Sequence[str], number: int) -> str:
    """Returns the key of the outermost block that the hunk begins in, as git names a function
    there."""
    for line in reversed(lines[: max(number, 1)]):
        if line[:1].strip() and line.endswith(":"):
            return line.removesuffix(":")
    return ""
