"""Who acts: a person, or an agent that names itself in the environment of what it starts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fleetctl.common.author import AGENT_VARIABLES, author_name, find_agent, parse_agent
from tests.api.served import job
from tests.docs.fleet import Fleet


def test_without_an_agents_variable_a_person_acts() -> None:
    assert find_agent({"TERM": "xterm", "CLAUDECODE": ""}) == ""
    assert author_name("ana", "") == "ana"


@pytest.mark.parametrize(("variable", "name"), AGENT_VARIABLES)
def test_an_agent_is_known_by_its_variable(variable: str, name: str) -> None:
    found = find_agent({variable: "Some Agent"})
    assert found == (name or "some-agent")
    assert author_name("ana", found) == f"ana via {found}"


@pytest.mark.parametrize("text", ["", "-x", "a;b", "a\x1b[31m", "a" * 41, "<b>", "=1+1"])
def test_a_text_that_is_no_name_is_left_out(text: str) -> None:
    assert parse_agent(text) == ""


def test_what_an_agent_did_on_this_machine_names_it(tmp_path: Path) -> None:
    person, agent = Fleet(tmp_path / "home"), Fleet(tmp_path / "home", {"AI_AGENT": "tester"})
    try:
        person.ok("apply", "-f", "-", "--wait", stdin=job("own"))
        agent.ok("apply", "-f", "-", "--wait", stdin=job("made"))
        header, *rows = person.ok("get", "jobs", "-o", "wide").splitlines()
        at = header.index("USER")
        users = {row.split()[0]: row[at:].split("  ")[0].strip() for row in rows}
        assert users["own"] == "-"
        assert users["made"].endswith(" via tester")
        assert "created by " + users["made"] in person.ok("events", "job/made")
        assert f"ago) by {users['made']}\n" in person.ok("describe", "job/made")
        groups = json.loads(person.ok("cost", "--by", "user", "-o", "json"))
        assert {it["key"] for it in groups} == {None, users["made"]}
        person.ok("suspend", "job/made")
        agent.ok("resume", "job/made")
        assert "resumed by " + users["made"] in person.ok("events", "job/made")
    finally:
        person.close()
