"""Field names that people bring from elsewhere, and fields of ours that are not supported yet."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

# What a thing is called in other tools' files. The first name that exists at the place is meant.
SYNONYMS: dict[str, tuple[str, ...]] = {
    "accelerator": ("gpu",),
    "accelerators": ("gpu",),
    "activeDeadline": ("activeDeadlineSeconds",),
    "algorithm": ("search", "method"),
    "args": ("command",),
    "backoff_limit": ("backoffLimitPerIndex",),
    "base": ("registry",),
    "branch": ("ref",),
    "build": ("run",),
    "cmd": ("command",),
    "code": ("python", "source"),
    "commands": ("script",),
    "commit": ("ref",),
    "concurrency": ("parallelism",),
    "container": ("image",),
    "concurrencyLimit": ("maxContainers",),
    "containerIdleTimeout": ("scaledownSeconds",),
    "containers": ("template",),
    "context": ("path",),
    "count": ("trials", "completions"),
    "cpu": ("resource",),
    "cpus": ("cpu", "resource"),
    "deadline": ("activeDeadlineSeconds",),
    "dependencies": ("pip",),
    "disk_size": ("disk",),
    "docker": ("image", "registry"),
    "dockerImage": ("image",),
    "entrypoint": ("command",),
    "envFrom": ("secrets",),
    "environment": ("env",),
    "envs": ("env",),
    "exec": ("command",),
    "from": ("registry",),
    "git_url": ("url",),
    "goal": ("metric",),
    "gpus": ("gpu", "resource"),
    "gracePeriodSeconds": ("terminationGracePeriodSeconds",),
    "hyperparameters": ("parameters",),
    "id": ("name",),
    "idleTimeoutSeconds": ("timeoutSeconds",),
    "ignore": ("exclude",),
    "inputs": ("items",),
    "instances": ("nodes", "parallelism"),
    "keepWarm": ("minContainers",),
    "lifetime": ("maxLifetimeSeconds",),
    "localDir": ("path",),
    "maxFailedTrialCount": ("maxFailedIndexes",),
    "maxFailedTrials": ("maxFailedIndexes",),
    "maxParallelism": ("parallelism",),
    "maxRetries": ("backoffLimitPerIndex", "maxRestarts"),
    "maxTrialCount": ("trials",),
    "maxTrials": ("trials",),
    "maxLifetime": ("maxLifetimeSeconds",),
    "maxWorkers": ("parallelism",),
    "jobTemplate": ("template",),
    "limit": ("maxCost",),
    "maxSpend": ("maxCost",),
    "mem": ("memory",),
    "metricsCollector": ("metrics",),
    "metricsCollectorSpec": ("metrics",),
    "mount": ("mountPath",),
    "mounts": ("volumes",),
    "numNodes": ("nodes",),
    "numTrials": ("trials",),
    "numWorkers": ("parallelism", "nodes"),
    "objective": ("metric",),
    "packages": ("apt", "pip"),
    "parallelTrialCount": ("parallelism",),
    "parallelTrials": ("parallelism",),
    "params": ("parameters", "items"),
    "pip_packages": ("pip",),
    "podFailurePolicy": ("failurePolicy",),
    "podTemplate": ("template",),
    "ram": ("memory",),
    "remote": ("url",),
    "replicas": ("parallelism", "nodes"),
    "repo": ("url", "git"),
    "repository": ("url", "git"),
    "requirementsFile": ("requirements",),
    "requirements_file": ("requirements",),
    "restartPolicy": ("backoffLimitPerIndex", "maxRestarts"),
    "nominalQuota": ("nominal",),
    "priorityClassName": ("priority",),
    "queueName": ("queue",),
    "queueingStrategy": ("strategy",),
    "withinClusterQueue": ("withinQueue",),
    "retries": ("backoffLimitPerIndex", "maxRestarts"),
    "revision": ("ref",),
    "run": ("script",),
    "runCap": ("run_cap",),
    "runsPerWorker": ("trialsPerWorker",),
    "searchSpace": ("parameters", "search"),
    "secretRef": ("secrets",),
    "setup": ("run", "stages"),
    "shell": ("script",),
    "size": ("disk",),
    "steps": ("stages",),
    "storage": ("disk", "size"),
    "sweep": ("search",),
    "successfulHistoryLimit": ("successfulJobsHistoryLimit",),
    "tag": ("ref",),
    "time_limit": ("timeoutSeconds",),
    "timezone": ("timeZone",),
    "timeout": ("timeoutSeconds",),
    "timeoutMinutes": ("timeoutSeconds",),
    "trialTemplate": ("template",),
    "ttl": ("ttlSecondsAfterFinished",),
    "volumeMounts": ("volumes",),
    "work_dir": ("workdir",),
    "workerLifetime": ("sandbox",),
    "workerTimeout": ("sandbox",),
    "workers": ("parallelism", "nodes"),
    "workingDir": ("workdir",),
    "working_dir": ("workdir",),
}

# Known by design and refused, so that nothing a person relies on is silently left out.
NOT_YET_FIELDS = frozenset(
    {
        "artifacts", "cache", "elastic", "metrics",
        "notify", "numProcPerNode", "pool", "region", "repeats",
        "restartScope", "results", "resume", "spotPolicy", "stopWhen",
    }
)  # fmt: skip
NOT_YET_KINDS = frozenset({"Pool", "Source"})

_LATER = "write `kind: Schedule` with this manifest as its `template`"
_AFTER = "write `dependsOn: [{job: NAME}]`, or the `stages` of a TrainingRun"
# Fields for which no name is the answer.
HINTS = {
    **dict.fromkeys(("schedule", "cron", "interval"), _LATER),
    **dict.fromkeys(("depends", "depends_on", "needs", "after", "requires"), _AFTER),
    "data": "a manifest holds no values of secrets; see `fromEnv` and `fromFile`",
    "stringData": "a manifest holds no values of secrets; see `fromEnv` and `fromFile`",
}

_OWN = "it is the program's: hand it over in `command`, in `env`, or as a parameter of `tasks`"
_KUBERNETES = "this looks like a pod of Kubernetes: `fleetctl convert --from k8s-job FILE`"
_DIRECTLY = "write them directly: `resources: {cpu: 2, memory: 4Gi, gpu: A100}`"
# The same, of a field in a block.
HINTS_BELOW = {
    ("resources", "limits"): _DIRECTLY,
    ("resources", "requests"): _DIRECTLY,
    **{("template", word): _KUBERNETES for word in ("spec", "metadata", "containers")},
    **{
        ("placement", word): "there is no such choice: a provider's own machines are used, and"
        " work that is lost starts again"
        for word in ("spot", "useSpot", "use_spot", "preemptible", "spotPolicy")
    },
    **{
        (block, word): _OWN
        for block in ("spec", "template")
        for word in (
            "epochs", "lr", "learning_rate", "learningRate", "batch_size", "batchSize", "dataset",
            "model", "max_steps", "num_epochs",
        )
    },
}  # fmt: skip

# What to write where a mapping is wanted and something shorter was given.
MAPPING_HINTS = {
    "env": "write `{NAME: value}`",
    "function": "write its name alone",
    "git": "write `{url: ...}`",
    "metadata": "write `{name: NAME}`",
    "metric": "write `{name: loss, goal: minimize}`",
    "metrics": "write `{from: stdout, regex: ...}`, or `{from: jsonl, path: ...}`",
    "resources": "write `{cpu: 2, memory: 4Gi}`",
    "sandbox": "write `{reuse: 4}`",
    "source": "write `{path: .}` or `{git: {url: ...}}`",
    "template": "write `{script: ...}`, `{command: [...]}` or `{python: ...}`",
    "volumes": "write an entry as `{name: data, mountPath: /data}`",
    "anyOf": "write an entry as `{provider: NAME}`",
    "budget": "write `{maxCost: 25}`",
    "cache": "write `{policy: Never}` to turn it off",
    "checkpoint": "write `{path: /ckpt}`",
    "dependsOn": "write an entry as `{job: NAME}`",
    "keep": "write `{last: 3}`",
    "paramsFrom": "write `{sweep: NAME}`",
    "fairShare": "write `{}`, or `{weights: {NAMESPACE: 2}}`",
    "preemption": "write `{withinQueue: LowerPriority}`",
    "quotas": "write an entry as `{resource: gpu/A100, nominal: 8}`",
    "progress": "write `{timeoutSeconds: 15m}`",
    "stages": "write an entry as `{name: train, command: [...]}`",
    "wandb": "write `{project: NAME}`, or `{sweepId: ID}` of one that is there",
    "image": 'write a reference, or what to install: `{python: "3.12", pip: [numpy]}`',
    "limits": "write `{maxConcurrent: 10}`",
    "ordered": "write an entry as `{provider: NAME}`",
    "placement": "write `{provider: NAME}`",
    "selector": "write labels: `{team: vision}`",
    "spillOver": "write `{afterSeconds: 30}`; leave it out for the default",
    "tasks": "write `items: [...]` in it",
}

SYNONYMOUS_KINDS = {
    "clusterqueue": "Queue",
    "localqueue": "Queue",
    "job": "BatchJob",
    "cronjob": "Schedule",
    "workflow": "BatchJob",
    "experiment": "Sweep",
    "trainjob": "TrainingRun",
    "training": "TrainingRun",
    "pytorchjob": "TrainingRun",
    "rayjob": "TrainingRun",
    "persistentvolumeclaim": "Volume",
}

# Two of three letters equal: `paralelism`, `memmory`, but not `image` for `name`.
_SIMILAR = 0.75


def meant(word: str, known: Iterable[str], *, similar: bool = True) -> str | None:
    """The known name that `word` most likely stands for; None when none is near.

    similar: whether a likeness of letters counts.
    """
    names = list(known)
    by_letters = {_letters(name): name for name in names}
    if _letters(word) in by_letters:
        return by_letters[_letters(word)]
    for name in _SYNONYMS_BY_LETTERS.get(_letters(word), ()):
        if name in names:
            return name
    cutoff = _SIMILAR if similar else 1.0
    near = get_close_matches(_letters(word), by_letters, n=1, cutoff=cutoff)
    return by_letters[near[0]] if near else None


def listed(names: Iterable[str], *, last: str = "and") -> str:
    """`a`, `b` and `c`."""
    quoted = [f"`{name}`" for name in names]
    if len(quoted) < 2:
        return "".join(quoted)
    return ", ".join(quoted[:-1]) + f" {last} {quoted[-1]}"


def _letters(word: str) -> str:
    return word.replace("_", "").replace("-", "").lower()[:63]


_SYNONYMS_BY_LETTERS = {_letters(word): names for word, names in SYNONYMS.items()}
