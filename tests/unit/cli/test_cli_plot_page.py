"""The HTML page and the SVG: well-formed, whole in themselves, and usable without a mouse."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from xml.etree import ElementTree

from fleetctl.views.plotting.charts import KINDS, EmptyChart, build_charts
from fleetctl.views.plotting.curves import metric_chart
from fleetctl.views.plotting.trials import Study, build_trial
from fleetctl.views.plotting.writers.svg import html_page, svg_file
from tests.golden.plots.plot_studies import curves, support_vectors

SVG = "{http://www.w3.org/2000/svg}"
VOID = {"meta"}
EVIL = "</script><img src=x onerror=alert(1)>&\"'\x1b[2J\u202e"


class Page(HTMLParser):
    """Every element with its attributes; fails where tags do not pair."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.words = ""
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not {"style", "script"} & set(self._open):
            self.words += data

    def with_tag(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.found if name == tag]


def hostile() -> Study:
    trials = tuple(
        build_trial(n, n, {EVIL: EVIL + str(n % 2), "lr": n + 1}, n * 0.5) for n in range(9)
    )
    return Study("loss", "minimize", trials)


def test_a_page_refers_to_nothing_outside_itself() -> None:
    text = html_page(build_charts(support_vectors(), KINDS), "sweep/digits", "Succeeded")
    assert not re.search(r"https?:|//[a-z]|url\(|@import|\bfetch\b|XMLHttp", text)
    page = Page(text)
    assert not [a for _, a in page.found if {"src", "href", "action"} & set(a)]
    (policy,) = (a["content"] for a in page.with_tag("meta") if "http-equiv" in a)
    assert policy and policy.startswith("default-src 'none'") and "unsafe" not in policy


def test_every_trial_is_in_both_drawings_and_in_the_table() -> None:
    page = Page(html_page(build_charts(support_vectors(), KINDS), "sweep/digits", "Succeeded"))
    scored = sorted(str(one.index) for one, _ in support_vectors().scored)
    for tag in ("circle", "path", "tr"):
        trials = [a["data-trial"] for a in page.with_tag(tag) if "data-trial" in a]
        assert sorted(str(one) for one in trials) == scored
    best = [a for a in page.with_tag("circle") if "best" in str(a["class"]).split()]
    assert [a["data-trial"] for a in best] == ["35"]


def test_a_page_can_be_read_without_a_mouse_and_without_eyes() -> None:
    text = html_page(build_charts(support_vectors(), KINDS), "sweep/digits", "Succeeded")
    page = Page(text)
    figures = page.with_tag("figure")
    assert len(figures) == 3 and all(a["tabindex"] == "0" for a in figures)
    assert figures[2]["aria-label"] == (
        "parameter importance: gamma 52%, kernel 31%, C 14%, net.dropout 0%"
    )
    assert page.with_tag("output")[0]["aria-live"] == "polite"
    assert "ArrowDown" in text and "prefers-color-scheme: dark" in text


def test_texts_of_users_are_text_on_a_page() -> None:
    charts = build_charts(hostile(), KINDS)
    plain = html_page(build_charts(support_vectors(), KINDS), "sweep/x", "")
    page = Page(html_page(charts, EVIL, EVIL))
    assert not page.with_tag("img") and len(page.with_tag("script")) == 1
    assert {tag for tag, _ in page.found} <= {tag for tag, _ in Page(plain).found}
    assert "onerror=alert(1)" in page.words
    ElementTree.fromstring(svg_file(charts, "sweep/x"))


def test_an_svg_is_one_drawing_as_high_as_what_is_in_it() -> None:
    root = ElementTree.fromstring(svg_file(build_charts(support_vectors(), KINDS), "sweep/digits"))
    high = float(root.attrib["height"])
    titles = [text for text in root.iter(f"{SVG}text") if text.get("class") == "title"]
    assert [text.text for text in titles] == [
        "best so far", "parallel coordinates", "parameter importance",
    ]  # fmt: skip
    assert all(0 < float(text.attrib["y"]) < high for text in titles)


def test_curves_have_a_legend_and_a_chart_without_data_says_why() -> None:
    page = Page(html_page([metric_chart("loss", curves(("a", "b")), "")], "job/x", ""))
    lines = [a["class"] for a in page.with_tag("path") if str(a.get("class")).startswith("line")]
    assert sorted(str(one) for one in lines) == ["line s0", "line s0", "line s1", "line s1"]
    empty = Page(html_page([EmptyChart("best so far", "no trial has finished yet")], "x", ""))
    assert "no trial has finished yet" in empty.words and not empty.with_tag("figure")
