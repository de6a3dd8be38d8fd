"""The registry of kinds: one line a kind.

Models are imported when first asked for, and a row is a named tuple: the CLI's read paths come
through here.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from fleetctl.specs.values.scalars import Spec

API_VERSION = "fleetctl.dev/v1alpha1"


class Kind(NamedTuple):
    name: str
    plural: str
    short: tuple[str, ...]
    model: str  # module:class
    unit: str = ""  # what people call one piece of its work; empty: objects of it run nothing
    namespaced: bool = True  # False: one of a name in the whole store
    files: tuple[str, ...] = ()  # fields that name a file, which is read before the spec is checked
    # Of kinds that run.
    counted: str = ""  # heads the count of its units that are done; empty: their plural
    shows: tuple[tuple[str, str], ...] = ()  # columns of its own: title, key of its status
    named: bool = False  # each unit has a name: its parameter that is called like the unit
    lasting: bool = False  # a unit without a limit of time is taken for long
    # Units are points of a search: told apart by their parameters and compared by a metric.
    searches: bool = False
    starts: bool = False  # makes objects by itself: somebody must be there for it
    holds: bool = False  # objects of other kinds wait for it

    @property
    def runs(self) -> bool:
        """Whether objects of this kind do work and can end."""
        return bool(self.unit)

    @property
    def suspends(self) -> bool:
        """Whether `suspend` means something to its objects."""
        return self.runs or self.starts or self.holds

    @property
    def spec(self) -> type[Spec]:
        """The pydantic model of its `spec`; importing pydantic begins here."""
        module, _, name = self.model.partition(":")
        found: type[Spec] = getattr(import_module(module), name)
        return found


KINDS: dict[str, Kind] = {
    "BatchJob": Kind(
        "BatchJob",
        "batchjobs",
        ("job", "jobs", "bj"),
        "fleetctl.specs.kinds.batchjob:BatchJobSpec",
        "task",
        files=("tasks.fromFile",),
        counted="DONE",
    ),
    "Sweep": Kind(
        "Sweep",
        "sweeps",
        ("sw",),
        "fleetctl.specs.kinds.sweep:SweepSpec",
        "trial",
        files=("searchFrom",),
        searches=True,
    ),
    "TrainingRun": Kind(
        "TrainingRun",
        "trainingruns",
        ("tr",),
        "fleetctl.specs.kinds.trainingrun:TrainingRunSpec",
        "stage",
        shows=(("STAGE", "stage"),),
        named=True,
        lasting=True,
    ),
    "Schedule": Kind(
        "Schedule",
        "schedules",
        ("sched", "cronjob", "cronjobs", "cj"),
        "fleetctl.specs.kinds.schedule:ScheduleSpec",
        starts=True,
    ),
    "Queue": Kind(
        "Queue",
        "queues",
        ("q",),
        "fleetctl.specs.kinds.queue:QueueSpec",
        namespaced=False,
        holds=True,
    ),
    "Source": Kind(
        "Source", "sources", ("src",), "fleetctl.specs.kinds.source:SourceSpec", starts=True
    ),
    "Volume": Kind("Volume", "volumes", ("vol",), "fleetctl.specs.kinds.volume:VolumeSpec"),
    "Function": Kind(
        "Function", "functions", ("fn",), "fleetctl.specs.kinds.function:FunctionSpec"
    ),
    "Endpoint": Kind(
        "Endpoint", "endpoints", ("ep",), "fleetctl.specs.kinds.endpoint:EndpointSpec"
    ),
    "Budget": Kind("Budget", "budgets", ("bud",), "fleetctl.specs.kinds.budget:BudgetSpec"),
    "Notifier": Kind(
        "Notifier", "notifiers", ("nt",), "fleetctl.specs.kinds.notifier:NotifierSpec"
    ),
    "Secret": Kind(
        "Secret", "secrets", (), "fleetctl.specs.kinds.secret:SecretSpec", files=("fromFile",)
    ),
    "Policy": Kind(
        "Policy",
        "policies",
        ("pol",),
        "fleetctl.specs.kinds.policy:PolicySpec",
        namespaced=False,
    ),
    "Provider": Kind(
        "Provider",
        "providers",
        ("prov",),
        "fleetctl.specs.kinds.provider:ProviderSpec",
        namespaced=False,
    ),
    "Settings": Kind(
        "Settings",
        "settings",
        ("setting",),
        "fleetctl.specs.kinds.settings:SettingsSpec",
        namespaced=False,
    ),
}


def unit_called(kind: str, index: int, params: str) -> str:
    """One piece of an object's work, for people: `task 3`, `stage train`. params: JSON."""
    import json  # `--help` lists the kinds, and needs nothing of it

    row = KINDS.get(kind)
    if row is None or not row.named:
        return f"{row.unit if row is not None else 'task'} {index}"
    return f"{row.unit} {json.loads(params or '{}').get(row.unit, index)}"


def find_kind(word: str) -> Kind | None:
    """The kind that a person means by `BatchJob`, `batchjobs` or `job`, in any case."""
    lower = word.lower()
    for kind in KINDS.values():
        if lower in (kind.name.lower(), kind.plural, *kind.short):
            return kind
    return None


def kind_called(name: object) -> Kind | None:
    """The kind of this very name; None for whatever else stands in its place."""
    return KINDS.get(name) if isinstance(name, str) else None


def dump_spec(spec: Spec) -> str:
    """The JSON text that a store keeps; defaults are left out. `parse_spec` reads it back.

    Keys keep their order: it decides which task of a matrix has which index.
    """
    import json

    data = spec.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return json.dumps(data, separators=(",", ":"), allow_nan=False)


def parse_spec(kind: str, text: str) -> Spec:
    """Raises pydantic's ValidationError when a newer or foreign program wrote the text."""
    return KINDS[kind].spec.model_validate_json(text)
