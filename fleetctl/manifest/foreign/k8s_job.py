"""A Kubernetes Job, or the Job of a CronJob, and the claims that it mounts: the parts of its pod
that only clusters have become the block `kubernetes`.

The rule is Kubernetes', see its third_party/forked/golang/expansion: the name of a variable that
is defined above is replaced, any other name stays as it is, and `$$` is a `$`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from fleetctl.common.errors import UsageError
from fleetctl.manifest.checks.commands import holds_a_reference
from fleetctl.manifest.foreign.foreign_mapping import (
    ConversionOptions,
    Converted,
    ForeignMapping,
    build_manifest,
    drop_empty,
    make_name,
)
from fleetctl.specs.blocks.kubernetes import MAIN
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

# By their names here.
_TEXTS = {
    "serviceAccount": "serviceAccountName",
    "priorityClass": "priorityClassName",
    "runtimeClass": "runtimeClassName",
}
_LISTS = {
    "topologySpread": "topologySpreadConstraints",
    "tolerations": "tolerations",
    "initContainers": "initContainers",
    "resourceClaims": "resourceClaims",
}
# Fields without a counterpart of ours go through as a patch.
_PATCHED = (
    *("hostNetwork", "hostPID", "hostIPC", "hostUsers", "hostAliases", "dnsPolicy", "dnsConfig"),
    *("schedulerName", "shareProcessNamespace", "preemptionPolicy", "overhead", "readinessGates"),
)
_SHARED = "/dev/shm"  # noqa: S108 - of the pod

_PART = re.compile(r"\$(?:\$|\(([^)]*)\))")


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


class PodParts:
    """Collects the fields of a pod."""

    def __init__(
        self,
        metadata: ForeignMapping,
        pod: ForeignMapping,
        main: ForeignMapping,
    ) -> None:
        self._found: dict[str, Any] = {
            "podLabels": metadata.take("labels", dict),
            "podAnnotations": metadata.take("annotations", dict),
            "affinity": pod.take("affinity", dict),
            "securityContext": pod.take("securityContext", dict),
            "containerSecurityContext": main.take("securityContext", dict),
            **{ours: pod.text(theirs) for ours, theirs in _TEXTS.items()},
            **{ours: pod.take(theirs, list) for ours, theirs in _LISTS.items()},
            "imagePullSecrets": [it.text("name") for it in pod.parts("imagePullSecrets")],
            "configMaps": [],
            "secrets": [],
        }
        pod.take("serviceAccount")  # the older name of the same
        self._patch = drop_empty({name: pod.take(name) for name in _PATCHED})
        self._env: list[dict[str, Any]] = []

    def variables_of(
        self,
        plural: str,
        name: str,
        prefix: str | None,
    ) -> None:
        """Adds the variables of a ConfigMap or a Secret. plural: `configMaps` or `secrets`."""
        self._found[plural].append(drop_empty({"name": name, "prefix": prefix}))

    def files_of(
        self,
        plural: str,
        name: str,
        mount_path: str,
    ) -> None:
        self._found[plural].append({"name": name, "mountPath": mount_path})

    def variable_from(self, name: str, origin: dict[str, Any]) -> None:
        """Adds a variable whose value Kubernetes itself resolves."""
        self._env.append({"name": name, "valueFrom": origin})

    def shares_memory(self, mount_path: str, size: str | None) -> bool:
        """Takes a volume of memory as `sharedMemory`; returns False for a mount at another path."""
        if mount_path != _SHARED:
            return False
        self._found["sharedMemory"] = size
        return True

    def selects(self, labels: dict[str, Any]) -> None:
        self._found["nodeSelector"] = labels

    def takes(self, requests: dict[str, Any], extra: dict[str, Any]) -> None:
        """Requests below the limits, and resources that only clusters have."""
        self._found |= {"requests": requests, "extraResources": extra}

    def block(self) -> dict[str, Any]:
        """Returns the whole block; empty without any field."""
        spec = dict(self._patch)
        if self._env:
            spec["containers"] = [{"name": MAIN, "env": self._env}]
        patch = {"spec": spec} if spec else {}
        return drop_empty({**self._found, "podTemplate": patch})


class TextPiece(NamedTuple):
    """A part of a text: literal, or (later) the name of a variable whose value only a run knows."""

    text: str
    later: bool = False


class ContainerEnv:
    """The variables of a container, in the order of their definitions.

    later: names of variables whose values only a run knows. values: the known values by name.
    """

    def __init__(self, later: Sequence[str]) -> None:
        self._later = set(later)
        self.values: dict[str, str] = {}
        self.computed: dict[str, list[TextPiece]] = {}  # values with a part that only a run knows

    def mark_later(self, name: str) -> None:
        """Adds a variable whose value only a run knows: one of a Secret, or of the run itself."""
        self.values.pop(name, None)
        self._later.add(name)

    def copy_later(self, name: str, other: str) -> None:
        """Adds a variable that has the value of the variable `other`, which only a run knows."""
        self.computed[name] = [TextPiece(other, later=True)]
        self.mark_later(name)

    def add(self, name: str, value: str) -> None:
        """Adds a variable with a value from the file, which may refer to variables above it."""
        pieces = self.pieces(value)
        if any(it.later for it in pieces):
            self.computed[name] = pieces
            self.mark_later(name)
        else:
            self._later.discard(name)
            self.values[name] = "".join(it.text for it in pieces)

    def pieces(self, text: str) -> list[TextPiece]:
        """Splits a text at its references; references with a known value are replaced."""
        return list(_join_pieces(self._pieces(text)))

    def _pieces(self, text: str) -> Iterator[TextPiece]:
        end = 0
        for match in _PART.finditer(text):
            yield TextPiece(text[end : match.start()])
            name = match[1]
            end = match.end()
            if name is None:
                yield TextPiece("$")
            elif name in self._later:
                yield TextPiece(name, later=True)
            else:
                yield TextPiece(self.values.get(name, match[0]))
        yield TextPiece(text[end:])


def build_work(
    words: Sequence[str], variables: ContainerEnv
) -> tuple[dict[str, Any], dict[str, str]]:
    """Returns (the field `command`, or `script` where a shell has to insert values that only a run
    knows; the variables with known values).
    """
    split = [variables.pieces(word) for word in words]
    later = any(it.later for pieces in (*split, *variables.computed.values()) for it in pieces)
    command = ["".join(it.text for it in pieces) for pieces in split]
    # A text that looks like a reference is refused in a command, because it would stay unexpanded.
    if not later and not holds_a_reference(command):
        return {"command": command}, variables.values
    lines = [f"export {name}={_quote_pieces(it)}" for name, it in variables.computed.items()]
    lines.append("exec " + " ".join(map(_quote_pieces, split)))
    return {"script": "\n".join(lines)}, variables.values


def _quote_pieces(pieces: Sequence[TextPiece]) -> str:
    """Returns a word in the syntax of a POSIX shell, with its later parts as `"${NAME}"`."""
    if not pieces:
        return "''"
    return "".join(f'"${{{it.text}}}"' if it.later else shlex.quote(it.text) for it in pieces)


def _join_pieces(pieces: Iterator[TextPiece]) -> Iterator[TextPiece]:
    """Yields the pieces with adjacent literal ones as one, and without empty ones."""
    text = ""
    for piece in pieces:
        if not piece.later:
            text += piece.text
            continue
        if text:
            yield TextPiece(text)
        text = ""
        yield piece
    if text:
        yield TextPiece(text)
