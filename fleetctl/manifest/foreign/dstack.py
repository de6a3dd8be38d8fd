"""A dstack task: a BatchJob of one task, or a TrainingRun over several nodes; a dstack volume."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fleetctl.common.errors import UsageError
from fleetctl.manifest.foreign import amounts
from fleetctl.manifest.foreign.reading import Foreign, given, manifest, named

RETRIES = 3  # dstack retries for a time; here a number is said
_PLACE = (
    "regions", "backends", "availability_zones", "instance_types", "spot_policy", "fleets",
    "reservation", "max_price", "creation_policy", "idle_duration", "backend", "region",
)  # fmt: skip
_ELSEWHERE = "is left out: say in `placement` where it may run"
_ELSEWHERE_SET = "${{"  # a secret, or a value that dstack fills in


def convert(source: Foreign, name: str) -> Iterator[dict[str, Any]]:
    sort = source.text("type")
    called = named(source.text("name"), name)
    if sort == "volume":
        size = source.take("size")
        source.leave(_ELSEWHERE, *_PLACE)
        yield manifest("Volume", called, given({"size": amounts.size(size) if size else None}))
    elif sort == "task":
        yield from _task(source, called)
    else:
        raise UsageError(
            f"a dstack configuration of type `{sort}` is not batch work",
            hint="tasks and volumes are converted",
        )


def _task(source: Foreign, called: str) -> Iterator[dict[str, Any]]:
    commands = source.take("commands", list)
    if not commands:
        raise UsageError("the task has no `commands`: what its image starts is not known here")
    env, secrets = _env(source)
    resources = source.part("resources")
    template = given(
        {
            # dstack joins the commands with `&&`.
            "script": "\n".join(("set -e", *(str(one).rstrip("\n") for one in commands))) + "\n",
            "image": _image(source),
            "source": _source(source),
            "env": env,
            "secrets": [f"{called}-secrets"] if secrets else [],
            "resources": _machine(resources),
            "volumes": _mounts(source),
            "workdir": source.text("working_dir"),
            "terminationGracePeriodSeconds": _duration(source, "stop_duration"),
        }
    )
    source.leave(_ELSEWHERE, *_PLACE)
    source.leave("is left out: no port is opened", "ports")
    source.leave(
        "is left out: it orders the work of a Queue, and needs `queue` beside it", "priority"
    )
    if secrets:
        source.say("env", f"`{called}-secrets` takes {len(secrets)} values from the environment")
        yield manifest("Secret", f"{called}-secrets", {"fromEnv": secrets})
    nodes, retries = source.take("nodes", int) or 1, _retries(source)
    spec = {"activeDeadlineSeconds": _duration(source, "max_duration"), "template": template}
    if nodes > 1:
        more = {"nodes": nodes, "maxRestarts": retries}
        yield manifest("TrainingRun", called, given({**more, **spec}))
    else:
        yield manifest("BatchJob", called, given({"backoffLimitPerIndex": retries, **spec}))


def _env(source: Foreign) -> tuple[dict[str, str], list[str]]:
    """Values, and the names of what comes from elsewhere."""
    wanted = source.take("env", list, dict) or {}
    if isinstance(wanted, list):
        pairs = (str(one).partition("=") for one in wanted)
        wanted = {name: value if equals else None for name, equals, value in pairs}
    env = {
        name: str(it)
        for name, it in wanted.items()
        if it is not None and _ELSEWHERE_SET not in str(it)
    }
    return env, sorted(name for name in wanted if name not in env)


def _image(source: Foreign) -> Any:
    image, python = source.text("image"), source.text("python")
    source.leave("is left out: values of secrets come as variables", "registry_auth")
    if image is not None or python is None:
        return image
    return {"python": python}


def _source(source: Foreign) -> dict[str, Any] | None:
    """The first of its repositories or file mappings."""
    for key in ("repos", "files"):
        wanted = source.take(key, list) or []
        for number in range(1, len(wanted)):
            source.say(f"{key}[{number}]", "is left out: a task has one source")
        if wanted:
            return _place(wanted[0])
    return None


def _place(wanted: Any) -> dict[str, Any]:
    if isinstance(wanted, dict):
        path = wanted.get("local_path") or wanted.get("url") or "."
        ref = wanted.get("branch") or wanted.get("hash")
    else:
        path, ref = (
            str(wanted).partition(":/")[0] if "://" not in str(wanted) else str(wanted),
            None,
        )
    if "://" in path or path.startswith("git@"):
        return {"git": given({"url": path, "ref": ref})}
    return {"path": path}


def _machine(resources: Foreign) -> dict[str, Any]:
    cpu, memory, disk = (resources.take(key) for key in ("cpu", "memory", "disk"))
    if isinstance(disk, dict):
        disk = disk.get("size")
    for key, value in (("cpu", cpu), ("memory", memory), ("disk", disk)):
        if amounts.is_open(value):
            resources.say(key, "became exactly its lower end")
    resources.leave("is left out: a sandbox has the shared memory of its machine", "shm_size")
    return given(
        {
            "cpu": amounts.cores(cpu) if cpu is not None else None,
            "memory": amounts.size(memory) if memory is not None else None,
            "disk": amounts.size(disk) if disk is not None else None,
            "gpu": _gpu(resources),
        }
    )


def _gpu(resources: Foreign) -> str | None:
    """`A100:80GB:2`, `24GB`, `2`, `{name: [A100, H100], count: 1..2}` as `NAME:COUNT`."""
    wanted = resources.take("gpu")
    if wanted is None:
        return None
    names: list[str] = []
    count: Any = 1
    if isinstance(wanted, dict):
        choice = wanted.get("name") or []
        names = [choice] if isinstance(choice, str) else [str(one) for one in choice]
        count = wanted.get("count") or 1
        if wanted.get("memory"):
            resources.say("gpu.memory", "is left out: name the sort of GPU")
    else:
        for part in str(wanted).split(":"):
            if amounts.is_size(part):
                resources.say(
                    "gpu", "says how much memory, which is left out: name the sort of GPU"
                )
            elif part[:1].isdigit():
                count = part
            else:
                names = part.split(",")
    if len(names) > 1:
        resources.say("gpu", f"became `{names[0]}`, its first sort")
    return f"{names[0] if names else 'any'}:{amounts.cores(count) or 1}"


def _mounts(source: Foreign) -> list[dict[str, Any]]:
    mounts = []
    for number, one in enumerate(source.take("volumes", list) or []):
        name, path = (
            (one.get("name"), one.get("path"))
            if isinstance(one, dict)
            else (str(one).partition(":")[0], str(one).partition(":")[2])
        )
        if isinstance(name, str) and path and not name.startswith("/"):
            mounts.append({"name": named(name, "volume"), "mountPath": path})
        else:
            source.say(
                f"volumes[{number}]", "is left out: a directory of a machine is not a volume"
            )
    return mounts


def _duration(source: Foreign, key: str) -> Any:
    """`2h`, seconds, or nothing for `off`."""
    value = source.take(key)
    return None if isinstance(value, bool) or value == "off" else value


def _retries(source: Foreign) -> int | None:
    retry = source.take("retry")
    if not retry:
        return None
    events = retry.get("on_events") if isinstance(retry, dict) else None
    if events is not None and "error" not in events:
        source.say("retry", "is left out: lost work and missing capacity are always waited out")
        return None
    source.say("retry", f"became {RETRIES} retries: a time to retry for has no counterpart")
    return RETRIES
