"""The names of our fields in other tools, for `explain`. Pure tables.

A field of the same meaning has the same name; then the row only names its origin.
"""

from __future__ import annotations

from typing import NamedTuple


class ForeignField(NamedTuple):
    """The field `name` of another tool."""

    tool: str
    name: str

    def __str__(self) -> str:
        return f"{self.name} ({self.tool})"


_JOB = "Kubernetes Job"
_JOBSET = "JobSet"
_KATIB = "Katib"
_TRAINER = "Kubeflow Trainer"
_SKYPILOT = "SkyPilot"
_DSTACK = "dstack"
_WANDB = "W&B"

ORIGINS: dict[str, tuple[ForeignField, ...]] = {
    "activeDeadlineSeconds": (
        ForeignField(_JOB, "activeDeadlineSeconds"),
        ForeignField(_DSTACK, "max_duration"),
    ),
    "anyOf": (ForeignField(_SKYPILOT, "any_of"),),
    "backoffLimit": (ForeignField(_JOB, "backoffLimit"),),
    "backoffLimitPerIndex": (
        ForeignField(_JOB, "backoffLimitPerIndex"),
        ForeignField(_SKYPILOT, "max_restarts_on_errors"),
    ),
    "command": (ForeignField(_JOB, "command and args"),),
    "completionMode": (ForeignField(_JOB, "completionMode"),),
    "completions": (ForeignField(_JOB, "completions"),),
    "deletionPolicy": (ForeignField("Crossplane", "deletionPolicy"),),
    "env": (ForeignField(_JOB, "env"), ForeignField(_SKYPILOT, "envs")),
    "exclude": (ForeignField(_SKYPILOT, ".skyignore"),),
    "failurePolicy": (
        ForeignField(_JOB, "podFailurePolicy"),
        ForeignField(_JOBSET, "failurePolicy"),
    ),
    "gpu": (
        ForeignField(_SKYPILOT, "accelerators"),
        ForeignField(_DSTACK, "gpu"),
        ForeignField("Modal", "gpu"),
    ),
    "image": (ForeignField(_JOB, "image"), ForeignField(_SKYPILOT, "image_id")),
    "maxFailedIndexes": (
        ForeignField(_JOB, "maxFailedIndexes"),
        ForeignField(_KATIB, "maxFailedTrialCount"),
    ),
    "maxRestarts": (ForeignField(_JOBSET, "maxRestarts"),),
    "nodes": (
        ForeignField(_TRAINER, "numNodes"),
        ForeignField(_SKYPILOT, "num_nodes"),
        ForeignField(_DSTACK, "nodes"),
    ),
    "onExitCodes": (ForeignField(_JOB, "onExitCodes"),),
    "ordered": (ForeignField(_SKYPILOT, "ordered"),),
    "parallelism": (ForeignField(_JOB, "parallelism"), ForeignField(_KATIB, "parallelTrialCount")),
    "script": (ForeignField(_SKYPILOT, "run"), ForeignField(_DSTACK, "commands")),
    "search": (ForeignField(_WANDB, "the whole sweep configuration"),),
    "searchFrom": (ForeignField(_WANDB, "the whole sweep configuration"),),
    "secrets": (ForeignField(_JOB, "envFrom"), ForeignField("Modal", "secrets")),
    "successPolicy": (ForeignField(_JOB, "successPolicy"),),
    "suspend": (ForeignField(_JOB, "suspend"),),
    "template": (ForeignField(_JOB, "template"), ForeignField(_KATIB, "trialTemplate")),
    "terminationGracePeriodSeconds": (ForeignField(_JOB, "terminationGracePeriodSeconds"),),
    "trials": (ForeignField(_WANDB, "run_cap"), ForeignField(_KATIB, "maxTrialCount")),
    "ttlSecondsAfterFinished": (ForeignField(_JOB, "ttlSecondsAfterFinished"),),
    "volumes": (ForeignField(_JOB, "volumeMounts"), ForeignField(_SKYPILOT, "file_mounts")),
}

# In a search, where all else is W&B's.
_OURS = frozenset({"priorTrials", "sampler"})


def list_origins(path: tuple[str, ...]) -> tuple[str, ...]:
    """Returns `parallelTrialCount (Katib)` and the like, for the field at this path; empty for
    most.
    """
    *above, name = path
    if above[-1:] == ["search"] and name not in _OURS:
        return (str(ForeignField(_WANDB, name)),)
    if above and above[-1] == "metadata":
        return ()
    return tuple(str(one) for one in ORIGINS.get(name, ()))
