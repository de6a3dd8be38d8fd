"""A Kubernetes Job, or the Job of a CronJob, and the claims that it mounts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from fleetctl.common.errors import UsageError
from fleetctl.manifest.foreign.k8s_references import Variables, work_of
from fleetctl.manifest.foreign.reading import (
    Converted,
    Foreign,
    Wanted,
    given,
    manifest,
    named,
)
from fleetctl.specs.kinds.schedule import NAME_CHARS_MAX

INDEX = "JOB_COMPLETION_INDEX"
BACKOFF_LIMIT = 6  # what Kubernetes takes when a Job says nothing
_SAME = (
    "completions", "parallelism", "maxFailedIndexes", "activeDeadlineSeconds",
    "ttlSecondsAfterFinished", "suspend",
)  # fmt: skip
_GPU_LIMITS = ("nvidia.com/gpu", "amd.com/gpu")
_GPU_LABELS = ("cloud.google.com/gke-accelerator", "nvidia.com/gpu.product")
_ACCESS = "is left out: any number of tasks may mount a volume"


_TIMES = (
    "schedule", "timeZone", "concurrencyPolicy", "startingDeadlineSeconds",
    "successfulJobsHistoryLimit", "failedJobsHistoryLimit", "suspend",
)  # fmt: skip


def convert(sources: Sequence[Foreign], wanted: Wanted) -> Iterator[Converted]:
    for source in sources:
        for one in _objects(source, wanted.name):
            yield source, one


def _objects(source: Foreign, name: str) -> Iterator[dict[str, Any]]:
    kind = source.text("kind")
    source.take("apiVersion")
    metadata = source.part("metadata")
    called = named(metadata.text("name") or metadata.text("generateName"), name)
    about = {key: metadata.take(key, dict) for key in ("labels", "annotations")}
    metadata.leave("is left out: `apply -n` says where objects go", "namespace")
    if kind == "Job":
        yield manifest("BatchJob", called, _job(source.part("spec")), **about)
    elif kind == "CronJob":
        yield manifest("Schedule", called[:NAME_CHARS_MAX], _schedule(source.part("spec")), **about)
    elif kind == "PersistentVolumeClaim":
        yield manifest("Volume", called, _volume(source.part("spec")), **about)
    elif kind == "List":
        for item in source.parts("items"):
            yield from _objects(item, name)
    else:
        source.take("spec")
        source.take("data")
        source.take("stringData")
        source.say("", f"a `{kind}` is left out: only Jobs, CronJobs and claims are converted")


def _volume(spec: Foreign) -> dict[str, Any]:
    spec.leave(_ACCESS, "accessModes", "volumeMode")
    spec.leave("is left out: `provider` says who keeps it", "storageClassName")
    size = spec.part("resources").part("requests").text("storage")
    return given({"size": size})


def _schedule(spec: Foreign) -> dict[str, Any]:
    made = {key: spec.take(key) for key in _TIMES}
    job = spec.part("jobTemplate")
    metadata = job.part("metadata")
    about = given({key: metadata.take(key, dict) for key in ("labels", "annotations")})
    work = given({"kind": "BatchJob", "metadata": about, "spec": _job(job.part("spec"))})
    return given({**made, "template": work})


def _job(spec: Foreign) -> dict[str, Any]:
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
        # There it counts over all pods, and each of them may be the one that fails.
        made["backoffLimit"] = BACKOFF_LIMIT if limit is None else limit
        made["backoffLimitPerIndex"] = made["backoffLimit"]
    else:
        made["backoffLimit"] = limit
    made["successPolicy"] = spec.take("successPolicy", dict)
    made["failurePolicy"] = _failures(spec.part("podFailurePolicy"))
    spec.take("selector")
    spec.take("manualSelector")
    template = spec.part("template")
    template.leave("is left out: the object's own labels are used", "metadata")
    made["template"] = _template(template.part("spec"), indexed=indexed)
    return given(made)


def _failures(policy: Foreign) -> dict[str, Any]:
    rules = []
    for rule in policy.parts("rules"):
        action, codes = rule.take("action"), rule.part("onExitCodes")
        rule.leave(
            "is left out: work that the infrastructure loses is never counted here",
            "onPodConditions",
        )
        codes.leave("is left out: a task has one container", "containerName")
        operator, values = codes.take("operator"), codes.take("values", list)
        if operator and values:
            on_codes = {"operator": operator, "values": values}
            rules.append({"action": action, "onExitCodes": on_codes})
    return {"rules": rules} if rules else {}


def _template(pod: Foreign, *, indexed: bool) -> dict[str, Any]:
    containers = pod.parts("containers")
    if not containers:
        raise UsageError("the Job has no container")
    for number in range(1, len(containers)):
        pod.say(f"containers[{number}]", "is left out: a task has one container")
        containers[number].forget()
    main = containers[0]
    command, arguments = main.take("command", list), main.take("args", list)
    if not command:
        raise UsageError(
            "the container has no `command`: what the image starts by itself is not known here",
            hint="write the image's ENTRYPOINT as `command` and convert again",
        )
    main.take("name")
    words = [str(word) for word in (*command, *(arguments or []))]
    main.leave("is left out: an image is fetched when it is not there", "imagePullPolicy")
    variables, secrets = _env(main, indexed=indexed)
    work, env = work_of(words, variables)
    if "script" in work:
        main.say("command", "holds `$(NAME)` of what is known when it runs: see `script`")
    limits = main.part("resources")
    pod.take("restartPolicy")  # either way a failed attempt is followed by another
    return given(
        {
            **work,
            "image": main.text("image"),
            "workdir": main.text("workingDir"),
            "env": env,
            "secrets": secrets,
            "resources": _resources(limits.part("limits"), limits.part("requests"), pod),
            "volumes": _mounts(main, pod),
            "timeoutSeconds": pod.take("activeDeadlineSeconds", int),
            "terminationGracePeriodSeconds": pod.take("terminationGracePeriodSeconds", int),
        }
    )


def _env(main: Foreign, *, indexed: bool) -> tuple[Variables, list[str]]:
    env = Variables([INDEX] if indexed else [])
    secrets: list[str] = []
    for entry in main.parts("env"):
        name, value = entry.text("name"), entry.text("value")
        origin = entry.part("valueFrom")
        secret = origin.part("secretKeyRef")
        field = origin.part("fieldRef").text("fieldPath")
        if name and value is not None:
            env.add(name, value)
        elif name and not (secret or field or origin):
            env.add(name, "")
        elif called := secret.text("name"):
            secrets.append(called)
            env.comes_later(name or "")
            key = secret.text("key")
            if key != name:
                entry.say("", f"comes from key `{key}`: secret `{called}` must hold `{name}`")
        elif field and "job-completion-index" in field:
            if name and name != INDEX:
                env.take_from(name, INDEX)
            else:
                entry.say("", f"is left out: `{INDEX}` is always set")
        elif field:
            entry.say("", "is left out: there is no pod whose field it could be")
    for source in main.parts("envFrom"):
        if called := source.part("secretRef").text("name"):
            secrets.append(called)
    return env, list(dict.fromkeys(secrets))


def _resources(limits: Foreign, requests: Foreign, pod: Foreign) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for theirs, ours in (("cpu", "cpu"), ("memory", "memory"), ("ephemeral-storage", "disk")):
        limit, request = limits.take(theirs), requests.take(theirs)
        value = request if limit is None else limit
        if value is not None:
            found[ours] = value if isinstance(value, int | float) else str(value)
    selector = pod.part("nodeSelector")
    sort = next((text for key in _GPU_LABELS if (text := selector.text(key))), "any")
    for key in _GPU_LIMITS:
        count, request = limits.take(key), requests.take(key)
        if count or request:
            found["gpu"] = f"{_gpu_name(sort)}:{count or request}"
    return found


def _gpu_name(label: str) -> str:
    """`nvidia-tesla-a100` and `NVIDIA-L4` as `A100` and `L4`."""
    words = [word for word in label.split("-") if word.lower() not in ("nvidia", "tesla")]
    return words[0].upper() if words and label != "any" else "any"


def _mounts(main: Foreign, pod: Foreign) -> list[dict[str, Any]]:
    claims: dict[str, str] = {}
    for volume in pod.parts("volumes"):
        name = volume.text("name") or ""
        claim = volume.part("persistentVolumeClaim")
        if called := claim.text("claimName"):
            claims[name] = named(called, name)
            claim.take("readOnly")
        volume.leave("is left out: a sandbox has a disk of its own", "emptyDir")
        volume.leave("is left out: put the files into a volume or `source`", "configMap")
        volume.leave("is left out: values of secrets come as variables (`secrets`)", "secret")
    mounts = []
    for mount in main.parts("volumeMounts"):
        name, path = mount.text("name") or "", mount.text("mountPath")
        read_only = mount.take("readOnly", bool)
        if name in claims:
            made = {"name": claims[name], "mountPath": path, "readOnly": read_only or None}
            mounts.append(given(made))
            mount.leave("is left out: the whole volume is mounted", "subPath", "subPathExpr")
        else:
            mount.say("", "is left out with its volume")
            mount.forget()
    return mounts
