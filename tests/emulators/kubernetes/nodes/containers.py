"""One container: a box with the container's command as its process."""

from __future__ import annotations

import asyncio
import os
import signal
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.emulators.boxes import Box, BoxError, BoxProcess
from tests.emulators.kubernetes.nodes.logs import ContainerLog, tail_text
from tests.emulators.kubernetes.nodes.volumes import Mounts, expand
from tests.emulators.kubernetes.store.times import text_of

Object = dict[str, Any]
MESSAGE_BYTES_MAX = 4096


@dataclass(frozen=True, slots=True)
class Start:
    """What a container needs beside its spec. boxes: where its own files are for as long as it
    lives, directory: where its log and its last words stay. entrypoint: of its image; files: what
    the image has, as host paths by paths, read-only.
    """

    directory: Path
    boxes: Path
    mounts: Mounts
    env: dict[str, str]
    hostname: str
    entrypoint: tuple[str, ...] = ()
    files: dict[str, Path] = field(default_factory=dict)


class Container:
    """One life of a container; a restart is another."""

    def __init__(self, spec: Object, start: Start, *, restarts: int) -> None:
        self.spec, self.restarts = spec, restarts
        self.name: str = spec["name"]
        self._start = start
        self.id = f"containerd://{uuid.uuid4().hex}{uuid.uuid4().hex}"
        self.box: Box | None = None
        self._process: BoxProcess | None = None
        self.log = ContainerLog(start.directory / f"{self.name}-{restarts}.log")
        self.started_at_s = 0.0
        self.finished_at_s = 0.0
        self.code: int | None = None
        self.started = self.ready = True  # as its probes say
        self.reason = ""
        self.message = ""
        self._stdin = -1
        self._over: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Raises nothing: a command that cannot run is a code of 128 and a reason."""
        spec, start = self.spec, self._start
        argv = [expand(it, start.env) for it in spec.get("command") or start.entrypoint]
        argv += [expand(it, start.env) for it in spec.get("args") or ()]
        self.started_at_s = time.time()
        box = Box(
            start.boxes / f"{start.directory.name}-{self.name}-{self.restarts}",
            mounts={**start.mounts.writable, **self._message_file()},
            files={**start.files, **start.mounts.read_only},
            env=start.env,
            hostname=start.hostname,
            own_devices=True,
        )
        out, err = os.pipe(), os.pipe()
        stdin: int | None = None
        if spec.get("stdin"):
            stdin, self._stdin = os.pipe()
        try:
            await box.start()
            self.box = box
            cwd = spec.get("workingDir") or "/"
            os.makedirs(box.host_text(cwd), exist_ok=True)
            self._process = await box.spawn(
                argv or ["sh"],
                cwd=cwd,
                env={"HOME": "/root", **start.env},
                stdin=stdin,
                stdout=out[1],
                stderr=err[1],
            )
        except (BoxError, OSError) as error:
            self.code, self.reason = 128, "StartError"
            self.message = (
                "failed to create containerd task: failed to create shim task: OCI runtime create"
                f' failed: runc create failed: exec: "{argv[0] if argv else ""}": {error.strerror}'
            )
            self.finished_at_s = time.time()
        finally:
            for one in (out[1], err[1], *([stdin] if stdin is not None else [])):
                os.close(one)
        self.log.follow(out[0], channel=1)
        self.log.follow(err[0], channel=2)
        if self._process is None:
            await self._clean()
        else:
            self._over = asyncio.ensure_future(self._follow(self._process))

    @property
    def environment(self) -> dict[str, str]:
        return self._start.env

    @property
    def running(self) -> bool:
        return self._process is not None and self.code is None

    @property
    def pid(self) -> int:
        return self._process.pid if self._process else 0

    async def wait(self) -> int:
        """Its exit code, as a shell tells it of a signal; all of its processes are gone then, and
        its log is whole.
        """
        if self._over is not None:
            await asyncio.shield(self._over)
        assert self.code is not None
        return self.code

    async def _follow(self, process: BoxProcess) -> None:
        self._ended(await process.wait())
        await self._clean()

    def _ended(self, code: int) -> None:
        self.code = 128 - code if code < 0 else code
        self.finished_at_s = time.time()
        self.reason = self.reason or ("Error" if self.code else "Completed")

    async def _clean(self) -> None:
        if self.box is not None:
            await self.box.kill()
        await self.log.finished()
        self.message = self.message or self._termination_message()
        if self._stdin >= 0:
            os.close(self._stdin)
            self._stdin = -1
        if self.box is not None:
            await asyncio.to_thread(self.box.remove)

    def _termination_message(self) -> str:
        found = ""
        for here in self._message_file().values():
            found = here.read_bytes()[:MESSAGE_BYTES_MAX].decode("utf-8", "replace")
        if (
            not found
            and self.code
            and (self.spec.get("terminationMessagePolicy") == "FallbackToLogsOnError")
        ):
            found = tail_text(self.log.path)
        return found

    def _message_file(self) -> dict[str, Path]:
        """What is mounted where the container tells why it ended."""
        path = self.spec.get("terminationMessagePath")
        if not path:
            return {}
        here = self._start.directory / f"{self.name}-{self.restarts}.message"
        here.touch()
        return {path: here}

    async def stop(self, grace_s: float) -> None:
        """SIGTERM, and SIGKILL for what is left after the grace."""
        if not self.running:
            return
        assert self._process is not None and self.box is not None
        if grace_s > 0:
            self._process.send_signal(signal.SIGTERM)
            try:
                async with asyncio.timeout(grace_s):
                    await self._process.wait()
            except TimeoutError:
                await self.box.kill()
        else:
            await self.box.kill()
        await self.wait()

    async def kill(self, *, reason: str = "") -> None:
        """SIGKILL at once. reason: as OOMKilled."""
        self.reason = reason or self.reason
        if self.running and self.box is not None:
            await self.box.kill()
            await self.wait()

    def write(self, data: bytes) -> None:
        if self._stdin >= 0:
            os.write(self._stdin, data)

    def end_input(self) -> None:
        if self._stdin >= 0:
            os.close(self._stdin)
            self._stdin = -1

    def state(self) -> Object:
        if self.code is None:
            return {"running": {"startedAt": text_of(self.started_at_s)}}
        one: Object = {
            "exitCode": self.code,
            "reason": self.reason,
            "startedAt": text_of(self.started_at_s),
            "finishedAt": text_of(self.finished_at_s),
            "containerID": self.id,
        }
        if self.message:
            one["message"] = self.message
        return {"terminated": one}
