"""Reports of a Fleet on work that ran: costs, charts, and the files that tasks kept."""

from __future__ import annotations

import os
from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from fleetctl.client.fleet_base import FleetBase
from fleetctl.client.objects import RowTable, import_pandas
from fleetctl.common.clock import SystemClock
from fleetctl.common.errors import NotFound, Refused, UsageError
from fleetctl.views.objects import View
from fleetctl.views.spending import (
    GROUPINGS,
    GroupCost,
    GroupEstimate,
    is_grouping,
    open_asking,
    query_estimates,
    query_saved,
    query_spent,
)
from fleetctl.views.store_reading import StoreReading, must_find, open_reading

if TYPE_CHECKING:
    import pandas

    from fleetctl.providers.rundir.kept_outputs import KeptOutputs
    from fleetctl.views.plotting.charts import Chart
    from fleetctl.views.run_files import Artifact

ChartKind = Literal["best", "parallel", "importance", "front", "rungs", "system"]
QUERY_S = 60.0
TEXT_COLUMNS = 80
_NO_ESTIMATE = GroupEstimate(None, None, None)


@dataclass(frozen=True, slots=True)
class CostRow:
    """The cost of a group in USD; None where it is unknown.

    key: of the object, or the kind, provider or value of the label. seconds: of attempts at work.
    failed_usd: of failed and cancelled attempts. unpriced: attempts without a known price, which
    are not in it. saved_usd: cost of the work whose results were taken from the cache.
    """

    key: str | None
    objects: int
    attempts: int
    seconds: float
    usd: float | None
    failed_usd: float | None
    estimate_usd: float | None
    saved_usd: float
    unpriced: int

    def __repr__(self) -> str:
        return f"<{self.key} {format_usd(self.usd)}>"


class CostTable(RowTable[CostRow]):
    """The groups, the cheapest first."""

    noun = "group"
    columns = (
        "key", "objects", "attempts", "seconds", "usd", "failed_usd", "estimate_usd", "saved_usd",
        "unpriced",
    )  # fmt: skip

    @property
    def total_usd(self) -> float:
        """Returns the sum of the known costs."""
        return sum(it.usd for it in self if it.usd is not None)

    def __repr__(self) -> str:
        return f"CostTable({len(self)} groups, {format_usd(self.total_usd)})"

    def to_pandas(self) -> pandas.DataFrame:
        """Returns a row a group. Raises Refused where pandas is not installed."""
        rows = [[getattr(row, name) for name in self.columns] for row in self]
        found: pandas.DataFrame = import_pandas().DataFrame(rows, columns=list(self.columns))
        return found


@dataclass(frozen=True, slots=True)
class FleetArtifact:
    """A file that is kept of a unit. attempt: the one that wrote it; modified: in UTC."""

    index: int
    attempt: int
    path: str
    size: int
    sha256: str
    modified: datetime
    _kept: Artifact = field(repr=False, compare=False)

    def __repr__(self) -> str:
        return f"<{self.index}/{self.path} {self.size:,} bytes>"

    def read_bytes(self) -> bytes:
        """Returns the content. Raises FleetctlError where retention has deleted it."""
        kept: KeptOutputs = self._kept.kept
        return b"".join(kept.contents(self._kept.file))

    def read_text(self) -> str:
        """Returns the content as UTF-8."""
        return self.read_bytes().decode("utf-8")

    def save(self, path: str | Path) -> Path:
        """Writes the file, over what is there, and returns its path. path: of a file, or of a
        directory that exists.
        """
        from fleetctl.views.run_files import write_output

        target = Path(path)
        if target.is_dir():
            target /= Path(self.path).name
        write_output(self._kept.kept, self._kept.file, target)
        return target


class FleetArtifacts(RowTable[FleetArtifact]):
    """The files by unit and path."""

    noun = "file"
    columns = ("index", "attempt", "path", "size", "modified")


class FleetPlot:
    """Charts of objects. A notebook draws them; the text is a drawing of characters."""

    def __init__(self, charts: Sequence[Chart], views: Sequence[View]) -> None:
        self._charts = tuple(charts)
        self._views = tuple(views)

    @property
    def titles(self) -> tuple[str, ...]:
        return tuple(it.title for it in self._charts)

    @property
    def svg(self) -> str:
        """Returns all charts as a single drawing."""
        return self._render(".svg").decode("utf-8")

    def save(self, path: str | Path) -> Path:
        """Writes a .png, .svg or .html file and returns its path. Raises UsageError for another
        suffix, and Refused for .png where matplotlib is not installed.
        """
        from fleetctl.views.plotting.writers.chart_files import SUFFIXES

        target = Path(path)
        if target.suffix.lower() not in SUFFIXES:
            raise UsageError(
                f"`{target}` has no format that charts are written in",
                hint=f"end it in {', '.join(SUFFIXES)}",
            )
        target.write_bytes(self._render(target.suffix.lower()))
        return target

    def __repr__(self) -> str:
        keys = ", ".join(it.key for it in self._views)
        return f"<FleetPlot {keys}: {', '.join(self.titles)}>"

    def __str__(self) -> str:
        from fleetctl.views.plotting.writers.terminal import draw_charts, make_style

        style = make_style(TEXT_COLUMNS, fine=True, colour=False)
        return "\n".join(draw_charts(list(self._charts), style))

    def _repr_html_(self) -> str:
        return self.svg

    def _render(self, suffix: str) -> bytes:
        from fleetctl.views.plotting.writers.chart_files import render_chart_file

        return render_chart_file(suffix, list(self._charts), self._views)


class FleetReports(FleetBase):
    """The methods of a Fleet that report on work."""

    def cost(
        self,
        by: str = "job",
        *,
        since: datetime | timedelta | None = None,
        everywhere: bool = False,
    ) -> CostTable:
        """Returns the cost of past and present work by `job`, `kind`, `provider`, `user` or
        `label=KEY`.

        since: a moment or a span before now, for the part of the cost after it; such a table has
        no estimates. everywhere: of all namespaces. Raises UsageError for another `by`.
        """
        if not is_grouping(by):
            raise UsageError(f"`{by}` is not one of {GROUPINGS}")
        since_s = seconds_of(since)
        namespace = None if everywhere else self.namespace
        with open_asking(self.home, timeout_s=QUERY_S) as asking:
            spent = query_spent(asking, by, since_s=since_s, namespace=namespace)
            estimates = {} if since_s is not None else query_estimates(asking, by, namespace)
            saved = query_saved(asking, by, since_s=since_s, namespace=namespace)
        return CostTable(
            _build_row(
                it,
                estimates.get(it.key, _NO_ESTIMATE),
                saved.get(it.key, 0.0),
            )
            for it in spent
        )

    def plot(
        self,
        *keys: str,
        kind: ChartKind | None = None,
        metrics: str | Sequence[str] = (),
        over: Literal["step", "time"] = "step",
        indexes: Container[int] | None = None,
    ) -> FleetPlot:
        """Returns the charts of a sweep, or the curves of the metrics that units reported; several
        objects share a chart.

        kind: of a sweep, this chart alone; `system`: what runs use of their machines. metrics:
        their names; default: the first few. indexes: of these units alone. Raises UsageError for
        objects that run nothing, and NotFound for an object or a metric that is not there.
        """
        from fleetctl.views.plotting.gather import ChartRequest, gather_charts

        if not keys:
            raise UsageError("name an object to draw", hint='fleet.plot("sweep/NAME")')
        if kind not in (None, "system") and len(keys) > 1:
            raise UsageError(f"`kind={kind!r}` draws one sweep")
        names = (metrics,) if isinstance(metrics, str) else tuple(metrics)
        with open_reading(self.home) as reading:
            views = [self._find_runner(it, reading) for it in dict.fromkeys(keys)]
            if kind not in (None, "system") and not views[0].kind.searches:
                raise UsageError(
                    f"`kind={kind!r}` is about the trials of a sweep, and {views[0].key} is none",
                    hint=f"fleet.plot({keys[0]!r}, metrics=...)",
                )
            kinds = (kind,) if kind is not None else ()
            charts = gather_charts(views, ChartRequest(kinds, names, indexes, over), reading)
        return FleetPlot(charts, views)

    def artifacts(self, key: str, index: int | None = None) -> FleetArtifacts:
        """Returns the files that are kept of the units, or of unit `index`, by its template's
        `outputs`. Raises NotFound.
        """
        from fleetctl.views.run_files import list_artifacts

        with open_reading(self.home) as reading:
            seen = self._find_runner(key, reading)
            return FleetArtifacts(
                map(_build_artifact, list_artifacts(self.home, seen, reading, index))
            )

    def fetch_artifacts(
        self,
        key: str,
        to: str | Path,
        *,
        index: int | None = None,
        path: str = ".",
    ) -> list[Path]:
        """Writes the kept files of an object to `to/INDEX/PATH` and returns their paths; those of
        unit `index` to `to/PATH`.

        path: of a file or a directory, for it alone. Raises NotFound where no such file is kept,
        Refused where a link leads out of the directory.
        """
        from fleetctl.views.run_files import is_below

        directory = Path(to)
        found = [it for it in self.artifacts(key, index) if is_below(it._kept.file, path)]
        if not found:
            where = "" if path == "." else f" at `{path}`"
            raise NotFound(f"no output of {key} is kept{where}", hint=f"fleet.artifacts({key!r})")
        written = []
        for it in found:
            target = directory / (str(it.index) if index is None else "") / it.path
            real = os.path.realpath(target.parent)
            if not Path(real).is_relative_to(os.path.realpath(directory)):
                text = f"`{target.parent}` leads out of `{directory}`"
                raise Refused(text, hint="remove that link")
            target.parent.mkdir(parents=True, exist_ok=True)
            written.append(it.save(target))
        return written

    def _find_runner(self, key: str, reading: StoreReading) -> View:
        """Returns the object of a key. Raises NotFound and UsageError for one without units."""
        target = self._target(key)
        if not target.kind.runs:
            raise UsageError(f"a {target.kind.name} runs nothing")
        return must_find(target, reading)


def format_usd(usd: float | None) -> str:
    return "unknown" if usd is None else f"${usd:,.2f}"


def seconds_of(since: datetime | timedelta | None) -> float | None:
    """Returns seconds since the epoch. A datetime without a zone is of the local one."""
    if since is None:
        return None
    if isinstance(since, timedelta):
        return SystemClock().now_s() - since.total_seconds()
    return since.timestamp()


def _build_row(
    spent: GroupCost,
    estimate: GroupEstimate,
    saved_usd: float,
) -> CostRow:
    return CostRow(
        spent.key,
        spent.objects,
        spent.attempts,
        spent.seconds or 0.0,
        spent.usd,
        spent.failed_usd,
        estimate.usd,
        saved_usd,
        spent.unpriced,
    )


def _build_artifact(kept: Artifact) -> FleetArtifact:
    file = kept.file
    return FleetArtifact(
        kept.index,
        kept.run.attempt,
        file.path,
        file.size,
        file.sha256,
        datetime.fromtimestamp(file.modified_at_s, UTC),
        kept,
    )
