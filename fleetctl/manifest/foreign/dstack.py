"""Converts a dstack task to a BatchJob with one task, or to a TrainingRun over several nodes;
converts a dstack volume.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from fleetctl.common.errors import UsageError
from fleetctl.common.text import count_noun
from fleetctl.manifest.foreign import foreign_mapping
from fleetctl.manifest.foreign.foreign_mapping import (
    DSTACK,
    ConversionOptions,
    Converted,
    ForeignMapping,
    build_manifest,
    drop_empty,
    gpus_in,
    lines_for,
    make_name,
)
from fleetctl.specs.kinds.schedule import NAME_CHARS_MAX

RETRIES = 3  # dstack retries for a time; a manifest needs a number
_LOCATION = (
    "regions", "backends", "availability_zones", "instance_types", "fleets", "backend", "region",
)  # fmt: skip
_ELSEWHERE = "is left out: `placement` names the providers where it may run"
_NO_WORD = "is left out: `placement` has no such field"
_ELSEWHERE_SET = "${{"  # a secret, or a value that dstack fills in
_SECRET = re.compile(r"\$\{\{\s*secrets\.([A-Za-z_][A-Za-z0-9_-]*)\s*\}\}")
_ENV = re.compile(r"\$\{\{\s*env\.([A-Za-z_][A-Za-z0-9_]*)\s*\}\}")
_FILLED_IN = re.compile(r"\$\{\{.*?\}\}")


def convert(sources: Sequence[ForeignMapping], wanted: ConversionOptions) -> Iterator[Converted]:
    for source in sources:
        for one in _convert_source(source, wanted):
            yield source, one


def _convert_source(source: ForeignMapping, wanted: ConversionOptions) -> Iterator[dict[str, Any]]:
    sort = source.text("type")
    name = wanted.name
    called = make_name(source.text("name"), name)
    if sort == "volume":
        size = source.take("size")
        source.leave(_ELSEWHERE, *_LOCATION)
        yield build_manifest(
            "Volume",
            called,
            drop_empty({"size": foreign_mapping.parse_size(size) if size else None}),
        )
    elif sort == "task":
        yield from _convert_task(source, called, wanted)
    else:
        raise UsageError(
            f"a dstack configuration of type `{sort}` is not batch work",
            hint="tasks and volumes are converted",
        )


def _convert_task(
    source: ForeignMapping,
    called: str,
    wanted: ConversionOptions,
) -> Iterator[dict[str, Any]]:
    commands = source.take("commands", list)
    if not commands:
        raise UsageError("the task has no `commands`: what its image starts is not known here")
    env, elsewhere = _split_env(source)
    text, more = _without_references(source, commands, elsewhere)
    secrets = sorted({*elsewhere, *more})
    for name in secrets:
        if env.pop(name, None) is not None:
            source.say("env", f"`{name}` loses its value to the secret of that name")
    machine = _build_resources(source.part("resources"))
    template = drop_empty(
        {
            **_build_work(source, text, machine, wanted),
            "image": _build_image(source),
            "source": _choose_source(source),
            "env": env,
            "secrets": [f"{called}-secrets"] if secrets else [],
            "resources": machine,
            "volumes": _build_mounts(source),
            "workdir": source.text("working_dir"),
            "terminationGracePeriodSeconds": _read_duration(source, "stop_duration"),
        }
    )
    source.leave(_ELSEWHERE, *_LOCATION)
    source.leave(_NO_WORD, "reservation", "spot_policy")
    source.leave("is left out: a sandbox ends with its work", "idle_duration", "creation_policy")
    source.leave(
        "is left out: `placement.maxPricePerHour` bounds it where prices are known", "max_price"
    )
    source.leave("is left out: no port is opened", "ports")
    source.leave(
        "is left out: it orders the work of a Queue, and needs `queue` beside it", "priority"
    )
    if secrets:
        what = count_noun(len(secrets), "value")
        source.say("env", f"`{called}-secrets` takes {what} from the environment")
        yield build_manifest("Secret", f"{called}-secrets", {"fromEnv": secrets})
    nodes = source.take("nodes", int) or 1
    retries = _count_retries(source)
    spec = {"activeDeadlineSeconds": _read_duration(source, "max_duration"), "template": template}
    kind = "BatchJob"
    limit = {"backoffLimitPerIndex": retries}
    if nodes > 1:
        kind = "TrainingRun"
        limit = {"nodes": nodes, "maxRestarts": retries}
    labels = {str(key): str(it) for key, it in source.part("tags").drain().items()}
    yield from _wrap_schedule(
        source,
        called,
        kind,
        drop_empty({**limit, **spec}),
        labels,
    )


def _build_work(
    source: ForeignMapping,
    text: str,
    machine: dict[str, Any],
    wanted: ConversionOptions,
) -> dict[str, Any]:
    """Its commands as one script, which ends with the first that fails: dstack joins them with
    `&&`.
    """
    before = lines_for(
        source,
        "commands",
        text,
        DSTACK,
        gpus=gpus_in(machine),
        every=wanted.old_names,
    )
    script = "\n".join(("set -e", *before, text)) + "\n"
    shell = source.text("shell")
    if shell in (None, "sh"):
        return {"script": script}
    return {"command": [shell, "-c", script]}


def _wrap_schedule(
    source: ForeignMapping,
    called: str,
    kind: str,
    spec: dict[str, Any],
    labels: dict[str, str],
) -> Iterator[dict[str, Any]]:
    """Returns the object, or a Schedule that makes one at each of its times, which dstack reads as
    UTC.
    """
    lines = source.part("schedule").take("cron", str, list)
    if not lines:
        yield build_manifest(kind, called, spec, labels=labels)
        return
    lines = [lines] if isinstance(lines, str) else lines
    for number, line in enumerate(lines):
        name = called if len(lines) == 1 else f"{called[: NAME_CHARS_MAX - 4]}-{number}"
        made = drop_empty({"kind": kind, "metadata": drop_empty({"labels": labels}), "spec": spec})
        yield build_manifest(
            "Schedule",
            make_name(name[:NAME_CHARS_MAX], name),
            {"schedule": str(line), "template": made},
        )


def _without_references(
    source: ForeignMapping,
    commands: Sequence[Any],
    elsewhere: dict[str, str],
) -> tuple[str, list[str]]:
    """Returns the commands with variables that replace `${{ secrets.x }}`, which dstack fills in,
    and the names of the variables. elsewhere: the secret of each variable of `env` that refers to a
    secret.
    """
    variables = {secret: name for name, secret in elsewhere.items() if secret}
    found: list[str] = []
    told = []

    def variable_of(secret: str) -> str:
        return variables.get(secret) or secret.replace("-", "_").upper()

    for number, one in enumerate(commands):
        text = str(one).rstrip("\n")
        field = f"commands[{number}]"
        for match in _SECRET.finditer(text):
            found.append(variable_of(match[1]))
            source.say(field, f"takes `secrets.{match[1]}` from the variable `{found[-1]}`")
        text = _SECRET.sub(lambda it: f"${{{variable_of(it[1])}}}", text)
        text = _ENV.sub(r"${\1}", text)
        for match in _FILLED_IN.finditer(text):
            source.say(field, f"loses `{match[0]}`, which nothing fills in here")
        told.append(_FILLED_IN.sub("", text))
    return "\n".join(told), found


def _split_env(source: ForeignMapping) -> tuple[dict[str, str], dict[str, str]]:
    """Returns values, and the variables that come from elsewhere: each with its secret,
    or with "".
    """
    wanted = source.take("env", list, dict) or {}
    if isinstance(wanted, list):
        pairs = (str(one).partition("=") for one in wanted)
        wanted = {name: value if equals else None for name, equals, value in pairs}
    env = {
        name: str(it)
        for name, it in wanted.items()
        if it is not None and _ELSEWHERE_SET not in str(it)
    }
    elsewhere = {}
    for name in (name for name in wanted if name not in env):
        text = str(wanted[name] or "").strip()
        secret = _SECRET.fullmatch(text)
        elsewhere[name] = secret[1] if secret else ""
        if text and secret is None:
            source.say(f"env.{name}", "is filled in there: set the whole value where you apply it")
    return env, elsewhere


def _build_image(source: ForeignMapping) -> Any:
    image = source.text("image")
    python = source.text("python")
    source.leave("is left out: values of secrets come as variables", "registry_auth")
    if image is not None or python is None:
        return image
    return {"python": python}


def _choose_source(source: ForeignMapping) -> dict[str, Any] | None:
    """The first of its repositories or file mappings."""
    for key in ("repos", "files"):
        wanted = source.take(key, list) or []
        for number in range(1, len(wanted)):
            source.say(f"{key}[{number}]", "is left out: a task has one source")
        if wanted:
            return _parse_source(wanted[0])
    return None


def _parse_source(wanted: Any) -> dict[str, Any]:
    if isinstance(wanted, dict):
        path = wanted.get("local_path") or wanted.get("url") or "."
        ref = wanted.get("branch") or wanted.get("hash")
    else:
        path, ref = (
            str(wanted).partition(":/")[0] if "://" not in str(wanted) else str(wanted),
            None,
        )
    if "://" in path or path.startswith("git@"):
        return {"git": drop_empty({"url": path, "ref": ref})}
    return {"path": path}


def _build_resources(resources: ForeignMapping) -> dict[str, Any]:
    cpu, memory, disk = (resources.take(key) for key in ("cpu", "memory", "disk"))
    if isinstance(disk, dict):
        disk = disk.get("size")
    for key, value in (("cpu", cpu), ("memory", memory), ("disk", disk)):
        if foreign_mapping.is_open(value):
            resources.say(key, "became exactly its lower end")
    resources.leave("is left out: a sandbox has the shared memory of its machine", "shm_size")
    return drop_empty(
        {
            "cpu": foreign_mapping.parse_cores(cpu) if cpu is not None else None,
            "memory": foreign_mapping.parse_size(memory) if memory is not None else None,
            "disk": foreign_mapping.parse_size(disk) if disk is not None else None,
            "gpu": _parse_gpu(resources),
        }
    )


def _parse_gpu(resources: ForeignMapping) -> str | None:
    """Returns `A100:80GB:2`, `24GB`, `2`, `{name: [A100, H100], count: 1..2}` as `NAME:COUNT`; a
    range gives its lower end, and None if that is 0.
    """
    wanted = resources.take("gpu")
    if wanted is None:
        return None
    names: list[str] = []
    count: Any = 1
    if isinstance(wanted, dict):
        choice = wanted.get("name") or []
        names = [choice] if isinstance(choice, str) else [str(one) for one in choice]
        count = 1 if wanted.get("count") is None else wanted["count"]
        if wanted.get("memory"):
            resources.say("gpu.memory", "is left out: name the sort of GPU")
    else:
        for part in str(wanted).split(":"):
            if foreign_mapping.is_size(part):
                resources.say(
                    "gpu", "gives an amount of memory, which is left out: name the model of GPU"
                )
            elif part[:1].isdigit():
                count = part
            else:
                names = part.split(",")
    if len(names) > 1:
        resources.say("gpu", f"became `{names[0]}`, its first sort")
    if foreign_mapping.is_open(count):
        resources.say(
            "gpu", f"became exactly its lower end, {foreign_mapping.parse_cores(count) or 0}"
        )
    number = foreign_mapping.parse_cores(count)
    if number == 0:
        return None
    return f"{names[0] if names else 'any'}:{number or 1}"


def _build_mounts(source: ForeignMapping) -> list[dict[str, Any]]:
    mounts = []
    for number, one in enumerate(source.take("volumes", list) or []):
        name, path = (
            (one.get("name"), one.get("path"))
            if isinstance(one, dict)
            else (str(one).partition(":")[0], str(one).partition(":")[2])
        )
        if isinstance(name, str) and path and not name.startswith("/"):
            mounts.append({"name": make_name(name, "volume"), "mountPath": path})
        else:
            source.say(
                f"volumes[{number}]", "is left out: a directory of a machine is not a volume"
            )
    return mounts


def _read_duration(source: ForeignMapping, key: str) -> Any:
    """Reads `2h`, seconds, or `off`, which gives None."""
    value = source.take(key)
    if isinstance(value, bool) or value == "off":
        return None
    return value


def _count_retries(source: ForeignMapping) -> int | None:
    retry = source.take("retry")
    if not retry:
        return None
    events = retry.get("on_events") if isinstance(retry, dict) else None
    if events is not None and "error" not in events:
        source.say("retry", "is left out: lost work and missing capacity are always waited out")
        return None
    source.say("retry", f"became {RETRIES} retries: a time to retry for has no counterpart")
    return RETRIES
