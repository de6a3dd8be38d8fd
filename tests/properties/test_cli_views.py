"""Whatever a status holds, every screen has something to say and says it safely."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from fleetctl.cli.output.live import progress_text
from fleetctl.cli.show.summary import best_line, format_work_time
from fleetctl.common.text import escape_line
from fleetctl.specs.kinds.registry import KINDS
from fleetctl.stores.read.rows import ResourceRow
from fleetctl.views.columns import choose_columns
from fleetctl.views.goals import WORDS, WaitGoal, check_goal, format_tally
from fleetctl.views.objects import (
    build_document,
    build_view,
    explain_status,
    is_standing_still,
    suggest_fix,
)

KEYS = (
    "phase", "reason", "message", "observedGeneration", "total", "active", "succeeded", "failed",
    "retries", "infraFailures", "completedIndexes", "failedIndexes", "conditions", "startTime",
    "completionTime", "waitingOn", "isolation", "where", "best", "metric", "method", "stage",
    "lastFailure", "hint", "workedSeconds", "workingSince", "gpu",
)  # fmt: skip
PHASES = ("Pending", "Running", "Suspended", "Succeeded", "Failed", "Deleting", "Ready")
FIELDS = ("index", "params", "name", "value", "type", "status", "goal")
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(("index", "params", "name", "value", "type", "status", "goal"))
            | st.text(max_size=4),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)
statuses = st.dictionaries(st.sampled_from(KEYS), values, max_size=12).flatmap(
    lambda status: st.sampled_from(PHASES).map(lambda phase: {"phase": phase, **status})
)


@given(
    kind=st.sampled_from([*KINDS, "Newer"]),
    status=statuses,
    spec=st.dictionaries(st.text(max_size=6), values, max_size=4),
    label=st.text(max_size=6),
    deleted=st.booleans(),
)
def test_any_status_can_be_shown_and_nothing_shown_drives_a_terminal(
    kind: str, status: dict[str, object], spec: dict[str, object], label: str, deleted: bool
) -> None:
    row = ResourceRow(
        uid="u", kind=kind, name="x", generation=1, version=1, created_at_s=0.0,
        deleted_at_s=1.0 if deleted else None, labels={label: label}, annotations={},
        status=json.dumps(status),
    )  # fmt: skip
    seen = build_view(row, lambda: json.dumps(spec))
    for chosen in (seen.kind, None):
        for column in choose_columns(chosen, wide=True):
            cell = column.cell(seen, 10.0)
            assert cell and cell == escape_line(cell), column.title
    for text in (best_line(seen), progress_text(seen, 40), format_work_time(seen)):
        assert text == escape_line(text)
    assert json.loads(json.dumps(build_document(seen, 10.0)))["metadata"]["name"] == "x"
    for word in WORDS:
        assert check_goal(WaitGoal(word), seen).outcome
    assert isinstance(is_standing_still(seen), bool)
    assert isinstance(explain_status(seen) + suggest_fix(seen) + format_tally(seen), str)
