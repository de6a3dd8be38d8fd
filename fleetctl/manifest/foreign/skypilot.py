"""A SkyPilot task: a BatchJob of one task, or a TrainingRun when several nodes work together. Of a
file of several tasks each waits for the one before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from fleetctl.common.errors import UsageError
from fleetctl.manifest.foreign import amounts
from fleetctl.manifest.foreign.old_names import SKYPILOT, gpus_in, lines_for
from fleetctl.manifest.foreign.reading import (
    Converted,
    Foreign,
    Wanted,
    given,
    manifest,
    named,
)

_DOCKER = "docker:"
_ELSEWHERE = "is left out: `placement` names the providers where it may run"
_PLACE = ("cloud", "region", "zone", "infra", "instance_type")
_NO_SPOT = "is left out: `placement` has no word for it; work that is lost starts again elsewhere"
_ENDS = "is left out: a sandbox ends with its work"
_CHOICES = ("any_of", "ordered")
# What SkyPilot calls the only one of its places that is a provider here.
_KUBERNETES = ("kubernetes", "k8s")
_FIELD_OF = {"BatchJob": "job", "TrainingRun": "trainingrun"}


def convert(sources: Sequence[Foreign], wanted: Wanted) -> Iterator[Converted]:
    tasks, serial = _tasks(sources)
    names: set[str] = set()
    before: dict[str, Any] | None = None
    for number, source in enumerate(tasks):
        otherwise = wanted.name if len(tasks) == 1 else f"{wanted.name}-{number}"
        called = _new_name(named(source.text("name"), otherwise), names)
        for one in _task(source, called, wanted):
            if one["kind"] in _FIELD_OF:
                if before is not None and serial:
                    field = _FIELD_OF[before["kind"]]
                    link = {"dependsOn": [{field: before["metadata"]["name"]}]}
                    one["spec"] = {**link, **one["spec"]}
                before = one
            yield source, one


def _tasks(sources: Sequence[Foreign]) -> tuple[Sequence[Foreign], bool]:
    """Those with work, and whether each waits for the one before: a first document that has none
    names the whole, and may say that its tasks run beside each other.
    """
    if len(sources) < 2 or "run" in sources[0]:
        return sources, True
    head = sources[0]
    called, execution = head.text("name"), head.text("execution")
    if called is not None:
        head.say("name", f"is left out: `{called}` names the pipeline, and each task has its own")
    return sources[1:], execution != "parallel"


def _new_name(name: str, taken: set[str]) -> str:
    number, called = 2, name
    while called in taken:
        called, number = f"{name}-{number}", number + 1
    taken.add(called)
    return called


def _task(source: Foreign, called: str, wanted: Wanted) -> Iterator[dict[str, Any]]:
    run = source.text("run")
    if run is None:
        raise UsageError("this is not a SkyPilot task with work: `run` is missing")
    source.leave("is left out: a service is not batch work", "service")
    source.leave("is left out: `notify` tells how work ends", "event_callback")
    resources = source.part("resources")
    setup = source.text("setup")
    if setup is not None:
        source.say("setup", "runs before `run` in each attempt; `image.run` would keep its outcome")
    env, unset = _env(source)
    secrets = sorted({*_secrets(source), *unset})
    placement = _placement(resources)
    machine = _machine(resources)
    before = lines_for(
        source, "run", f"{setup} {run}", SKYPILOT, gpus=gpus_in(machine), every=wanted.old_names
    )
    template = given(
        {
            # bash, as there; a script of ours would be read by the POSIX shell.
            "command": ["bash", "-c", "\n".join([*before, *_lines(setup, run)])],
            "image": _image(resources),
            "source": _workdir(source),
            "env": env,
            "secrets": [f"{called}-secrets"] if secrets else [],
            "resources": machine,
            "volumes": _mounts(source),
        }
    )
    if secrets:
        text = f"became Secret `{called}-secrets`, which takes the values from the environment"
        source.say("envs" if secrets == sorted(unset) else "secrets", text)
        yield manifest("Secret", f"{called}-secrets", {"fromEnv": secrets})
    nodes, retries = source.take("num_nodes", int) or 1, _retries(resources)
    labels = {str(key): str(it) for key, it in resources.part("labels").drain().items()}
    if nodes > 1:
        spec = {"placement": placement, "nodes": nodes, "maxRestarts": retries}
        spec["template"] = template
        yield manifest("TrainingRun", called, given(spec), labels=labels)
    else:
        spec = {"placement": placement, "backoffLimitPerIndex": retries, "template": template}
        yield manifest("BatchJob", called, given(spec), labels=labels)


def _lines(setup: str | None, run: str) -> list[str]:
    """The text of the task. A setup that fails ends it, and what it sets is gone with its shell, as
    there; behind `||` the shell would forget a `set -e` of it.
    """
    if setup is None:
        return [run.rstrip("\n")]
    return [
        "(",
        setup.rstrip("\n"),
        ")",
        'failed=$?; if [ $failed -ne 0 ]; then echo "setup failed" >&2; exit $failed; fi',
        run.rstrip("\n"),
    ]


def _secrets(source: Foreign) -> list[str]:
    """Names of variables; whether the file gives a value or null, that is never carried over."""
    found = source.part("secrets").drain(keep_null=True)
    for name, value in found.items():
        if value not in (None, ""):
            source.say(f"secrets.{name}", "loses its value: set the variable where you apply it")
    return sorted(found)


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


def _env(source: Foreign) -> tuple[dict[str, str], list[str]]:
    """(variables with a value; names of those without, which must be given where it is launched)"""
    found = source.part("envs").drain(keep_null=True)
    unset = [name for name, value in found.items() if value is None]
    for name in unset:
        source.say(f"envs.{name}", "has no value: it must be set where you apply it")
    return {name: str(value) for name, value in found.items() if value is not None}, unset


def _placement(resources: Foreign) -> dict[str, str] | None:
    """The provider that the task itself names, or else the first of its choices."""
    for key in ("infra", "cloud"):
        if _is_kubernetes(resources.peek(key)):
            resources.take(key)
            return {"provider": "kubernetes"}
    own_place = any(resources.peek(key) is not None for key in _PLACE)
    first = next(filter(None, (resources.peek(key) for key in _CHOICES)), None)
    if own_place or not isinstance(first, list) or not isinstance(first[0], dict):
        return None
    return {"provider": "kubernetes"} if _is_carried(first[0]) else None


def _is_kubernetes(place: object) -> bool:
    """`kubernetes`, or `k8s/CONTEXT`."""
    return isinstance(place, str) and place.partition("/")[0].lower() in _KUBERNETES


def _is_carried(choice: dict[str, Any]) -> bool:
    """Whether all that a choice says of its place is said by `placement`."""
    places = [choice[name] for name in _PLACE if choice.get(name) is not None]
    return bool(places) and all(map(_is_kubernetes, places))


def _machine(resources: Foreign) -> dict[str, Any]:
    made: dict[str, Any] = {}
    _choose(resources)
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
    resources.leave(_NO_SPOT, "use_spot")
    resources.leave(_ENDS, "autostop")
    resources.leave("is left out: no port is opened", "ports")
    return given(made)


def _choose(resources: Foreign) -> None:
    """Take over what the first of several choices says and the task itself does not."""
    for key in _CHOICES:
        choices = resources.take(key, list) or []
        first = choices[0] if choices and isinstance(choices[0], dict) else {}
        taken = [name for name in first if name not in resources and name not in _PLACE]
        resources.fill({name: first[name] for name in taken})
        if taken:
            told = ", ".join(f"`{name}`" for name in taken)
            resources.say(f"{key}[0]", f"gave {told}: the first choice is the one that is made")
        for number, choice in enumerate(choices):
            rest = number > 0 and choice != first
            where = isinstance(choice, dict) and any(name in choice for name in _PLACE)
            where = where and not _is_carried(choice)
            if rest or where:
                why = "is left out" if number else "loses its place"
                resources.say(
                    f"{key}[{number}]", f"{why}: `placement` names the providers where it may run"
                )


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
    """Volumes, and stores with a name, which become volumes; what would be copied is told."""
    mounts = []
    for path, origin in source.part("volumes").drain().items():
        store = origin.get("name") if isinstance(origin, dict) else origin
        if isinstance(store, str) and store and path.startswith("/"):
            mounts.append({"name": named(store, "volume"), "mountPath": path})
        else:
            source.say(f"volumes.{path}", "is left out: a volume has a name and an absolute path")
    for path, origin in source.part("file_mounts").drain().items():
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
