"""The page where the connection fails, or a person is quicker than the server: what is shown comes
by itself once the server answers, and no script fails.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.api.browsing import launched, opened
from tests.api.served import ServedFleet, job

LISTS = "**/api/v1/objects?*limit=*"

pytestmark = pytest.mark.needs("chromium")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    yield from launched()


@pytest.fixture
def page(browser: Browser, served: ServedFleet) -> Iterator[Page]:
    yield from opened(browser, served)


def test_an_open_page_goes_on_after_the_server_was_restarted(
    browser: Browser, tmp_path: Path
) -> None:
    served = ServedFleet(tmp_path / "home")
    try:
        for page in opened(browser, served):
            page.goto("/objects")
            expect(page.locator("#live")).to_have_text("live")
            served.end()
            expect(page.locator("#live")).to_have_text("connection lost, trying again")
            served.server = served.start("--listen", served.url.removeprefix("http://"))
            expect(page.locator("#live")).to_have_text("live")
            served.ok("apply", "-f", "-", "--wait", stdin=job("after"))
            expect(page.get_by_text("batchjob/after")).to_be_visible()
    finally:
        served.close()


def test_a_view_that_failed_to_load_comes_once_the_server_answers(
    page: Page, served: ServedFleet
) -> None:
    served.ok("apply", "-f", "-", "--wait", stdin=job("loads"))
    page.route(LISTS, lambda route: route.abort())
    page.goto("/objects")
    expect(page.get_by_role("alert")).to_contain_text("the server cannot be reached")
    page.unroute(LISTS)
    expect(page.get_by_text("batchjob/loads")).to_be_visible()


def test_a_change_whose_look_failed_is_shown_later(browser: Browser, tmp_path: Path) -> None:
    """A change is sent once; with the controller gone nothing else changes afterwards."""
    served = ServedFleet(tmp_path / "home")
    try:
        for page in opened(browser, served):
            page.goto("/objects")
            expect(page.get_by_text("No object is like that.")).to_be_visible()
            expect(page.locator("#live")).to_have_text("live")
            page.route(LISTS, lambda route: route.abort())
            served.ok("apply", "-f", "-", "--wait", stdin=job("shown-later"))
            served.ok("down")
            for _ in range(3):  # more looks than changes that may still be on their way
                page.wait_for_event("requestfailed")
            page.unroute(LISTS)
            expect(page.get_by_text("batchjob/shown-later")).to_be_visible()
    finally:
        served.close()


def test_a_view_that_is_left_before_its_answer_fails_no_script(
    page: Page, served: ServedFleet
) -> None:
    """`opened` fails where a script did."""
    served.ok("apply", "-f", "-", "--wait", stdin=job("left", tasks=3))
    page.goto("/objects/batchjobs/default/left")
    expect(page.locator(".legend")).to_have_text("Succeeded 3")
    asked = "**/batchjobs/left/tasks?*"
    page.route(asked, lambda _: None)  # an answer that never comes
    page.locator(".grid").focus()
    with page.expect_request(asked):
        page.keyboard.press("ArrowRight")
    page.get_by_role("link", name="Events").first.click()
    expect(page.get_by_role("heading", name="Events")).to_be_visible()
    page.unroute(asked)


def test_a_failed_search_of_a_log_is_reported(page: Page, served: ServedFleet) -> None:
    served.ok("apply", "-f", "-", "--wait", stdin=job("searched"))
    page.goto("/objects/batchjobs/default/searched/logs?index=0")
    searches = "**/batchjobs/searched/logs?*search=*"
    page.route(searches, lambda route: route.abort())
    page.get_by_label("Search").fill("a")
    page.get_by_label("Search").press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("the server cannot be reached")
