"""Measures the page: a list of 10,000 objects, a grid of 100,000 tasks, a commit on an open page,
and the cost of many open pages for the server. Needs Chromium.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from playwright.sync_api import Browser, Page, sync_playwright

from fleetctl.views.kinds import parse_target
from fleetctl.views.store_reading import must_find, open_reading
from tests.bench import manyobjects
from tests.bench.harness import (
    BIN,
    Figure,
    Home,
    home,
    job,
    median,
    process_cpu_s,
    process_rss_mb,
)

OBJECTS = 10_000
TASKS = 100_000
PAGES = 200
FOLLOWERS = 50
ROUNDS = 5
WATCHED_S = 20.0


@contextmanager
def serving(at: Home) -> Iterator[tuple[str, int]]:
    """The address and the process of a server of this home."""
    words = [str(BIN), "serve", "--listen", "127.0.0.1:0"]
    server = subprocess.Popen(words, env=at.env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert server.stdout is not None
    try:
        yield server.stdout.readline().decode().strip(), server.pid
    finally:
        server.terminate()
        server.wait(60)
        server.stdout.close()


@contextmanager
def browsing() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        path = shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


def figures() -> list[Figure]:
    return [*open_pages(), *watch_pages()]


def open_pages() -> list[Figure]:
    found = []
    with home() as at, browsing() as browser:
        manyobjects.build(Path(at.env["FLEETCTL_HOME"]), OBJECTS)
        with serving(at) as (url, pid):
            before_s = process_cpu_s(pid)
            spent = median([_time_list(browser, url) for _ in range(ROUNDS)])
            cost = (process_cpu_s(pid) - before_s) / ROUNDS
            found.append(Figure("list page, CPU of the server", f"{cost:.2f} s", "", None))
            found.append(Figure("list page of 10,000", f"{spent:.2f} s", "1 s", spent <= 1.0))
            weight = _weigh(browser, url) / 1000
            found.append(Figure("page weight", f"{weight:.0f} KB", "300 KB", weight <= 300))
    with home() as at, browsing() as browser:
        many = {"kind": "BatchJob", "name": "many", "completions": TASKS, "script": "true"}
        at.run("apply", "-f", at.write("many.json", json.dumps({**many, "suspend": True})))
        with serving(at) as (url, pid):
            before_s = process_cpu_s(pid)
            spent = median([_time_grid(browser, url) for _ in range(ROUNDS)])
            cost = (process_cpu_s(pid) - before_s) / ROUNDS
            found.append(Figure("grid, CPU of the server", f"{cost:.2f} s", "", None))
            found.append(Figure("grid of 100,000", f"{spent:.2f} s", "1.5 s", spent <= 1.5))
            heap = _measure_heap(browser, url)
            found.append(Figure("its heap in the browser", f"{heap:.0f} MB", "150 MB", heap <= 150))
            later = median([_time_commit(browser, url, at, n) for n in range(ROUNDS)]) * 1000
            found.append(Figure("commit to page", f"{later:.0f} ms", "300 ms", later <= 300))
    return found


def watch_pages() -> list[Figure]:
    """200 open pages, each with its stream of changes, and 50 followers of a log."""
    with home() as at:
        talks = "import time; [(print(n, flush=True), time.sleep(1)) for n in range(600)]"
        at.run("apply", "-f", at.write("talks.yaml", job("talks", 1, work=talks)))
        with serving(at) as (url, pid):
            paths = ["/api/v1/objects?watch=1"] * PAGES
            paths += ["/api/v1/batchjobs/talks/logs?index=0&follow=1"] * FOLLOWERS
            ends = threading.Event()
            threads = [
                threading.Thread(target=_follow, args=(url + path, ends), daemon=True)
                for path in paths
            ]
            for thread in threads:
                thread.start()
            time.sleep(10)
            before_s = process_cpu_s(pid)
            time.sleep(WATCHED_S)
            share = (process_cpu_s(pid) - before_s) / WATCHED_S * 100
            rss = process_rss_mb(pid)
            ends.set()
        at.run("delete", "job/talks", "--yes")
    text = f"{share:.1f} % of a core, {rss:.0f} MB"
    return [Figure("200 pages and 50 followers", text, "15 %", share <= 15)]


def _follow(url: str, ends: threading.Event) -> None:
    try:
        with httpx.stream("GET", url, timeout=None) as answer:
            for _ in answer.iter_raw():
                if ends.is_set():
                    return
    except httpx.HTTPError:
        return


@contextmanager
def _page(browser: Browser, url: str) -> Iterator[Page]:
    context = browser.new_context(base_url=url)
    page = context.new_page()
    page.set_default_timeout(120_000)
    yield page
    context.close()


def _time_list(browser: Browser, url: str) -> float:
    with _page(browser, url) as page:
        begun_s = time.perf_counter()
        page.goto("/objects", wait_until="commit")
        page.wait_for_selector("tbody tr input")
        return time.perf_counter() - begun_s


def _time_grid(browser: Browser, url: str) -> float:
    with _page(browser, url) as page:
        begun_s = time.perf_counter()
        page.goto("/objects/batchjobs/default/many", wait_until="commit")
        page.wait_for_selector(".legend .phase")
        return time.perf_counter() - begun_s


def _measure_heap(browser: Browser, url: str) -> float:
    with _page(browser, url) as page:
        page.goto("/objects/batchjobs/default/many")
        page.wait_for_selector(".legend .phase")
        session = page.context.new_cdp_session(page)
        usage: dict[str, Any] = session.send("Runtime.getHeapUsage")
        return float(usage["totalSize"]) / 1e6


def _weigh(browser: Browser, url: str) -> float:
    """Bytes of all that a first visit loads, as sent."""
    with _page(browser, url) as page:
        sizes: list[int] = []
        page.on("response", lambda it: sizes.append(int(it.headers.get("content-length", 0))))
        page.goto("/objects")
        page.wait_for_selector("tbody tr input")
        return float(sum(sizes))


def _time_commit(browser: Browser, url: str, at: Home, number: int) -> float:
    """From the time of an object, just before its commit, to its row on an open page."""
    with _page(browser, url) as page:
        page.goto("/objects")
        page.wait_for_selector("tbody tr input")
        name = f"late-{number}"
        page.evaluate(
            """name => { window.seen = new Promise(done => new MutationObserver(() => {
                if (document.body.textContent.includes(name)) done(Date.now() / 1000);
            }).observe(document.body, {childList: true, subtree: true})); }""",
            name,
        )
        text = job(name, 1).replace("  parallelism: 8\n", "  suspend: true\n")
        at.run("apply", "-f", at.write(f"{name}.yaml", text))
        seen_s = float(page.evaluate("() => window.seen"))
        with open_reading(Path(at.env["FLEETCTL_HOME"])) as reading:
            stored = must_find(parse_target(f"job/{name}"), reading)
        return seen_s - stored.resource.created_at_s
