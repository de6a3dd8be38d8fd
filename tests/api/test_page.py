"""The page in a real browser, on a real fleet: what a person sees, types and presses, and what the
world is then.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from fleetctl.server.page_data import ROOT
from fleetctl.specs.kinds.registry import KINDS
from tests.api.browsing import launched, opened
from tests.api.served import ServedFleet, job, until

BYTES_MAX = 300_000
MARKUP = "<img src=x onerror=document.title='run'>"
FAILS = 'print("\\033[31mred\\033[0m and", a)\nif a == 3: raise ValueError("no three")\nSUBMIT(x=a)'

pytestmark = pytest.mark.needs("chromium")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    yield from launched()


@pytest.fixture
def page(browser: Browser, served: ServedFleet) -> Iterator[Page]:
    yield from opened(browser, served)


def test_what_is_applied_elsewhere_comes_by_itself(page: Page, served: ServedFleet) -> None:
    page.goto("/")
    expect(page.locator("#live")).to_have_text("live")
    served.ok("apply", "-f", "-", "--wait", stdin=job("arrives", tasks=2))
    page.goto("/objects")
    row = page.get_by_role("row").filter(has_text="batchjob/arrives")
    expect(row).to_contain_text("2/2")
    served.ok("apply", "-f", "-", "--wait", stdin=job("later"))
    expect(page.get_by_role("row").filter(has_text="batchjob/later")).to_contain_text("Succeeded")


def test_a_list_shows_the_row_of_its_kind(page: Page, served: ServedFleet) -> None:
    """Its summary and its columns; the server sends both."""
    served.ok("apply", "-f", "-", "--wait", stdin=job("row-of-its-kind"))
    page.goto("/objects?kind=batchjobs")
    expect(page.get_by_text(KINDS["BatchJob"].summary)).to_be_visible()
    titles = page.get_by_role("columnheader")
    expect(titles.filter(has_text="DONE")).to_be_visible()
    page.get_by_label("Kind", exact=True).select_option("sweeps")
    expect(page.get_by_text(KINDS["Sweep"].summary)).to_be_visible()


def test_a_list_and_an_object_name_the_author(page: Page, served: ServedFleet) -> None:
    token = served.token("ana", "editor", "-n", "default")
    assert served.post("apply", {"manifest": job("signed")}, token=token).status_code == 200
    page.goto("/objects?filter=signed")
    expect(page.get_by_role("columnheader", name="User", exact=True)).to_be_visible()
    row = page.get_by_role("row").filter(has_text="batchjob/signed")
    expect(row.get_by_role("cell", name="ana", exact=True)).to_be_visible()
    page.goto("/objects/batchjobs/default/signed")
    for title in ("Created by", "Changed by"):
        entry = page.locator("dt", has_text=title)
        expect(entry.locator("xpath=following-sibling::dd[1]")).to_have_text("ana")


def test_a_failed_task_is_found_by_the_keyboard_and_its_log_is_read(
    page: Page, served: ServedFleet
) -> None:
    served.ok("apply", "-f", "-", stdin=job("fails", FAILS, tasks=6, backoffLimitPerIndex=0))
    served.run("wait", "job/fails")
    page.goto("/objects/batchjobs/default/fails")
    expect(page.locator(".legend")).to_have_text("Succeeded 5Failed 1")
    page.locator(".grid").focus()
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    expect(page.get_by_role("heading", name="task 3")).to_be_visible()
    attempt = page.get_by_role("region", name="Attempts")
    expect(attempt).to_contain_text("no three")
    attempt.get_by_role("link").click()
    expect(page).to_have_url(re.compile(r"/logs\?index=3&attempt=1$"))
    expect(page.locator(".log .ansi-31")).to_have_text("red")
    expect(page.get_by_role("log")).to_contain_text("and 3")
    page.get_by_label("Search").fill("NO THREE")
    page.get_by_label("Search").press("Enter")
    expect(page.locator("mark").first).to_have_text("no three")


def test_what_people_wrote_is_text_on_every_view(page: Page, served: ServedFleet) -> None:
    code = f"print({MARKUP!r})\nSUBMIT(text={MARKUP!r})"
    made = json.loads(job("markup", code))
    made["metadata"]["annotations"] = {"note": MARKUP}
    made["spec"]["tasks"]["items"] = [{"a": MARKUP}]
    served.ok("apply", "-f", "-", "--wait", stdin=json.dumps(made))
    for view in ("tasks?index=0", "logs", "results", "plots", "events", "manifest"):
        page.goto(f"/objects/batchjobs/default/markup/{view}")
        expect(page.get_by_role("navigation", name="Parts of this object")).to_be_visible()
        if view in ("tasks?index=0", "logs", "results", "manifest"):
            expect(page.locator("#tab")).to_contain_text(MARKUP)
        assert page.locator("#tab img").count() == 0
        assert page.title() == "markup - fleetctl"


def test_objects_are_deleted_together_after_a_question(page: Page, served: ServedFleet) -> None:
    for name in ("first-of-two", "second-of-two"):
        served.ok("apply", "-f", "-", "--wait", stdin=job(name))
    page.goto("/objects?filter=of-two")
    boxes = page.get_by_role("checkbox")
    expect(boxes).to_have_count(2)
    for at in range(2):
        boxes.nth(at).check()
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    assert len(served.get("objects", filter="of-two")["items"]) == 2
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.get_by_text("No object is like that.")).to_be_visible()
    assert served.get("objects", filter="of-two")["items"] == []


def test_a_manifest_is_planned_and_applied(page: Page, served: ServedFleet) -> None:
    page.goto("/plan")
    page.get_by_label("Manifest").fill(job("pasted", tasks=3))
    page.get_by_role("button", name="Plan").click()
    plan = page.get_by_role("region", name="Plan")
    expect(plan).to_contain_text("3 new")
    assert served.run("get", "job/pasted").code == 4
    page.get_by_role("button", name="Apply").click()
    expect(page.get_by_text("batchjob/pasted created")).to_be_visible()
    served.ok("wait", "job/pasted")

    page.get_by_label("Manifest").fill("kind: BatchJob\nname: typo\ncompletons: 3\n")
    page.get_by_role("button", name="Plan").click()
    expect(page.get_by_role("alert")).to_contain_text("completions")


def test_a_hundred_thousand_tasks_are_a_grid(page: Page, served: ServedFleet) -> None:
    many = {"kind": "BatchJob", "name": "many", "completions": 100_000, "script": "true"}
    many["suspend"] = True
    served.ok("apply", "-f", "-", stdin=json.dumps(many))
    page.goto("/objects/batchjobs/default/many")
    expect(page.locator(".legend")).to_have_text("Not begun 100000")
    grid = page.locator(".grid")
    grid.evaluate("grid => { grid.scrollTop = grid.scrollHeight; }")
    assert page.locator("canvas").count() == 1 and page.locator("*").count() < 400


def test_a_viewer_enters_a_token_and_changes_nothing(browser: Browser, tmp_path: Path) -> None:
    served = ServedFleet(tmp_path / "home", "--behind-proxy", "--name", "127.0.0.1")
    try:
        served.ok("apply", "-f", "-", "--wait", stdin=job("kept"))
        token = served.token("ada", "viewer")
        headers = {"x-forwarded-for": "192.0.2.7"}
        for page in opened(browser, served, extra_http_headers=headers):
            page.goto("/objects")
            page.get_by_label("Token").fill(token)
            page.get_by_role("button", name="Enter").click()
            page.get_by_role("checkbox").check()
            page.get_by_role("button", name="Delete").click()
            page.get_by_role("dialog").get_by_role("button", name="Delete").click()
            expect(page.get_by_role("alert")).to_be_visible()
            assert page.context.cookies() == []
        assert served.run("get", "job/kept").code == 0
    finally:
        served.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_screen_reader_finds_its_way(browser: Browser, served: ServedFleet, scheme: Any) -> None:
    served.ok("apply", "-f", "-", stdin=job("read-aloud", FAILS, tasks=4, backoffLimitPerIndex=0))
    served.run("wait", "job/read-aloud")
    views = ("", "/logs", "/results", "/events", "/manifest")
    objects = [f"/objects/batchjobs/default/read-aloud{view}" for view in views]
    phone = {"width": 390, "height": 800}
    for page in opened(browser, served, color_scheme=scheme, viewport=phone):
        for path in ("/", "/objects", "/events", "/plan", *objects):
            page.goto(path)
            expect(page.locator("h1")).to_be_visible()
            found = Axe().run(page)
            assert found.violations_count == 0, f"{path}: {found.generate_report()}"
            wide = "document.documentElement.scrollWidth <= window.innerWidth"
            assert page.evaluate(wide), f"{path} is wider than a phone"


def test_all_of_the_page_is_small() -> None:
    assert sum(path.stat().st_size for path in ROOT.iterdir()) <= BYTES_MAX


def test_views_of_addresses_that_lead_nowhere_say_so(page: Page, served: ServedFleet) -> None:
    page.goto("/objects/batchjobs/default/nobody-made-it")
    expect(page.get_by_role("alert")).to_contain_text("there is no BatchJob `nobody-made-it`")
    until(lambda: served.run("status").code == 0)
