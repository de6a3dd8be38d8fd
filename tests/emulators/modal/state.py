"""The world that the emulator keeps: everything there is, and the ground truth that tests ask for.

The parts of volumes, blobs and functions belong to their files; the world only holds them.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .blobs import BlobStore
from .calls import CallLog
from .dicts import DictStore
from .faults import Faults
from .gpus import Gpus
from .ids import base62_id
from .images import ImageStore
from .sandboxes import SandboxStore
from .uploads import Contents, MountStore
from .volumes import VolumeStore

TOKEN_ID, TOKEN_SECRET = "ak-emulated", "as-emulated"
NO_ACCESS_TOKEN_ID = "ak-no-access"
NO_FUNCTIONS: dict[str, Any] = {"functions": [], "containers": [], "calls": []}


@dataclass(slots=True)
class Settings:
    """How the emulated service behaves; tests change it while it runs, also through /admin."""

    gpu_capacity: dict[str, int] = field(default_factory=dict)  # by type; not named: no limit
    list_page: int = 50  # a guess; the real size is not known
    list_lag_s: float = 0.0  # how late a listing learns of a beginning or an end
    start_delay_s: float = 0.0  # from scheduled to running
    terminate_delay_s: float = 0.0  # from terminate to the end
    stdio_keep_bytes: int = 8 * 1024 * 1024  # of a V2 sandbox's output; a guess
    builder_version: str = "2025.06"
    workspace: str = "somebody"  # that every token leads to


@dataclass(slots=True)
class App:
    app_id: str
    name: str  # empty for one that no name leads to
    environment: str
    created_at_s: float = field(default_factory=time.time)
    state: str = "deployed"  # deployed, ephemeral, stopped
    stopped_at_s: float = 0.0
    tags: dict[str, str] = field(default_factory=dict)
    layout: dict[str, str] = field(default_factory=dict)  # function name -> id, when deployed


@dataclass(slots=True)
class Secret:
    secret_id: str
    name: str
    environment: str
    values: dict[str, str] = field(repr=False)
    created_at_s: float = field(default_factory=time.time)


class World:
    """One per emulator. Lives on the emulator's event loop alone."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.box_directory = directory / "boxes"  # the server moves it into memory
        self.settings = Settings()
        self.faults = Faults()
        self.log = CallLog()
        self.router_log = CallLog()
        self.apps: dict[str, App] = {}
        self.secrets: dict[str, Secret] = {}
        self.volumes = VolumeStore(directory / "volumes")
        self.blobs = BlobStore(directory / "blobs")
        self.uploads = MountStore(directory / "uploads", self.blobs)
        self.images = ImageStore(directory / "images")
        self.gpus = Gpus(self.settings.gpu_capacity)
        self.dicts = DictStore()
        self.sandboxes = SandboxStore(self)
        self.functions: Any = None  # function_fleet.Fleet, once the server has made it
        self.function_logs: list[Any] = []  # logs.LogLine
        self.stdin_writes: dict[str, int] = {}  # V1 sandbox -> the last write that was taken
        self.boxes: dict[str, str] = {}  # token id of a box's own client -> owner
        self.isolated, self.problem = False, ""  # whether boxes are, and why not
        self.control_url = self.router_url = self.http_url = ""

    @property
    def contents(self) -> Contents:
        """What MountPutFile stored, by sha256 hex."""
        return self.uploads.contents

    def app(self, app_id: str) -> App | None:
        return self.apps.get(app_id)

    def app_named(self, name: str, environment: str) -> App | None:
        """The live one; a stopped app frees its name."""
        for app in self.apps.values():
            same = (app.name, app.environment) == (name, environment)
            if name and same and app.state != "stopped":
                return app
        return None

    def new_app(self, name: str, environment: str, state: str = "deployed") -> App:
        app = App(base62_id("ap"), name, environment, state=state)
        self.apps[app.app_id] = app
        return app

    def truth(self) -> dict[str, Any]:
        """Everything a test may assert on, as plain data."""
        return {
            "isolated": self.isolated,
            "problem": self.problem,
            "apps": [asdict(app) for app in self.apps.values()],
            "sandboxes": self.sandboxes.truth(),
            "images": self.images.truth(),
            "secrets": {
                each.name or each.secret_id: sorted(each.values) for each in self.secrets.values()
            },
            "volumes": self.volumes.truth(),
            "dicts": self.dicts.truth(),
            "functions": self.functions.truth() if self.functions else NO_FUNCTIONS,
            "rpcs": dict(self.log.counts),
            "router_rpcs": dict(self.router_log.counts),
            "faults": [asdict(fault) for fault in self.faults.planned],
        }
