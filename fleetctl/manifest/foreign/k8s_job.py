"""A Kubernetes Job, or the Job of a CronJob, and the claims that it mounts."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any

from fleetctl.common.errors import UsageError
from fleetctl.manifest.foreign.reading import Foreign, given, manifest, named

BACKOFF_LIMIT = 6  # what Kubernetes takes when a Job says nothing
_SAME = (
    "completions", "parallelism", "maxFailedIndexes", "activeDeadlineSeconds",
    "ttlSecondsAfterFinished", "suspend",
)  # fmt: skip
_GPU_LIMITS = ("nvidia.com/gpu", "amd.com/gpu")
_GPU_LABELS = ("cloud.google.com/gke-accelerator", "nvidia.com/gpu.product")
_REFERENCE = re.compile(r"\$\([A-Za-z_][A-Za-z0-9_]*\)")
_ACCESS = "is left out: any number of tasks may mount a volume"


def convert(source: Foreign, name: str) -> Iterator[dict[str, Any]]:
    kind = source.text("kind")
    source.take("apiVersion")
    metadata = source.part("metadata")
    called = named(metadata.text("name") or metadata.text("generateName"), name)
    about = {key: metadata.take(key, dict) for key in ("labels", "annotations")}
    metadata.leave("is left out: `apply -n` says where objects go", "namespace")
    if kind == "Job":
        yield manifest("BatchJob", called, _job(source.part("spec")), **about)
    elif kind == "CronJob":
        outer = source.part("spec")
        outer.leave("is left out: apply the manifest from cron", "schedule", "timeZone")
        yield manifest("BatchJob", called, _job(outer.part("jobTemplate").part("spec")), **about)
    elif kind == "PersistentVolumeClaim":
        yield manifest("Volume", called, _volume(source.part("spec")), **about)
    elif kind == "List":
        for item in source.parts("items"):
            yield from convert(item, name)
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


def _job(spec: Foreign) -> dict[str, Any]:
    made = {key: spec.take(key) for key in _SAME}
    if spec.take("completionMode") != "Indexed" and (made["completions"] or 1) > 1:
        spec.say("completionMode", "became `Indexed`: every task has an index")
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
    made["template"] = _template(template.part("spec"))
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


def _template(pod: Foreign) -> dict[str, Any]:
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
    work: dict[str, Any] = {"command": words}
    if _REFERENCE.search(" ".join(words)):
        work = {"script": "exec " + " ".join(map(_for_a_shell, words))}
        main.say("command", "holds `$(NAME)`, which a shell expands here: see `script`")
    main.leave("is left out: an image is fetched when it is not there", "imagePullPolicy")
    env, secrets = _env(main)
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


def _for_a_shell(word: str) -> str:
    """The word as a shell reads it, with Kubernetes' references as variables."""
    if not _REFERENCE.search(word):
        return shlex.quote(word)
    quoted, end = "", 0
    for match in _REFERENCE.finditer(word):
        quoted += shlex.quote(word[end : match.start()]) if match.start() > end else ""
        quoted += f'"${{{match[0][2:-1]}}}"'
        end = match.end()
    return quoted + (shlex.quote(word[end:]) if end < len(word) else "")


def _env(main: Foreign) -> tuple[dict[str, str], list[str]]:
    env: dict[str, str] = {}
    secrets: list[str] = []
    for entry in main.parts("env"):
        name, value = entry.text("name"), entry.text("value")
        origin = entry.part("valueFrom")
        secret = origin.part("secretKeyRef")
        field = origin.part("fieldRef").text("fieldPath")
        if name and value is not None:
            env[name] = value
        elif called := secret.text("name"):
            secrets.append(called)
            key = secret.text("key")
            if key != name:
                entry.say("", f"comes from key `{key}`: secret `{called}` must hold `{name}`")
        elif field and "job-completion-index" in field:
            entry.say("", "is left out: `JOB_COMPLETION_INDEX` is always set")
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
