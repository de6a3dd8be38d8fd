"""Containers on machines of people's own: what a box's container is made of, commands that enter
it, and the hint for each fault of the machine's engine.

Called by the providers that reach machines by SSH. Their agent starts the container; see
shipped/containers.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.providers.contract.base import RunRequest
from fleetctl.providers.machines import machine_volumes
from fleetctl.providers.machines.agent_link import AgentFault, AgentLine
from fleetctl.specs.blocks.machines import ContainerSettings
from fleetctl.specs.blocks.template import Template

NO_ENGINE = "none"  # in a machine's facts
INSTALL = "sudo apt-get install -y podman"
UNPACK_S = 900.0
_HINTS = (
    (("unauthorized", "authentication", "denied"), "log in there: {reach}{engine} login REGISTRY"),
    (("not found", "manifest", "does not exist", "no such"), "check `image.registry`"),
    (("invalid reference", "short-name"), "name its registry: `docker.io/library/debian:12`"),
)


def asks_container(template: Template) -> bool:
    return template.image is not None and template.image.registry is not None


def describe_container(
    template: Template,
    settings: ContainerSettings,
    targets: Mapping[str, str],
    *,
    source: str,
) -> dict[str, object] | None:
    """Returns the container of a task, as the agent reads it; None for a task without one. targets:
    directories of volumes on the machine, by name; source: the directory of its code there.
    """
    image = template.image
    if image is None or image.registry is None:
        return None
    mounts: list[dict[str, object]] = [
        {"path": it.mount_path, "target": targets[it.name], "read_only": it.read_only}
        for it in template.volumes
    ]
    if template.source is not None and template.source.mount_path is not None:
        mounts.append({"path": template.source.mount_path, "target": source})
    return {
        "command": list(settings.command),
        "args": list(settings.args),
        "image": image.registry,
        "mounts": mounts,
    }


async def unpack_source(line: AgentLine, request: RunRequest, *, box: str, job: Path) -> None:
    """Puts the code of a task where its container finds it: an image need not have `tar`. box: the
    directory of its sandbox. A repository is cloned inside, by the git of the image.
    """
    source = request.template.source
    if source is None or source.git is not None:
        return
    mounted = source.mount_path is not None
    directory = f"{box}/source" if mounted else machine_volumes.source_directory(source, box)
    root = str(line.facts["root"])
    commands = await machine_volumes.setup_commands(
        request, root=root, directory=directory, job=job
    )
    for argv in commands:
        fields = {"argv": argv, "deadline_s": UNPACK_S}
        reply = await line.call("run", fields, deadline_s=2 * UNPACK_S)
        if reply["exit"]:
            raise Unavailable(f"the source cannot be unpacked on `{line.name}`: {reply['said']}")


def enter_container(
    reply: Mapping[str, Any], words: Sequence[str], *, home: str, terminal: bool
) -> list[str]:
    """Returns the command that runs `words` beside a task: in its container, or as a process of the
    machine with a home of the sandbox. reply: of the agent's `look`.
    """
    if not reply.get("enter"):
        return ["env", f"HOME={home}", *words]
    command, name = reply["enter"]
    return [*command, *(["--tty"] if terminal else []), *name, "env", *words]


def refuse_fault(
    error: AgentFault, machine: str, *, engine: str, reach: str, image: str
) -> Refused:
    """Returns a fault of an image or a container as a refusal. machine: where, for messages;
    engine: podman or docker; reach: the words before a command on that machine, if known.
    """
    before = f"{reach} " if reach else ""
    if error.sort == "engine":
        return Refused(
            f"{machine} cannot run image `{image}`: {error}",
            hint=f"{before}{INSTALL}, or leave out `image.registry`",
        )
    if error.sort == "image":
        said = str(error).lower()
        hints = (hint for words, hint in _HINTS if any(word in said for word in words))
        hint = next(hints, "check `image.registry`").format(reach=before, engine=engine)
        return Refused(f"{machine} cannot pull image `{image}`: {error}", hint=hint)
    return Refused(
        f"{machine} cannot start a container of image `{image}`: {error}",
        hint=f"try it by hand: {before}{engine} run --rm {image} true; options are `container`"
        " of the Provider object",
    )
