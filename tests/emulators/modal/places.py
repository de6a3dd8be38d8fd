"""Makes the box in which a sandbox or a function container runs: image, mounts, volumes, variables.

Called by sandboxes.py and by the functions' half. The owner is the id of what runs in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from modal_proto import api_pb2

from tests.emulators.boxes import Box, Library

from .dockerfile import ImageConfig

if TYPE_CHECKING:
    from .state import World


@dataclass(frozen=True, slots=True)
class Wanted:
    """`env` adds to the image's; `files` are read-only and also take directories; `library` is what
    its Pythons have imported.
    """

    owner: str
    directory: Path
    image_id: str = ""
    mount_ids: Sequence[str] = ()
    volume_mounts: Sequence[api_pb2.VolumeMount] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, Path] = field(default_factory=dict)
    library: Library | None = None


def make_box(world: World, wanted: Wanted) -> tuple[Box, ImageConfig]:
    """A box that is not started yet, and what its image says about processes. Volumes are attached;
    `leave` has to be called at its end. Raises the GRPCError of what does not exist.
    """
    image = world.images.ready(wanted.image_id)
    trees = [world.uploads.tree(mount_id) for mount_id in wanted.mount_ids]
    mounts, files = _volumes(world, wanted)
    config = image.config
    box = Box(
        wanted.directory,
        base=[*reversed(trees), *image.roots],
        mounts=mounts,
        files={**wanted.files, **files},
        env={**config.env, **wanted.env},
        hostname="modal",
        library=wanted.library,
    )
    world.volumes.mounts.inhabit(wanted.owner, box)
    return box, config


def leave(world: World, owner: str, *, commits: bool) -> None:
    """The end of an owner's volumes: with a commit, or, when its machine is lost, without."""
    if commits:
        world.volumes.mounts.commit(owner)
    world.volumes.mounts.drop(owner)


def _volumes(world: World, wanted: Wanted) -> tuple[dict[str, Path], dict[str, Path]]:
    mounts, files = {}, {}
    for one in wanted.volume_mounts:
        directory = world.volumes.mounts.attach(
            world.volumes.get(one.volume_id),
            wanted.owner,
            mount_path=one.mount_path,
            read_only=one.read_only,
            sub_path=one.sub_path,
        )
        (files if one.read_only else mounts)[one.mount_path] = directory
    if wanted.volume_mounts:
        port = urlsplit(world.http_url).port or 0
        files |= world.volumes.mounts.sync_command(wanted.owner, port=port)
    return mounts, files
