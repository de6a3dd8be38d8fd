"""Views of a Queue, of an Endpoint and of artifacts in a real browser, on a real fleet."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from tests.api.browsing import launched, opened
from tests.api.served import ServedFleet, job, until
from tests.emulators.llm.running import running
from tests.emulators.llm.server import Model

PHONE = {"width": 390, "height": 800}

pytestmark = pytest.mark.needs("chromium")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    yield from launched()


@pytest.fixture
def page(browser: Browser, served: ServedFleet) -> Iterator[Page]:
    yield from opened(browser, served)


def manifest(kind: str, name: str, **spec: Any) -> str:
    return json.dumps(
        {
            "apiVersion": "fleetctl.dev/v1alpha1",
            "kind": kind,
            "metadata": {"name": name},
            "spec": spec,
        }
    )


def rows_of(page: Page, table: str) -> list[list[str]]:
    rows = page.get_by_role("region", name=table).locator("tbody tr").all()
    return [row.locator("td").all_inner_texts() for row in rows]


def test_a_queue_shows_what_is_admitted_and_what_waits_at_which_position(
    page: Page, served: ServedFleet
) -> None:
    served.ok("apply", "-f", "-", stdin=manifest("Queue", "one", quotas=[{"nominal": 1}]))
    program = "import time\ntime.sleep(3600)"
    served.ok("apply", "-f", "-", stdin=job("goes", program, queue="one"))
    until(lambda: served.get("batchjobs/goes")["status"].get("active"))
    served.ok("apply", "-f", "-", stdin=job("third", program, tasks=2, queue="one"))
    second = job("second", program, namespace="team", queue="one", priority="high")
    served.ok("apply", "-f", "-", stdin=second)
    page.goto("/objects/queues/-/one")
    waiting = page.get_by_role("region", name="Waiting")
    expect(waiting.locator("tbody tr")).to_have_count(2)
    verbs = page.locator("[data-verb]")
    expect(verbs).to_have_text(["Suspend", "Resume", "Delete"])  # nothing in it runs again
    admitted = page.get_by_role("region", name="Admitted")
    expect(admitted.get_by_role("link", name="batchjob/goes")).to_be_visible()
    titles = waiting.get_by_role("columnheader").all_inner_texts()
    rows = [dict(zip(titles, row, strict=True)) for row in rows_of(page, "Waiting")]
    assert [(row["#"], row["OBJECT"]) for row in rows] == [
        ("1", "batchjob/second -n team"),
        ("2", "batchjob/third"),
    ]
    assert [row["IN ALL"] for row in rows] == ["sandboxes 1", "sandboxes 2"]
    assert all("queue/one" in row["WHY"] for row in rows)

    served.ok("delete", "job/goes", "--yes")  # the page follows: the first that waited goes
    expect(admitted.get_by_role("link", name="batchjob/second -n team")).to_be_visible()
    served.ok("delete", "job/second", "-n", "team", "--yes")
    expect(admitted.get_by_role("link", name="batchjob/third")).to_be_visible()
    expect(waiting.locator("tbody tr")).to_contain_text("sandboxes 1")
    waiting.get_by_role("link", name="batchjob/third").press("Enter")
    expect(page.get_by_role("heading", name="batchjob/third")).to_be_visible()
    served.ok("delete", "job/third", "--yes")


def test_a_viewer_of_a_namespace_sees_no_names_of_others_in_a_queue(served: ServedFleet) -> None:
    served.ok(
        "apply", "-f", "-", stdin=manifest("Queue", "shut", suspend=True, quotas=[{"nominal": 1}])
    )
    served.ok("apply", "-f", "-", stdin=job("ours", namespace="ours", queue="shut"))
    served.ok("apply", "-f", "-", stdin=job("hidden", namespace="theirs", queue="shut"))
    token = served.token("vera", "viewer", "-n", "ours")

    def find_tables() -> Any:
        found = served.get("queues/shut", token=token)
        rows = {it["title"]: it["rows"] for it in found["tables"]}["Waiting"]
        return (found, rows) if len(rows) == 2 else None

    found, rows = until(find_tables)
    assert [row[1]["text"] for row in rows] == ["batchjob/ours -n ours", "of another namespace"]
    assert rows[0][1]["object"]["name"] == "ours"
    assert "hidden" not in json.dumps(found)
    served.ok("delete", "job/ours", "-n", "ours", "--yes")
    served.ok("delete", "job/hidden", "-n", "theirs", "--yes")


def test_an_endpoint_shows_its_servers_queue_rate_and_spend(
    page: Page, served: ServedFleet
) -> None:
    with running(Model(slots=1, answer_s=0.2)) as model:
        made = manifest(
            "Endpoint",
            "small",
            servers=[{"url": f"{model.url}/v1", "slots": 1}],
            models={"chat": "tiny"},
            prices={"chat": {"inputPerMillion": 1000.0, "outputPerMillion": 1000.0}},
        )
        served.ok("apply", "-f", "-", stdin=made)
        page.goto("/objects/endpoints/default/small")
        server = page.get_by_role("region", name="Servers").locator("tbody tr")
        expect(server).to_contain_text(model.url)
        expect(server).to_contain_text("Ready")
        asks = json.loads(job("asks", tasks=2000))
        del asks["spec"]["placement"]
        asks["spec"]["template"] = {"prompt": {"endpoint": "small", "text": "Count to {a}"}}
        served.ok("apply", "-f", "-", stdin=json.dumps(asks))
        fields = page.locator("#tab dl")
        expect(fields).to_contain_text("requests waiting")
        expect(fields).to_contain_text("in the last minute")
        expect(fields).to_contain_text("/h for calls")
        expect(fields).to_contain_text("p95")
        served.ok("delete", "job/asks", "--yes")
        expect(fields).not_to_contain_text("requests waiting")

        def shows_the_same() -> bool:
            described = served.ok("describe", "endpoint/small")
            titles = fields.locator("dt").filter(has_text=re.compile("Calls|Tokens|Cost|Answers"))
            texts = titles.locator("xpath=following-sibling::dd[1]").all_inner_texts()
            return len(texts) == 4 and all(it in described for it in texts)

        until(shows_the_same)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_screen_reader_finds_its_way(browser: Browser, served: ServedFleet, scheme: Any) -> None:
    closed = manifest("Queue", "closed", suspend=True, quotas=[{"nominal": 1}])
    served.ok("apply", "-f", "-", stdin=closed)
    served.ok("apply", "-f", "-", stdin=job("stands", queue="closed"))
    for page in opened(browser, served, color_scheme=scheme, viewport=PHONE):
        for path in ("/objects/queues/-/closed", "/objects/queues/-/closed/details"):
            page.goto(path)
            expect(page.locator("#tab")).not_to_be_empty()
            found = Axe().run(page)
            assert found.violations_count == 0, f"{path}: {found.generate_report()}"
            wide = "document.documentElement.scrollWidth <= window.innerWidth"
            assert page.evaluate(wide), f"{path} is wider than a phone"
