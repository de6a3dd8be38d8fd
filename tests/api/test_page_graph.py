"""The graph of objects: what the server sends of it to whom, and what a person sees and presses."""

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

QUEUE = json.dumps(
    {
        "apiVersion": "fleetctl.dev/v1alpha1",
        "kind": "Queue",
        "metadata": {"name": "shared"},
        "spec": {"quotas": [{"resource": "sandboxes", "nominal": 4}]},
    }
)
FAILS = "raise ValueError('no')"


def after(*names: str) -> list[dict[str, str]]:
    return [{"job": name} for name in names]


@pytest.fixture(scope="module")
def chained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedFleet]:
    """prepare -> train -> report, all in a queue; of another namespace `theirs`, in the same."""
    fleet = ServedFleet(tmp_path_factory.mktemp("graph") / "home")
    fleet.ok("apply", "-f", "-", stdin=QUEUE)
    for text in (
        job("prepare", queue="shared"),
        job("train", FAILS, dependsOn=after("prepare"), queue="shared", backoffLimitPerIndex=0),
        job("report", dependsOn=after("train")),
        job("alone"),
        job("theirs", namespace="team", queue="shared", dependsOn=after("missing")),
    ):
        fleet.ok("apply", "-f", "-", "--allow-missing", stdin=text)
    fleet.run("wait", "job/report")
    yield fleet
    fleet.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    yield from launched()


@pytest.fixture
def page(browser: Browser, chained: ServedFleet) -> Iterator[Page]:
    yield from opened(browser, chained)


def keys_of(found: dict[str, Any]) -> list[str]:
    return sorted(it["key"] for it in found["objects"])


def links_of(found: dict[str, Any]) -> set[tuple[str, str, str]]:
    keys = [it["key"] for it in found["objects"]]
    return {(keys[it["tail"]], it["relation"], keys[it["head"]]) for it in found["links"]}


def test_the_graph_has_links_of_every_sort_with_the_state_of_each_object(
    chained: ServedFleet,
) -> None:
    found = chained.get("graph")
    assert links_of(found) == {
        ("batchjob/prepare", "after", "batchjob/train"),
        ("batchjob/train", "after", "batchjob/report"),
        ("queue/shared", "uses", "batchjob/prepare"),
        ("queue/shared", "uses", "batchjob/train"),
        ("queue/shared", "uses", "batchjob/theirs -n team"),
        ("batchjob/missing -n team", "after", "batchjob/theirs -n team"),
    }
    states = {it["key"]: it["phase"] for it in found["objects"]}
    assert states["batchjob/train"] == "Failed"
    assert states["batchjob/missing -n team"] == "Missing"
    assert found["metadata"]["alone"] == 1
    assert "1 object has no link" in found["metadata"]["notes"][0]
    (drawn,) = [it for it in found["objects"] if it["key"] == "batchjob/train"]
    assert (drawn["plural"], drawn["name"], drawn["done"]) == ("batchjobs", "train", "0/1")
    assert "1 of 1 tasks failed" in drawn["why"]


def test_the_server_filters_and_says_what_it_leaves_out(chained: ServedFleet) -> None:
    of = chained.get("graph", of="job/prepare")
    assert keys_of(of) == [
        "batchjob/prepare", "batchjob/report", "batchjob/train", "queue/shared",
    ]  # fmt: skip
    assert keys_of(chained.get("graph", of="batchjob/alone")) == ["batchjob/alone"]
    assert keys_of(chained.get("graph", phase="Succeeded", kind="batchjobs", filter="prep")) == (
        keys_of(of)
    )
    assert "batchjob/theirs -n team" not in keys_of(chained.get("graph", namespace="default"))
    few = chained.get("graph", limit=2)
    assert len(few["objects"]) == 2 and sum(it["more"] for it in few["objects"]) > 0
    assert "are left out" in few["metadata"]["notes"][0]
    with chained.client() as client:
        for query, status in (
            ({"of": "job/none"}, 404), ({"of": "x"}, 400), ({"kind": "x"}, 400),
            ({"limit": 501}, 400), ({"of": "job/x -n none"}, 404),
        ):  # fmt: skip
            assert client.get("/api/v1/graph", params=query).status_code == status, query


def test_an_object_of_another_namespace_has_no_name_for_a_token(tmp_path: Path) -> None:
    fleet = ServedFleet(tmp_path / "home", "--behind-proxy", "--name", "127.0.0.1")
    try:
        fleet.ok("apply", "-f", "-", stdin=QUEUE)
        for namespace in ("ours", "theirs"):
            text = job(f"of-{namespace}", namespace=namespace, queue="shared", suspend=True)
            fleet.ok("apply", "-f", "-", stdin=text)
        with fleet.client(fleet.token("ana", "viewer", "-n", "ours")) as ana:
            ana.headers["x-forwarded-for"] = "192.0.2.7"
            for query in ({}, {"of": "queue/shared"}):
                shown = ana.get("/api/v1/graph", params=query)
                assert shown.status_code == 200
                assert "of-theirs" not in shown.text and '"theirs"' not in shown.text
                assert "of-ours" in shown.text
            (hidden,) = [it for it in shown.json()["objects"] if not it["key"]]
            assert (hidden["phase"], hidden["name"], hidden["kind"]) == ("Hidden", "", "")
            refused = ana.get("/api/v1/graph", params={"of": "job/of-theirs -n theirs"})
            assert refused.status_code == 403
            assert ana.get("/api/v1/graph", params={"namespace": "theirs"}).status_code == 403
    finally:
        fleet.close()


@pytest.mark.needs("chromium")
def test_each_object_is_a_link_that_the_keyboard_reaches(page: Page, chained: ServedFleet) -> None:
    page.goto("/")
    page.get_by_role("link", name="Graph").click()
    expect(page).to_have_url(f"{chained.url}/graph")
    drawing = page.get_by_role("region", name="Drawing")
    boxes = drawing.get_by_role("link")
    expect(boxes).to_have_count(5)
    prepare = drawing.get_by_role("link", name="batchjob/prepare,")
    prepare.focus()
    page.keyboard.press("ArrowRight")
    expect(drawing.get_by_role("link", name="batchjob/train, Failed")).to_be_focused()
    page.keyboard.press("ArrowLeft")
    expect(prepare).to_be_focused()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="batchjob/train")).to_be_visible()
    page.get_by_role("navigation", name="Parts").get_by_role("link", name="Graph").click()
    expect(page).to_have_url(f"{chained.url}/graph?of=batchjob%2Ftrain")
    table = page.get_by_role("region", name="Objects and their links")
    first = page.locator("td:first-child", has_text="batchjob/train")
    row = table.get_by_role("row").filter(has=first)
    expect(row).to_contain_text("batchjob/prepare (Succeeded)")
    expect(row).to_contain_text("queue/shared (uses: queue)")
    expect(table).not_to_contain_text("theirs")


@pytest.mark.needs("chromium")
def test_the_graph_follows_changes(page: Page, chained: ServedFleet) -> None:
    page.goto("/graph")
    expect(page.locator("#live")).to_have_text("live")
    missing = page.get_by_role("row").filter(has_text="batchjob/missing -n team")
    expect(missing.first).to_contain_text("Missing")
    text = job("missing", namespace="team")
    chained.ok("apply", "-f", "-", "--wait", stdin=text)
    drawing = page.get_by_role("region", name="Drawing")
    made = drawing.get_by_role("link", name="batchjob/missing -n team, Succeeded")
    expect(made).to_be_visible()
    made.focus()
    chained.ok("delete", "job/missing", "-n", "team", "--yes")
    expect(made).to_have_count(0)
    until(lambda: "Missing" in str(chained.get("graph")), "its end")


@pytest.mark.needs("chromium")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_screen_reader_reads_the_graph(
    browser: Browser, chained: ServedFleet, scheme: Any
) -> None:
    phone = {"width": 390, "height": 800}
    for page in opened(browser, chained, color_scheme=scheme, viewport=phone):
        for path in ("/graph", "/graph?of=batchjob/train", "/graph?filter=none-is-so"):
            page.goto(path)
            expect(page.locator("#main h2, #main .quiet").first).to_be_visible()
            found = Axe().run(page)
            assert found.violations_count == 0, f"{path}: {found.generate_report()}"
            wide = "document.documentElement.scrollWidth <= window.innerWidth"
            assert page.evaluate(wide), f"{path} is wider than a phone"
