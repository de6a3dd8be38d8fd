"""Changes and logs as server-sent events: they come by themselves, and a client that comes back
misses nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.api.served import ServedFleet, events_of, job, until

Event = tuple[str, str, Any]


@contextmanager
def stream(
    served: ServedFleet, path: str, *, last: str = "", **query: Any
) -> Iterator[Iterator[Event]]:
    headers = {"last-event-id": last} if last else {}
    with (
        served.client() as client,
        client.stream("GET", f"/api/v1/{path}", params=query, headers=headers) as answer,
    ):
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield events_of(answer.iter_lines())


def test_a_watch_sends_an_object_from_its_creation_to_its_deletion(served: ServedFleet) -> None:
    with stream(served, "batchjobs", watch=True, name="seen") as events:
        assert next(events)[1] == "begin"
        assert served.post("apply", {"manifest": job("seen")}).status_code == 200
        types: list[str] = []
        phases: list[str] = []
        for _, event, data in events:
            assert event == "change"
            types.append(data["type"])
            phases.append(data["object"]["status"]["phase"])
            if phases[-1] == "Succeeded":
                gone = served.post("delete", {"keys": ["batchjob/seen"]})
                assert gone.status_code == 200, gone.text
            if types[-1] == "DELETED":
                break
    assert types[0] == "ADDED"
    assert "Succeeded" in phases


def test_a_client_that_comes_back_gets_what_it_missed_once(served: ServedFleet) -> None:
    with stream(served, "batchjobs", watch=True) as events:
        cursor = next(events)[0]
    assert served.post("apply", {"manifest": job("missed")}).status_code == 200
    numbers = []
    with stream(served, "batchjobs", watch=True, name="missed", last=cursor) as events:
        assert next(events)[1] == "begin"
        for number, event, data in events:
            assert event == "change"
            numbers.append(number)
            if data["object"]["status"]["phase"] == "Succeeded":
                break
    assert len(numbers) == len(set(numbers))
    assert served.post("suspend", {"keys": ["batchjob/missed"]}).status_code == 200
    with stream(served, "batchjobs", watch=True, last=numbers[-1]) as events:
        assert next(events)[0] == numbers[-1]
        assert next(events)[0] not in numbers


def test_a_client_of_another_server_process_is_sent_a_reset(served: ServedFleet) -> None:
    with stream(served, "objects", watch=True, last="0000aaaa.7") as events:
        assert next(events)[1] == "begin"
        number, event, data = next(events)
        assert (event, data) == ("reset", {"type": "RESET"})
    assert number.partition(".")[0] != "0000aaaa"
    with stream(served, "objects", watch=True, since=number, name="none") as events:
        assert next(events)[:2] == (number, "begin")


def test_a_log_is_followed_to_its_end_and_resumes_at_a_byte(served: ServedFleet) -> None:
    program = "import time\nfor at in range(20):\n    print('line', at, 'ä')\n    time.sleep(0.05)"
    assert served.post("apply", {"manifest": job("slow", program)}).status_code == 200
    until(lambda: served.get("batchjobs/slow/tasks")["items"], "the first attempt")

    def log(last: str = "") -> tuple[str, list[str]]:
        text = ""
        numbers = []
        with stream(served, "batchjobs/slow/logs", follow=True, last=last) as events:
            for number, event, data in events:
                numbers.append(number)
                if event == "end":
                    break
                text += data["text"]
        return text, numbers

    whole, numbers = log()
    assert [it for it in whole.splitlines() if it.startswith("line")] == [
        f"line {at} ä" for at in range(20)
    ]
    middle = len("line 0 ä\nline 1 ä\n".encode())
    rest, _ = log(str(middle))
    assert rest == whole.encode()[middle:].decode()
    assert numbers[-1] == str(len(whole.encode()))
