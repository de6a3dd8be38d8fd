"""Submits a batch job for a sandbox once, also when it is requested again, and waits until it runs.

Called by slurm_provider.py. The box is written down before the job is submitted, under whose id the
scheduler finds it again when an answer was lost.
"""

from __future__ import annotations

import asyncio
import math
import shlex
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.guest.nodes.gang import node_name
from fleetctl.providers.contract.base import Notify, RunRequest
from fleetctl.providers.machines.agent_bundle import JOB, build_bundle
from fleetctl.providers.machines.agent_link import AgentFault
from fleetctl.providers.machines.machine_containers import refuse_fault
from fleetctl.providers.remote.gangs.joined_sandboxes import join_handles, node_tags, nodes_asked
from fleetctl.providers.remote.sandboxes import sandbox_names
from fleetctl.providers.remote.sandboxes.pending_creates import PendingCreates
from fleetctl.providers.slurm.slurm_login import SlurmLogin
from fleetctl.providers.slurm.slurm_sandboxes import SlurmSandboxes, job_name
from fleetctl.specs.blocks.machines import SlurmSettings
from fleetctl.specs.blocks.template import Template

PATIENCE_S = 10.0
AGAIN_S = 60.0  # waiting callers are notified at once when the job runs; this is the net
GIVE_UP_S = 10.0
SLACK_S = 300.0  # of a job beyond its task: to begin, to clone and to be ended
Prepare = Callable[[RunRequest, str], Awaitable[None]]  # the last: a box


class SlurmCreator:
    """prepare: brings what must be in the shared directory before the work begins."""

    def __init__(
        self,
        login: SlurmLogin,
        sandboxes: SlurmSandboxes,
        *,
        prepare: Prepare,
        store_id: str,
        notify: Notify,
    ) -> None:
        self._login = login
        self._sandboxes = sandboxes
        self._prepare = prepare
        self._store_id = store_id
        self._why: dict[str, str] = {}
        self.makings = PendingCreates(notify, give_up_s=GIVE_UP_S)

    async def make(self, request: RunRequest) -> str:
        """Returns the handle of a job that runs. Raises Unavailable with the reason Queued while it
        waits, and why.
        """
        making = self.makings.get(request.run)
        making = making or self.makings.begin(request.run, self._make(request))
        handle = await self.makings.handle(making, patience=asyncio.sleep(PATIENCE_S))
        if handle is None:
            raise Unavailable(
                self._why.get(request.run, "the job is being submitted"),
                reason="Queued",
                retry_after_s=AGAIN_S,
                perhaps_made=True,
            )
        return handle

    async def _make(self, request: RunRequest) -> str:
        line = self._login.line
        await line.link()
        boxes: list[str] = []
        for rank in range(nodes_asked(request.template)):
            boxes.append(await self._make_box(request, rank, boxes))
        try:
            for box in boxes:
                await self._prepare(request, box)
            known = (await self._login.queue.jobs()).get(job_name(boxes[0]))
            number = known.number if known is not None else await self._submit(request, boxes)
            return await self._running(request, number, boxes)
        except AgentFault as error:
            await self._drop(boxes)
            image = request.template.image
            if image is not None and image.registry is not None:
                engine = (*self._login.settings.container.command, "podman")[0]
                where = "a node of the cluster"
                raise refuse_fault(
                    error, where, engine=engine, reach="", image=image.registry
                ) from error
            raise Refused(f"the image cannot be made: {error}", hint="change `image`") from error
        except Refused:
            await self._drop(boxes)
            raise

    async def _make_box(self, request: RunRequest, rank: int, others: Sequence[str]) -> str:
        """Returns the box of a node, which has the id of the first: by it the job is found."""
        order = {
            "tags": {
                **sandbox_names.sandbox_tags(request, self._store_id, time.time()),
                **node_tags(request, rank, nodes_asked(request.template)),
            },
            "id": others[0].partition("@")[2] if others else "",
            **dict.fromkeys(("cpu", "memory", "gpus"), 0),
            "gpu": "",
            "links": [],
            "size": {"slots": math.inf, "cpu": 0, "memory": 0, "gpus": 0},
        }
        name = self._sandboxes.name_of(node_name(request.run, rank))
        made = (await self._login.line.call("make", {"box": name, "order": order}))["box"]
        return f"{name}@{made['id']}"

    async def _drop(self, boxes: Sequence[str]) -> None:
        for box in boxes:
            await self._login.line.call("drop", {"box": box, "kill": False})

    async def _submit(self, request: RunRequest, boxes: Sequence[str]) -> str:
        root = self._login.root
        agent = f"{root}/agent/{build_bundle()[0]}"
        settings, count = self._login.settings, len(boxes)
        batch = batch_options(request.template, settings, reusable=request.reusable)
        words = ["python3", "-I", "-S", "-c", JOB, root, agent, *boxes]
        if count > 1:
            several = [f"--nodes={count}", f"--ntasks={count}", "--ntasks-per-node=1"]
            cores = [it for it in batch if it.startswith("--cpus-per-task=")]
            batch = [*several, *batch]
            words = ["srun", *several, *cores, "--overlap", *words]
        script = f"#!/bin/sh\nexec {shlex.join(words)}\n"
        directory = self._box_directory(boxes[0])
        options = [
            *(f"--job-name={job_name(boxes[0])}", f"--comment={request.resource} {request.run}"),
            *(f"--output={directory}/job.log", "--no-requeue", f"--chdir={directory}"),
            *batch,
        ]
        return await self._login.queue.submit(options, script)

    async def _running(self, request: RunRequest, number: str, boxes: Sequence[str]) -> str:
        """Returns the handle once the job takes orders. Raises Unavailable when it ends before, and
        AgentFault for an image that its node cannot run.
        """
        handles = [f"{number}/{box}" for box in boxes]
        try:
            while True:
                job = (await self._login.queue.jobs()).get(job_name(boxes[0]))
                looks = [] if job is not None and job.waits else await self._look(boxes)
                if job is None or not job.active or any("fault" in it for it in looks):
                    for handle in handles:
                        await self._sandboxes.end(handle)
                    _raise_fault(looks, number)
                    state = job.state if job is not None else "forgotten"
                    raise Unavailable(
                        f"job {number} ended as {state} before its work began",
                        reason="SandboxFailed",
                        retry_after_s=10.0,
                    )
                self._why[request.run] = job.explain()
                if looks and all(it["address"] for it in looks):
                    return join_handles(handles)
                for note in (it["note"] for it in looks if "note" in it):
                    self._why[request.run] = f"job {number} has its node, which is {note}"
        finally:
            self._why.pop(request.run, None)

    async def _look(self, boxes: Sequence[str]) -> list[dict[str, Any]]:
        calls = [self._login.line.call("look", {"box": box}) for box in boxes]
        return await asyncio.gather(*calls)

    def _box_directory(self, box: str) -> str:
        return f"{self._login.root}/boxes/{box.partition('@')[0]}"


def _raise_fault(looks: Sequence[Mapping[str, Any]], number: str) -> None:
    """Raises AgentFault for a fault that a job has left, and Unavailable for one that may pass."""
    for look in looks:
        if look.get("sort") == "machine":
            text = f"job {number} could not start its container: {look['fault']}"
            raise Unavailable(text, reason="SandboxFailed", retry_after_s=10.0)
        if "fault" in look:
            raise AgentFault(look["sort"], look["fault"])


def batch_options(template: Template, settings: SlurmSettings, *, reusable: bool) -> list[str]:
    """Returns the options of `sbatch` for a template."""
    asked = template.sandbox_resources
    found = [
        f"--{name}={value}"
        for name, value in (
            ("partition", settings.partition),
            ("account", settings.account),
            ("qos", settings.qos),
            ("constraint", settings.constraint),
        )
        if value
    ]
    if asked.cpu:
        found.append(f"--cpus-per-task={math.ceil(asked.cpu)}")
    if asked.memory:
        found.append(f"--mem={math.ceil(asked.memory / 1024**2)}M")
    if asked.gpu is not None:
        sort = "" if asked.gpu.name == "any" else f":{asked.gpu.name.lower()}"
        found.append(f"--gres=gpu{sort}:{asked.gpu.count}")
    grace_s = template.termination_grace_period_seconds
    found.append(f"--time={math.ceil(job_s(template, settings, reusable=reusable) / 60)}")
    found.append(f"--signal=B:TERM@{math.ceil(grace_s) + 30}")
    return [*found, *settings.options]


def job_s(template: Template, settings: SlurmSettings, *, reusable: bool) -> float:
    """Returns how long a job may live: Slurm ends it then, whatever becomes of us."""
    if template.timeout_seconds is None:
        return settings.time_limit
    whole_s = template.timeout_seconds + template.termination_grace_period_seconds + SLACK_S
    return max(settings.time_limit, whole_s) if reusable else whole_s
