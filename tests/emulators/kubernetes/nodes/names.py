"""The cluster's DNS, as far as pods find each other by it: names of pods that a Service without an
address gives, and of such a Service itself, in place of a server as the /etc/hosts of each pod.

Unlike a real one it answers no query, knows no names of Services with an address, and caches
nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.emulators.kubernetes.store.objects import Event, Store

Object = dict[str, Any]
PODS, SERVICES = ("", "pods"), ("", "services")
DOMAIN = "cluster.local"
FIRST = "127.0.0.1 localhost\n"


class Names:
    """directory: for a file of each namespace. address: of a pod, by its uid."""

    def __init__(self, store: Store, directory: Path, *, address: Callable[[str], str]) -> None:
        self._store, self._directory, self._address = store, directory, address
        store.listeners.append(self._on_event)

    def files(self, pod: Object) -> dict[str, Path]:
        """What the containers of a pod get for it, by path."""
        return {"/etc/hosts": self._written(pod["metadata"]["namespace"])}

    def _on_event(self, event: Event) -> None:
        if event.key in (PODS, SERVICES):
            self._written(event.entry.place[0])

    def _written(self, namespace: str) -> Path:
        path = self._directory / namespace
        path.parent.mkdir(parents=True, exist_ok=True)
        text = FIRST + "".join(self._lines(namespace))
        if not path.exists() or path.read_text() != text:
            path.write_text(text)  # in place: it is mounted where pods run
        return path

    def _lines(self, namespace: str) -> list[str]:
        services = {
            it.place[1]: it.object["spec"]
            for it in self._store.shelf(SERVICES).ordered()
            if it.place[0] == namespace and it.object["spec"].get("clusterIP") == "None"
        }
        found: list[str] = []
        if not services:
            return found  # of many namespaces, and not a look at each of their pods
        for entry in self._store.shelf(PODS).ordered():
            pod = entry.object
            if entry.place[0] != namespace:
                continue
            given = [name for name, it in services.items() if _answers(it, pod)]
            if (subdomain := pod["spec"].get("subdomain", "")) in given:
                given.append(f"{pod['spec'].get('hostname')}.{subdomain}")
            for name in given:
                names = (name, f"{name}.{namespace}.svc", f"{name}.{namespace}.svc.{DOMAIN}")
                found.append(f"{self._address(pod['metadata']['uid'])} {' '.join(names)}\n")
        return found


def _answers(service: Object, pod: Object) -> bool:
    """Returns whether the Service selects it, and it is ready or need not be."""
    labels, wanted = pod["metadata"].get("labels") or {}, service.get("selector") or {}
    conditions = (pod.get("status") or {}).get("conditions") or ()
    ready = any(it["type"] == "Ready" and it["status"] == "True" for it in conditions)
    running = bool((pod.get("status") or {}).get("podIP"))
    shown = ready or bool(service.get("publishNotReadyAddresses"))
    return bool(wanted) and shown and running and wanted.items() <= labels.items()
