"""Builds the Job of a run, as a plain dict. Pure; posted by job_creator.py.

Retries are ours: one pod, or one for each of several nodes (gang_manifests.py), made once, and the
end of a pod ends the Job. Its container is inert until the run is begun in it, so a Job that is
made twice, or without a living controller, does no work.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from fleetctl.kubernetes.connection import Object
from fleetctl.providers.contract.base import RunRequest
from fleetctl.providers.kubernetes.manifests import entry, gang_manifests, pod_parts
from fleetctl.providers.kubernetes.manifests.labels import job_name, object_labels, split_marks
from fleetctl.providers.kubernetes.manifests.pod_parts import PodImage
from fleetctl.providers.uv import PASSWORD, USERNAME
from fleetctl.specs.blocks.kubernetes import ClusterSettings

MAIN, PREPARE = "main", "prepare"  # names of containers
KUEUE_QUEUE = "kueue.x-k8s.io/queue-name"
# Beyond a task's own grace: for its guest to report the end, and for the entry to write it down.
GRACE_SLACK_S = 20.0
GUEST_MARK = "guest"  # the tag for which of the two guests the image can run
RAY_MARK = "ray"  # its nodes are those of a Ray cluster


@dataclass(frozen=True, slots=True)
class JobSpec:
    """The parts of a Job. tags: as sandbox_names.sandbox_tags has them. claims: names of PVCs, by
    name of volume. life_s: of the pod from its start; inert_s: of the pod without work; finished_s:
    of the Job after its end.
    """

    request: RunRequest
    tags: Mapping[str, str]
    image: PodImage
    claims: Mapping[str, str]
    life_s: float
    inert_s: float
    finished_s: float


def build_job(made: JobSpec, provider: ClusterSettings) -> Object:
    """Returns the Job. provider: the Provider object's settings; the task's template goes before
    them.
    """
    settings = provider.merge_under(made.request.template.kubernetes)
    ray = {RAY_MARK: "yes"} if gang_manifests.has_ray(made.request.template) else {}
    marked, annotations = split_marks({**made.tags, **ray, GUEST_MARK: made.image.guest})
    labels = {**object_labels(made.request), **settings.pod_labels, **marked}
    template = {
        "metadata": {
            "labels": labels,
            "annotations": {**settings.pod_annotations, **annotations},
        },
        "spec": _pod_template(made, settings),
    }
    queue = settings.kueue_queue
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": job_name(made.request),
            "labels": {**labels, **({KUEUE_QUEUE: queue} if queue else {})},
            "annotations": annotations,
        },
        "spec": {
            "backoffLimit": 0,
            **gang_manifests.job_fields(gang_manifests.gang_size(made.request.template)),
            # Kueue begins the Jobs that it admits; before that, a Job must have no pod.
            "suspend": bool(queue),
            "podReplacementPolicy": "Failed",
            "podFailurePolicy": {
                "rules": [
                    {
                        "action": "FailJob",
                        "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
                    }
                ]
            },
            # Counts what the pod waits for, too; the pod's own counts its work.
            "activeDeadlineSeconds": math.ceil(made.life_s + settings.pending_seconds),
            "ttlSecondsAfterFinished": math.ceil(made.finished_s),
            "template": pod_parts.reshape_template(template, settings),
        },
    }


def _pod_template(made: JobSpec, settings: ClusterSettings) -> Object:
    template = made.request.template
    nobody = pod_parts.is_nobody(template, made.image, settings)
    grace_s = template.termination_grace_period_seconds
    spec: Object = {
        **pod_parts.pod_fields(settings, made.tags.get("uid", "")),
        "restartPolicy": "Never",
        "activeDeadlineSeconds": math.ceil(made.life_s),
        "terminationGracePeriodSeconds": math.ceil(grace_s + GRACE_SLACK_S),
        **gang_manifests.pod_fields(job_name(made.request), gang_manifests.gang_size(template)),
        # A task was given no rights of a pod's own token.
        "automountServiceAccountToken": settings.service_account is not None,
        "enableServiceLinks": False,  # else every Service of the namespace is in the environment
        "securityContext": {
            **pod_parts.pod_context(nobody=nobody),
            **settings.security_context,
        },
        "containers": [_main_container(made, settings, nobody=nobody)],
        "volumes": [
            *_pod_volumes(made, settings),
            *pod_parts.writable_volumes(template, nobody=nobody),
        ],
        "nodeSelector": pod_parts.node_selector(template.resources, settings),
        "tolerations": [
            taint.model_dump(exclude_none=True, by_alias=True) for taint in settings.tolerations
        ],
        "serviceAccountName": settings.service_account,
        "priorityClassName": settings.priority_class,
        "runtimeClassName": settings.runtime_class,
        "imagePullSecrets": [{"name": name} for name in settings.image_pull_secrets],
    }
    if made.image.install:
        spec["initContainers"] = [*settings.init_containers, _prepare_container(made.image)]
    return {name: value for name, value in spec.items() if value not in (None, [], {})}


def _main_container(
    made: JobSpec,
    settings: ClusterSettings,
    *,
    nobody: bool,
) -> Object:
    template = made.request.template
    image = made.image
    env = {**pod_parts.home_variables(nobody=nobody), **dict(image.env)}
    if image.install:
        env[entry.SITE] = f"{entry.CACHE}/sites/{image.key}"
    inert_s = str(math.ceil(made.inert_s))
    container: Object = {
        "name": MAIN,
        "image": image.name,
        "command": ["sh", f"{entry.HERE}/entry.sh", inert_s, *entry.GUESTS[image.guest]],
        "env": [{"name": name, "value": value} for name, value in env.items()],
        "envFrom": [
            *({"secretRef": {"name": name}} for name in made.request.secret_refs),
            *pod_parts.list_kept_variables(settings),
        ],
        "resources": pod_parts.container_resources(template.sandbox_resources, settings),
        "securityContext": {**pod_parts.CONTAINER, **settings.container_security_context},
        "volumeMounts": [
            *_volume_mounts(made),
            *pod_parts.list_kept_mounts(settings),
            *pod_parts.writable_mounts(template, nobody=nobody),
        ],
        **({"workingDir": pod_parts.WORK} if nobody else {}),
    }
    return {name: value for name, value in container.items() if value not in ([], {})}


def _prepare_container(image: PodImage) -> Object:
    container: Object = {
        "name": PREPARE,
        "image": image.name,
        "command": ["sh", f"{entry.HERE}/prepare.sh", image.key, *image.install],
        "securityContext": pod_parts.CONTAINER,
        "volumeMounts": [_HERE, _CACHE],
    }
    if image.login:
        container["env"] = [
            _variable_of(image.login, USERNAME, optional=True),
            _variable_of(image.login, PASSWORD, optional=False),
        ]
    return container


def _variable_of(
    secret: str,
    name: str,
    *,
    optional: bool,
) -> Object:
    reference = {"name": secret, "key": name, **({"optional": True} if optional else {})}
    return {"name": name, "valueFrom": {"secretKeyRef": reference}}


_HERE = {"name": "fleetctl-guest", "mountPath": entry.HERE, "readOnly": True}
_CACHE = {"name": "fleetctl-packages", "mountPath": entry.CACHE}


def _volume_mounts(made: JobSpec) -> list[Object]:
    template = made.request.template
    mounts: list[Object] = [_HERE]
    if made.image.install:
        mounts.append({**_CACHE, "readOnly": True})
    if gang_manifests.shares_memory(template):
        mounts.append({"name": "fleetctl-shm", "mountPath": "/dev/shm"})
    mounts += [
        {
            "name": f"volume-{number}",
            "mountPath": mount.mount_path,
            **({"readOnly": True} if mount.read_only else {}),
        }
        for number, mount in enumerate(template.volumes)
    ]
    return mounts


def _pod_volumes(made: JobSpec, settings: ClusterSettings) -> list[Object]:
    template = made.request.template
    guest = {"name": entry.files_name(), "defaultMode": 0o555}
    volumes: list[Object] = [{"name": _HERE["name"], "configMap": guest}]
    if made.image.install:
        volumes.append({"name": _CACHE["name"], **_cache_volume(settings)})
    if gang_manifests.shares_memory(template):
        shared = gang_manifests.shared_memory(template, settings)
        volumes.append({"name": "fleetctl-shm", "emptyDir": shared})
    volumes += [
        {
            "name": f"volume-{number}",
            "persistentVolumeClaim": {"claimName": made.claims[mount.name]},
        }
        for number, mount in enumerate(template.volumes)
    ]
    return [*volumes, *pod_parts.list_kept_volumes(settings)]


def _cache_volume(settings: ClusterSettings) -> Object:
    cache = settings.package_cache
    if cache is None:
        return {"emptyDir": {}}
    if cache.claim is not None:
        return {"persistentVolumeClaim": {"claimName": cache.claim}}
    return {"hostPath": {"path": cache.host_path, "type": "DirectoryOrCreate"}}
