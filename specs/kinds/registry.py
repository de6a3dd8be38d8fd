"""The registry of kinds: one row a kind, with all that screens, clients and pages know of it.

Models are imported when first asked for, and a row is a named tuple: the CLI's read paths come
through here.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from fleetctl.specs.builtin import DEFAULT_PROVIDER
from fleetctl.specs.kinds.shown import (
    PLAIN,
    WORK,
    WORK_BEGIN,
    WORK_END,
    Columns,
    DescribeField,
    ListColumn,
)  # fmt: skip

if TYPE_CHECKING:
    from fleetctl.specs.values.scalars import Spec

API_VERSION = "fleetctl.dev/v1alpha1"


class Kind(NamedTuple):
    name: str
    plural: str
    short: tuple[str, ...]
    model: str  # module:class
    unit: str = ""  # the users' name for one piece of its work; empty: its objects run no work
    # A field of the spec, and the name of its units where that is given.
    unit_in: tuple[tuple[str, str], ...] = ()
    namespaced: bool = True  # False: one of a name in the whole store
    files: tuple[str, ...] = ()  # fields that name a file, which is read before the spec is checked
    # Of kinds that run.
    bare_counts: bool = False  # its end is counted without the word for its units: `3 done`
    named: bool = False  # each unit has a name: its parameter that is called like the unit
    lasting: bool = False  # a unit without a time limit counts as long
    # Units are points of a search: told apart by their parameters and compared by a metric.
    searches: bool = False
    starts: bool = False  # makes objects by itself: somebody must be there for it
    holds: bool = False  # objects of other kinds wait for it
    part: str = ""  # module:class of the engine's part that carries it out; empty: needs none
    # Shown to users.
    summary: str = ""  # a sentence: in help, the docstring of its Python class, its CRD, the pages
    page: str = ""  # below docs/, on its use
    starter: str = ""  # a first manifest that `init` writes: in starters/ or examples/
    columns: Columns = ()  # of `get`, kubectl and the page; empty: `default_columns`
    fields: tuple[DescribeField, ...] = ()  # of `describe`; empty for work: `default_fields`
    lines: str = ""  # module:function with further lines of `describe` and the page
    tables: str = ""  # module:function with tables below them
    # module:function with lines that a provider is asked for: of `describe` alone.
    remote_lines: str = ""

    @property
    def runs(self) -> bool:
        """Returns True if objects of this kind do work and can end."""
        return bool(self.unit)

    def unit_of(self, spec: Mapping[str, object] | str) -> str:
        """Returns the users' name for one piece of the work of such a spec (text: JSON)."""
        if not self.unit_in:
            return self.unit
        if isinstance(spec, str):
            import json  # `--help` lists the kinds, and needs no JSON

            spec = json.loads(spec)
        assert not isinstance(spec, str)
        return next((word for field, word in self.unit_in if spec.get(field)), self.unit)

    @property
    def suspends(self) -> bool:
        """Returns True if its objects can be suspended."""
        return self.runs or self.starts or self.holds

    @property
    def verbs(self) -> tuple[str, ...]:
        """The verbs that change its objects as they are, without a manifest."""
        again = ("retry", "rerun") if self.runs else ()
        return (*(("suspend", "resume") if self.suspends else ()), *again, "delete")

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
        files=("tasks.fromFile", "tasks.fromFiles", "tasks.files"),
        bare_counts=True,
        summary="Many independent tasks from one template: of items, a matrix, files or results.",
        page="how-to/process-a-folder.md",
        starter="starters/batchjob.yaml",
        columns=(
            "NAME",
            "STATUS",
            ListColumn("DONE", "view.done"),
            "ACTIVE",
            "FAILED",
            "OUTDATED",
            "RETRIES",
            "WHERE",
            *WORK,
        ),
        fields=(
            DescribeField("Tasks", "units_lines"),
            *WORK_BEGIN,
            DescribeField("Params", "params_lines"),
            *WORK_END,
        ),
    ),
    "Sweep": Kind(
        "Sweep",
        "sweeps",
        ("sw",),
        "fleetctl.specs.kinds.sweep:SweepSpec",
        "trial",
        files=("searchFrom",),
        searches=True,
        summary="A search over parameters; `search` is a W&B sweep configuration.",
        page="how-to/from-wandb-sweeps.md",
        starter="starters/sweep.yaml",
        columns=(
            "NAME",
            "STATUS",
            "METHOD",
            ListColumn("TRIALS", "view.done"),
            "ACTIVE",
            "FAILED",
            "STOPPED",
            "OUTDATED",
            "BEST",
            "BEST TRIAL",
            *WORK,
        ),
        fields=(
            DescribeField("Trials", "units_lines"),
            *WORK_BEGIN,
            DescribeField("Best", "best_lines"),
            DescribeField("Front", "front_trials_lines"),
            DescribeField("Reported", "reported_lines"),
            DescribeField("Rungs", "rungs_lines"),
            DescribeField("Stopped", "stopped_lines"),
            DescribeField("Importance", "importance_lines"),
            DescribeField("Prior", "prior_lines"),
            DescribeField("W&B", "wandb_lines"),
            *WORK_END,
        ),
    ),
    "TrainingRun": Kind(
        "TrainingRun",
        "trainingruns",
        ("tr",),
        "fleetctl.specs.kinds.trainingrun:TrainingRunSpec",
        "stage",
        unit_in=(("groups", "group"),),
        named=True,
        lasting=True,
        summary="One long job in stages, which goes on from its checkpoint.",
        page="how-to/train-in-stages.md",
        starter="starters/trainingrun.yaml",
        columns=(
            "NAME",
            "STATUS",
            ListColumn("STAGES", "view.done"),
            ListColumn("STAGE", "status.stage"),
            "ACTIVE",
            "FAILED",
            "OUTDATED",
            "RETRIES",
            "WHERE",
            *WORK,
        ),
        fields=(
            DescribeField("Stages", "stage_counts_lines"),
            *WORK_BEGIN,
            DescribeField("Params", "params_lines"),
            DescribeField("Stage", "stage_lines"),
            DescribeField("Groups", "groups_lines"),
            *WORK_END,
        ),
    ),
    "Schedule": Kind(
        "Schedule",
        "schedules",
        ("sched", "cronjob", "cronjobs", "cj"),
        "fleetctl.specs.kinds.schedule:ScheduleSpec",
        starts=True,
        part="fleetctl.engine.kinds.schedules:Schedules",
        summary="Makes objects at the times of a line of cron.",
        page="how-to/run-on-a-schedule.md",
        starter="examples/schedule.yaml",
        columns=(
            "NAME",
            ListColumn("SCHEDULE", "makers:line_cell"),
            ListColumn("TIMEZONE", "makers:zone_cell"),
            ListColumn("SUSPEND", "makers:suspend_cell"),
            "ACTIVE",
            ListColumn("LAST", "makers:last_cell"),
            ListColumn("NEXT", "makers:next_cell"),
            "AGE",
            *PLAIN,
        ),
        fields=(
            DescribeField("Schedule", "schedule", default=""),
            DescribeField("Time zone", "timeZone", default="UTC"),
            DescribeField("Concurrency", "concurrencyPolicy", default="Allow"),
            DescribeField("Kept", "successfulJobsHistoryLimit", default=3),
            DescribeField("Kept failed", "failedJobsHistoryLimit", default=1),
            DescribeField("May be late", "startingDeadlineSeconds", "duration"),
            DescribeField("", "template"),
        ),
        lines="fleetctl.views.sections.makers:schedule_lines",
    ),
    "Queue": Kind(
        "Queue",
        "queues",
        ("q",),
        "fleetctl.specs.kinds.queue:QueueSpec",
        namespaced=False,
        holds=True,
        part="fleetctl.engine.kinds.queues:Queues",
        summary="Quotas that many objects share, and their order.",
        page="how-to/share-gpus-with-queues.md",
        starter="examples/queue.yaml",
        columns=(
            "NAME",
            "STATUS",
            ListColumn("USED", "queues:used_cell"),
            ListColumn("BORROWED", "queues:borrowed_cell", sparse=True),
            ListColumn("RUNNING", "status.running"),
            ListColumn("WAITING", "status.waiting"),
            ListColumn("COHORT", "queues:cohort_cell", sparse=True),
            "AGE",
            ListColumn("STRATEGY", "queues:strategy_cell", wide=True),
            *PLAIN,
        ),
        fields=(
            DescribeField("Strategy", "strategy", default="BestEffortFIFO"),
            DescribeField("Overtaken for", "overtakeSeconds", "duration"),
            DescribeField("Fair share", "fairShare"),
            DescribeField("", "quotas"),
        ),
        lines="fleetctl.views.sections.queues:queue_lines",
        tables="fleetctl.views.sections.queues:queue_tables",
    ),
    "Source": Kind(
        "Source",
        "sources",
        ("src",),
        "fleetctl.specs.kinds.source:SourceSpec",
        starts=True,
        part="fleetctl.engine.kinds.source_pass:SourcePasses",
        summary="A git repository whose manifests are kept applied.",
        page="how-to/keep-a-repository-applied.md",
        columns=(
            "NAME",
            "STATUS",
            ListColumn("REF", "makers:ref_cell"),
            ListColumn("REVISION", "makers:revision_cell"),
            ListColumn("OBJECTS", "makers:objects_cell"),
            ListColumn("DRIFT", "makers:drift_cell", sparse=True),
            ListColumn("APPLIED", "makers:applied_cell"),
            "AGE",
            ListColumn("URL", "makers:url_cell", wide=True),
            "LABELS",
            ListColumn("WHY", "assets:why_cell", sparse=True),
        ),
        fields=(
            DescribeField("Prune", "prune", default=False),
            DescribeField("Drift", "drift", default="Repair"),
            DescribeField("Disruption", "onDisruption", default="Wait"),
            DescribeField("Max prune", "maxPrune"),
        ),
        lines="fleetctl.views.sections.makers:source_lines",
        tables="fleetctl.gitops.source_section:source_tables",
    ),
    "Volume": Kind(
        "Volume",
        "volumes",
        ("vol",),
        "fleetctl.specs.kinds.volume:VolumeSpec",
        summary="A directory that outlives sandboxes.",
        page="how-to/copy-files-to-volumes.md",
        columns=(
            "NAME",
            "STATUS",
            ListColumn("PROVIDER", "assets:provider_cell"),
            ListColumn("DELETION", "assets:deletion_cell"),
            "AGE",
            *PLAIN,
        ),
        fields=(
            DescribeField("Provider", "provider", default=DEFAULT_PROVIDER),
            DescribeField("On delete", "deletionPolicy", default="Retain"),
        ),
        remote_lines="fleetctl.cli.show.lists.objects:volume_lines",
    ),
    "Function": Kind(
        "Function",
        "functions",
        ("fn",),
        "fleetctl.specs.kinds.function:FunctionSpec",
        part="fleetctl.engine.money.budgets:FunctionObjects",
        summary="Containers that stay warm between the tasks that call them, or serve an Endpoint.",
        page="how-to/serve-a-model-on-gpus.md",
        starter="examples/function.yaml",
        columns=(
            "NAME",
            "STATUS",
            ListColumn("PROVIDER", "assets:provider_cell"),
            ListColumn("GPU", "assets:gpu_cell"),
            ListColumn("CONTAINERS", "assets:containers_cell"),
            ListColumn("$/H", "assets:warm_cell", sparse=True),
            "AGE",
            *PLAIN,
        ),
        fields=(
            DescribeField("Provider", "provider", default=DEFAULT_PROVIDER),
            DescribeField("Kept warm", "minContainers", default=0),
            DescribeField("Scaledown", "scaledownSeconds", "duration", default=60),
        ),
        lines="fleetctl.views.sections.assets:function_lines",
    ),
    "Endpoint": Kind(
        "Endpoint",
        "endpoints",
        ("ep",),
        "fleetctl.specs.kinds.endpoint:EndpointSpec",
        part="fleetctl.engine.kinds.endpoints.endpoints:Endpoints",
        summary="Model servers that tasks may call, with limits, prices and keys.",
        page="how-to/ask-models-from-tasks.md",
        columns=(
            "NAME",
            "STATUS",
            ListColumn("SERVERS", "endpoints:servers_cell"),
            ListColumn("SLOTS", "status.concurrency"),
            ListColumn("IN FLIGHT", "status.inFlight"),
            ListColumn("QUEUE", "status.queue"),
            ListColumn("CALLS", "status.calls"),
            ListColumn("TOKENS", "status.tokens"),
            "COST",
            ListColumn("P95", "endpoints:answered_cell"),
            "AGE",
            ListColumn("TRIES", "status.tries", wide=True),
            ListColumn("CACHED", "status.cacheHits", wide=True),
            ListColumn("FALLBACKS", "status.fallbacks", wide=True),
            ListColumn("REFUSED", "status.refusedCalls", wide=True),
            *PLAIN,
        ),
        fields=(
            DescribeField("Key", "apiKey"),
            DescribeField("Timeout", "timeoutSeconds"),
            DescribeField("", "servers"),
        ),
        lines="fleetctl.views.sections.endpoints:endpoint_lines",
        tables="fleetctl.views.sections.endpoints:endpoint_tables",
    ),
    "Budget": Kind(
        "Budget",
        "budgets",
        ("bud",),
        "fleetctl.specs.kinds.budget:BudgetSpec",
        part="fleetctl.engine.money.budgets:Budgets",
        summary="The maximal cost of all objects with certain labels in a period.",
        page="explanation/cost-estimates-and-budgets.md",
        starter="examples/budget.yaml",
        columns=(
            "NAME",
            ListColumn("USED", "status.used", "money"),
            ListColumn("RESERVED", "status.reserved", "money"),
            ListColumn("MAX", "assets:cap_cell"),
            ListColumn("PERIOD", "assets:period_cell"),
            ListColumn("STATUS", "assets:state_cell"),
            "AGE",
            ListColumn("SELECTS", "assets:selector_cell", wide=True),
            "LABELS",
        ),
        fields=(
            DescribeField("Period", "period", default="month"),
            DescribeField("When over", "onExceeded", default="Suspend"),
            DescribeField("Max cost", "maxCost", "money"),
            DescribeField("Selects", "selector"),
            DescribeField("Warn at", "warnAt"),
        ),
        lines="fleetctl.views.sections.assets:budget_lines",
    ),
    "Notifier": Kind(
        "Notifier",
        "notifiers",
        ("nt",),
        "fleetctl.specs.kinds.notifier:NotifierSpec",
        part="fleetctl.engine.kinds.notices:NoticeOutbox",
        summary="Receivers of notices about a namespace's objects.",
        page="how-to/be-notified.md",
        fields=(DescribeField("Selects", "selector"),),
    ),
    "Secret": Kind(
        "Secret",
        "secrets",
        (),
        "fleetctl.specs.kinds.secret:SecretSpec",
        files=("fromFile",),
        summary="The source of values that a run gets at its start; they are never stored.",
        columns=(
            "NAME",
            "STATUS",
            ListColumn("SOURCE", "assets:secret_cell"),
            "AGE",
            *PLAIN,
        ),
        fields=(
            DescribeField("From env", "fromEnv", "sources"),
            DescribeField("From file", "fromFile", "sources"),
        ),
    ),
    "Policy": Kind(
        "Policy",
        "policies",
        ("pol",),
        "fleetctl.specs.kinds.policy:PolicySpec",
        namespaced=False,
        summary="Rules of CEL that each applied object has to keep.",
        page="how-to/policies.md",
        columns=(
            "NAME",
            ListColumn("KINDS", "assets:kinds_cell"),
            ListColumn("NAMESPACES", "assets:namespaces_cell"),
            ListColumn("RULES", "assets:rules_cell"),
            "AGE",
            "LABELS",
        ),
    ),
    "Provider": Kind(
        "Provider",
        "providers",
        ("prov",),
        "fleetctl.specs.kinds.provider:ProviderSpec",
        namespaced=False,
        part="fleetctl.engine.capacity.admission:ProviderObjects",
        summary="The account, limits and prices of a provider, such as `modal`.",
        page="how-to/use-several-providers.md",
        columns=(
            "NAME",
            "STATUS",
            ListColumn("SLOTS", "assets:slots_cell"),
            ListColumn("CREATES", "assets:creates_cell", sparse=True),
            ListColumn("$/H", "assets:spend_cell"),
            "AGE",
            ListColumn("FULL", "assets:full_cell", sparse=True),
            "LABELS",
        ),
        lines="fleetctl.views.sections.assets:provider_lines",
    ),
    "Settings": Kind(
        "Settings",
        "settings",
        ("setting",),
        "fleetctl.specs.kinds.settings:SettingsSpec",
        namespaced=False,
        part="fleetctl.engine.kinds.backups:Backups",
        summary="Limits of what is kept, and backups; one a store, `default`.",
        page="how-to/keep-the-disk-in-bounds.md",
        columns=(
            "NAME",
            "STATUS",
            ListColumn("BACKUP", "settings_section:schedule_cell"),
            ListColumn("LAST", "settings_section:last_cell"),
            ListColumn("NEXT", "settings_section:next_cell"),
            "AGE",
            *PLAIN,
        ),
        fields=(
            DescribeField("", "backup"),
            DescribeField("", "retention"),
        ),
        lines="fleetctl.views.sections.settings_section:settings_lines",
    ),
}


def unit_called(
    kind: str,
    index: int,
    params: str,
    spec: Mapping[str, object] | str = "{}",
) -> str:
    """Returns the name of a piece of an object's work, for users: `task 3`, `stage train`.
    params and spec: JSON, of the run and of the object.
    """
    import json  # `--help` lists the kinds, and needs no JSON

    row = KINDS.get(kind)
    if row is None or not row.named:
        return f"{row.unit if row is not None else 'task'} {index}"
    return f"{row.unit_of(spec)} {json.loads(params or '{}').get(row.unit, index)}"


def find_kind(word: str) -> Kind | None:
    """Returns the kind that a user means by `BatchJob`, `batchjobs` or `job`, in any case."""
    lower = word.lower()
    for kind in KINDS.values():
        if lower in (kind.name.lower(), kind.plural, *kind.short):
            return kind
    return None


def kind_called(name: object) -> Kind | None:
    """Returns the kind with exactly this name; None for any other value."""
    if isinstance(name, str):
        return KINDS.get(name)
    return None


def dump_spec(spec: Spec) -> str:
    """The JSON text that a store keeps; defaults are left out. `parse_spec` reads it back.

    Keys keep their order: it decides which task of a matrix has which index.
    """
    import json

    data = spec.model_dump(
        mode="json",
        by_alias=True,
        exclude_defaults=True,
    )
    return json.dumps(data, separators=(",", ":"), allow_nan=False)


def parse_spec(kind: str, text: str) -> Spec:
    """Returns the spec of a stored text. Raises pydantic's ValidationError when a newer or foreign
    program wrote the text.
    """
    model = KINDS[kind].spec
    if kind == "Provider":  # the only kind whose blocks differ by a value
        import json

        model = model.model_of(json.loads(text))
    return model.model_validate_json(text)
