"""An older minor version at the other end: what a command line and a server of version 0.1 sent
each other is recorded, and holds for the server and the command line of today.

`FLEETCTL_GOLDEN=write pytest tests/api/test_wire.py` records it again, which is done once for each
minor version, before it is released: today's is the only one until there is a second.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.api.served import ServedFleet, job
from tests.api.wire_proxy import Exchange, record_into, replay
from tests.docs.fleet import Fleet

RECORDED = Path(__file__).parent / "wire" / "0.1.json"
AGE = re.compile(r"\b\d+(?:\.\d+)?[smhd]\d*[smhd]?\b *")
MANIFEST = job("seen", "print('said', a)\nSUBMIT(x=a)", tasks=2)
SESSION: tuple[tuple[tuple[str, ...], str], ...] = (
    (("get", "jobs", "-o", "json"), ""),
    (("get", "tasks", "job/seen", "-o", "json"), ""),
    (("describe", "job/seen"), ""),
    (("results", "job/seen", "-o", "jsonl"), ""),
    (("events", "job/seen", "-o", "json"), ""),
    (("logs", "job/seen"), ""),
    (("query", "select name, phase from objects"), ""),
    (("plan", "-o", "json", "-f", "-"), MANIFEST),
    (("suspend", "job/seen"), ""),
    (("resume", "job/seen"), ""),
    (("get", "job/none"), ""),
)


def far(place: Path, url: str, token: str) -> Fleet:
    more = {"FLEETCTL_SERVER": url, "FLEETCTL_TOKEN": token, "XDG_CONFIG_HOME": str(place)}
    return Fleet(place / "far", more)


def names_in(served: ServedFleet) -> dict[str, str]:
    """What has another name in each fleet: the object's uid and its runs."""
    runs = served.json("query", "select idx, run from attempts where name = 'seen'")
    uid = served.json("get", "job/seen")["metadata"]["uid"]
    return {"uid": uid} | {f"run{it['idx']}": it["run"] for it in runs}


def record(served: ServedFleet, place: Path, token: str) -> dict[str, Any]:
    found: list[Exchange] = []
    proxy = record_into(found, served.url)
    fleet = far(place, proxy.url, token)
    screens = []
    for words, stdin in SESSION:
        ran = fleet.run(*words, stdin=stdin)
        screens.append({"words": words, "code": ran.code, "out": ran.out})
    proxy.close()
    names = names_in(served)
    return {"names": names, "screens": screens, "exchanges": [it.document() for it in found]}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Any:
    fleet = ServedFleet(tmp_path_factory.mktemp("wire") / "home")
    fleet.ok("apply", "-f", "-", "--wait", stdin=MANIFEST)
    if os.environ.get("FLEETCTL_GOLDEN") == "write":
        made = record(fleet, tmp_path_factory.mktemp("far"), fleet.token("far", "admin", "-A"))
        RECORDED.write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n")
    yield fleet
    fleet.close()


def read_recorded() -> tuple[dict[str, Any], list[Exchange]]:
    found = json.loads(RECORDED.read_text(encoding="utf-8"))
    return found, [Exchange(**it) for it in found["exchanges"]]


def lacks(old: Any, new: Any, where: str = "$") -> list[str]:
    """What an older reader would miss: keys and types; texts, numbers and lengths may differ."""
    if isinstance(old, Mapping):
        if not isinstance(new, Mapping):
            return [f"{where} is no object"]
        gone = [f"{where}.{key} is gone" for key in old if key not in new]
        both = (key for key in old if key in new)
        return gone + [it for key in both for it in lacks(old[key], new[key], f"{where}.{key}")]
    if isinstance(old, list):
        if not isinstance(new, list):
            return [f"{where} is no list"]
        pairs = zip(old, new, strict=False)
        return [it for at, (a, b) in enumerate(pairs) for it in lacks(a, b, f"{where}[{at}]")]
    number = (int, float)
    same = type(old) is type(new) or (type(old) in number and type(new) in number)
    return [] if same or old is None or new is None else [f"{where} is of another type"]


def parse_answer(text: str, sort: str) -> Any:
    if sort == "application/json":
        return json.loads(text)
    if sort == "application/x-ndjson":
        return [json.loads(line) for line in text.splitlines()]
    return text


def test_todays_server_gives_an_older_command_line_what_it_reads(served: ServedFleet) -> None:
    found, exchanges = read_recorded()
    names = names_in(served)
    assert names.keys() == found["names"].keys()
    assert len(exchanges) >= len(SESSION)

    def renamed(text: str) -> str:
        for name, old in found["names"].items():
            text = text.replace(old, names[name])
        return text

    with served.client(served.token("old", "admin", "-A")) as client:
        for it in exchanges:
            answer = client.request(
                it.method,
                renamed(it.target),
                content=renamed(it.body) or None,
                headers={"x-fleetctl-version": it.version, "content-type": "application/json"},
            )
            assert answer.status_code == it.status, (it.target, answer.text)
            sort = it.headers.get("content-type", "").partition(";")[0]
            assert answer.headers.get("content-type", "").partition(";")[0] == sort
            assert set(it.headers) <= set(answer.headers)
            problems = lacks(parse_answer(it.answer, sort), parse_answer(answer.text, sort))
            assert not problems, (it.target, problems)


def test_todays_command_line_reads_an_older_server(served: ServedFleet, tmp_path: Path) -> None:
    found, exchanges = read_recorded()
    server = replay(exchanges)
    try:
        fleet = far(tmp_path, server.url, "flt_00000000_x")
        for (words, stdin), screen in zip(SESSION, found["screens"], strict=True):
            ran = fleet.run(*words, stdin=stdin)
            assert ran.code == screen["code"], (words, ran.talk)
            assert AGE.sub("AGE ", ran.out) == AGE.sub("AGE ", screen["out"]), words
    finally:
        server.close()
    assert not fleet.home.exists()
