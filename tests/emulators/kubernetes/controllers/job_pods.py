"""The pod that a Job makes for one attempt."""

from __future__ import annotations

from typing import Any

from tests.emulators.kubernetes.controllers.job_state import INDEX, TRACKING
from tests.emulators.kubernetes.controllers.working import owned_by
from tests.emulators.kubernetes.schema.names import suffix
from tests.emulators.kubernetes.store.objects import clone

Object = dict[str, Any]
INDEX_VARIABLE = "JOB_COMPLETION_INDEX"
FAILURES = "batch.kubernetes.io/job-index-failure-count"
NAME_MAX = 63 - 6  # with a dash and five characters behind it


def new_pod(job: Object, index: int | None, *, failures: int) -> Object:
    """failures: of its index so far; told where the Job counts them by index."""
    template = job["spec"]["template"]
    metadata = clone(template.get("metadata") or {})
    name = job["metadata"]["name"]
    stem = name if index is None else f"{name}-{index}"
    metadata |= {
        "name": f"{stem[:NAME_MAX]}-{suffix()}",
        "generateName": f"{stem}-",
        "namespace": job["metadata"]["namespace"],
        "ownerReferences": [owned_by(job)],
        "finalizers": [*metadata.get("finalizers", ()), TRACKING],
    }
    spec = clone(template["spec"])
    if index is not None:
        labels = metadata.setdefault("labels", {})
        annotations = metadata.setdefault("annotations", {})
        labels[INDEX] = annotations[INDEX] = str(index)
        if "backoffLimitPerIndex" in job["spec"]:
            annotations[FAILURES] = str(failures)
        spec.setdefault("hostname", stem)
        reference = {"apiVersion": "v1", "fieldPath": f"metadata.labels['{INDEX}']"}
        variable = {"name": INDEX_VARIABLE, "valueFrom": {"fieldRef": reference}}
        for one in (*spec.get("initContainers", ()), *spec["containers"]):
            known = {it["name"] for it in one.get("env", ())}
            if INDEX_VARIABLE not in known:
                one.setdefault("env", []).append(dict(variable))
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
