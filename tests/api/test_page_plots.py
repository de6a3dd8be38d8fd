"""Plots in a real browser: runs compared in one drawing, and ranges of axes that choose trials; on
the page and in the file of `plot -o html`, which are one code.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Locator, Page, expect

from tests.api.browsing import launched, opened
from tests.api.served import ServedFleet

MARKUP = "<img src=x onerror=document.title='run'>"
LOCAL = {"ordered": [{"provider": "local"}]}
RATES = {"sft-with-a-long-name-slow": 0.02, "sft-with-a-long-name-fast": 0.05}

pytestmark = pytest.mark.needs("chromium")


def sweep(name: str, **axes: list[object]) -> str:
    search = {
        "method": "grid",
        "metric": {"name": "loss", "goal": "minimize"},
        "parameters": {axis: {"values": values} for axis, values in axes.items()},
    }
    code = "report(loss=lr + (1.0 if optimizer != 'adam' else 0.0))"
    spec = {"search": search, "template": {"python": code}, "placement": LOCAL, "parallelism": 4}
    return _manifest("Sweep", name, spec)


def training(name: str, rate: float, *, crashes: bool) -> str:
    """Two stages that report; the second one may crash once, and goes on from some steps before."""
    lines = [
        "import math, os",
        "again = os.environ['FLEETCTL_ATTEMPT'] != '1'",
        "for step in range(20 if again else 0, 50):",
        f"    report(step=step, loss=3 * math.exp(-step * {rate}), steps_done=step)",
        f"    if {crashes} and step == 30 and not again:",
        "        raise ValueError('crash')",
    ]
    stages = [
        {"name": "warm", "python": "for step in range(5): report(step=step, loss=4.0 - step / 9)"},
        {"name": "train", "python": "\n".join(lines)},
    ]
    spec = {
        "maxRestarts": 2,
        "retry": {"backoff": {"initial": "1s"}},
        "stages": stages,
        "placement": LOCAL,
    }
    return _manifest("TrainingRun", name, spec)


def _manifest(kind: str, name: str, spec: object) -> str:
    made = {"apiVersion": "fleetctl.dev/v1alpha1", "kind": kind, "metadata": {"name": name}}
    return json.dumps({**made, "spec": spec})


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    yield from launched()


@pytest.fixture(scope="module")
def studied(served: ServedFleet) -> ServedFleet:
    """A fleet with a sweep of twelve trials, and two trainings of which one was restarted."""
    axes: dict[str, list[object]] = {
        "lr": [0.001, 0.01, 0.1],
        "optimizer": ["adam", MARKUP],
        "deep.layers": [2, 4],
    }
    served.ok("apply", "-f", "-", "--wait", stdin=sweep("study", **axes))
    for name, rate in RATES.items():
        made = training(name, rate, crashes=name.endswith("slow"))
        served.ok("apply", "-f", "-", "--wait", stdin=made)
    return served


@pytest.fixture
def page(browser: Browser, studied: ServedFleet) -> Iterator[Page]:
    yield from opened(browser, studied)


def runs_of(*parts: str) -> str:
    slow, fast = RATES
    entries = [f"trainingrun/{slow}{part}" for part in parts or ("",)]
    return ",".join([*entries, f"trainingrun/{fast}"])


def test_runs_that_are_selected_in_the_list_are_compared(page: Page) -> None:
    page.goto("/objects?kind=trainingruns")
    for name in RATES:
        page.get_by_role("checkbox", name=f"select trainingrun/{name}").check()
    page.get_by_role("button", name="Compare plots").click()
    expect(page).to_have_url(re.compile(r"/compare\?runs=trainingrun/sft"))
    loss = page.locator(".plot").filter(has=page.get_by_role("heading", name="loss over step"))
    expect(loss.locator(".line[d]")).to_have_count(8)  # two stages of two runs, and the legend
    expect(loss.locator("text").get_by_text("slow train")).to_be_attached()
    expect(loss).to_contain_text("names without `sft-with-a-long-name-`")
    expect(loss.locator(".restart")).to_have_count(1)
    expect(loss.locator(".restart title")).to_have_text("slow train restarted at step 20")


def test_the_address_of_a_comparison_is_the_comparison(page: Page) -> None:
    page.goto(f"/compare?runs={runs_of()}&metric=steps_done")
    headings = page.locator(".plot h2")
    expect(headings).to_have_text(["steps_done over step"])
    page.get_by_label("Over", exact=True).select_option("time")
    expect(headings).to_have_text(["steps_done over time"])
    expect(page).to_have_url(re.compile(r"metric=steps_done&x=time$"))
    page.get_by_label("Metric", exact=True).select_option("loss")
    expect(headings).to_have_text(["loss over time"])
    page.reload()
    expect(headings).to_have_text(["loss over time"])


def test_parts_of_a_run_are_chosen_by_checkbox_and_by_address(page: Page) -> None:
    page.goto(f"/compare?runs={runs_of()}&metric=loss")
    lines = page.locator(".plot .line[d]")
    expect(lines).to_have_count(8)
    slow = next(iter(RATES))
    page.get_by_role("checkbox", name=f"draw trainingrun/{slow} warm").press("Space")
    expect(lines).to_have_count(6)
    expect(page).to_have_url(re.compile(rf"runs=trainingrun/{slow}:1,trainingrun/"))
    page.goto(f"/compare?runs=trainingrun/{slow}:1&metric=loss")
    expect(lines).to_have_count(1)
    page.get_by_label("Add", exact=True).fill("sft-with-a-long-name-fast:1")
    page.get_by_label("Add", exact=True).press("Enter")
    expect(lines).to_have_count(4)


def test_a_comparison_that_cannot_be_says_why(page: Page, studied: ServedFleet) -> None:
    page.goto("/compare?runs=trainingrun/nobody")
    expect(page.get_by_role("alert")).to_contain_text("there is no TrainingRun `nobody`")
    page.goto(f"/compare?runs={runs_of()}&metric=lost")
    expect(page.get_by_role("alert")).to_contain_text("reported no metric `lost`")
    many = ",".join(["trainingrun/a"] * 33)
    with studied.client() as client:
        for query in ({"runs": many}, {"runs": ""}, {"runs": "a/b/c"}, {"runs": "a", "x": "y"}):
            assert client.get("/api/v1/plots", params=query).status_code == 400, query


def drag(page: Page, axis: Locator, low: float, high: float) -> None:
    """Drags along an axis, between two positions from 0 to 1."""
    axis.scroll_into_view_if_needed()
    box = axis.locator(".hand").bounding_box()
    assert box is not None
    x = box["x"] + box["width"] / 2
    page.mouse.move(x, box["y"] + box["height"] * (1 - low) - 2)
    page.mouse.down()
    page.mouse.move(x, box["y"] + box["height"] * (1 - high) + 2, steps=4)
    page.mouse.up()


def axis_of(page: Page, name: str) -> Locator:
    return page.locator(f'[data-axis="{name}"]')


def expect_brushing(page: Page) -> None:
    """Ranges choose trials: by dragging on two axes, by a click, by sliders and by the address."""
    inside = page.locator("path.row:not(.out)")
    told = page.locator(".ranges output")
    expect(inside).to_have_count(12)
    drag(page, axis_of(page, "lr"), 0.4, 1.0)
    expect(inside).to_have_count(8)
    expect(told).to_contain_text("8 of 12 trials: lr ")
    drag(page, axis_of(page, "deep.layers"), 0.0, 0.2)
    expect(inside).to_have_count(4)
    page.locator("details.trials summary").click()
    expect(page.locator("tr[data-trial]:visible")).to_have_count(4)
    page.reload()
    expect(inside).to_have_count(4)

    axis_of(page, "lr").locator(".hand").click()
    expect(inside).to_have_count(6)
    assert "deep.layers=2" in unquote(page.url)

    page.get_by_role("button", name="Clear ranges").press("Enter")
    expect(inside).to_have_count(12)
    details = page.locator(".ranges details")
    if details.get_attribute("open") is None:
        details.locator("summary").press("Enter")
    page.get_by_role("slider", name="optimizer from").press("End")
    expect(inside).to_have_count(6)
    page.get_by_role("slider", name="lr to").press("Home")
    expect(inside).to_have_count(2)
    expect(told).to_contain_text("2 of 12 trials")
    page.locator("figure", has=page.locator(".row")).press("ArrowDown")
    expect(page.locator(".row.chosen:not(.out)")).to_have_count(1)


def test_ranges_of_axes_choose_trials_on_the_page(page: Page) -> None:
    page.goto("/objects/sweeps/default/study/plots")
    expect_brushing(page)
    assert page.title() == "study - fleetctl" and page.locator("#tab img").count() == 0


def test_ranges_of_axes_choose_trials_in_a_file(
    browser: Browser, studied: ServedFleet, tmp_path: Path
) -> None:
    path = tmp_path / "study.html"
    studied.ok("plot", "sweep/study", "-o", str(path))
    for page in opened(browser, None):
        page.goto(path.as_uri())
        expect_brushing(page)
        assert page.locator("img").count() == 0 and page.title() == "sweep/study"


def test_names_and_parameters_are_text_in_drawings(page: Page, studied: ServedFleet) -> None:
    code = f"report(step=0, **{{{MARKUP!r}: 1.0}}); report(step=1, **{{{MARKUP!r}: 2.0}})"
    spec = {"stages": [{"name": "only", "python": code}], "placement": LOCAL}
    studied.ok("apply", "-f", "-", "--wait", stdin=_manifest("TrainingRun", "odd-metric", spec))
    page.goto("/compare?runs=trainingrun/odd-metric")
    expect(page.locator(".plot h2")).to_have_text([f"{MARKUP} over step"])
    expect(page.get_by_label("Metric", exact=True)).to_contain_text(MARKUP)
    page.goto(f"/compare?runs={MARKUP}&metric={MARKUP}&x={MARKUP}")
    expect(page.get_by_role("alert")).to_be_visible()
    assert page.locator("main img").count() == 0 and page.title() == "Compare - fleetctl"
    page.goto("/objects/sweeps/default/study/plots#optimizer=<img>..<img>&lr=x..y")
    expect(page.locator("path.row:not(.out)")).to_have_count(12)
    expect(page.get_by_text(f"optimizer={MARKUP}").first).to_be_attached()
    assert page.locator("#tab img").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_screen_reader_finds_its_way_in_plots(
    browser: Browser, studied: ServedFleet, scheme: Any
) -> None:
    phone = {"width": 390, "height": 800}
    paths = ("/objects/sweeps/default/study/plots#lr=0.01..0.1", f"/compare?runs={runs_of()}")
    for page in opened(browser, studied, color_scheme=scheme, viewport=phone):
        for path in paths:
            page.goto(path)
            expect(page.locator(".plot svg").first).to_be_visible()
            found = Axe().run(page)
            assert found.violations_count == 0, f"{path}: {found.generate_report()}"
            wide = "document.documentElement.scrollWidth <= window.innerWidth"
            assert page.evaluate(wide), f"{path} is wider than a phone"
