"""What a field of ours is called where people come from: for `explain`. Pure tables.

Where the meaning is the same, the name is; then the row only says whose it is.
"""

from __future__ import annotations

from typing import NamedTuple


class Origin(NamedTuple):
    """The field `name` of another tool."""

    tool: str
    name: str

    def __str__(self) -> str:
        return f"{self.name} ({self.tool})"


_JOB, _JOBSET, _KATIB = "Kubernetes Job", "JobSet", "Katib"
_TRAINER, _SKYPILOT, _DSTACK, _WANDB = "Kubeflow Trainer", "SkyPilot", "dstack", "W&B"

ORIGINS: dict[str, tuple[Origin, ...]] = {
    "activeDeadlineSeconds": (
        Origin(_JOB, "activeDeadlineSeconds"), Origin(_DSTACK, "max_duration"),
    ),
    "anyOf": (Origin(_SKYPILOT, "any_of"),),
    "backoffLimit": (Origin(_JOB, "backoffLimit"),),
    "backoffLimitPerIndex": (
        Origin(_JOB, "backoffLimitPerIndex"), Origin(_SKYPILOT, "max_restarts_on_errors"),
    ),
    "command": (Origin(_JOB, "command and args"),),
    "completionMode": (Origin(_JOB, "completionMode"),),
    "completions": (Origin(_JOB, "completions"),),
    "deletionPolicy": (Origin("Crossplane", "deletionPolicy"),),
    "env": (Origin(_JOB, "env"), Origin(_SKYPILOT, "envs")),
    "exclude": (Origin(_SKYPILOT, ".skyignore"),),
    "failurePolicy": (Origin(_JOB, "podFailurePolicy"), Origin(_JOBSET, "failurePolicy")),
    "gpu": (Origin(_SKYPILOT, "accelerators"), Origin(_DSTACK, "gpu"), Origin("Modal", "gpu")),
    "image": (Origin(_JOB, "image"), Origin(_SKYPILOT, "image_id")),
    "maxFailedIndexes": (
        Origin(_JOB, "maxFailedIndexes"), Origin(_KATIB, "maxFailedTrialCount"),
    ),
    "maxRestarts": (Origin(_JOBSET, "maxRestarts"),),
    "nodes": (
        Origin(_TRAINER, "numNodes"), Origin(_SKYPILOT, "num_nodes"), Origin(_DSTACK, "nodes"),
    ),
    "onExitCodes": (Origin(_JOB, "onExitCodes"),),
    "ordered": (Origin(_SKYPILOT, "ordered"),),
    "parallelism": (Origin(_JOB, "parallelism"), Origin(_KATIB, "parallelTrialCount")),
    "script": (Origin(_SKYPILOT, "run"), Origin(_DSTACK, "commands")),
    "search": (Origin(_WANDB, "the whole sweep configuration"),),
    "searchFrom": (Origin(_WANDB, "the whole sweep configuration"),),
    "secrets": (Origin(_JOB, "envFrom"), Origin("Modal", "secrets")),
    "successPolicy": (Origin(_JOB, "successPolicy"),),
    "suspend": (Origin(_JOB, "suspend"),),
    "template": (Origin(_JOB, "template"), Origin(_KATIB, "trialTemplate")),
    "terminationGracePeriodSeconds": (Origin(_JOB, "terminationGracePeriodSeconds"),),
    "trials": (Origin(_WANDB, "run_cap"), Origin(_KATIB, "maxTrialCount")),
    "ttlSecondsAfterFinished": (Origin(_JOB, "ttlSecondsAfterFinished"),),
    "volumes": (Origin(_JOB, "volumeMounts"), Origin(_SKYPILOT, "file_mounts")),
}  # fmt: skip

# In a search, where all else is W&B's.
_OURS = frozenset({"priorTrials", "sampler"})


def origins(path: tuple[str, ...]) -> tuple[str, ...]:
    """`parallelTrialCount (Katib)` and the like, for the field at this path; most have none."""
    *above, name = path
    if above[-1:] == ["search"] and name not in _OURS:
        return (str(Origin(_WANDB, name)),)
    if above and above[-1] == "metadata":
        return ()
    return tuple(str(one) for one in ORIGINS.get(name, ()))
