"""The Job of one run, as a plain dict. Pure; posted by creates.py.

Retries are ours: one pod, or one for each of several nodes (gangs.py), made once, and whatever ends
it ends the Job. Its container is inert until the run is begun in it, so a Job that is made twice,
or by nobody any more, works nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from fleetctl.kubernetes.connection import Object
from fleetctl.providers.contract.base import RunRequest
from fleetctl.providers.kubernetes.manifests import entry, gangs, machines
from fleetctl.providers.kubernetes.manifests.images import PodImage
from fleetctl.providers.kubernetes.manifests.labels import marks
from fleetctl.providers.remote.sandboxes.names import sandbox_name
from fleetctl.specs.blocks.kubernetes import ClusterSettings

MAIN, PREPARE = "main", "prepare"  # names of containers
KUEUE_QUEUE = "kueue.x-k8s.io/queue-name"
# Beyond a task's own grace: for its guest to tell the end, and for the entry to write it down.
GRACE_SLACK_S = 20.0
GUEST_MARK = "guest"  # the tag that says which of the two the image can run
RAY_MARK = "ray"  # its nodes are those of a Ray cluster


@dataclass(frozen=True, slots=True)
class Made:
    """What a Job is made of. tags: as names.tags has them. claims: of PVCs, by name of volume.
    life_s: of the pod from its start; inert_s: of it without work; finished_s: of the Job after
    its end.
    """

    request: RunRequest
    tags: Mapping[str, str]
    image: PodImage
    claims: Mapping[str, str]
    life_s: float
    inert_s: float
    finished_s: float


def name_of(run: str) -> str:
    """Names of our runs are DNS labels, and unique over all stores."""
    return sandbox_name(run)


def job(made: Made, settings: ClusterSettings) -> Object:
    ray = {RAY_MARK: "yes"} if gangs.has_ray(made.request.template) else {}
    labels, annotations = marks({**made.tags, **ray, GUEST_MARK: made.image.guest})
    queue = settings.kueue_queue
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name_of(made.request.run),
            "labels": {**labels, **({KUEUE_QUEUE: queue} if queue else {})},
            "annotations": annotations,
        },
        "spec": {
            "backoffLimit": 0,
            **gangs.job_fields(gangs.size(made.request.template)),
            # Kueue begins what it admits; nobody else may see a pod of it before.
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
            "template": {
                "metadata": {"labels": labels, "annotations": annotations},
                "spec": _pod(made, settings),
            },
        },
    }


def _pod(made: Made, settings: ClusterSettings) -> Object:
    template = made.request.template
    grace_s = template.termination_grace_period_seconds
    spec: Object = {
        "restartPolicy": "Never",
        "activeDeadlineSeconds": math.ceil(made.life_s),
        "terminationGracePeriodSeconds": math.ceil(grace_s + GRACE_SLACK_S),
        **gangs.pod_fields(name_of(made.request.run), gangs.size(template)),
        # What a pod's own token could do is nothing that a task was given.
        "automountServiceAccountToken": settings.service_account is not None,
        "enableServiceLinks": False,  # else every Service of the namespace is in the environment
        "containers": [_main(made, settings)],
        "volumes": _volumes(made, settings),
        "nodeSelector": machines.node_selector(template.resources, settings),
        "tolerations": [
            taint.model_dump(exclude_none=True, by_alias=True) for taint in settings.tolerations
        ],
        "serviceAccountName": settings.service_account,
        "priorityClassName": settings.priority_class,
        "runtimeClassName": settings.runtime_class,
        "imagePullSecrets": [{"name": name} for name in settings.image_pull_secrets],
    }
    if made.image.install:
        spec["initContainers"] = [_prepare(made.image)]
    return {name: value for name, value in spec.items() if value not in (None, [], {})}


def _main(made: Made, settings: ClusterSettings) -> Object:
    template, image = made.request.template, made.image
    env = dict(image.env)
    if image.install:
        env[entry.SITE] = f"{entry.CACHE}/sites/{image.key}"
    inert_s = str(math.ceil(made.inert_s))
    container: Object = {
        "name": MAIN,
        "image": image.name,
        "command": ["sh", f"{entry.HERE}/entry.sh", inert_s, *entry.GUESTS[image.guest]],
        "env": [{"name": name, "value": value} for name, value in env.items()],
        "envFrom": [{"secretRef": {"name": name}} for name in made.request.secret_refs],
        "resources": machines.resources(template.resources, settings),
        "volumeMounts": _mounts(made),
    }
    return {name: value for name, value in container.items() if value not in ([], {})}


def _prepare(image: PodImage) -> Object:
    return {
        "name": PREPARE,
        "image": image.name,
        "command": ["sh", f"{entry.HERE}/prepare.sh", image.key, *image.install],
        "volumeMounts": [_HERE, _CACHE],
    }


_HERE = {"name": "fleetctl-guest", "mountPath": entry.HERE, "readOnly": True}
_CACHE = {"name": "fleetctl-packages", "mountPath": entry.CACHE}


def _mounts(made: Made) -> list[Object]:
    template = made.request.template
    mounts: list[Object] = [_HERE]
    if made.image.install:
        mounts.append({**_CACHE, "readOnly": True})
    if gangs.shares_memory(template):
        mounts.append({"name": "fleetctl-shm", "mountPath": "/dev/shm"})  # noqa: S108
    mounts += [
        {
            "name": f"volume-{number}",
            "mountPath": mount.mount_path,
            **({"readOnly": True} if mount.read_only else {}),
        }
        for number, mount in enumerate(template.volumes)
    ]
    return mounts


def _volumes(made: Made, settings: ClusterSettings) -> list[Object]:
    template = made.request.template
    guest = {"name": entry.files_name(), "defaultMode": 0o555}
    volumes: list[Object] = [{"name": _HERE["name"], "configMap": guest}]
    if made.image.install:
        volumes.append({"name": _CACHE["name"], **_cache(settings)})
    if gangs.shares_memory(template):
        shared = gangs.shared_memory(template, settings)
        volumes.append({"name": "fleetctl-shm", "emptyDir": shared})
    volumes += [
        {
            "name": f"volume-{number}",
            "persistentVolumeClaim": {"claimName": made.claims[mount.name]},
        }
        for number, mount in enumerate(template.volumes)
    ]
    return volumes


def _cache(settings: ClusterSettings) -> Object:
    cache = settings.package_cache
    if cache is None:
        return {"emptyDir": {}}
    if cache.claim is not None:
        return {"persistentVolumeClaim": {"claimName": cache.claim}}
    return {"hostPath": {"path": cache.host_path, "type": "DirectoryOrCreate"}}
