"""Lists and objects: filtered, sorted, paged and counted in the server."""

from __future__ import annotations

import json

import pytest

from tests.api.served import ServedFleet, job, names, until


@pytest.fixture(scope="module")
def ended(served: ServedFleet) -> ServedFleet:
    """Five jobs that ended, one of them badly."""
    texts = [job(f"good-{at}", labels={"team": "ab"[at % 2]}) for at in range(4)]
    texts.append(job("bad", "print('before the end')\nraise ValueError('no')", tasks=3))
    answer = served.post("apply", {"manifest": "\n---\n".join(texts)})
    assert answer.status_code == 200, answer.text
    until(lambda: served.get("batchjobs", phase="Succeeded,Failed")["items"][4:], "their end")
    return served


def test_a_list_counts_all_phases_and_holds_the_documents_of_get(ended: ServedFleet) -> None:
    found = ended.get("batchjobs")
    assert found["metadata"]["counts"] == {"Failed": 1, "Succeeded": 4}
    assert found["metadata"]["total"] == 5
    printed = {it["metadata"]["name"]: it for it in ended.json("get", "jobs")["items"]}
    for item in found["items"]:
        same = {key: item[key] for key in ("apiVersion", "kind", "metadata", "status")}
        expected = printed[item["metadata"]["name"]]
        assert same == {key: expected[key] for key in same}
    bad = next(it for it in found["items"] if it["metadata"]["name"] == "bad")
    assert "Failed" in bad["cells"]
    assert bad["why"]


def test_phases_labels_and_names_filter(ended: ServedFleet) -> None:
    assert names(ended.get("batchjobs", phase="Failed")) == ["bad"]
    assert names(ended.get("batchjobs", filter="team=a")) == ["good-0", "good-2"]
    assert names(ended.get("batchjobs", filter="team notin (a),team")) == ["good-1", "good-3"]
    assert names(ended.get("batchjobs", filter="OOD-3")) == ["good-3"]
    assert ended.get("batchjobs", filter="!team")["metadata"]["counts"] == {"Failed": 1}
    assert ended.get("sweeps")["items"] == []


@pytest.mark.parametrize("sort", ["created", "-created", "name", "-name", "phase", "-failed"])
def test_pages_hold_each_object_once_in_order(ended: ServedFleet, sort: str) -> None:
    whole = names(ended.get("batchjobs", sort=sort))
    paged: list[str] = []
    after = ""
    while True:
        page = ended.get("batchjobs", sort=sort, limit=2, **({"continue": after} if after else {}))
        paged += names(page)
        after = page["metadata"]["continue"]
        if not after:
            break
    assert paged == whole
    assert sorted(whole) == ["bad", "good-0", "good-1", "good-2", "good-3"]
    if sort == "-failed":
        assert whole[0] == "bad"


def test_an_object_its_tasks_results_and_events(ended: ServedFleet) -> None:
    one = ended.get("batchjobs/bad")
    assert one["status"]["phase"] == "Failed"
    assert one["why"].startswith("Failed") or "no" in one["why"]
    assert one["spec"]["template"]["python"].startswith("print")
    tasks = ended.get("batchjobs/bad/tasks", limit=2)
    assert [it["metadata"]["index"] for it in tasks["items"]] == [0, 1]
    rest = ended.get("batchjobs/bad/tasks", limit=2, **{"continue": tasks["metadata"]["continue"]})
    assert [it["metadata"]["index"] for it in rest["items"]] == [2]
    assert rest["metadata"]["continue"] == ""
    assert tasks["metadata"]["counts"]["failed"] == 3
    attempts = ended.get("batchjobs/bad/tasks", index=1)["items"]
    assert len(attempts) == attempts[-1]["metadata"]["attempt"]
    results = ended.get("batchjobs/good-0/results")["items"]
    assert [it["result"] for it in results] == [{"x": 1}]
    events = ended.get("batchjobs/good-0/events")["items"]
    assert events[0]["reason"] == "Created"
    assert {it["object"] for it in ended.get("events")["items"]} >= {"batchjob/bad"}


def test_logs_are_bytes_from_an_offset_and_lines_that_match(ended: ServedFleet) -> None:
    with ended.client() as client:
        path = "/api/v1/batchjobs/bad/logs"
        whole = client.get(path, params={"index": 1})
        assert b"before the end" in whole.content
        assert whole.headers["x-ended"] == "true"
        assert whole.headers["content-type"] == "text/plain; charset=utf-8"
        at = whole.content.index(b"the end")
        rest = client.get(path, params={"index": 1, "offset": at})
        assert rest.content == whole.content[at:]
        assert int(rest.headers["x-next-offset"]) == len(whole.content)
        piece = client.get(path, params={"index": 1, "limit": 6})
        assert piece.content == b"before"
        assert piece.headers["x-next-offset"] == "6"
        assert piece.headers["x-ended"] == "false"
    found = ended.get("batchjobs/bad/logs", index=1, search="VALUEerror")
    assert found["ended"]
    for line in found["lines"]:
        begins = whole.content[line["offset"] :].decode()
        assert begins.startswith(line["text"])
    assert any("ValueError: no" in line["text"] for line in found["lines"])


@pytest.mark.parametrize(
    ("path", "status", "code", "text"),
    [
        ("batchjobs/none", 404, 4, "there is no BatchJob `none`"),
        ("jobsx", 404, 4, "there is no kind `jobsx`"),
        ("batchjobs?sort=colour", 400, 2, "`sort` is `colour`"),
        ("batchjobs?limit=-1", 400, 2, "`limit` is `-1`"),
        ("batchjobs?continue=abc", 400, 2, "`continue`"),
        ("batchjobs?filter=a%3D%3D%3D(", 400, 2, "not a label selector"),
        ("batchjobs/bad/logs?index=9", 404, 4, "no such task"),
        ("volumes/x/tasks", 404, 4, "there is no Volume"),
        ("nothing/at/all/here", 404, 4, "there is no"),
    ],
)
def test_a_wrong_request_gets_its_reason(
    ended: ServedFleet, path: str, status: int, code: int, text: str
) -> None:
    with ended.client() as client:
        answer = client.get(f"/api/v1/{path}")
    assert answer.status_code == status, answer.text
    body = answer.json()
    assert body["code"] == code
    assert not body["ok"]
    assert text in " ".join(body["errors"])


def test_every_get_route_of_the_document_answers_as_it_says(ended: ServedFleet) -> None:
    document = ended.get("openapi.json")
    values = {
        "plural": "batchjobs",
        "name": "good-0",
        "query": "namespaces",
        "run": "none",
        "volume": "none",
    }
    seen = 0
    with ended.client() as client:
        for path, methods in document["paths"].items():
            if "get" not in methods:
                continue
            answer = client.get(path.format(**values))
            sort = next(iter(methods["get"]["responses"]["200"]["content"]))
            known = (
                answer.status_code == 200 or str(answer.status_code) in methods["get"]["responses"]
            )
            assert known, (path, answer.text)
            if answer.status_code == 200:
                assert answer.headers["content-type"].startswith(sort), path
                seen += 1
    assert seen >= 14
    json.dumps(document)
