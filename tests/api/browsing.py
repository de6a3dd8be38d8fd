"""A real browser that opens pages of a served fleet. Imported by the tests of the page."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests import needs
from tests.api.served import ServedFleet

WAIT_MS = 240_000  # a deadline of a busy machine; what is waited for takes a second

expect.set_options(timeout=WAIT_MS)


def launched() -> Iterator[Browser]:
    needs.require("chromium")
    with sync_playwright() as playwright:
        made = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        yield made
        made.close()


def opened(browser: Browser, served: ServedFleet | None, **given: Any) -> Iterator[Page]:
    """A page of a new window. No script may fail in it, and none may be refused by its policy."""
    if served is not None:
        given["base_url"] = served.url
    context = browser.new_context(**given)
    context.set_default_timeout(WAIT_MS)
    made = context.new_page()
    failed: list[str] = []
    printed: list[str] = []
    made.on("pageerror", lambda error: failed.append(str(error)))
    made.on("console", lambda one: printed.append(one.text))
    yield made
    context.close()
    assert [*failed, *(text for text in printed if "Content Security" in text)] == []
