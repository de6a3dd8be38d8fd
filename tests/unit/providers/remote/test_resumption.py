"""What is asked of a volume before a machine is paid for."""

from __future__ import annotations

import pytest

from fleetctl.common.errors import Refused
from fleetctl.controllers.model import CheckpointOrder
from fleetctl.providers.contract.base import RunRequest
from fleetctl.providers.remote.runs.guest_order import (
    WantedCheckpoint,
    refuse_what_is_missing,
    wanted_checkpoint,
)
from fleetctl.specs.blocks.template import Template

TEMPLATE = Template.model_validate(
    {"script": "x", "volumes": [{"name": "v", "mountPath": "/mnt/v", "links": ["/ckpt"]}]}
)


def request(path: str, resume: str) -> RunRequest:
    return RunRequest(
        run="r", sandbox="r", owner="o", uid="u", resource="tr/x", index=0, attempt=1,
        template=TEMPLATE, template_hash="h", params={}, reusable=False,
        checkpoint=CheckpointOrder(path, "auto", resume),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("path", "resume", "asked"),
    [
        ("/mnt/v/run", "step:7", WantedCheckpoint("v", "run", 7)),
        ("/ckpt", "step:7", WantedCheckpoint("v", "", 7)),  # by a link
        ("/elsewhere", "step:7", None),
        ("/ckpt", "Latest", None),
    ],
)
def test_only_a_step_that_was_named_is_looked_for(
    path: str, resume: str, asked: WantedCheckpoint | None
) -> None:
    assert wanted_checkpoint(request(path, resume)) == asked


@pytest.mark.parametrize(
    "name", ["step-00000007", "checkpoint-7", "epoch=1-step=7.ckpt", "last.ckpt"]
)
def test_what_may_be_there_is_not_refused(name: str) -> None:
    refuse_what_is_missing(WantedCheckpoint("v", "run", 7), [name, "step-00000005"])


def test_what_was_moved_aside_is_not_there() -> None:
    with pytest.raises(Refused, match=r"the newest are: 5$"):
        refuse_what_is_missing(
            WantedCheckpoint("v", "", 7), [".stepped-back-step-7", "step-5", "latest"]
        )
