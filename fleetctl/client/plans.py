"""Plans, differences and checks of manifests, as a Fleet returns them: made in this process, from
the stored rows; no controller is asked and nothing is changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from fleetctl.client.fleet_base import FleetBase, Manifests, call_apart, collect_documents
from fleetctl.client.objects import SHOWN_ROWS_MAX, RowTable, render_table

if TYPE_CHECKING:
    from fleetctl.apply.cost.estimate import Cost
    from fleetctl.apply.plan.plan_report import ObjectPlan, PlanReport

_COLUMNS = ("object", "action", "units", "cost", "where", "change")


@dataclass(frozen=True, slots=True, repr=False)
class FleetPlan:
    """The plan of an apply. report: all of it, as the command line shows it.

    objects: all of the manifests, also those that stay as they are; changes: those that would
    change. cost: of this apply; total: with past costs and work that goes on. prices: their
    sources. warnings: sentences on whatever an apply now would refuse, or a policy lets pass.
    """

    report: PlanReport

    @property
    def objects(self) -> tuple[ObjectPlan, ...]:
        return self.report.objects

    @property
    def changes(self) -> tuple[ObjectPlan, ...]:
        return self.report.changes

    @property
    def cost(self) -> Cost:
        return self.report.cost

    @property
    def total(self) -> Cost:
        return self.report.total

    @property
    def prices(self) -> tuple[str, ...]:
        return self.report.prices

    @property
    def warnings(self) -> tuple[str, ...]:
        return self.report.warnings

    def __repr__(self) -> str:
        if not self.changes:
            return "<FleetPlan no changes>"
        counts = Counter(it.action for it in self.changes)
        listed = ", ".join(f"{count} to {action}" for action, count in counts.items())
        return f"<FleetPlan {listed}: {self.cost}>"

    def __str__(self) -> str:
        lines = ["  ".join(filter(None, _list_cells(it))) for it in self.changes or self.objects]
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
        from fleetctl.apply.local_proposal import plan_locally
        from fleetctl.apply.policies.report import refuse_problems
        from fleetctl.stores.read.read_only import open_readonly

        documents = collect_documents(manifests, variables)
        order = self._build_order(applyset, prune=prune, allow_missing=allow_missing)

        def make_plan() -> FleetPlan:
            with open_readonly(self.home) as stored:
                proposal, report, _, problems = plan_locally(self.home, stored, documents, order)
            refuse_problems(problems, proposal.manifests)
            return FleetPlan(report)

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
        from fleetctl.apply.local_proposal import format_diff, propose_locally
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
        from fleetctl.apply.local_proposal import check_manifests
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


def _list_cells(plan: ObjectPlan) -> tuple[str, ...]:
    from fleetctl.apply.plan.document import format_object_cost, format_where

    change = "; ".join(text for text in (plan.message, plan.about, *plan.notes) if text)
    cost, where = format_object_cost(plan), format_where(plan)
    return (plan.key, plan.action, plan.units, cost, where, change)


def _mark_line(line: str) -> str:
    """Returns a line of a diff as HTML, marked where it is added or removed."""
    tag = {"+": "ins", "-": "del"}.get(line[:1], "")
    text = escape(line)
    if tag and not line.startswith(("+++", "---")):
        return f"<{tag}>{text}</{tag}>"
    return text
