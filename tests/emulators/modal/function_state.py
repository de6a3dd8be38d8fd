"""Functions, calls and inputs: plain data of the functions half of the world.

A call (`fc-`) holds inputs (`in-`); each input runs in one container at a time. `starts` records
every time that the body of the user's function began: the ground truth that tests ask for.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

from modal_proto import api_pb2

DEFAULT_SCALEDOWN_S = 60
DEFAULT_TIMEOUT_S = 300


@dataclass(slots=True)
class Start:
    task_id: str
    at_s: float


@dataclass(slots=True)
class Input:
    """`state`: queued, running, retrying (waits for its delay) or done."""

    input_id: str
    call: Call
    index: int
    body: bytes
    data_format: int
    state: str = "queued"
    task_id: str = ""
    starts: list[Start] = field(default_factory=list)
    failures: int = 0
    rescheduled: int = 0
    outcome: str = ""


@dataclass(slots=True)
class Call:
    """`outputs` are in the order in which they came; an entry's number is its place plus one."""

    call_id: str
    function_id: str
    invocation: int
    created_at: float = field(default_factory=time.time)
    inputs: list[Input] = field(default_factory=list)
    outputs: list[api_pb2.FunctionGetOutputsItem] = field(default_factory=list)
    cleared: bool = False
    news: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def unfinished(self) -> int:
        return sum(one.state != "done" for one in self.inputs)

    def deliver(self, item: api_pb2.FunctionGetOutputsItem) -> None:
        self.outputs.append(item)
        self.news.set()
        self.news = asyncio.Event()


@dataclass(slots=True)
class Function:
    """`ranked` are the definitions in the order in which their GPUs are to be tried."""

    function_id: str
    app_id: str
    name: str
    data: api_pb2.FunctionData
    ranked: list[api_pb2.Function]
    metadata: api_pb2.FunctionHandleMetadata
    settings: api_pb2.AutoscalerSettings
    base_id: str = ""  # of the function that this is a variant of (with_options)
    live: bool = False  # published; only then min_containers are kept warm
    version: int = 0
    created: bool = False  # False between FunctionPrecreate and FunctionCreate

    @property
    def definition(self) -> api_pb2.Function:
        return self.ranked[0]

    @property
    def size(self) -> int:
        """Containers that take an input together."""
        return self.definition._experimental_group_size or 1

    @property
    def min_containers(self) -> int:
        return self.settings.min_containers if self.live else 0

    @property
    def max_containers(self) -> int:
        return self.settings.max_containers or 1_000

    @property
    def scaledown_s(self) -> float:
        return self.settings.scaledown_window or DEFAULT_SCALEDOWN_S

    @property
    def timeout_s(self) -> float:
        return self.definition.timeout_secs or DEFAULT_TIMEOUT_S


def gpu_label(definition: api_pb2.Function) -> str:
    """`A100:4`, or "" without a GPU."""
    gpu = definition.resources.gpu_config
    if not gpu.count:
        return ""
    return gpu.gpu_type if gpu.count == 1 else f"{gpu.gpu_type}:{gpu.count}"
