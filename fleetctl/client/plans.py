"""Plans, differences and checks of manifests, as a Fleet returns them: made in this process, from
the stored rows; no controller is asked and nothing is changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any, Literal

from fleetctl.client.fleet_base import FleetBase, Manifests, call_apart, collect_documents
from fleetctl.client.tables import SHOWN_ROWS_MAX, RowTable, render_table

if TYPE_CHECKING:
    from fleetctl.apply.cost.plan_report import ObjectPlan, PlanReport

PlanVerb = Literal["create", "update", "replace", "destroy", "keep"]
_COLUMNS = ("object", "action", "units", "cost", "where", "change")


@dataclass(frozen=True, slots=True)
class CostRange:
    """A cost in USD. expected: None where it is unknown; high: None without a bound."""

    low: float
    expected: float | None
    high: float | None

    def __str__(self) -> str:
        if self.expected is not None:
            return f"${self.expected:,.2f}"
        if self.high is None:
            return "unknown"
        return f"at most ${self.high:,.2f}"


@dataclass(frozen=True, slots=True)
class FieldDifference:
    """A field that would change. before, after: None where there is none."""

    path: str
    before: Any
    after: Any


@dataclass(frozen=True, slots=True)
class PlannedObject:
    """The effect of an apply on one object.

    new: units that would run for the first time, None where their number is not known; kept: those
    whose results stay; again: those that run once more for their content changed; replaced,
    cancelled: running ones that would end. where: units by provider. cost: of this apply; None for
    an object that runs nothing. message: the change as a sentence.
    """

    key: str
    action: PlanVerb
    message: str
    fields: tuple[FieldDifference, ...] = ()
    new: int | None = 0
    kept: int = 0
    again: int = 0
    replaced: int = 0
    cancelled: int = 0
    where: Mapping[str, int] = field(default_factory=dict)
    cost: CostRange | None = None

    def __repr__(self) -> str:
        return f"<{self.key} {self.action}>"

    @property
    def units(self) -> str:
        """Returns `4 kept, 8 new`; empty for an object that runs nothing."""
        if self.cost is None:
            return ""
        new = "unknown" if self.new is None else f"{self.new:,} new"
        counts = (
            (self.kept, "kept"),
            (self.again, "to run again"),
            (self.replaced, "replaced"),
            (self.cancelled, "cancelled"),
        )
        return ", ".join([new, *(f"{count:,} {word}" for count, word in counts if count)])


@dataclass(frozen=True, slots=True)
class FleetPlan:
    """The plan of an apply. objects: all of the manifests, also those that stay as they are. cost:
    of this apply; total: with past costs and work that goes on. prices: sources of the prices.
    warnings: sentences on whatever an apply now would refuse, or a policy lets pass.
    """

    objects: tuple[PlannedObject, ...]
    cost: CostRange
    total: CostRange
    prices: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def changes(self) -> tuple[PlannedObject, ...]:
        """Returns the objects that would change; empty where an apply has no effect."""
        return tuple(it for it in self.objects if it.action != "keep")

    def __repr__(self) -> str:
        if not self.changes:
            return "<FleetPlan no changes>"
        counts = Counter(it.action for it in self.changes)
        listed = ", ".join(f"{count} to {verb}" for verb, count in counts.items())
        return f"<FleetPlan {listed}: {self.cost}>"

    def __str__(self) -> str:
        lines = [
            "  ".join(str(cell) for cell in _list_cells(it) if cell)
            for it in self.changes or self.objects
        ]
        return "\n".join([*lines, f"cost {self.cost}, in total {self.total}"])

    def _repr_html_(self) -> str:
        rows = [_list_cells(it) for it in self.objects[:SHOWN_ROWS_MAX]]
        table = render_table(_COLUMNS, rows, total=len(self.objects))
        notes = "".join(f"<li>{escape(it)}</li>" for it in self.warnings)
        listed = f"<ul>{notes}</ul>" if notes else ""
        summary = f"cost {self.cost}, in total {self.total}"
        return f"{table}<p>{escape(summary)}</p>{listed}"


@dataclass(frozen=True, slots=True)
class ObjectDiff:
    """The difference between a stored object and its manifest. outcome: as of AppliedObject; text:
    a unified diff of labels, annotations and spec."""

    key: str
    outcome: str
    text: str

    def __repr__(self) -> str:
        return f"<{self.key} {self.outcome}>"


class ObjectDiffs(RowTable[ObjectDiff]):
    """The objects that an apply would change. Its text is a single unified diff."""

    noun = "difference"
    columns = ("key", "outcome", "text")

    def __str__(self) -> str:
        return "\n".join(it.text for it in self)

    def _repr_html_(self) -> str:
        if not self:
            return "<p>no difference</p>"
        lines = [_mark_line(line) for it in self for line in it.text.splitlines()]
        return f"<pre>{chr(10).join(lines)}</pre>"


@dataclass(frozen=True, slots=True)
class ValidManifest:
    """A manifest without mistakes. warnings: sentences of its own."""

    key: str
    warnings: tuple[str, ...] = ()


class ValidManifests(RowTable[ValidManifest]):
    """warnings: those that are of no single manifest."""

    noun = "manifest"
    columns = ("key", "warnings")
    warnings: tuple[str, ...] = ()


class FleetPlans(FleetBase):
    """The methods of a Fleet that show the effect of manifests."""

    def plan(
        self,
        *manifests: Manifests,
        variables: Mapping[str, object] | None = None,
        applyset: str = "",
        prune: bool = False,
        allow_missing: bool = False,
    ) -> FleetPlan:
        """Returns the effect of an apply of these manifests, and its cost; changes nothing.

        variables, applyset, prune, allow_missing: as `apply` has them. Raises ManifestErrors with
        every mistake, and Refused where a policy or the guard of `prune` refuses the apply.
        """
        from fleetctl.apply.local.local_checks import plan_locally
        from fleetctl.apply.policies.report import raise_if_denied, warnings_of
        from fleetctl.manifest.problems import ManifestErrors
        from fleetctl.stores.read.read_only import open_readonly

        documents = collect_documents(manifests, variables)
        order = self._build_order(applyset, prune=prune, allow_missing=allow_missing)

        def make_plan() -> FleetPlan:
            with open_readonly(self.home) as stored:
                proposal, report, changes, problems, doubts = plan_locally(
                    self.home,
                    stored,
                    documents,
                    order,
                )
            if problems:
                raise ManifestErrors(problems)
            raise_if_denied(changes, proposal.manifests)
            return _build_plan(report, (*proposal.warnings, *doubts, *warnings_of(changes)))

        return call_apart(make_plan)

    def diff(
        self,
        *manifests: Manifests,
        variables: Mapping[str, object] | None = None,
        applyset: str = "",
        prune: bool = False,
        allow_missing: bool = False,
    ) -> ObjectDiffs:
        """Returns the difference between these manifests and the stored objects, one for each that
        differs. Takes the options of `plan`, and raises as it does.
        """
        from fleetctl.apply.local.change_diff import format_diff
        from fleetctl.apply.local.local_proposal import propose_locally
        from fleetctl.stores.read.read_only import open_readonly

        documents = collect_documents(manifests, variables)
        order = self._build_order(applyset, prune=prune, allow_missing=allow_missing)

        def find_differences() -> ObjectDiffs:
            with open_readonly(self.home) as stored:
                found = propose_locally(self.home, stored, documents, order)
            texts = [(it, "\n".join(format_diff(it))) for it in found.changes]
            return ObjectDiffs(ObjectDiff(it.key, it.outcome, text) for it, text in texts if text)

        return call_apart(find_differences)

    def validate(
        self,
        *manifests: Manifests,
        variables: Mapping[str, object] | None = None,
        allow_missing: bool = False,
    ) -> ValidManifests:
        """Returns the manifests, all of which can be applied. Raises ManifestErrors with every
        mistake, and Refused where a policy denies an object.
        """
        from fleetctl.apply.local.local_checks import check_manifests
        from fleetctl.stores.read.read_only import open_readonly

        documents = collect_documents(manifests, variables)
        order = self._build_order("", prune=False, allow_missing=allow_missing)

        def check() -> ValidManifests:
            with open_readonly(self.home) as stored:
                found, doubts = check_manifests(self.home, stored, documents, order)
            valid = ValidManifests(ValidManifest(it.key, tuple(it.warnings)) for it in found)
            valid.warnings = tuple(doubts)
            return valid

        return call_apart(check)

    def _build_order(
        self,
        applyset: str,
        *,
        prune: bool,
        allow_missing: bool,
    ) -> dict[str, object]:
        fields = {"applyset": applyset, "prune": prune, "allowMissing": allow_missing}
        return {name: it for name, it in fields.items() if it} | self._namespaced()


def _build_plan(report: PlanReport, warnings: tuple[str, ...]) -> FleetPlan:
    objects = tuple(map(_plan_object, report.objects))
    now, total = report.now, report.total
    return FleetPlan(
        objects,
        CostRange(now.low, now.expected, now.high),
        CostRange(total.low, total.expected, total.high),
        report.sources,
        warnings,
    )


def _plan_object(planned: ObjectPlan) -> PlannedObject:
    from fleetctl.apply.cost.document import VERBS
    from fleetctl.specs.values.changes import UNSET

    change, work = planned.change, planned.work
    fields = tuple(
        FieldDifference(
            it.path,
            None if it.before is UNSET else it.before,
            None if it.after is UNSET else it.after,
        )
        for it in change.fields
    )
    parts = (change.message, planned.about, *planned.notes)
    message = "; ".join(it for it in parts if it)
    if work is None:
        return PlannedObject(change.key, VERBS[planned.verb], message, fields)
    where: Counter[str] = Counter()
    for it in work.places:
        where[it.judged.provider] += it.units
    return PlannedObject(
        change.key,
        VERBS[planned.verb],
        message,
        fields,
        new=work.new,
        kept=work.kept,
        again=work.again.units,
        replaced=work.replaced,
        cancelled=work.cancelled,
        where={name: count for name, count in where.items() if count},
        cost=CostRange(work.now.low, work.now.expected, work.now.high),
    )


def _list_cells(planned: PlannedObject) -> tuple[object, ...]:
    where = ", ".join(f"{count:,} on {name}" for name, count in planned.where.items())
    cost = "" if planned.cost is None else str(planned.cost)
    return (planned.key, planned.action, planned.units, cost, where, planned.message)


def _mark_line(line: str) -> str:
    """Returns a line of a diff as HTML, marked where it is added or removed."""
    tag = {"+": "ins", "-": "del"}.get(line[:1], "")
    text = escape(line)
    if tag and not line.startswith(("+++", "---")):
        return f"<{tag}>{text}</{tag}>"
    return text
