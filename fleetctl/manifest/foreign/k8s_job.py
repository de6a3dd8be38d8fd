"""A Kubernetes Job, or the Job of a CronJob, and the claims that it mounts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from fleetctl.common.errors import UsageError
from fleetctl.manifest.foreign.foreign_mapping import (
    ConversionOptions,
    Converted,
    ForeignMapping,
    build_manifest,
    drop_empty,
    make_name,
)
from fleetctl.manifest.foreign.k8s_pod import PodParts
from fleetctl.manifest.foreign.k8s_references import ContainerEnv, build_work
from fleetctl.specs.kinds.schedule import NAME_CHARS_MAX

INDEX = "JOB_COMPLETION_INDEX"
BACKOFF_LIMIT = 6  # the default of Kubernetes
_SAME = (
    "completions", "parallelism", "maxFailedIndexes", "activeDeadlineSeconds",
    "ttlSecondsAfterFinished", "suspend",
)  # fmt: skip
GPU = "nvidia.com/gpu"
# A volume of files, the field that names its files, and the field for them here.
_FILES = (("configMap", "name", "configMaps"), ("secret", "secretName", "secrets"))
_GPU_LABELS = ("cloud.google.com/gke-accelerator", "nvidia.com/gpu.product")
_ACCESS = "is left out: any number of tasks may mount a volume"


_TIMES = (
    "schedule", "timeZone", "concurrencyPolicy", "startingDeadlineSeconds",
    "successfulJobsHistoryLimit", "failedJobsHistoryLimit", "suspend",
)  # fmt: skip


def convert(sources: Sequence[ForeignMapping], wanted: ConversionOptions) -> Iterator[Converted]:
    for source in sources:
        for one in _convert_source(source, wanted.name):
            yield source, one


def _convert_source(source: ForeignMapping, name: str) -> Iterator[dict[str, Any]]:
    kind = source.text("kind")
    source.take("apiVersion")
    metadata = source.part("metadata")
    called = make_name(metadata.text("name") or metadata.text("generateName"), name)
    about = {key: metadata.take(key, dict) for key in ("labels", "annotations")}
    metadata.leave("is left out: `apply -n` says where objects go", "namespace")
    if kind == "Job":
        yield build_manifest("BatchJob", called, _convert_job(source.part("spec")), **about)
    elif kind == "CronJob":
        yield build_manifest(
            "Schedule", called[:NAME_CHARS_MAX], _convert_cron_job(source.part("spec")), **about
        )
    elif kind == "PersistentVolumeClaim":
        yield build_manifest("Volume", called, _convert_claim(source.part("spec")), **about)
    elif kind == "List":
        for item in source.parts("items"):
            yield from _convert_source(item, name)
    else:
        source.take("spec")
        source.take("data")
        source.take("stringData")
        source.say("", f"a `{kind}` is left out: only Jobs, CronJobs and claims are converted")


def _convert_claim(spec: ForeignMapping) -> dict[str, Any]:
    spec.leave(_ACCESS, "accessModes", "volumeMode")
    spec.leave("is left out: `provider` says who keeps it", "storageClassName")
    size = spec.part("resources").part("requests").text("storage")
    return drop_empty({"size": size})


def _convert_cron_job(spec: ForeignMapping) -> dict[str, Any]:
    made = {key: spec.take(key) for key in _TIMES}
    job = spec.part("jobTemplate")
    metadata = job.part("metadata")
    about = drop_empty({key: metadata.take(key, dict) for key in ("labels", "annotations")})
    work = drop_empty(
        {"kind": "BatchJob", "metadata": about, "spec": _convert_job(job.part("spec"))}
    )
    return drop_empty({**made, "template": work})


def _convert_job(spec: ForeignMapping) -> dict[str, Any]:
    made = {key: spec.take(key) for key in _SAME}
    indexed = spec.take("completionMode") == "Indexed"
    if not indexed and (made["completions"] or 1) > 1:
        spec.say("completionMode", "became `Indexed`: every task has an index")
    if made["completions"] is None and (made["parallelism"] or 1) > 1:
        made["completions"] = made["parallelism"]
        spec.say("parallelism", "gave `completions` too: here each task is done by itself")
    if made["ttlSecondsAfterFinished"] is not None:
        spec.say("ttlSecondsAfterFinished", "removes work directories; the object itself stays")
    made["backoffLimitPerIndex"] = spec.take("backoffLimitPerIndex", int)
    limit = spec.take("backoffLimit", int)
    if made["backoffLimitPerIndex"] is None:
        # There the limit counts over all pods, and any pod may be the one that fails.
        made["backoffLimit"] = BACKOFF_LIMIT if limit is None else limit
        made["backoffLimitPerIndex"] = made["backoffLimit"]
    else:
        made["backoffLimit"] = limit
    made["successPolicy"] = spec.take("successPolicy", dict)
    made["failurePolicy"] = _convert_failure_policy(spec.part("podFailurePolicy"))
    spec.take("selector")
    spec.take("manualSelector")
    template = spec.part("template")
    metadata = template.part("metadata")
    made["template"] = _convert_pod(metadata, template.part("spec"), indexed=indexed)
    return drop_empty(made)


def _convert_failure_policy(policy: ForeignMapping) -> dict[str, Any]:
    rules = []
    for rule in policy.parts("rules"):
        action = rule.take("action")
        codes = rule.part("onExitCodes")
        rule.leave(
            "is left out: work that the infrastructure loses is never counted here",
            "onPodConditions",
        )
        codes.leave("is left out: a task has one container", "containerName")
        operator = codes.take("operator")
        values = codes.take("values", list)
        if operator and values:
            on_codes = {"operator": operator, "values": values}
            rules.append({"action": action, "onExitCodes": on_codes})
    if rules:
        return {"rules": rules}
    return {}


def _convert_pod(
    metadata: ForeignMapping,
    pod: ForeignMapping,
    *,
    indexed: bool,
) -> dict[str, Any]:
    containers = pod.parts("containers")
    if not containers:
        raise UsageError("the Job has no container")
    for number in range(1, len(containers)):
        pod.say(f"containers[{number}]", "is left out: a task has one container")
        containers[number].forget()
    main = containers[0]
    command = main.take("command", list)
    arguments = main.take("args", list)
    if not command:
        raise UsageError(
            "the container has no `command`: what the image starts by itself is not known here",
            hint="write the image's ENTRYPOINT as `command` and convert again",
        )
    main.take("name")
    words = [str(word) for word in (*command, *(arguments or []))]
    main.leave("is left out: an image is fetched when it is not there", "imagePullPolicy")
    parts = PodParts(metadata, pod, main)
    variables, secrets = _build_env(main, parts, indexed=indexed)
    work, env = build_work(words, variables)
    if "script" in work:
        main.say("command", "holds `$(NAME)` of what is known when it runs: see `script`")
    limits = main.part("resources")
    pod.take("restartPolicy")  # either way a failed attempt is followed by another
    return drop_empty(
        {
            **work,
            "image": main.text("image"),
            "workdir": main.text("workingDir"),
            "env": env,
            "secrets": secrets,
            "resources": _build_resources(limits, pod, parts),
            "volumes": _build_mounts(main, pod, parts),
            "timeoutSeconds": pod.take("activeDeadlineSeconds", int),
            "terminationGracePeriodSeconds": pod.take("terminationGracePeriodSeconds", int),
            "kubernetes": parts.block(),
        }
    )


def _build_env(
    main: ForeignMapping,
    parts: PodParts,
    *,
    indexed: bool,
) -> tuple[ContainerEnv, list[str]]:
    env = ContainerEnv([INDEX] if indexed else [])
    secrets: list[str] = []
    for entry in main.parts("env"):
        name = entry.text("name")
        value = entry.text("value")
        whole = dict(entry.peek("valueFrom") or {})
        origin = entry.part("valueFrom")
        secret = origin.part("secretKeyRef")
        field = origin.part("fieldRef").text("fieldPath")
        if name and value is not None:
            env.add(name, value)
        elif name and not (secret or field or origin):
            env.add(name, "")
        elif called := secret.text("name"):
            secrets.append(called)
            env.mark_later(name or "")
            key = secret.text("key")
            if key != name:
                entry.say("", f"comes from key `{key}`: secret `{called}` must hold `{name}`")
        elif field and "job-completion-index" in field:
            if name and name != INDEX:
                env.copy_later(name, INDEX)
            else:
                entry.say("", f"is left out: `{INDEX}` is always set")
        elif name and whole:
            origin.forget()
            env.mark_later(name)
            parts.variable_from(name, whole)
    for source in main.parts("envFrom"):
        prefix = source.text("prefix")
        if called := source.part("secretRef").text("name"):
            if prefix is None:
                secrets.append(called)
            else:
                parts.variables_of("secrets", called, prefix)
        if called := source.part("configMapRef").text("name"):
            parts.variables_of("configMaps", called, prefix)
    return env, list(dict.fromkeys(secrets))


def _build_resources(
    asked: ForeignMapping,
    pod: ForeignMapping,
    parts: PodParts,
) -> dict[str, Any]:
    limits = asked.part("limits")
    requests = asked.part("requests")
    asked.take("claims")  # all claims of the pod are the work's
    found: dict[str, Any] = {}
    below: dict[str, Any] = {}
    for theirs, ours in (("cpu", "cpu"), ("memory", "memory"), ("ephemeral-storage", "disk")):
        limit = limits.take(theirs)
        request = requests.take(theirs)
        value = request if limit is None else limit
        if value is not None:
            found[ours] = value if isinstance(value, int | float) else str(value)
        if limit is not None and request not in (None, limit):
            below[ours] = request
    sort = _sort_of_gpu(pod)
    count = limits.take(GPU)
    request = requests.take(GPU)
    if count or request:
        found["gpu"] = f"{_gpu_name(sort)}:{count or request}"
    extra = {name: it for name, it in requests.drain().items() if "/" in name} | limits.drain()
    parts.takes(below, extra)
    return found


def _sort_of_gpu(pod: ForeignMapping) -> str:
    """Returns the sort of GPU by the label of nodes that names it; `any` without a label."""
    labels = dict(pod.take("nodeSelector", dict) or {})
    found = [str(labels.pop(key)) for key in _GPU_LABELS if key in labels]
    if labels:
        pod.fill({"nodeSelector": labels})
    if found:
        return found[0]
    return "any"


def _gpu_name(label: str) -> str:
    """Returns `nvidia-tesla-a100` and `NVIDIA-L4` as `A100` and `L4`."""
    words = [word for word in label.split("-") if word.lower() not in ("nvidia", "tesla")]
    if words and label != "any":
        return words[0].upper()
    return "any"


def _build_mounts(
    main: ForeignMapping,
    pod: ForeignMapping,
    parts: PodParts,
) -> list[dict[str, Any]]:
    claims: dict[str, str] = {}
    files: dict[str, tuple[str, str]] = {}
    memory: dict[str, str | None] = {}
    parts.selects(pod.take("nodeSelector", dict) or {})
    for volume in pod.parts("volumes"):
        name = volume.text("name") or ""
        claim = volume.part("persistentVolumeClaim")
        if called := claim.text("claimName"):
            claims[name] = make_name(called, name)
            claim.take("readOnly")
        for theirs, key, plural in _FILES:
            shown = volume.part(theirs)
            if called := shown.text(key):
                files[name] = plural, called
        empty = volume.peek("emptyDir")
        if isinstance(empty, dict) and empty.get("medium") == "Memory":
            memory[name] = None if empty.get("sizeLimit") is None else str(empty["sizeLimit"])
            volume.take("emptyDir")
        volume.leave("is left out: a sandbox has a disk of its own", "emptyDir")
    mounts = []
    for mount in main.parts("volumeMounts"):
        name = mount.text("name") or ""
        path = mount.text("mountPath") or ""
        read_only = mount.take("readOnly", bool)
        if name in claims:
            made = {"name": claims[name], "mountPath": path, "readOnly": read_only or None}
            mounts.append(drop_empty(made))
            mount.leave("is left out: the whole volume is mounted", "subPath", "subPathExpr")
        elif name in files:
            parts.files_of(*files[name], path)
            mount.leave("is left out: all files are shown", "subPath", "subPathExpr")
        elif not (name in memory and parts.shares_memory(path, memory[name])):
            mount.say("", "is left out with its volume")
            mount.forget()
    return mounts
