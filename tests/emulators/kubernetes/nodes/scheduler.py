"""Binds pods to nodes, and says in the real scheduler's words why one has to wait."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from tests.emulators.kubernetes.api.writes.deleting import Deletion, delete
from tests.emulators.kubernetes.api.writes.writing import Writer
from tests.emulators.kubernetes.controllers.working import Queue, Recorder
from tests.emulators.kubernetes.schema.pods import requests_of
from tests.emulators.kubernetes.schema.quantities import quantity
from tests.emulators.kubernetes.store.objects import Entry, Event
from tests.emulators.kubernetes.store.selectors import matches
from tests.emulators.kubernetes.store.times import now_text

Object = dict[str, Any]
Where = tuple[str, str]
PODS, NODES, CLAIMS = ("", "pods"), ("", "nodes"), ("", "persistentvolumeclaims")
NAME = "default-scheduler"
NO_VICTIMS = "No preemption victims found for incoming pod"


HOPELESS = "Preemption is not helpful for scheduling"


@dataclass(frozen=True, slots=True)
class Misfit:
    """Why a pod does not fit on a node; hopeless: also if no other pod were on it."""

    reasons: tuple[str, ...]
    hopeless: bool


@dataclass(frozen=True, slots=True)
class Nomination:
    """A pod for which room is being made on a node: nobody of less priority gets it."""

    node: str
    wanted: dict[str, float]
    priority: int


class Scheduler:
    def __init__(self, writer: Writer, recorder: Recorder) -> None:
        self._writer, self._recorder = writer, recorder
        self._pods = writer.resources.get(*PODS)
        self._used: dict[str, Counter[str]] = {}  # by node
        self._held: dict[Where, tuple[str, dict[str, float]]] = {}
        self._waiting: set[Where] = set()
        self._nominated: dict[Where, Nomination] = {}
        self.queue: Queue[Where] = Queue(self._reconcile)
        writer.store.listeners.append(self._on_event)

    def _on_event(self, event: Event) -> None:
        if event.key == PODS:
            self._account(event)
        elif event.key in (NODES, CLAIMS) and self._waiting:
            self._retry()

    def _account(self, event: Event) -> None:
        pod, where = event.entry.object, event.entry.place
        node = pod["spec"].get("nodeName")
        over = event.kind == "DELETED" or pod.get("status", {}).get("phase") in (
            "Succeeded",
            "Failed",
        )
        if over:
            self._waiting.discard(where)
            self._nominated.pop(where, None)
            self._free(where)
        elif node:
            if where not in self._held:
                self._hold(where, node, requests_of(pod["spec"]))
        elif not pod["metadata"].get("deletionTimestamp") and (
            where not in self._waiting or event.kind == "ADDED" or _spec_changed(event)
        ):
            self.queue.add(where)

    def _hold(self, where: Where, node: str, wanted: dict[str, float]) -> None:
        self._held[where] = node, wanted
        self._used.setdefault(node, Counter()).update(wanted)

    def _free(self, where: Where) -> None:
        held = self._held.pop(where, None)
        if held is not None:
            self._used[held[0]].subtract(held[1])
            self._retry()

    def _retry(self) -> None:
        # Those for which room was made come first.
        for where in sorted(self._waiting, key=lambda it: it not in self._nominated):
            self.queue.add(where)

    def _reconcile(self, where: Where) -> None:
        entry = self._writer.store.get(PODS, *where)
        self._waiting.discard(where)
        if entry is None or entry.object["spec"].get("nodeName"):
            return None
        pod, spec = entry.object, entry.object["spec"]
        if spec["schedulerName"] != NAME or pod["metadata"].get("deletionTimestamp"):
            return None
        if spec.get("schedulingGates"):
            why = "Scheduling is blocked due to non-empty scheduling gates"
            return self._refuse(entry, why, reason="SchedulingGated")
        wanted = requests_of(spec)
        nodes = self._writer.store.shelf(NODES).ordered()
        if problem := self._claims_problem(pod):
            return self._refuse(entry, f"0/{len(nodes)} nodes are available: {problem}.")
        fitting, misfits = [], []
        for node in nodes:
            found = self._misfit(node.object, pod, wanted)
            if found is None:
                fitting.append(node.object["metadata"]["name"])
            else:
                misfits.append(found)
        if not fitting:
            return self._unschedulable(entry, misfits, wanted)
        # The emptiest first, as the real one spreads.
        best = min(fitting, key=lambda it: (self._used.get(it, Counter())["pods"], it))
        self._bind(entry, best, wanted)
        return None

    def _bind(self, entry: Entry, node: str, wanted: dict[str, float]) -> None:
        where = entry.place
        self._nominated.pop(where, None)
        self._hold(where, node, wanted)

        def change(pod: Object) -> None:
            pod["spec"] = {**pod["spec"], "nodeName": node}
            _condition(pod, "True")

        self._writer.change(self._pods, *where, change)
        name = "/".join(where)
        self._tell(entry.object, "Scheduled", f"Successfully assigned {name} to {node}")

    def _claims_problem(self, pod: Object) -> str:
        for volume in pod["spec"].get("volumes", ()):
            name = volume.get("persistentVolumeClaim", {}).get("claimName")
            if name is None:
                continue
            claim = self._writer.store.get(CLAIMS, pod["metadata"]["namespace"], name)
            if claim is None:
                return f'persistentvolumeclaim "{name}" not found'
            if claim.object["metadata"].get("deletionTimestamp"):
                return f'persistentvolumeclaim "{name}" is being deleted'
            if claim.object.get("status", {}).get("phase") != "Bound":
                return "pod has unbound immediate PersistentVolumeClaims"
        return ""

    def _misfit(self, node: Object, pod: Object, wanted: dict[str, float]) -> Misfit | None:
        """Why a pod does not fit on a node, in the order in which the real one looks."""
        spec = pod["spec"]
        if node["spec"].get("unschedulable") and not _tolerates(spec, _UNSCHEDULABLE):
            return Misfit(("node(s) were unschedulable",), hopeless=True)
        for taint in node["spec"].get("taints") or ():
            if taint["effect"] != "PreferNoSchedule" and not _tolerates(spec, taint):
                shown = f"{taint['key']}: {taint.get('value', '')}"
                return Misfit((f"node(s) had untolerated taint {{{shown}}}",), hopeless=True)
        if not _selected(spec, node):
            return Misfit(("node(s) didn't match Pod's node affinity/selector",), hopeless=True)
        used = self._used_by_others(node["metadata"]["name"], pod)
        found, hopeless = [], False
        for name, size in wanted.items():
            room = quantity(node["status"]["allocatable"].get(name, "0"))
            if size > 0 and used[name] + size > room + 1e-9:
                found.append("Too many pods" if name == "pods" else f"Insufficient {name}")
                hopeless = hopeless or size > room
        return Misfit(tuple(found), hopeless=hopeless) if found else None

    def _used_by_others(self, node: str, pod: Object) -> Counter[str]:
        used, metadata = Counter(self._used.get(node, Counter())), pod["metadata"]
        own = metadata["namespace"], metadata["name"]
        for where, one in self._nominated.items():
            matters = one.priority > pod["spec"].get("priority", 0)
            if one.node == node and where != own and matters:
                used.update(one.wanted)
        return used

    def _unschedulable(self, entry: Entry, misfits: list[Misfit], wanted: dict[str, float]) -> None:
        if self._preempt(entry, wanted):
            return None
        count = len(misfits)
        if not count:
            return self._refuse(entry, "no nodes available to schedule pods")
        told = Counter(why for one in misfits for why in one.reasons)
        parts = Counter(HOPELESS if it.hopeless else NO_VICTIMS for it in misfits)
        available = f"0/{count} nodes are available"
        message = f"{available}: {_listed(told)}. preemption: {available}: {_listed(parts)}."
        return self._refuse(entry, message)

    def _preempt(self, entry: Entry, wanted: dict[str, float]) -> bool:
        """Make room by ending pods of lower priority on one node; whether there are some."""
        pod = entry.object
        own = pod["spec"].get("priority", 0)
        if pod["spec"].get("preemptionPolicy") == "Never":
            return False
        held = self._nominated.get(entry.place)
        if held is not None and any(
            it.object["metadata"].get("deletionTimestamp") for it in self._on(held.node)
        ):
            self._waiting.add(entry.place)
            return True
        for node in self._writer.store.shelf(NODES).ordered():
            name = node.object["metadata"]["name"]
            lower = sorted(
                (it for it in self._on(name) if it.object["spec"].get("priority", 0) < own),
                key=lambda it: (it.object["spec"].get("priority", 0), -it.rv),
            )
            victims, freed = [], Counter[str]()
            while lower and self._lacking(node.object, pod, wanted, freed):
                victims.append(lower.pop(0))
                freed.update(requests_of(victims[-1].object["spec"]))
            if victims and not self._lacking(node.object, pod, wanted, freed):
                for victim in victims:
                    self._evict(victim, entry, name)
                self._nominated[entry.place] = Nomination(name, wanted, own)
                self._nominate(entry, name)
                self._waiting.add(entry.place)
                return True
        return False

    def _on(self, node: str) -> list[Entry]:
        places = [it for it, held in self._held.items() if held[0] == node]
        found = (self._writer.store.get(PODS, *it) for it in places)
        return [it for it in found if it is not None]

    def _lacking(
        self, node: Object, pod: Object, wanted: dict[str, float], freed: Counter[str]
    ) -> bool:
        """Returns whether more has to be freed on a node than that."""
        rest = {k: v - freed[k] for k, v in wanted.items()}
        found = self._misfit(node, pod, rest)
        return found is not None

    def _evict(self, victim: Entry, by: Entry, node: str) -> None:
        if victim.object["metadata"].get("deletionTimestamp"):
            return
        message = f"{NAME}: preempting to accommodate a higher priority pod"
        changed = self._writer.change(
            self._pods,
            *victim.place,
            lambda pod: disrupt(pod, "PreemptionByScheduler", message),
        )
        uid = by.object["metadata"]["uid"]
        self._tell(victim.object, "Preempted", f"Preempted by pod {uid} on node {node}")
        if changed is not None:
            delete(self._writer, self._pods, changed, Deletion())

    def _nominate(self, entry: Entry, node: str) -> None:
        self._writer.change(
            self._pods, *entry.place, lambda pod: pod["status"].update(nominatedNodeName=node)
        )

    def _refuse(self, entry: Entry, message: str, *, reason: str = "Unschedulable") -> None:
        self._waiting.add(entry.place)
        self._writer.change(
            self._pods, *entry.place, lambda pod: _condition(pod, "False", reason, message)
        )
        if reason == "Unschedulable":
            self._tell(entry.object, "FailedScheduling", message, warning=True)

    def _tell(self, pod: Object, reason: str, message: str, *, warning: bool = False) -> None:
        self._recorder.tell(pod, reason, message, source=NAME, warning=warning)


_UNSCHEDULABLE = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}


def _listed(told: Counter[str]) -> str:
    """In the order of the texts, with their numbers."""
    return ", ".join(sorted(f"{number} {why}" for why, number in told.items()))


def _spec_changed(event: Event) -> bool:
    return event.old is None or event.old.object["spec"] != event.entry.object["spec"]


def _tolerates(spec: Object, taint: Object) -> bool:
    for one in spec.get("tolerations") or ():
        if one.get("effect") and one["effect"] != taint["effect"]:
            continue
        if one.get("operator", "Equal") == "Exists":
            if not one.get("key") or one["key"] == taint["key"]:
                return True
        elif one.get("key") == taint["key"] and one.get("value", "") == taint.get("value", ""):
            return True
    return False


def _selected(spec: Object, node: Object) -> bool:
    labels = node["metadata"].get("labels") or {}
    if any(labels.get(k) != v for k, v in (spec.get("nodeSelector") or {}).items()):
        return False
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is None:
        return True
    return any(
        matches({"matchExpressions": it.get("matchExpressions") or []}, labels)
        for it in required["nodeSelectorTerms"]
    )


def _condition(pod: Object, status: str, reason: str = "", message: str = "") -> None:
    set_condition(pod, "PodScheduled", status, reason, message)


def set_condition(pod: Object, kind: str, status: str, reason: str, message: str) -> None:
    """Times stay while what is said does."""
    conditions = pod["status"].get("conditions") or []
    before = next((it for it in conditions if it["type"] == kind), {})
    same = before.get("status") == status
    one = {
        "type": kind,
        "status": status,
        "lastProbeTime": None,
        "lastTransitionTime": before["lastTransitionTime"] if same else now_text(),
    }
    one |= {k: v for k, v in (("reason", reason), ("message", message)) if v}
    pod["status"]["conditions"] = [*(it for it in conditions if it["type"] != kind), one]


def disrupt(pod: Object, reason: str, message: str) -> None:
    set_condition(pod, "DisruptionTarget", "True", reason, message)
