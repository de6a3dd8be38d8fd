"""A Source on the page: a real repository, objects changed by hand, and a refused commit."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from tests.api.browsing import launched, opened
from tests.api.served import ServedFleet, job, until
from tests.servers.test_git_sources import Forge

MARKUP = "<img src=x onerror=document.title='run'>"

pytestmark = pytest.mark.needs("chromium")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    yield from launched()


def source(url: str, **spec: object) -> str:
    whole = {"git": {"url": url, "ref": "main", "path": "jobs", "interval": 3600}, **spec}
    return json.dumps(
        {
            "apiVersion": "fleetctl.dev/v1alpha1",
            "kind": "Source",
            "metadata": {"name": "fleet"},
            "spec": whole,
        }
    )


def end(fleet: ServedFleet) -> None:
    """Its objects have no owner any more when the fleet deletes them."""
    fleet.ok("delete", "source/fleet", "--yes")
    until(lambda: not fleet.get("sources")["items"], "the end of the Source")
    fleet.close()


@pytest.fixture(scope="module")
def forge(tmp_path_factory: pytest.TempPathFactory) -> Forge:
    return Forge(tmp_path_factory.mktemp("forge"))


@pytest.fixture(scope="module")
def kept(forge: Forge, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedFleet]:
    """A Source with drift: of `train` two fields and a label were changed; `gone` was deleted."""
    commit = forge.push(
        {
            "jobs/train.json": job("train", suspend=True, parallelism=2),
            "jobs/gone.json": job("gone", suspend=True),
            "jobs/fine.json": job("fine", suspend=True),
        }
    )
    fleet = ServedFleet(tmp_path_factory.mktemp("sources") / "home")
    fleet.ok("apply", "-f", "-", stdin=source(f"file://{forge.bare}", drift="Report"))
    fleet.ok("wait", "source/fleet", "--for", "condition=Ready", "--timeout", "240s")
    assert fleet.get("sources/fleet")["status"]["appliedRevision"] == commit
    fleet.ok("scale", "job/train", "--parallelism", "7", "--override")
    fleet.ok("resume", "job/train", "--override")
    fleet.ok("delete", "job/gone", "--yes", "--override")
    until(lambda: len(fleet.get("sources/fleet")["status"].get("drift", [])) == 2, "the drift")
    yield fleet
    end(fleet)


@pytest.fixture
def page(browser: Browser, kept: ServedFleet) -> Iterator[Page]:
    yield from opened(browser, kept)


def test_drift_names_the_field_its_value_and_what_follows(page: Page, kept: ServedFleet) -> None:
    page.goto("/objects/sources/default/fleet")
    drift = page.get_by_role("region", name="Drift")
    row = drift.get_by_role("row")
    expect(row.filter(has_text="parallelism")).to_contain_text("7")
    expect(row.filter(has_text="suspend")).to_contain_text("stays: `drift` is Report")
    expect(row.filter(has_text="batchjob/gone")).to_contain_text("was deleted")
    expect(row).to_have_count(4)
    screen = kept.ok("describe", "source/fleet")
    assert "parallelism" in screen and "was deleted" in screen


def test_revision_author_and_kept_objects_are_shown_and_linked(
    page: Page, kept: ServedFleet
) -> None:
    commit = kept.get("sources/fleet")["status"]["appliedRevision"]
    page.goto("/objects/sources/default/fleet")
    applied = page.locator("dt", has_text="Applied").locator("xpath=following-sibling::dd[1]")
    expect(applied).to_contain_text(commit)
    expect(applied).to_contain_text("by t: change")
    objects = page.get_by_role("region", name="Kept objects")
    fine = objects.get_by_role("row").filter(has_text="batchjob/fine")
    expect(fine).to_contain_text("jobs/fine.json:1")
    expect(fine).to_contain_text(commit[:7])
    kept.ok("resume", "job/fine", "--override")
    expect(fine).to_contain_text("Succeeded")
    fine.get_by_role("link").click()
    expect(page.get_by_role("heading", name="batchjob/fine")).to_be_visible()
    graph = kept.get("graph", of="source/fleet")
    keys = [it["key"] for it in graph["objects"]]
    heads = {keys[it["head"]] for it in graph["links"] if it["relation"] == "keeps"}
    assert heads == {"batchjob/train", "batchjob/fine"}


def test_a_refused_commit_is_shown_with_file_and_line(browser: Browser, tmp_path: Path) -> None:
    own = Forge(tmp_path / "forge")
    own.push({"jobs/a.json": job("a", suspend=True)})
    own.run("commit", "-q", "--amend", "-m", MARKUP)
    own.run("push", "-q", "--force", str(own.bare), "HEAD:main")
    good = own.run("rev-parse", "HEAD")
    fleet = ServedFleet(tmp_path / "home")
    try:
        fleet.ok("apply", "-f", "-", stdin=source(f"file://{own.bare}"))
        fleet.ok("wait", "source/fleet", "--for", "condition=Ready", "--timeout", "240s")
        for page in opened(browser, fleet):
            page.goto("/objects/sources/default/fleet")
            expect(page.locator("#tab")).to_contain_text(MARKUP)
            bad = own.push({"jobs/a.json": '{"kind": "BatchJob",\n"name": "a", "paralelism": 3}'})
            fleet.run("reconcile", "source/fleet")
            problems = page.get_by_role("region", name="Problems")
            expect(problems).to_contain_text("jobs/a.json:2")
            expect(problems).to_contain_text("paralelism")
            expect(page.locator("#tab")).to_contain_text(good)
            expect(page.locator("#tab")).to_contain_text(bad)
            assert page.locator("#tab img").count() == 0
    finally:
        end(fleet)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_screen_reader_reads_a_source(browser: Browser, kept: ServedFleet, scheme: Any) -> None:
    phone = {"width": 390, "height": 800}
    for page in opened(browser, kept, color_scheme=scheme, viewport=phone):
        page.goto("/objects/sources/default/fleet")
        expect(page.get_by_role("region", name="Kept objects")).to_be_visible()
        found = Axe().run(page)
        assert found.violations_count == 0, found.generate_report()
        wide = "document.documentElement.scrollWidth <= window.innerWidth"
        assert page.evaluate(wide), "it is wider than a phone"
