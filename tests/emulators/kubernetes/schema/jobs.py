"""Jobs: what the server fills in, refuses, and lets nobody change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.emulators.kubernetes.schema import pods
from tests.emulators.kubernetes.schema.validation import (
    Cause,
    cause,
    invalid_value,
    required,
    shown,
    unsupported,
)

UID_LABEL, NAME_LABEL = "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name"
COMPLETIONS_MAX = 1_000_000_000
BACKOFF_DEFAULT, BACKOFF_NONE = 6, 2_147_483_647
_IMMUTABLE = (
    "selector",
    "completionMode",
    "podFailurePolicy",
    "backoffLimitPerIndex",
    "managedBy",
    "successPolicy",
)
# What Kueue and others may change while a Job is suspended.
_DIRECTIVES = ("nodeSelector", "tolerations", "schedulingGates", "affinity")


def default(job: dict[str, Any]) -> None:
    spec = job.setdefault("spec", {})
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    spec.setdefault(
        "backoffLimit", BACKOFF_NONE if "backoffLimitPerIndex" in spec else BACKOFF_DEFAULT
    )
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)
    spec.setdefault("manualSelector", False)
    spec.setdefault(
        "podReplacementPolicy", "Failed" if "podFailurePolicy" in spec else "TerminatingOrFailed"
    )
    for rule in (spec.get("podFailurePolicy") or {}).get("rules", ()):
        for pattern in rule.get("onPodConditions") or ():
            pattern.setdefault("status", "True")
    template = spec.setdefault("template", {})
    template.setdefault("metadata", {})
    pods.default_spec(template.setdefault("spec", {}))


def prepare(job: dict[str, Any]) -> None:
    """Its own selector and labels, once it has a uid."""
    spec, metadata = job["spec"], job["metadata"]
    if spec.get("manualSelector"):
        return
    uid, name = metadata["uid"], metadata["name"]
    labels = spec["template"]["metadata"].setdefault("labels", {})
    own = {UID_LABEL: uid, NAME_LABEL: name, "controller-uid": uid, "job-name": name}
    labels.update(own)
    spec["selector"] = {"matchLabels": {UID_LABEL: uid}}
    metadata["labels"] = metadata.get("labels") or labels


def problems(job: dict[str, Any]) -> Iterator[Cause]:
    spec = job["spec"]
    for name in (
        "parallelism",
        "completions",
        "backoffLimit",
        "activeDeadlineSeconds",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ):
        if spec.get(name) is not None and spec[name] < 0:
            detail = "must be greater than or equal to 0"
            yield invalid_value(f"spec.{name}", spec[name], detail)
    if spec["completionMode"] == "Indexed":
        yield from _indexed_problems(job)
    elif spec.get("backoffLimitPerIndex") is not None:
        detail = "requires indexed completion mode"
        yield invalid_value("spec.backoffLimitPerIndex", spec["backoffLimitPerIndex"], detail)
    template = spec["template"]
    policy = template["spec"].get("restartPolicy")
    where = "spec.template.spec.restartPolicy"
    if policy == "Always":
        yield required(where, 'valid values: "OnFailure", "Never"')
    elif policy not in ("OnFailure", "Never"):
        yield unsupported(where, policy, ["OnFailure", "Never"])
    elif policy != "Never" and "podFailurePolicy" in spec:
        detail = 'only "Never" is supported when podFailurePolicy is specified'
        yield invalid_value(where, policy, detail)
    yield from (
        it for it in pods.template_problems(template, "spec.template") if it["field"] != where
    )
    yield from _policy_problems(spec.get("podFailurePolicy") or {})


def _indexed_problems(job: dict[str, Any]) -> Iterator[Cause]:
    spec = job["spec"]
    if spec.get("completions") is None:
        yield required("spec.completions", "when completion mode is Indexed")
        return
    longest = f"{job['metadata']['name']}-{max(spec['completions'] - 1, 0)}"
    if len(longest) > 63:
        detail = (
            f'will not able to create pod with invalid DNS label "{longest}": must be no more than'
            " 63 characters"
        )
        yield invalid_value("metadata.name", job["metadata"]["name"], detail)
    if spec["completions"] > 100_000 and spec["parallelism"] > 10_000:
        detail = "must be less than or equal to 10000 when completions are over 100000"
        yield invalid_value("spec.parallelism", spec["parallelism"], detail)


def _policy_problems(policy: dict[str, Any]) -> Iterator[Cause]:
    for number, rule in enumerate(policy.get("rules", ())):
        where = f"spec.podFailurePolicy.rules[{number}]"
        actions = ["Count", "FailIndex", "FailJob", "Ignore"]
        if rule.get("action") not in actions:
            yield unsupported(f"{where}.action", rule.get("action"), actions)
        codes, conditions = rule.get("onExitCodes"), rule.get("onPodConditions")
        if codes and conditions:
            yield invalid_value(
                where, "", "specifying both OnExitCodes and OnPodConditions is not supported"
            )
        elif not codes and not conditions:
            yield invalid_value(
                where, "", "specifying one of OnExitCodes and OnPodConditions is required"
            )
        if codes and codes.get("operator") not in ("In", "NotIn"):
            operators = ["In", "NotIn"]
            yield unsupported(f"{where}.onExitCodes.operator", codes.get("operator"), operators)


def changes(old: dict[str, Any], new: dict[str, Any]) -> Iterator[Cause]:
    """What an update may not change."""
    before, after = old["spec"], new["spec"]
    for name in _IMMUTABLE:
        if before.get(name) != after.get(name):
            yield invalid_value(f"spec.{name}", after.get(name), "field is immutable")
    if before.get("completions") != after.get("completions") and not (
        after["completionMode"] == "Indexed"
        and after.get("completions") == after.get("parallelism")
    ):
        detail = "field is immutable"
        yield invalid_value("spec.completions", after.get("completions"), detail)
    template = after["template"]
    if before.get("suspend") and not old.get("status", {}).get("startTime"):
        template = _with_directives(template, before["template"])
    if template != before["template"]:
        yield cause(
            "FieldValueInvalid",
            "spec.template",
            f"{shown(after['template'])}: field is immutable",
        )


def _with_directives(after: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    """The new template with the old one's scheduling, as that may change."""
    spec = {k: v for k, v in after["spec"].items() if k not in _DIRECTIVES}
    spec |= {k: v for k, v in before["spec"].items() if k in _DIRECTIVES}
    found = {**after, "spec": spec}
    if "metadata" in before:
        found["metadata"] = before["metadata"]
    return found
