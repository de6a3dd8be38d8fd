"""Converts a SkyPilot task to a BatchJob with one task, or to a TrainingRun when several nodes work
together. In a file of several tasks each waits for the one before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from fleetctl.common.errors import UsageError
from fleetctl.manifest.foreign import foreign_mapping
from fleetctl.manifest.foreign.foreign_mapping import (
    SKYPILOT,
    ConversionOptions,
    Converted,
    ForeignMapping,
    build_manifest,
    drop_empty,
    gpus_in,
    lines_for,
    make_name,
)

_DOCKER = "docker:"
_LOCATION = ("cloud", "region", "zone", "infra", "instance_type")
_NAMES_PROVIDERS = "`placement` names the providers where it may run"
_ELSEWHERE = f"is left out: {_NAMES_PROVIDERS}"
_NO_SPOT = "is left out: `placement` has no such field; work that is lost starts again elsewhere"
_ENDS = "is left out: a sandbox ends with its work"
_CHOICES = ("any_of", "ordered")
# SkyPilot's name for its only cloud that is a provider here.
_KUBERNETES = ("kubernetes", "k8s")
_FIELD_OF = {"BatchJob": "job", "TrainingRun": "trainingrun"}


def convert(sources: Sequence[ForeignMapping], wanted: ConversionOptions) -> Iterator[Converted]:
    tasks, serial = _split_tasks(sources)
    names: set[str] = set()
    before: dict[str, Any] | None = None
    for number, source in enumerate(tasks):
        otherwise = wanted.name if len(tasks) == 1 else f"{wanted.name}-{number}"
        called = _new_name(make_name(source.text("name"), otherwise), names)
        for one in _convert_task(source, called, wanted):
            if one["kind"] in _FIELD_OF:
                if before is not None and serial:
                    field = _FIELD_OF[before["kind"]]
                    link = {"dependsOn": [{field: before["metadata"]["name"]}]}
                    one["spec"] = {**link, **one["spec"]}
                before = one
            yield source, one


def _split_tasks(sources: Sequence[ForeignMapping]) -> tuple[Sequence[ForeignMapping], bool]:
    """Returns the documents with work, and True if each waits for the one before: a first document
    without work names the whole, and may let its tasks run beside each other.
    """
    if len(sources) < 2 or "run" in sources[0]:
        return sources, True
    head = sources[0]
    called = head.text("name")
    execution = head.text("execution")
    if called is not None:
        head.say("name", f"is left out: `{called}` names the pipeline, and each task has its own")
    return sources[1:], execution != "parallel"


def _new_name(name: str, taken: set[str]) -> str:
    number = 2
    called = name
    while called in taken:
        called = f"{name}-{number}"
        number = number + 1
    taken.add(called)
    return called


def _convert_task(
    source: ForeignMapping,
    called: str,
    wanted: ConversionOptions,
) -> Iterator[dict[str, Any]]:
    run = source.text("run")
    if run is None:
        raise UsageError("this is not a SkyPilot task with work: `run` is missing")
    source.leave("is left out: a service is not batch work", "service")
    source.leave("is left out: `notify` reports how work ends", "event_callback")
    resources = source.part("resources")
    setup = source.text("setup")
    if setup is not None:
        source.say("setup", "runs before `run` in each attempt; `image.run` would keep its outcome")
    env, unset = _split_env(source)
    secrets = sorted({*_list_secrets(source), *unset})
    placement = _choose_placement(resources)
    machine = _build_resources(resources)
    before = lines_for(
        source,
        "run",
        f"{setup} {run}",
        SKYPILOT,
        gpus=gpus_in(machine),
        every=wanted.old_names,
    )
    template = drop_empty(
        {
            # SkyPilot runs it with bash; `script` would be run by the POSIX shell.
            "command": ["bash", "-c", "\n".join([*before, *_build_lines(setup, run)])],
            "image": _read_image(resources),
            "source": _build_source(source),
            "env": env,
            "secrets": [f"{called}-secrets"] if secrets else [],
            "resources": machine,
            "volumes": _build_mounts(source),
        }
    )
    if secrets:
        text = f"became Secret `{called}-secrets`, which takes the values from the environment"
        source.say("envs" if secrets == sorted(unset) else "secrets", text)
        yield build_manifest("Secret", f"{called}-secrets", {"fromEnv": secrets})
    nodes = source.take("num_nodes", int) or 1
    retries = _count_retries(resources)
    labels = {str(key): str(it) for key, it in resources.part("labels").drain().items()}
    if nodes > 1:
        spec = {"placement": placement, "nodes": nodes, "maxRestarts": retries}
        spec["template"] = template
        yield build_manifest("TrainingRun", called, drop_empty(spec), labels=labels)
    else:
        spec = {"placement": placement, "backoffLimitPerIndex": retries, "template": template}
        yield build_manifest("BatchJob", called, drop_empty(spec), labels=labels)


def _build_lines(setup: str | None, run: str) -> list[str]:
    """Builds the text of the task. A failed setup ends it, and variables that the setup sets are
    gone with its shell, as in SkyPilot; behind `||` the shell would ignore the setup's `set -e`.
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


def _list_secrets(source: ForeignMapping) -> list[str]:
    """Returns the names of secret variables; a value in the file is never taken over."""
    found = source.part("secrets").drain(keep_null=True)
    for name, value in found.items():
        if value not in (None, ""):
            source.say(f"secrets.{name}", "loses its value: set the variable where you apply it")
    return sorted(found)


def _read_image(resources: ForeignMapping) -> str | None:
    image = resources.take("image_id", str)
    if image is None or image.startswith(_DOCKER):
        if image is None:
            return None
        return str(image).removeprefix(_DOCKER)
    resources.say("image_id", "is left out: it is an image of a virtual machine")
    return None


def _build_source(source: ForeignMapping) -> dict[str, Any] | None:
    workdir = source.take("workdir", str, dict)
    if isinstance(workdir, str):
        return {"path": workdir}
    if isinstance(workdir, dict) and workdir.get("url"):
        return {"git": drop_empty({"url": workdir["url"], "ref": workdir.get("ref")})}
    return None


def _split_env(source: ForeignMapping) -> tuple[dict[str, str], list[str]]:
    """Returns (variables with a value; names of variables without, which must be given where the
    task is launched).
    """
    found = source.part("envs").drain(keep_null=True)
    unset = [name for name, value in found.items() if value is None]
    for name in unset:
        source.say(f"envs.{name}", "has no value: it must be set where you apply it")
    return {name: str(value) for name, value in found.items() if value is not None}, unset


def _choose_placement(resources: ForeignMapping) -> dict[str, str] | None:
    """Returns the provider that the task names itself, or else the first of its choices."""
    for key in ("infra", "cloud"):
        if _is_kubernetes(resources.peek(key)):
            resources.take(key)
            return {"provider": "kubernetes"}
    has_location = any(resources.peek(key) is not None for key in _LOCATION)
    chosen = next(
        (_choose_resources(key, resources.peek(key)) for key in _CHOICES if resources.peek(key)), 0
    )
    choices = next(filter(None, (resources.peek(key) for key in _CHOICES)), None)
    if has_location or not isinstance(choices, list) or not isinstance(choices[chosen], dict):
        return None
    if _is_carried(choices[chosen]):
        return {"provider": "kubernetes"}
    return None


def _choose_resources(key: str, choices: object) -> int:
    """Returns the index of the choice that is made: in `any_of`, where each will do, one whose
    cloud is a provider here; else the first, which `ordered` prefers.
    """
    if key != "any_of" or not isinstance(choices, list):
        return 0
    carried = (
        at for at, choice in enumerate(choices) if isinstance(choice, dict) and _is_carried(choice)
    )
    return next(carried, 0)


def _is_kubernetes(location: object) -> bool:
    """Returns True for `kubernetes`, or `k8s/CONTEXT`."""
    return isinstance(location, str) and location.partition("/")[0].lower() in _KUBERNETES


def _is_carried(choice: dict[str, Any]) -> bool:
    """Returns True if `placement` can express the whole location of a choice."""
    locations = [choice[name] for name in _LOCATION if choice.get(name) is not None]
    return bool(locations) and all(map(_is_kubernetes, locations))


def _build_resources(resources: ForeignMapping) -> dict[str, Any]:
    made: dict[str, Any] = {}
    _apply_first_choice(resources)
    cpus = resources.take("cpus")
    memory = resources.take("memory")
    if cpus is not None:
        made["cpu"] = foreign_mapping.parse_cores(cpus)
    if memory is not None:
        made["memory"] = foreign_mapping.parse_size(memory)
    for key, value in (("cpus", cpus), ("memory", memory)):
        if foreign_mapping.is_open(value):
            resources.say(key, "became exactly its lower end")
    disk = resources.take("disk_size")
    made["disk"] = foreign_mapping.parse_size(disk) if disk is not None else None
    made["gpu"] = _read_gpu(resources)
    resources.leave(_ELSEWHERE, *_LOCATION)
    resources.leave(_NO_SPOT, "use_spot")
    resources.leave(_ENDS, "autostop")
    resources.leave("is left out: no port is opened", "ports")
    return drop_empty(made)


def _apply_first_choice(resources: ForeignMapping) -> None:
    """Takes over fields of the first choice that the task itself does not have."""
    for key in _CHOICES:
        choices = resources.take(key, list) or []
        at = _choose_resources(key, choices)
        chosen = choices[at] if choices and isinstance(choices[at], dict) else {}
        taken = [name for name in chosen if name not in resources and name not in _LOCATION]
        resources.fill({name: chosen[name] for name in taken})
        if taken:
            names = ", ".join(f"`{name}`" for name in taken)
            why = "its provider is one here" if at else "the first choice is the one that is made"
            resources.say(f"{key}[{at}]", f"gave {names}: {why}")
        for number, choice in enumerate(choices):
            if number == at:
                if isinstance(choice, dict) and _has_location(choice) and not _is_carried(choice):
                    resources.say(f"{key}[{number}]", f"loses its cloud: {_NAMES_PROVIDERS}")
            elif choice != chosen:
                resources.say(
                    f"{key}[{number}]", f"is left out: {_describe_left_fields(choice, chosen)}"
                )


def _has_location(choice: dict[str, Any]) -> bool:
    return any(choice.get(name) is not None for name in _LOCATION)


def _describe_left_fields(choice: object, chosen: dict[str, Any]) -> str:
    """Describes the fields of another choice that cannot stand beside the one that is made."""
    if isinstance(choice, dict) and not _has_location(choice):
        names = sorted(name for name in {*choice, *chosen} if choice.get(name) != chosen.get(name))
        if names == ["accelerators"]:
            return "a sandbox has one sort of GPU, and a list of them goes with `runtime: function`"
        if names and "accelerators" not in names:
            return "all providers of `placement` get one machine"
    return _NAMES_PROVIDERS


def _read_gpu(resources: ForeignMapping) -> str | None:
    wanted = resources.take("accelerators")
    if isinstance(wanted, dict):
        wanted = [f"{name}:{count or 1}" for name, count in wanted.items()]
    if isinstance(wanted, list) and wanted:
        if len(wanted) > 1:
            resources.say("accelerators", f"became `{wanted[0]}`, its first sort")
        wanted = wanted[0]
    if wanted:
        return str(wanted)
    return None


def _count_retries(resources: ForeignMapping) -> int | None:
    recovery = resources.take("job_recovery")
    if isinstance(recovery, dict):
        rest = sorted(set(recovery) - {"max_restarts_on_errors"})
        for key in rest:
            resources.say(
                f"job_recovery.{key}", "is left out: lost work always starts again elsewhere"
            )
        limit = recovery.get("max_restarts_on_errors")
        if isinstance(limit, int):
            return limit
        return None
    if recovery is not None:
        resources.say("job_recovery", "is left out: lost work always starts again")
    return None


def _build_mounts(source: ForeignMapping) -> list[dict[str, Any]]:
    """Builds volumes; stores with a name become volumes; copied files get a remark."""
    mounts = []
    for path, origin in source.part("volumes").drain().items():
        store = origin.get("name") if isinstance(origin, dict) else origin
        if isinstance(store, str) and store and path.startswith("/"):
            mounts.append({"name": make_name(store, "volume"), "mountPath": path})
        else:
            source.say(f"volumes.{path}", "is left out: a volume has a name and an absolute path")
    for path, origin in source.part("file_mounts").drain().items():
        field = f"file_mounts.{path}"
        store = origin.get("name") if isinstance(origin, dict) else None
        if store and path.startswith("/"):
            mounts.append({"name": make_name(str(store), "volume"), "mountPath": path})
            source.say(field, "became a volume; copy the files into it with `fleetctl cp`")
        else:
            source.say(
                field, "is left out: copy it into a volume with `fleetctl cp`, and mount that"
            )
    return mounts
