"""What exists in the emulated Daytona: plain data that every part of the emulator shares.

The routes read and change it on one event loop, so nothing here is locked. Transitions belong to
`lifecycle.py`; what a caller is shown of it to `bodies.py`.
"""

from __future__ import annotations

import asyncio
import secrets
import uuid
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .clock import Clock
from .copies import SmallTree
from .faults import Faults
from .settings import Settings

if TYPE_CHECKING:
    from tests.emulators.boxes import Box

    from .listing import Index

ORGANIZATION_ID = "0e6f2f4e-52d5-4d0c-9d8d-6a1f7a5cbb01"
USER_ID = "emulated-user"
REGIONS = ("us", "eu", "earth")  # `earth` is where GPUs are
HOME = "/home/daytona"
REQUESTS_KEPT = 5000  # newest; the counts per operation are of all


@dataclass(slots=True)
class Resources:
    """Whole cores and GiB, as the API has them."""

    cpu: int = 1
    memory: int = 1
    disk: int = 3
    gpu: int = 0
    gpu_type: str | None = None


@dataclass(slots=True)
class Intervals:
    """Minutes. 0 is off, except: delete at once when stopped, archive after the longest time."""

    stop: int = 15
    pause: int = 0
    archive: int = 7 * 24 * 60
    delete: int = -1


@dataclass(slots=True)
class Mount:
    volume_id: str
    path: str
    subpath: str | None = None


@dataclass(slots=True)
class Network:
    block_all: bool = False
    allow_list: str | None = None
    domains: str | None = None
    proxy_url: str | None = None


@dataclass(slots=True)
class Image:
    """A file system and its settings: what a sandbox's box is made from."""

    reference: str
    tree: Path | None = None  # copied into the box's directory when it is made
    small: SmallTree | None = None  # the same, once it was read and found small
    venv: Path | None = None  # first on PATH
    env: dict[str, str] = field(default_factory=dict)
    workdir: str = HOME
    entrypoint: tuple[str, ...] = ()


@dataclass(slots=True)
class BuildLog:
    """Text that grows until `over`; `changed` wakes whoever follows it."""

    text: str = ""
    over: bool = False
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def write(self, line: str) -> None:
        self.add(line + "\n")

    def add(self, text: str) -> None:
        self.text += text
        self._tell()

    def close(self) -> None:
        self.over = True
        self._tell()

    def _tell(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()


@dataclass(slots=True)
class Build:
    """One Dockerfile with its contexts: built once, whoever asks for it again."""

    reference: str
    dockerfile: str
    context_hashes: tuple[str, ...]
    created_at_s: float
    updated_at_s: float
    log: BuildLog = field(default_factory=BuildLog)
    image: Image | None = None
    error: str | None = None
    work: asyncio.Task[None] | None = None


@dataclass(slots=True)
class Change:
    """A state that a sandbox was in, and since when."""

    state: str
    at_s: float


@dataclass(slots=True)
class Sandbox:
    id: str
    name: str
    created_at_s: float
    updated_at_s: float
    activity_at_s: float
    region: str = "us"
    sandbox_class: str = "container"
    user: str = "daytona"
    snapshot: str | None = None
    build: Build | None = None
    image: Image = field(default_factory=lambda: Image("daytona"))
    env: dict[str, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict)  # variable -> name of the secret
    mounts: list[Mount] = field(default_factory=list)
    resources: Resources = field(default_factory=Resources)
    intervals: Intervals = field(default_factory=Intervals)
    network: Network = field(default_factory=Network)
    public: bool = False
    kvm: bool = False
    spot: bool = False
    otel_endpoint: str | None = None
    linked_to: str | None = None
    parent_id: str | None = None
    warm_pool_id: str | None = None
    queue_timeout: int | None = None  # minutes
    destroy_at_s: float | None = None
    state: str = "creating"
    desired: str = "started"
    changing: bool = False  # a transition is under way: most calls answer 409
    error_reason: str | None = None
    recoverable: bool = False
    backup_state: str = "None"
    backup_at_s: float | None = None
    spot_evicted_at_s: float | None = None
    queue_timed_out_at_s: float | None = None
    stopped_at_s: float | None = None
    archived_at_s: float | None = None
    destroyed_at_s: float | None = None
    signing_key: str = field(default_factory=lambda: secrets.token_hex(16))
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    history: list[Change] = field(default_factory=list)
    directory: Path = Path("/nonexistent")  # of its disk: survives a stop
    box: Box | None = None  # there while processes may run in it: started, or paused
    open_requests: int = 0  # toolbox requests and streams under way: they count as activity
    connections: set[asyncio.Transport] = field(default_factory=set)  # those requests' own
    work: asyncio.Task[None] | None = None  # the transition under way
    look_at_s: float | None = None  # when the timers look at it next
    toolbox: dict[str, Any] = field(
        default_factory=dict
    )  # the toolbox half's own, emptied at a stop

    @property
    def live(self) -> bool:
        return self.box is not None

    def environment(self) -> dict[str, str]:
        """What its image and its creator set; the box's own `env` has it too, and more."""
        return {**self.image.env, **self.env}


@dataclass(slots=True)
class Snapshot:
    id: str
    name: str
    created_at_s: float
    updated_at_s: float
    state: str = "pending"
    general: bool = False
    image_name: str | None = None
    entrypoint: list[str] | None = None
    resources: Resources = field(default_factory=Resources)
    build: Build | None = None
    image: Image | None = None
    size_gib: float | None = None
    error_reason: str | None = None
    last_used_at_s: float | None = None
    source_sandbox_id: str | None = None
    region: str = "us"
    sandbox_class: str = "container"
    work: asyncio.Task[None] | None = None


@dataclass(slots=True)
class Volume:
    id: str
    name: str
    created_at_s: float
    updated_at_s: float
    directory: Path
    state: str = "pending_create"
    error_reason: str | None = None
    last_used_at_s: float | None = None


@dataclass(slots=True)
class Secret:
    id: str
    name: str
    value: str
    placeholder: str
    created_at_s: float
    updated_at_s: float
    description: str | None = None
    hosts: list[str] = field(default_factory=list)


@dataclass(slots=True)
class WarmPool:
    id: str
    snapshot: str
    target: str
    pool: int
    created_at_s: float
    updated_at_s: float


@dataclass(slots=True)
class Grant:
    """A token that opens one sandbox for a while: SSH, or one port's preview."""

    id: str
    sandbox_id: str
    token: str
    created_at_s: float
    expires_at_s: float
    port: int | None = None


Listener = Callable[[Sandbox, "str | None"], None]


@dataclass(slots=True)
class Requests:
    """What the server was asked: counts per operation, and the newest requests one by one."""

    counts: Counter[str] = field(default_factory=Counter)
    newest: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=REQUESTS_KEPT))


class World:
    """Everything there is. `directory` holds volumes, images and uploaded contexts."""

    def __init__(self, directory: Path, settings: Settings | None = None) -> None:
        self.directory = directory
        self.box_directory = directory / "boxes"  # the server moves it into memory
        self.settings = settings or Settings()
        self.clock = Clock()
        self.url = ""  # of the server, without a path; known once it listens
        self.storage_url = ""
        self.faults = Faults()
        self.index: Index
        self.requests = Requests()
        self.sandboxes: dict[str, Sandbox] = {}  # every one that there ever was
        self.here: dict[str, Sandbox] = {}  # those that are not destroyed
        self.names: dict[str, str] = {}  # of those whose name is not given up, to their id
        self.snapshots: dict[str, Snapshot] = {}
        self.builds: dict[str, Build] = {}
        self.environments: dict[Path, asyncio.Lock] = {}  # of Python, being made for images
        self.volumes: dict[str, Volume] = {}
        self.secrets: dict[str, Secret] = {}
        self.warm_pools: dict[str, WarmPool] = {}
        self.ssh: dict[str, Grant] = {}
        self.previews: dict[str, Grant] = {}
        self.listeners: list[Listener] = []

    def tell(self, sandbox: Sandbox, before: str | None) -> None:
        """Something about it has changed; `before` is the state it was in, None when it is new."""
        for listener in self.listeners:
            listener(sandbox, before)

    def sandbox(self, id_or_name: str) -> Sandbox | None:
        found = self.sandboxes.get(id_or_name)
        if found is None:
            found = self.sandboxes.get(self.names.get(id_or_name, ""))
        return found

    def present(self) -> list[Sandbox]:
        return list(self.here.values())

    def volume_named(self, id_or_name: str) -> Volume | None:
        found = self.volumes.get(id_or_name)
        if found is None:
            found = next((v for v in self.volumes.values() if v.name == id_or_name), None)
        return found if found is not None and found.state != "deleted" else None

    def snapshot_named(self, id_or_name: str) -> Snapshot | None:
        found = self.snapshots.get(id_or_name)
        if found is None:
            found = next((s for s in self.snapshots.values() if s.name == id_or_name), None)
        return found


def new_id() -> str:
    return str(uuid.uuid4())


def text_map(value: object) -> dict[str, str]:
    """A JSON object of strings, such as labels; empty when it is absent."""
    if not isinstance(value, Mapping):
        return {}
    return {str(key): str(item) for key, item in value.items()}
