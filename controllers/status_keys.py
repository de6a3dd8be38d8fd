"""Declares each key of `status` once, and names the annotations whose content is for the engine
alone: the engine writes them, screens and scripts read them.

docs/reference/status.md is made from it. Any key may be missing; times are seconds since the
epoch in the store, and written out (RFC 3339) by `get -o json`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Annotated, Literal, TypedDict, get_args, get_origin, get_type_hints

# A condition, and the reason of a run that waited at a full provider: its unit goes elsewhere.
SPILLED_OVER = "SpilledOver"
# The reason of a trial that its search ended permanently.
EARLY_TERMINATED = "EarlyTerminated"

Block = Mapping[str, object]
Number = int | float

# The trials that `priorTrials` took, when their sweep had finished.
PRIOR = "fleetctl.dev/prior-trials"
# The sweep at W&B of a `backend: wandb`, and the runs that it has assigned; see
# engine/kinds/wandb/sweep_link.py.
WANDB = "fleetctl.dev/wandb"

# Records which work met its dependencies when its first run began, and by which event.
RELEASED = "fleetctl.dev/released"
# The results that `tasks.fromResults` took.
RESULTS = "fleetctl.dev/results"

# The indexes of the rows of a BatchJob; see controllers/reuse/row_matching.py.
INDEXES = "fleetctl.dev/task-indexes"

BOOKKEEPING = frozenset({INDEXES, PRIOR, RELEASED, RESULTS, WANDB})


class Status(TypedDict, total=False):
    phase: Annotated[
        str,
        "Pending, Running, Suspended, Succeeded, Failed, Skipped; Ready of kinds that do no work",
    ]
    reason: Annotated[str, "one word; see [reasons](reasons.md)"]
    message: Annotated[str, "why it is in this phase; empty where all is well"]
    hint: Annotated[str, "a command or a change that would help"]
    waitingOn: Annotated[Sequence[str], "what it waits for, the main reason first"]
    observedGeneration: Annotated[int, "the generation of the spec that this status describes"]
    conditions: Annotated[
        Sequence[Block],
        "Complete, Failed, Suspended, Skipped, BudgetOK, Warning, SpilledOver; Ready of a Source",
    ]
    total: Annotated[int | None, "units that the spec asks for; null while it is unknown"]
    active: Annotated[int, "units with a live run"]
    starting: Annotated[int, "of `active`: not confirmed by the provider yet"]
    stopping: Annotated[int, "of `active`: asked to end"]
    succeeded: Annotated[int, "units that succeeded with the content that the spec has now"]
    failed: Annotated[int, "units given up"]
    refused: Annotated[int, "units that the provider refused"]
    stopped: Annotated[int, "units that were ended early, for good: trials that did badly"]
    cached: Annotated[int, "of `succeeded`: with the result of equal work"]
    outdated: Annotated[int, "finished units of another program, image or source"]
    contents: Annotated[Sequence[str], "hashes of what the units stand for"]
    notCached: Annotated[str, "why no result of equal work may serve"]
    retries: Annotated[int, "attempts that failed and were followed by another"]
    restarts: Annotated[int, "of a TrainingRun: attempts that failed"]
    infraFailures: Annotated[int, "attempts that the infrastructure ended"]
    completedIndexes: Annotated[str, "as Kubernetes writes them: `0-3,7`"]
    failedIndexes: Annotated[str, "the same of units given up"]
    unwantedIndexes: Annotated[str, "the same of units that the spec no longer asks for"]
    taskIndexes: Annotated[str, "the indexes of a BatchJob's tasks, where they are not 0 and on"]
    startTime: Annotated[Number | None, "when the first run began"]
    activeSince: Annotated[Number | None, "since when activeDeadlineSeconds counts"]
    completionTime: Annotated[Number | None, "when it ended"]
    firstResultTime: Annotated[Number | None, "when the first unit succeeded"]
    workedSeconds: Annotated[float, "how long at least one run was live, until `workingSince`"]
    workingSince: Annotated[Number | None, "since when at least one run is live"]
    gpu: Annotated[str, "what a sandbox asks for, such as `A100:4`"]
    where: Annotated[Mapping[str, int], "live runs by provider"]
    placement: Annotated[Sequence[Block], "each candidate with its runs: provider, live, total"]
    isolation: Annotated[str, "of provider `local`: what separates its runs from the machine"]
    nodes: Annotated[
        Sequence[Block],
        "machines of the newest attempt with several, by rank: state, address, reason, exitCode",
    ]
    usage: Annotated[
        Block,
        "newest samples of the GPUs of live runs: gpus, gpuPercent, memoryMib, memoryTotalMib,"
        " stepsPerSecond",
    ]
    scratchFreed: Annotated[bool, "whether what its runs left on disk is removed"]
    cost: Annotated[
        Block,
        "USD: actual, calls (a part of it), reserved, estimated, estimatedLow, estimatedHigh;"
        " unpricedRuns, unpricedCalls",
    ]
    budget: Annotated[Block, "of its own `budget`, in USD: maxCost, used, left; warned in percent"]
    lastFailure: Annotated[Block, "index, attempt, reason"]
    failures: Annotated[
        Sequence[Block],
        "the first three attempts that failed: index, attempt, reason, exitCode,"
        " lastLines (the end of what it wrote, or of its traceback), hint",
    ]
    stuck: Annotated[Mapping[str, str], "where nothing on its way helps: lack, reason, message"]
    overBudget: Annotated[str, "the budget that ended it"]
    warning: Annotated[str, "what may be wrong though it gets on"]
    cannotSucceed: Annotated[str, "while units still run: why the whole will fail"]
    method: Annotated[str, "of a Sweep: grid, random, bayes"]
    metric: Annotated[Block, "of a Sweep: name, goal"]
    best: Annotated[Block, "of a Sweep: index, params, metric"]
    metrics: Annotated[Sequence[Block], "of a Sweep with several: name, goal of each"]
    front: Annotated[
        Sequence[Block], "of a Sweep with several metrics: index, metrics of trials none beats"
    ]
    frontSize: Annotated[int, "of a Sweep with several metrics: trials that no other one beats"]
    rungs: Annotated[
        Sequence[Block], "of a Sweep with early_terminate: iteration, trials, threshold"
    ]
    dependencies: Annotated[
        Sequence[Block],
        "of work with `dependsOn`: on, condition, state (Met, Waiting, Missing, Failed, Skipped)",
    ]
    queued: Annotated[
        Block,
        "of work in a queue: queue, priority, since; waitingSince and asks (what one more run takes"
        " at each provider) while its queue lets no more of it start",
    ]
    paramsFrom: Annotated[Block, "of work with `paramsFrom`: sweep, params once they are known"]
    priorTrials: Annotated[
        Block, "of a Sweep with `priorTrials`: fromSweep; used, ended trials once they are known"
    ]
    checkpoint: Annotated[
        Block, "of a TrainingRun, the newest complete one: step, path, at, bytes; everySeconds"
    ]
    wandb: Annotated[
        Block,
        "of a Sweep with `backend: wandb`: id, url, state, runCount, runCountExpected, bestLoss",
    ]
    stage: Annotated[str, "of a TrainingRun: the stage that is on"]
    groups: Annotated[
        Sequence[Block],
        "of a TrainingRun with `groups`: each one's name, nodes and state; Waiting before a start",
    ]
    slots: Annotated[Block, "of a Provider: used, limit"]
    spend: Annotated[Block, "of a Provider: usdPerHour, unpriced"]
    warm: Annotated[Block, "of a Function: containers, usdPerSecond, since"]
    url: Annotated[str, "of a Function with a `port`: where its Endpoint asks it, with a key"]
    calls: Annotated[int, "of an Endpoint: what it was asked; a list of n prompts is n"]
    tries: Annotated[int, "of an Endpoint: requests to its servers, repeated ones too"]
    fallbacks: Annotated[int, "of an Endpoint: calls for which a task took something else"]
    cacheHits: Annotated[int, "of an Endpoint: answers that its cache gave"]
    refusedCalls: Annotated[int, "of an Endpoint: calls beyond a limit or a budget"]
    tokens: Annotated[int, "of an Endpoint: in and out together"]
    tokensIn: Annotated[int, "of an Endpoint: of prompts and texts"]
    tokensOut: Annotated[int, "of an Endpoint: of answers"]
    concurrency: Annotated[int, "of an Endpoint: requests that it lets through at once now"]
    inFlight: Annotated[int, "of an Endpoint: requests that its servers work on"]
    queue: Annotated[int, "of an Endpoint: requests that wait for a slot"]
    servers: Annotated[
        Sequence[Block], "of an Endpoint: url, state, inFlight, slots, restingSeconds of each"
    ]
    batches: Annotated[
        Sequence[Block], "of an Endpoint: id, state, rows, done, failed, trouble of each batch"
    ]
    gathering: Annotated[int, "of an Endpoint: rows of `mode: batch` that wait for others"]
    latency: Annotated[
        Block, "of an Endpoint: waitingMsP50, waitingMsP95, answerMsP50, answerMsP95 of late"
    ]
    lastMinute: Annotated[Block, "of an Endpoint: requests, tokens, usd of the last 60 seconds"]
    state: Annotated[str, "of a Budget: OK, Warning, Exhausted"]
    used: Annotated[float, "of a Budget, in USD: by runs that have ended"]
    reserved: Annotated[float | None, "of a Budget, in USD: at worst by live runs; null: no bound"]
    left: Annotated[float, "of a Budget, in USD"]
    maxCost: Annotated[float, "of a Budget, in USD"]
    unpricedSeconds: Annotated[float, "of a Budget: of runs whose price is not known"]
    warned: Annotated[int, "of a Budget, in percent: the highest level with a notice"]
    lastScheduleTime: Annotated[
        Number | None, "of a Schedule: the moment for which it made an object last"
    ]
    lastSuccessfulTime: Annotated[
        Number | None, "of a Schedule: when one of its objects succeeded last"
    ]
    nextScheduleTime: Annotated[Number | None, "of a Schedule: the next moment; null: suspended"]
    decidedUntil: Annotated[
        Number, "of a Schedule: what was due by then was started, or is missed for good"
    ]
    activeRuns: Annotated[Sequence[str], "of a Schedule: objects that it made and that run"]
    missed: Annotated[int, "of a Schedule: moments without an object; of one gap 1,001 at most"]
    times: Annotated[str, "of a Schedule: the line and the zone that `decidedUntil` is about"]
    backup: Annotated[
        Block,
        "of Settings: nextTime, lastSuccessfulTime, file, bytes, lastFailureTime, failures, error",
    ]
    retained: Annotated[
        Sequence[Block], "of Settings, after the last round: sort, items, bytes, freedBytes"
    ]
    quotas: Annotated[
        Sequence[Block], "of a Queue: resource, provider, used, nominal, borrowed of each quota"
    ]
    shares: Annotated[
        Mapping[str, Sequence[float]],
        "of a Queue: what each namespace uses, in the order of quotas",
    ]
    running: Annotated[int, "of a Queue: sandboxes that are there"]
    waiting: Annotated[int, "of a Queue: objects of which it lets no more start now"]
    appliedRevision: Annotated[str, "of a Source: the commit that its objects are equal to"]
    appliedGeneration: Annotated[int, "of a Source: its generation when that was applied"]
    appliedAt: Annotated[Number | None, "of a Source: when that was"]
    attemptedRevision: Annotated[str, "of a Source: the commit that was tried last"]
    attemptedAt: Annotated[Number | None, "of a Source: when that was"]
    revisions: Annotated[
        Sequence[Block], "of a Source: revision, author, subject of these commits, where known"
    ]
    lastError: Annotated[str, "of a Source: why the commit was not applied, with file and line"]
    failingSince: Annotated[Number | None, "of a Source: when that began; null: it does not fail"]
    objects: Annotated[int, "of a Source: how many it keeps"]
    changed: Annotated[
        Mapping[str, int], "of a Source, by its last commit: created, configured, pruned objects"
    ]
    unpruned: Annotated[int, "of a Source without `prune`: objects whose manifest went"]
    drift: Annotated[Sequence[str], "of a Source: objects that were changed by hand"]
    request: Annotated[str, "of a Source: the last `reconcile` by hand that was answered"]
    since: Annotated[Number, "of a Budget: when its period began"]
    until: Annotated[Number | None, "of a Budget: when its period ends"]


# Keys that single readers request by name: mypy finds a name that does not exist.
Text = Literal[
    "phase", "reason", "message", "hint", "notCached", "completedIndexes", "failedIndexes",
    "unwantedIndexes", "taskIndexes", "gpu", "isolation", "overBudget", "warning",
    "cannotSucceed", "method", "stage", "state", "url", "appliedRevision", "attemptedRevision",
    "lastError", "request",
]  # fmt: skip
Count = Literal[
    "observedGeneration", "total", "active", "starting", "stopping", "succeeded", "failed",
    "refused", "stopped", "cached", "outdated", "retries", "restarts", "infraFailures", "warned",
    "frontSize", "missed", "running", "waiting", "objects", "unpruned",
]  # fmt: skip
Map = Literal[
    "where", "cost", "budget", "lastFailure", "stuck", "metric", "best", "paramsFrom",
    "priorTrials", "wandb", "slots", "spend", "warm", "checkpoint",
    "usage", "latency", "lastMinute", "queued", "backup", "shares",
]  # fmt: skip
Time = Literal[
    "startTime", "activeSince", "completionTime", "firstResultTime", "workedSeconds",
    "workingSince", "since", "until", "lastScheduleTime", "lastSuccessfulTime",
    "nextScheduleTime", "decidedUntil", "appliedAt", "attemptedAt", "failingSince",
]  # fmt: skip


@cache
def describe_keys() -> dict[str, str]:
    """Returns the sentence of each key, in the order of their declaration."""
    hints = get_type_hints(Status, include_extras=True)
    return {key: get_args(kind)[1] for key, kind in hints.items() if get_origin(kind) is Annotated}
