"""Field names that users bring from elsewhere, and fields of ours that are not supported yet."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

# Names of fields in other tools' files. The first name that exists at the path is meant.
SYNONYMS: dict[str, tuple[str, ...]] = {
    "accelerator": ("gpu",),
    "accelerators": ("gpu",),
    "activeDeadline": ("activeDeadlineSeconds",),
    "algorithm": ("search", "method"),
    "args": ("command",),
    "artifact_paths": ("outputs",),
    "artifacts": ("outputs",),
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
    "glob": ("fromFiles",),
    "goal": ("metric",),
    "gpus": ("gpu", "resource"),
    "gracePeriodSeconds": ("terminationGracePeriodSeconds",),
    "hyperparameters": ("parameters",),
    "id": ("name",),
    "idleTimeoutSeconds": ("timeoutSeconds",),
    "ignore": ("exclude",),
    "inputs": ("items", "fromFiles"),
    "instances": ("nodes", "parallelism"),
    "keepWarm": ("minContainers",),
    "lifetime": ("maxLifetimeSeconds",),
    "localDir": ("path",),
    "maxFailedTrialCount": ("maxFailedIndexes",),
    "maxFailedTrials": ("maxFailedIndexes",),
    "maxParallelism": ("parallelism",),
    "maxRetries": ("maxRestarts", "backoffLimitPerIndex"),
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
    "output": ("outputs",),
    "outputFiles": ("outputs",),
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
    "restartPolicy": ("maxRestarts", "backoffLimitPerIndex"),
    "nominalQuota": ("nominal",),
    "priorityClassName": ("priority",),
    "queueName": ("queue",),
    "queueingStrategy": ("strategy",),
    "withinClusterQueue": ("withinQueue",),
    "retries": ("maxRestarts", "backoffLimitPerIndex"),
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

# Known by design and refused, so that a field that a user relies on is never silently left out.
NOT_YET_FIELDS = frozenset(
    {
        "cache", "elastic", "metrics",
        "notify", "numProcPerNode", "pool", "region", "repeats",
        "restartScope", "results", "resume", "spotPolicy", "stopWhen",
    }
)  # fmt: skip
NOT_YET_KINDS = frozenset({"Pool", "Source"})

_NETWORK = (
    "write `network: {}` in the template, which lets nothing out, or `network: {allow:"
    " [pkg.example.org]}`"
)
_DOCKERFILE = "build it and name it in `image.registry`, or write `image: {apt: [...], run: [...]}`"
_REGISTRY = (
    "on `kubernetes`, `imagePullSecrets` below `kubernetes` of the Provider object; at Daytona a"
    " registry of its dashboard; at Modal public images alone"
)
_PORTS = "`fleetctl port-forward` reaches a port of a running task; a server is a `kind: Function`"
_REGION = "remove it; at Daytona `account: {target: eu}` of a Provider object chooses one"
_LATER = (
    'write `schedule: "0 3 * * *"` beside `kind`, or `kind: Schedule` with this manifest as its'
    " `template`"
)
_AFTER = "write `dependsOn: [{job: NAME}]`, or the `stages` of a TrainingRun"
# Fields for which no name is the answer.
HINTS = {
    **dict.fromkeys(("schedule", "cron", "interval"), _LATER),
    **dict.fromkeys(("depends", "depends_on", "needs", "after", "requires"), _AFTER),
    **dict.fromkeys(
        (
            *("networking", "networkPolicy", "blockNetwork", "block_network"),
            *("networkBlockAll", "network_block_all", "networkAllowList", "network_allow_list"),
            *("cidrAllowlist", "cidr_allowlist", "outboundCidrAllowlist", "egress"),
        ),
        _NETWORK,
    ),
    **dict.fromkeys(("dockerfile", "docker_file", "containerfile"), _DOCKERFILE),
    **dict.fromkeys(
        ("imagePullSecrets", "registryAuth", "registry_auth", "imagePullSecret"), _REGISTRY
    ),
    **dict.fromkeys(("encryptedPorts", "encrypted_ports", "tunnels", "expose"), _PORTS),
    **dict.fromkeys(("region", "regions"), _REGION),
    "data": "a manifest holds no values of secrets; see `fromEnv` and `fromFile`",
    "stringData": "a manifest holds no values of secrets; see `fromEnv` and `fromFile`",
}

_OWN = "it is the program's: pass it in `command`, in `env`, or as a parameter of `tasks`"
_KUBERNETES = "this looks like a pod of Kubernetes: `fleetctl convert --from k8s-job FILE`"
_DIRECTLY = "write them directly: `resources: {cpu: 2, memory: 4Gi, gpu: A100}`"
# The same, of a field in a block.
HINTS_BELOW = {
    **{
        ("spec", word): f"write it in `metadata: {{{word}: ...}}`"
        for word in ("annotations", "labels", "namespace")
    },
    **{("spec", word): "did you mean `placement`?" for word in ("on", "where", "cloud")},
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

# The form of a mapping, for fields where something shorter was given.
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


def guess_name(
    word: str,
    known: Iterable[str],
    *,
    similar: bool = True,
) -> str | None:
    """Returns the known name that `word` most likely stands for; None when no name is near.

    similar: whether a likeness of letters counts.
    """
    names = list(known)
    by_letters = {_normalize_word(name): name for name in names}
    if _normalize_word(word) in by_letters:
        return by_letters[_normalize_word(word)]
    for name in _SYNONYMS_BY_LETTERS.get(_normalize_word(word), ()):
        if name in names:
            return name
    cutoff = _SIMILAR if similar else 1.0
    near = get_close_matches(_normalize_word(word), by_letters, n=1, cutoff=cutoff)
    if near:
        return by_letters[near[0]]
    return None


def join_names(names: Iterable[str], *, last: str = "and") -> str:
    """Joins names to `a`, `b` and `c`."""
    quoted = [f"`{name}`" for name in names]
    if len(quoted) < 2:
        return "".join(quoted)
    return ", ".join(quoted[:-1]) + f" {last} {quoted[-1]}"


def _normalize_word(word: str) -> str:
    return word.replace("_", "").replace("-", "").lower()[:63]


_SYNONYMS_BY_LETTERS = {_normalize_word(word): names for word, names in SYNONYMS.items()}
