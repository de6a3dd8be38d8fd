"""A SkyPilot task: a BatchJob of one task, or a TrainingRun when several nodes work together."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from fleetctl.common.errors import UsageError
from fleetctl.manifest.foreign import amounts
from fleetctl.manifest.foreign.reading import Foreign, given, manifest, named

_DOCKER = "docker:"
_ELSEWHERE = "is left out: say in `placement` where it may run"
_PLACE = ("cloud", "region", "zone", "infra", "instance_type", "any_of", "ordered", "use_spot")
_VARIABLE = re.compile(r"\bSKYPILOT_[A-Z_]+")


def convert(source: Foreign, name: str) -> Iterator[dict[str, Any]]:
    called, run = named(source.text("name"), name), source.text("run")
    if run is None:
        raise UsageError("this is not a SkyPilot task with work: `run` is missing")
    source.leave("is left out: a service is not batch work", "service")
    resources = source.part("resources")
    setup = source.text("setup")
    if setup is not None:
        source.say("setup", "runs before `run` in each attempt; `image.run` would keep its outcome")
    secrets = sorted(source.part("secrets").drain())
    template = given(
        {
            # bash, as there; a script of ours would be read by the POSIX shell.
            "command": ["bash", "-c", "\n".join(_lines(setup, run))],
            "image": _image(resources),
            "source": _workdir(source),
            "env": _env(source),
            "secrets": [f"{called}-secrets"] if secrets else [],
            "resources": _machine(resources),
            "volumes": _mounts(source),
        }
    )
    for variable in sorted(set(_VARIABLE.findall(f"{setup} {run}"))):
        source.say("run", f"uses `{variable}`, which is not set here")
    if secrets:
        source.say("secrets", "became a Secret that takes the values from the environment")
        yield manifest("Secret", f"{called}-secrets", {"fromEnv": secrets})
    nodes, retries = source.take("num_nodes", int) or 1, _retries(resources)
    if nodes > 1:
        spec = {"nodes": nodes, "maxRestarts": retries, "template": template}
        yield manifest("TrainingRun", called, given(spec))
    else:
        yield manifest(
            "BatchJob", called, given({"backoffLimitPerIndex": retries, "template": template})
        )


def _lines(setup: str | None, run: str) -> list[str]:
    return [text.rstrip("\n") for text in (setup, run) if text is not None]


def _image(resources: Foreign) -> str | None:
    image = resources.take("image_id", str)
    if image is None or image.startswith(_DOCKER):
        return None if image is None else str(image).removeprefix(_DOCKER)
    resources.say("image_id", "is left out: it is an image of a virtual machine")
    return None


def _workdir(source: Foreign) -> dict[str, Any] | None:
    workdir = source.take("workdir", str, dict)
    if isinstance(workdir, str):
        return {"path": workdir}
    if isinstance(workdir, dict) and workdir.get("url"):
        return {"git": given({"url": workdir["url"], "ref": workdir.get("ref")})}
    return None


def _env(source: Foreign) -> dict[str, str]:
    env: dict[str, str] = {}
    for name, value in source.part("envs").drain(keep_null=True).items():
        if value is None:
            source.say(f"envs.{name}", "is left out: it has no value; give one under `env`")
        else:
            env[name] = str(value)
    return env


def _machine(resources: Foreign) -> dict[str, Any]:
    made: dict[str, Any] = {}
    cpus, memory = resources.take("cpus"), resources.take("memory")
    if cpus is not None:
        made["cpu"] = amounts.cores(cpus)
    if memory is not None:
        made["memory"] = amounts.size(memory)
    for key, value in (("cpus", cpus), ("memory", memory)):
        if amounts.is_open(value):
            resources.say(key, "became exactly its lower end")
    disk = resources.take("disk_size")
    made["disk"] = amounts.size(disk) if disk is not None else None
    made["gpu"] = _gpu(resources)
    resources.leave(_ELSEWHERE, *_PLACE)
    resources.leave("is left out: no port is opened", "ports")
    return given(made)


def _gpu(resources: Foreign) -> str | None:
    wanted = resources.take("accelerators")
    if isinstance(wanted, dict):
        wanted = [f"{name}:{count or 1}" for name, count in wanted.items()]
    if isinstance(wanted, list) and wanted:
        if len(wanted) > 1:
            resources.say("accelerators", f"became `{wanted[0]}`, its first sort")
        wanted = wanted[0]
    return str(wanted) if wanted else None


def _retries(resources: Foreign) -> int | None:
    recovery = resources.take("job_recovery")
    if isinstance(recovery, dict):
        rest = sorted(set(recovery) - {"max_restarts_on_errors"})
        for key in rest:
            resources.say(
                f"job_recovery.{key}", "is left out: lost work always starts again elsewhere"
            )
        limit = recovery.get("max_restarts_on_errors")
        return limit if isinstance(limit, int) else None
    if recovery is not None:
        resources.say("job_recovery", "is left out: lost work always starts again")
    return None


def _mounts(source: Foreign) -> list[dict[str, Any]]:
    """Stores with a name become volumes; what would be copied is told."""
    mounts = []
    wanted = {**source.part("file_mounts").drain(), **source.part("volumes").drain()}
    for path, origin in wanted.items():
        place = f"file_mounts.{path}"
        store = origin.get("name") if isinstance(origin, dict) else None
        if store and path.startswith("/"):
            mounts.append({"name": named(str(store), "volume"), "mountPath": path})
            source.say(place, "became a volume; copy the files into it with `fleetctl cp`")
        else:
            source.say(
                place, "is left out: copy it into a volume with `fleetctl cp`, and mount that"
            )
    return mounts
