"""The words for Slurm's reasons, held against the table in Slurm's own library."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from fleetctl.providers.slurm.slurm_login import QueuedJob, explain_reason

LIBRARY = Path("/usr/lib")
REASONS_MAX = 1000


def reasons_of_slurm() -> list[str]:
    [library] = LIBRARY.glob("*/slurm-wlm/libslurmfull.so")
    text = ctypes.CDLL(str(library)).slurm_job_reason_string
    text.restype = ctypes.c_char_p
    found = [text(number).decode() for number in range(REASONS_MAX)]
    return [it for it in found if not it.isdigit()]


@pytest.mark.needs("squeue")
def test_every_reason_that_slurm_knows_has_words() -> None:
    reasons = reasons_of_slurm()
    assert len(reasons) > 150
    assert [it for it in reasons if not explain_reason(it, "7")] == []


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("QOSMaxJobsPerUserLimit", "your quality of service (QOS) runs no more jobs of yours now"),
        ("AssocGrpCpuLimit", "your account, with all its users, gets no more cores now"),
        ("QOSMaxMemoryPerJob", "it asks for more memory than a job of your quality of service"),
        ("QOSMinGRES", "its quality of service (QOS) demands more GPUs than it asks for"),
        ("MaxGRESPerAccount", "your account gives you no more GPUs now"),
        ("ReqNodeNotAvail, UnavailableNodes:n1", "a node that it needs is reserved or down"),
        ("JobHeldUser", "it is held; `scontrol release 7` lets it go"),
        ("OfALaterSlurm", ""),
    ],
)
def test_a_reason_is_put_into_words(reason: str, words: str) -> None:
    found = explain_reason(reason, "7")
    assert found.startswith(words)
    assert bool(found) == bool(words)


def test_a_job_that_waits_says_when_slurm_expects_it_to_start() -> None:
    job = QueuedJob("7", "PENDING", "Priority", "", "1795962577", "fleetctl-1")
    assert job.explain() == (
        "job 7 is pending: others are before it in the queue (Priority);"
        " Slurm expects it to start at 2026-11-29 14:29 UTC"
    )
    unknown = QueuedJob("7", "PENDING", "OfALaterSlurm", "", "N/A", "fleetctl-1")
    assert unknown.explain() == "job 7 is pending: OfALaterSlurm"
