"""Questions whose cost must not grow with what is over: SQLite tells how it would answer them."""

from __future__ import annotations

import re
import sqlite3

import pytest

from fleetctl.stores import queries

# (file, query) -> the table whose finished rows it must not walk over.
QUESTIONS = {
    ("state.sql", "awake"): "resources",
    ("state.sql", "next_wake"): "resources",
    ("state.sql", "changed_resources"): "resources",
    ("state.sql", "resource_of"): "resources",
    ("state.sql", "get_resource"): "resources",
    ("state.sql", "living_resources"): "resources",
    ("state.sql", "runs_page"): "runs",
    ("reader.sql", "resource_of"): "resources",
    ("reader.sql", "resource"): "resources",
    ("reader.sql", "live_runs"): "runs",
    ("reader.sql", "live_prices"): "runs",
    ("reader.sql", "held"): "runs",
    ("reader.sql", "held_by_provider"): "runs",
}
# Partial indexes that hold nothing of what is over.
OF_THE_LIVE = ("resources_awake", "runs_held")


@pytest.mark.parametrize(("file", "query"), QUESTIONS)
def test_a_question_walks_over_no_finished_row(file: str, query: str) -> None:
    table = QUESTIONS[file, query]
    database = sqlite3.connect(":memory:")
    for statement in queries.read_statements("state_schema.sql"):
        database.execute(statement)
    asked = queries.read_queries(file)[query]
    count = max(map(int, re.findall(r"\?(\d)", asked)), default=asked.count("?"))
    steps = [row[3] for row in database.execute(f"EXPLAIN QUERY PLAN {asked}", [1] * count)]
    scans = [step for step in steps if re.match(rf"SCAN {table}\b", step)]
    assert all(step.endswith(OF_THE_LIVE) for step in scans), steps
    assert any(re.match(rf"(SCAN|SEARCH) {table}\b", step) for step in steps), steps
