"""Starting the emulator in a process of its own, and talking to it from a test.

    with KubernetesEmulator() as cluster:
        run_something(env={**os.environ, **cluster.env})   # KUBECONFIG
        assert cluster.processes() == []

Nothing is set globally. The process ends with the `with` block, and also when this process dies.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.emulators.starting import Program

ANSWER_S = 240.0
Object = dict[str, Any]


class KubernetesEmulator:
    """Owns the process. Keyword arguments are settings (see settings.py)."""

    def __init__(self, *, directory: Path | None = None, port: int = 0, **settings: Any) -> None:
        self._options = ["--port", str(port), "--settings", json.dumps(settings)]
        self._given, self.directory = directory, Path()
        self._process: Program | None = None
        self._control = ""
        self.url, self.kubeconfig = "", Path()
        self.env: dict[str, str] = {}

    def start(self) -> KubernetesEmulator:
        self.directory = self._given or Path(tempfile.mkdtemp(prefix="kubernetes-emulator-"))
        self._process = Program(
            "tests.emulators.kubernetes.__main__",
            ["--until-stdin-ends", "--directory", str(self.directory), *self._options],
        )
        lines = [self._process.stdout.readline().strip() for _ in range(3)]
        if not all(lines):
            self.stop()
            raise OSError("the Kubernetes emulator ended before it listened; its stderr says why")
        told = dict(line.split("=", 1) for line in lines)
        self.kubeconfig, self.url = Path(told["KUBECONFIG"]), told["KUBERNETES_EMULATOR_URL"]
        self._control = told["KUBERNETES_EMULATOR_CONTROL"]
        self.env = {"KUBECONFIG": str(self.kubeconfig)}
        return self

    def stop(self) -> None:
        if self._process is None:
            return
        self._process.stop()
        self._process = None
        if self._given is None:
            shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> KubernetesEmulator:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def objects(self, plural: str, group: str = "", namespace: str | None = None) -> list[Object]:
        """As they are stored."""
        found: list[Object] = self._ask("objects", plural=plural, group=group, namespace=namespace)
        return found

    def runs(self) -> list[Object]:
        """Each container that was ever started, in order."""
        found: list[Object] = self._ask("runs")
        return found

    def processes(self) -> list[Object]:
        """The containers that live now."""
        found: list[Object] = self._ask("processes")
        return found

    def requests(self) -> dict[str, int]:
        """How often each was asked for, by "verb plural[/subresource]"."""
        found: dict[str, int] = self._ask("requests")
        return found

    def forget_requests(self) -> None:
        self._ask("forget_requests")

    def fault(self, **told: Any) -> int:
        """See api/faulty.Fault. Returns its number, for `remove_faults`."""
        return int(self._ask("fault", **told))

    def faults(self) -> list[Object]:
        found: list[Object] = self._ask("faults")
        return found

    def remove_faults(self, number: int | None = None) -> None:
        self._ask("remove_faults", number=number)

    def cut_watches(self, plural: str = "*") -> int:
        """End streams in the middle; how many there were."""
        return int(self._ask("cut_watches", plural=plural))

    def cut_streams(self, name: str) -> int:
        """End the streams of commands in a pod; how many there were."""
        return int(self._ask("cut_streams", name=name))

    def compact(self) -> None:
        """Watches that resume from before now meet 410."""
        self._ask("compact")

    def away(self, on: bool) -> None:
        """The server is down for everybody; its processes and controllers go on."""
        self._ask("away", on=on)

    def pause(self, controller: str, *, on: bool = True) -> None:
        """controller: jobs, garbage, scheduler, kubelet, basics or definitions."""
        self._ask("pause", controller=controller, on=on)

    def kubeconfig_for(
        self, user: str, *, groups: Sequence[str] = (), namespace: str = "default"
    ) -> Path:
        """Of somebody who may do what RBAC says; a file of its own."""
        config = self._ask("config_for", user=user, groups=list(groups), namespace=namespace)
        return self._written(user, config)

    def account_kubeconfig(self, namespace: str, name: str) -> Path:
        """Of a service account."""
        config = self._ask("account_config", namespace=namespace, name=name)
        return self._written(f"{namespace}-{name}", config)

    def revoke(self, user: str) -> None:
        """All tokens of a user end to work."""
        self._ask("revoke", user=user)

    def missing_images(self, **images: str) -> None:
        """What no registry has, by pattern; "" says the usual words."""
        self._ask("missing_images", images=images)

    def add_node(self, name: str, **told: Any) -> None:
        """See settings.NodeSpec."""
        self._ask("add_node", name=name, **told)

    def admit(self, queue: str, *, on: bool = True) -> None:
        """Kueue, where the settings have it, has room in a queue from now on."""
        self._ask("admit", queue=queue, on=on)

    def evict(self, namespace: str, name: str, message: str = "") -> None:
        """By the kubelet, as a node under pressure does it: the pod stays, failed."""
        self._ask("evict", namespace=namespace, name=name, message=message)

    def kill(
        self, namespace: str, name: str, container: str = "", reason: str = "OOMKilled"
    ) -> None:
        """SIGKILL for a container."""
        self._ask("kill", namespace=namespace, name=name, container=container, reason=reason)

    def lose_node(self, name: str, *, processes_live: bool = False) -> None:
        self._ask("lose_node", name=name, processes_live=processes_live)

    def find_node(self, name: str) -> None:
        """It is heard of again."""
        self._ask("find_node", name=name)

    def _written(self, name: str, config: Object) -> Path:
        path = self.directory / f"kubeconfig-{name.replace(':', '-')}"
        path.write_text(json.dumps(config))
        path.chmod(0o600)
        return path

    def _ask(self, name: str, /, **told: Any) -> Any:
        request = urllib.request.Request(
            f"{self._control}/{name}", json.dumps(told).encode(), method="POST"
        )
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_S) as answer:
                return json.load(answer)["result"]
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"{name}: {error.read().decode()}") from error
