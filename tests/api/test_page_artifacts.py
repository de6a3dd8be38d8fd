"""Kept outputs of tasks on the page and by the API: whole, whatever their names, for whoever may
see them, and never as a page of this server."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from tests.api.browsing import launched, opened
from tests.api.served import ServedFleet, job
from tests.docs.fleet import Fleet

# Names that end a header, a line or an element, or are no text, where they are taken as they are.
MARKUP = "<img src=x onerror=document.title='run'>.html"
HEADER = 'a";\r\nSet-Cookie: x=1\r\n\r\n<script>.bin'
BYTES = b"\xff\xfe.bin"
WORD = "größe \u202e.txt"
CONTENT = "<script>document.title = 'run'</script>"
PROGRAM = f"""
import os
os.makedirs("out/deep", exist_ok=True)
for name in ({MARKUP!r}, {HEADER!r}, {WORD!r}, "deep/plain.html"):
    with open("out/" + name, "w") as file:
        file.write({CONTENT!r})
with open(b"out/" + {BYTES!r}, "wb") as file:
    file.write(bytes(range(256)) * 4096)
SUBMIT(x=1)
"""
SHOWN_BYTES = "\\udcff\\udcfe.bin"

pytestmark = pytest.mark.needs("chromium")


def keeping_job(name: str, program: str = PROGRAM, *, tasks: int = 1, namespace: str = "") -> str:
    made = json.loads(job(name, program, tasks=tasks, namespace=namespace))
    made["spec"]["template"]["outputs"] = ["out/**"]
    return json.dumps(made)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    yield from launched()


@pytest.fixture(scope="module")
def kept(served: ServedFleet) -> ServedFleet:
    """A fleet with a job that keeps files of odd names."""
    served.ok("apply", "-f", "-", "--wait", stdin=keeping_job("keeps"))
    return served


@pytest.fixture
def page(browser: Browser, kept: ServedFleet) -> Iterator[Page]:
    yield from opened(browser, kept)


def download(page: Page, name: str) -> tuple[str, bytes]:
    """The name that the browser suggests, and the content that it stores."""
    link = page.get_by_role("region", name="Artifacts").get_by_role("link", name=name)
    with page.expect_download() as begun:
        link.click()
    return begun.value.suggested_filename, Path(begun.value.path()).read_bytes()


def test_each_output_is_stored_whole_and_runs_nothing(page: Page) -> None:
    page.goto("/objects/batchjobs/default/keeps/artifacts")
    rows = page.get_by_role("region", name="Artifacts").locator("tbody tr")
    expect(rows).to_have_count(5)
    expect(rows.filter(has_text=MARKUP)).to_contain_text(f"{len(CONTENT)} B")
    expect(rows.filter(has_text=SHOWN_BYTES)).to_contain_text("1.0 MiB")
    assert download(page, "plain.html") == ("plain.html", CONTENT.encode())
    expect(rows.filter(has_text="größe")).to_contain_text("\\u{202e}.txt")
    for name in ("img src", "Set-Cookie", "größe"):
        assert download(page, name)[1] == CONTENT.encode()
    assert download(page, SHOWN_BYTES)[1] == bytes(range(256)) * 4096
    assert page.locator("#tab img").count() == 0
    assert page.title() == "keeps - fleetctl"
    assert page.context.cookies() == []


def test_an_output_that_is_opened_is_stored_and_not_shown(page: Page, kept: ServedFleet) -> None:
    (run,) = {it["run"] for it in kept.get("batchjobs/keeps/artifacts")["items"]}
    page.goto("/")
    with page.expect_download() as begun:
        page.evaluate(
            "to => { location = to; }", f"/api/v1/run-outputs/{run}?path=out/deep/plain.html"
        )
    assert begun.value.suggested_filename == "plain.html"
    assert page.title() == "Overview - fleetctl"


def test_no_name_of_an_output_ends_a_header(kept: ServedFleet) -> None:
    items = kept.get("batchjobs/keeps/artifacts")["items"]
    assert len(items) == 5
    with kept.client() as client:
        for one in items:
            address = f"/api/v1/run-outputs/{one['run']}"
            answer = client.get(address, params={"path": one["path"]})
            assert answer.status_code == 200
            assert "set-cookie" not in answer.headers
            assert answer.headers["content-type"] == "application/octet-stream"
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["content-disposition"].startswith('attachment; filename="')
            assert answer.headers["content-security-policy"] == "default-src 'none'; sandbox"
            assert int(answer.headers["content-length"]) == one["bytes"] == len(answer.content)
            rest = client.get(address, params={"path": one["path"], "offset": 7})
            assert rest.content == answer.content[7:]


def test_pages_of_artifacts_have_each_file_once(served: ServedFleet) -> None:
    program = """
import os
os.makedirs("out")
for at in range(a):
    open(f"out/{at}", "w").close()
SUBMIT(x=1)
"""
    served.ok("apply", "-f", "-", "--wait", stdin=keeping_job("pages", program, tasks=5))
    whole = served.get("batchjobs/pages/artifacts")
    expected = [(index, f"out/{at}") for index in range(5) for at in range(index)]
    assert [(it["index"], it["path"]) for it in whole["items"]] == expected
    for limit in (1, 2, 3, 10):
        found, more = [], "0"
        while more:
            part = served.get("batchjobs/pages/artifacts", limit=limit, **{"continue": more})
            assert len(part["items"]) <= limit
            found += [(it["index"], it["path"]) for it in part["items"]]
            more = part["metadata"]["continue"]
        assert found == expected
    one = served.get("batchjobs/pages/artifacts", index=3)["items"]
    assert [it["path"] for it in one] == ["out/0", "out/1", "out/2"]


def test_a_viewer_stores_an_output_with_a_token_and_is_in_the_audit(
    browser: Browser, tmp_path: Path
) -> None:
    served = ServedFleet(tmp_path / "home", "--behind-proxy", "--name", "127.0.0.1")
    try:
        served.ok("apply", "-f", "-", "--wait", stdin=keeping_job("keeps", namespace="team"))
        token = served.token("vera", "viewer", "-n", "team")
        other = served.token("otto", "viewer", "-n", "other")
        headers = {"x-forwarded-for": "192.0.2.7"}
        for page in opened(browser, served, extra_http_headers=headers):
            page.goto("/objects/batchjobs/team/keeps/artifacts")
            page.get_by_label("Token").fill(token)
            page.get_by_role("button", name="Enter").click()
            assert download(page, "plain.html") == ("plain.html", CONTENT.encode())
            content = bytes(range(256)) * 4096
            assert download(page, SHOWN_BYTES)[1] == content
        acts = [(it["user"], it["action"]) for it in served.json("audit", "-n", "team")]
        assert acts.count(("vera", "cp")) == 2
        (run, *_) = [
            it["run"]
            for it in served.get("batchjobs/keeps/artifacts", token=token, namespace="team")[
                "items"
            ]
        ]
        with served.client(other) as client:
            refused = client.get(
                f"/api/v1/run-outputs/{run}", params={"path": "out/deep/plain.html"}
            )
            assert refused.status_code == 403
            assert client.get("/api/v1/batchjobs/keeps/artifacts?namespace=team").status_code == 403
    finally:
        served.close()


def test_files_of_odd_names_are_copied_over_a_server(kept: ServedFleet, tmp_path: Path) -> None:
    far = Fleet(tmp_path / "far", {"FLEETCTL_SERVER": kept.url})
    far.ok("cp", "job/keeps:0/out", str(tmp_path / "got"))
    names = {it.name for it in os.scandir(os.fsencode(tmp_path / "got"))}
    assert names == {BYTES, b"deep", *(it.encode() for it in (MARKUP, HEADER, WORD))}
    assert (tmp_path / "got" / os.fsdecode(BYTES)).read_bytes() == bytes(range(256)) * 4096


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_screen_reader_finds_its_way(browser: Browser, kept: ServedFleet, scheme: Any) -> None:
    phone = {"width": 390, "height": 800}
    for page in opened(browser, kept, color_scheme=scheme, viewport=phone):
        page.goto("/objects/batchjobs/default/keeps/artifacts")
        expect(page.get_by_role("region", name="Artifacts")).to_be_visible()
        found = Axe().run(page)
        assert found.violations_count == 0, found.generate_report()
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
