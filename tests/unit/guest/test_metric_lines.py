"""Golden case 15: what a command appends to $FLEETCTL_METRICS is kept, and what is not is said."""

from __future__ import annotations

import json
import os
from math import inf, isnan
from pathlib import Path

from fleetctl.guest.journal.record import Journal
from fleetctl.guest.journal.results import MetricLines
from fleetctl.providers.rundir.run_journal import parse_journal


def test_case_15_a_loss_that_left_the_numbers_is_stored_as_such(tmp_path: Path) -> None:
    lines = b'{"step": 11, "loss": 4.5}\n{"step": 12, "loss": NaN, "up": Infinity}\n'
    found, wrong = MetricLines().take(lines)
    directory = os.open(tmp_path, os.O_RDONLY)
    journal = Journal(directory, "run")
    os.close(directory)
    for step, values in found:
        assert journal.metric(step, values, 5.0)
    # As a task's own report() says it, over a line that is JSON.
    assert journal.metric(13, json.loads('{"loss": "NaN"}'), 5.0)
    assert not journal.metric(14, {"loss": "high"}, 5.0)
    journal.close()
    told = parse_journal((tmp_path / "run.jsonl").read_bytes()).metrics
    assert [(it.step, it.name) for it in told] == [
        (11, "loss"),
        (12, "loss"),
        (12, "up"),
        (13, "loss"),
    ]
    assert isnan(told[1].value) and told[2].value == inf and isnan(told[3].value)
    assert wrong == []


def test_case_15_a_line_with_other_things_keeps_its_numbers_and_one_warning() -> None:
    lines = MetricLines()
    data = b"".join(
        b'{"step": %d, "loss": 1, "phase": "warm", "ok": true}\n' % at for at in range(9)
    )
    found, wrong = lines.take(data)
    assert found == [(at, {"loss": 1.0}) for at in range(9)]
    assert wrong == [
        "line 1 of $FLEETCTL_METRICS: `phase` at step 0 is `warm` and is not recorded;"
        " a metric is a number"
    ]
    assert lines.remark == f"{wrong[0]} (9 lines in all)"


def test_nested_values_are_metrics_by_dotted_name_as_wandb_has_them() -> None:
    lines = MetricLines()
    found, wrong = lines.take(b'{"step": 1, "val": {"loss": 2, "by": {"a": 3}}, "list": [1]}\n')
    assert found == [(1, {"val.loss": 2.0, "val.by.a": 3.0})]
    assert wrong == [
        "line 1 of $FLEETCTL_METRICS: `list` at step 1 is `[1]` and is not recorded;"
        " a metric is a number"
    ]
    deep = b'{"a": ' * 40 + b"1" + b"}" * 40 + b"\n"
    assert MetricLines().take(deep)[0] == []


def test_steps_are_whole_numbers_however_they_are_written_and_go_on_by_themselves() -> None:
    data = (
        b'{"loss": 1}\n{"step": 4.0, "loss": 2}\n{"loss": 3}\n{"step": "7", "loss": 4}\n\n'
        b'{"loss": 5}\n{"step": 2.5, "loss": 6}\n{"step": true, "loss": 7}\n{"loss": 8}\n'
    )
    lines = MetricLines()
    cut = data.index(b'{"step": "7"')
    found, wrong = lines.take(data[: cut + 5])
    more, others = lines.take(data[cut:])
    assert [step for step, _ in found + more] == [0, 4, 5, 7, 8, 9]
    assert [it.split(":")[0] for it in wrong + others] == [
        "line 7 of $FLEETCTL_METRICS is not recorded",
        "line 8 of $FLEETCTL_METRICS is not recorded",
    ]
