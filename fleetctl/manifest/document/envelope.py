"""Checks the envelope of a spec: `apiVersion`, `kind` and the rest, and finds files that are not
manifests at all. Called by loader.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fleetctl.common.finding import Finding, Path
from fleetctl.manifest.findings import suggest_name
from fleetctl.manifest.hints.fields import RENDERED_KINDS
from fleetctl.manifest.hints.synonyms import NOT_YET_KINDS, SYNONYMOUS_KINDS, guess_name, join_names
from fleetctl.manifest.problems import PROBLEMS_SHOWN_MAX, escape_text, value_text
from fleetctl.specs.kinds.registry import API_VERSION, KINDS, kind_called

ENVELOPE = ("apiVersion", "kind", "metadata", "spec")

# `get -o yaml` shows these; editing its output and applying it again must work.
_WRITTEN_BY_US = ("status",)
_APART_HINT = "write each manifest as a document of its own, with a line `---` between them"
_WRAP_HINT = "write a Sweep whose spec has `searchFrom: {file: ...}` and name this file there"
_KUBERNETES = ("batch/", "apps/", "kubeflow.org/", "jobset.x-k8s.io/", "ray.io/")
_CONVERTED = {"Job": "k8s-job", "CronJob": "k8s-job"}


def no_manifest(data: Any, file: str) -> Finding | None:
    """Returns the one finding for a document that is not a manifest; None for a document that may
    be one.
    """
    file = escape_text(file)
    if not isinstance(data, dict):
        message = f" is {value_text(data)}; it must be a mapping of {join_names(ENVELOPE)}"
        return Finding((), message, _APART_HINT if isinstance(data, list) else "")
    if "kind" not in data and "method" in data and "parameters" in data:
        return Finding((), " is a W&B sweep configuration, not a manifest", _WRAP_HINT)
    version = data.get("apiVersion")
    kind = data.get("kind")
    if isinstance(version, str) and version.startswith(_KUBERNETES):
        message = (
            f" is `{version}`, and a {value_text(kind)} of Kubernetes is not a manifest of fleetctl"
        )
        return Finding(("apiVersion",), message, _kubernetes_hint(kind, file))
    if not any(name in data for name in ENVELOPE):
        message = f" is not a manifest: it has none of {join_names(ENVELOPE)}"
        return Finding((), message, _foreign_hint(data, file))
    return None


def _kubernetes_hint(kind: object, file: str) -> str:
    if isinstance(kind, str) and kind in _CONVERTED:
        return f"`fleetctl convert --from {_CONVERTED[kind]} {file}` makes a BatchJob of it"
    return f"write one of {join_names(KINDS, last='or')}"


def _foreign_hint(data: Mapping[str, Any], file: str) -> str:
    if "type" in data and data["type"] in ("task", "dev-environment", "service", "volume"):
        return f"`fleetctl convert --from dstack {file}` reads files of dstack"
    if "run" in data and ("resources" in data or "setup" in data or "workdir" in data):
        return f"`fleetctl convert --from skypilot {file}` reads files of SkyPilot"
    return "`fleetctl init` writes one to begin with; name the files that are with `-f`"


def check_envelope(data: Mapping[str, Any]) -> Iterator[Finding]:
    unknown = [key for key in data if key not in ENVELOPE and key not in _WRITTEN_BY_US]
    for key in unknown[:PROBLEMS_SHOWN_MAX]:
        hint = suggest_name(key, list(ENVELOPE))
        yield Finding((key,), " is an unknown field", hint, at_key=True)
    if data.get("apiVersion") != API_VERSION:
        yield _describe_wrong_key(data, "apiVersion", f"it must be `{API_VERSION}`")
    kind = data.get("kind")
    if kind_called(kind) is not None:
        return
    if not isinstance(kind, str):
        yield _describe_wrong_key(data, "kind", f"it must be one of {join_names(KINDS)}")
    elif kind in NOT_YET_KINDS:
        yield Finding(("kind",), f" is `{kind}`, which is not supported yet")
    else:
        yield _describe_wrong_key(
            data, "kind", f"it must be one of {join_names(KINDS)}", kind_hint(kind)
        )


def kind_hint(kind: str) -> str:
    """The kind that was meant, or all that there are."""
    hint = SYNONYMOUS_KINDS.get(kind.lower()) or guess_name(kind, (*KINDS, *RENDERED_KINDS))
    if hint:
        return f"did you mean `{hint}`?"
    return suggest_name(kind, list(KINDS))


def _describe_wrong_key(
    data: Mapping[str, Any],
    key: str,
    right: str,
    hint: str = "",
) -> Finding:
    at: Path = (key,)
    if key not in data:
        return Finding((), f" is missing; {right}", hint, about=at)
    return Finding(at, f" is {value_text(data[key])}; {right}", hint)
