"""The life of one pod on its node: volumes, init containers, containers, restarts, its end."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.emulators.kubernetes.nodes.containers import Container, Start
from tests.emulators.kubernetes.nodes.probes import Probing
from tests.emulators.kubernetes.nodes.statuses import PodStatus
from tests.emulators.kubernetes.nodes.volumes import NotYet, Volumes

if TYPE_CHECKING:
    from tests.emulators.kubernetes.nodes.kubelet import Kubelet

Object = dict[str, Any]
RESTART_S = (0.0, 10.0, 20.0, 40.0, 80.0, 160.0, 300.0)  # CrashLoopBackOff


class PodRunner:
    """Owned by the kubelet. All changes of the pod's status go through `status`."""

    def __init__(self, kubelet: Kubelet, pod: Object) -> None:
        self.pod, self._kubelet = pod, kubelet
        metadata = pod["metadata"]
        self.place = metadata["namespace"], metadata["name"]
        self.uid: str = metadata["uid"]
        self.directory: Path = kubelet.directory / "pods" / self.uid
        self.status = PodStatus(pod, kubelet.pod_ip(self.uid))
        self.containers: dict[str, Container] = {}
        self.previous: dict[str, Container] = {}
        self._stopping = False
        self._verdict: tuple[str, str] | None = None  # (reason, message) of an end from outside
        self._changed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._task: asyncio.Task[None] | None = None
        self.done = False

    def start(self) -> None:
        self._task = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        try:
            await self._live()
        except asyncio.CancelledError:
            raise
        except Exception as error:
            self._tell("FailedSync", f"error determining status: {error!r}", warning=True)
            self.status.phase = "Failed"
            self.status.reason, self.status.message = "KubeletError", repr(error)
            raise
        finally:
            self.done = True
            for task in self._tasks:
                task.cancel()
            self._post()
            self._kubelet.ended(self)

    async def _live(self) -> None:
        spec = self.pod["spec"]
        self._post()
        volumes = Volumes(
            self.pod,
            self.directory / "volumes",
            self._kubelet.claims,
            self._kubelet.store,
            account=self._kubelet.account_place(self.pod),
            token=lambda: self._kubelet.account_token(self.pod),
        )
        sources = await self._until(volumes.prepare, on_container=None)
        if sources is None:
            return self._over()
        deadline = spec.get("activeDeadlineSeconds")
        if deadline:
            why = "Pod was active on the node longer than the specified deadline"
            asyncio.get_running_loop().call_later(deadline, self.end, "DeadlineExceeded", why)
        for one in spec.get("initContainers", ()):
            if not await self._initialised(one, volumes, sources):
                return self._over()
        self.status.initialised = True
        self._changed.clear()
        loops = [
            asyncio.ensure_future(self._kept(it, volumes, sources)) for it in spec["containers"]
        ]
        await asyncio.gather(*loops)
        return self._over()

    async def _until(self, attempt: Callable[[], Any], *, on_container: Object | None) -> Any:
        """What the attempt gives once it can; None when the pod ends before."""
        while not self._stopping:
            try:
                return attempt()
            except NotYet as missing:
                if on_container is None:
                    self._tell(missing.reason, missing.message, warning=True)
                else:
                    self.status.waiting(on_container["name"], missing.reason, missing.message)
                    self._tell("Failed", f"Error: {missing.message}", warning=True)
                    self._post()
                await self._sleep(self._kubelet.retry_s)
        return None

    async def _sleep(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return

    async def _initialised(self, one: Object, volumes: Volumes, sources: dict[str, Path]) -> bool:
        """Whether an init container has done its work; it is repeated as the pod's policy says."""
        restarts = 0
        while not self._stopping:
            container = await self._begun(one, volumes, sources, restarts)
            if container is None:
                return False
            if await container.wait() == 0:
                self._post()
                return True
            self._post()
            if self.pod["spec"]["restartPolicy"] == "Never":
                return False
            restarts += 1
            await self._back_off(one, restarts)
        return False

    async def _kept(self, one: Object, volumes: Volumes, sources: dict[str, Path]) -> None:
        """Run a container, again and again as the pod's policy says."""
        restarts, policy = 0, self.pod["spec"]["restartPolicy"]
        while not self._stopping:
            container = await self._begun(one, volumes, sources, restarts)
            if container is None:
                return
            code = await container.wait()
            if self._stopping or policy == "Never" or (policy == "OnFailure" and code == 0):
                return
            self._post()
            restarts += 1
            await self._back_off(one, restarts)

    async def _back_off(self, one: Object, restarts: int) -> None:
        seconds = RESTART_S[min(restarts - 1, len(RESTART_S) - 1)] * self._kubelet.backoff_scale
        if seconds:
            pod = f"{self.place[1]}_{self.place[0]}({self.uid})"
            message = (
                f"back-off {int(seconds)}s restarting failed container={one['name']} pod={pod}"
            )
            self.status.waiting(one["name"], "CrashLoopBackOff", message)
            self._tell(
                "BackOff",
                f"Back-off restarting failed container {one['name']} in pod {pod}",
                warning=True,
            )
            self._post()
            await self._sleep(seconds)

    async def _begun(
        self, one: Object, volumes: Volumes, sources: dict[str, Path], restarts: int
    ) -> Container | None:
        """A started container; None when the pod ends before it could start."""
        if not await self._pulled(one):
            return None
        env = await self._until(lambda: volumes.environment(one), on_container=one)
        if env is None:
            return None
        image = self._kubelet.image(one["image"])
        start = Start(
            self.directory,
            self._kubelet.boxes,
            volumes.mounts(one, sources),
            {**self._kubelet.environment(), **image.env, "HOSTNAME": self._hostname(), **env},
            self._hostname(),
            image.entrypoint,
            {**image.files, **self._kubelet.names.files(self.pod)},
        )
        container = Container(one, start, restarts=restarts)
        before = self.containers.get(one["name"])
        if before is not None:
            self.previous[one["name"]] = before
        self._tell("Created", f"Container created: {one['name']}")
        await container.start()
        self.containers[one["name"]] = container
        self.status.containers[one["name"]] = container
        self.status.waits.pop(one["name"], None)
        self._kubelet.count(self, one["name"], restarts)
        if container.code is None:
            self._probe(container)
            self._tell("Started", f"Container started: {one['name']}")
        else:
            self._tell("Failed", f"Error: {container.message}", warning=True)
        self._post()
        if self._stopping:
            await container.stop(0)
        return container

    def _probe(self, container: Container) -> None:
        if not {"startupProbe", "readinessProbe", "livenessProbe"} & set(container.spec):
            return

        async def fail(why: str) -> None:
            message = f"Container {container.name} {why}, will be restarted"
            self._tell("Killing", message)
            await container.stop(self.pod["spec"]["terminationGracePeriodSeconds"])

        probing = Probing(
            container,
            changed=self._post,
            unhealthy=lambda why: self._tell("Unhealthy", why, warning=True),
            fail=fail,
        )
        task = asyncio.ensure_future(probing.run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _hostname(self) -> str:
        return str(self.pod["spec"].get("hostname") or self.place[1])[:63]

    async def _pulled(self, one: Object) -> bool:
        tries = 0
        while (why := self._kubelet.pull_problem(one["image"])) and not self._stopping:
            tries += 1
            image = f'"{one["image"]}"'
            if tries == 1:
                self._tell("Failed", f"Failed to pull image {image}: {why}", warning=True)
                self.status.waiting(one["name"], "ErrImagePull", why)
            else:
                message = f"Back-off pulling image {image}: ErrImagePull: {why}"
                self._tell("BackOff", f"Back-off pulling image {image}")
                self.status.waiting(one["name"], "ImagePullBackOff", message)
            self._post()
            await self._sleep(self._kubelet.retry_s)
        if self._stopping:
            return False
        self._tell(
            "Pulled",
            f'Container image "{one["image"]}" already present on machine and can be accessed by'
            " the pod",
        )
        return True

    def end(self, reason: str, message: str) -> None:
        """The kubelet itself ends it: deadline, eviction."""
        if not self.done and self._verdict is None:
            self._verdict = reason, message
            self.stop(0 if reason != "Evicted" else 1)

    def stop(self, grace_s: float) -> None:
        """End the containers; the pod's last status is posted when they are gone. Idempotent."""
        first, self._stopping = not self._stopping, True
        self._changed.set()
        for container in self.containers.values():
            if first and container.running:
                self._tell("Killing", f"Stopping container {container.name}")
            task = asyncio.ensure_future(container.stop(grace_s))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def vanish(self) -> None:
        """Its machine is gone: processes end and nothing is posted."""
        self.status.silent = self._stopping = True
        self._changed.set()
        for container in self.containers.values():
            await container.kill()

    async def finished(self) -> None:
        if self._task is not None:
            await asyncio.wait([self._task])

    def remove(self) -> None:
        """Its files, with its logs."""
        shutil.rmtree(self.directory, ignore_errors=True)

    def _over(self) -> None:
        codes = [it.code for it in self.containers.values()]
        names = {it["name"] for it in self.pod["spec"]["containers"]}
        whole = names <= set(self.containers) and all(it == 0 for it in codes)
        self.status.phase = "Succeeded" if whole and self._verdict is None else "Failed"
        if self._verdict is not None:
            self.status.reason, self.status.message = self._verdict
        if self._verdict and self._verdict[0] == "Evicted":
            self.status.disrupted("TerminationByKubelet", self._verdict[1])

    def _post(self) -> None:
        if not self.status.silent:
            self._kubelet.post(self)

    def _tell(self, reason: str, message: str, *, warning: bool = False) -> None:
        if not self.status.silent:
            self._kubelet.tell(self.pod, reason, message, warning=warning)
