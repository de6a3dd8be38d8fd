"""The site has each page a second time as Markdown, whole and with links that lead somewhere, and a
list of them all."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.docs.fleet import ROOT

DOCS = ROOT / "docs"
_CODE = re.compile(r"^(```|~~~).*?^\1|`[^`\n]*`", re.M | re.S)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_LISTED = re.compile(r"- \[(?P<title>.+)\]\((?P<path>[^)]+\.md)\): (?P<sentence>.+)")
_ALTERNATE = re.compile(r'<link rel="alternate" type="text/markdown" href="([^"]+)">')


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("docs") / "site"
    program = Path(sys.executable).parent / "mkdocs"
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    words = [str(program), "build", "-q", "-d", str(made)]
    done = subprocess.run(words, cwd=ROOT, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return made


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, Path]:
    """Each page of the documents: its path below docs/, and its HTML."""
    found = {}
    for source in sorted(DOCS.rglob("*.md")):
        path = source.relative_to(DOCS)
        html = site / path.with_suffix("") / "index.html"
        if path.name == "index.md":
            html = site / path.parent / "index.html"
        found[path.as_posix()] = html
    assert len(found) > 80
    assert site.exists()
    return found


def test_each_page_has_its_twin_and_names_it(site: Path, pages: dict[str, Path]) -> None:
    for path, html in pages.items():
        assert (site / path).read_bytes() == (DOCS / path).read_bytes(), path
        (address,) = _ALTERNATE.findall(html.read_text("utf-8"))
        assert (html.parent / address).resolve() == (site / path).resolve(), path


def test_no_page_is_read_as_code_from_some_line_on(pages: dict[str, Path]) -> None:
    """A block with a word behind its language was no block, and its end began one."""
    for path, html in pages.items():
        headings = _CODE.sub("", (DOCS / path).read_text("utf-8")).count("\n## ")
        assert html.read_text("utf-8").count("<h2 ") >= headings, path


def test_the_list_has_each_page_once_with_a_sentence(site: Path, pages: dict[str, Path]) -> None:
    text = (site / "llms.txt").read_text("utf-8")
    assert text.startswith("# fleetctl\n\n> Declarative infrastructure as code")
    lines = [line for line in text.splitlines() if line.startswith("- ")]
    listed = [_LISTED.fullmatch(line) for line in lines]
    assert None not in listed, [line for line, it in zip(lines, listed, strict=True) if not it]
    found = [it for it in listed if it is not None]
    assert sorted(it["path"] for it in found) == sorted(pages)
    for it in found:
        heading = next(
            line for line in (DOCS / it["path"]).read_text("utf-8").splitlines() if line[:2] == "# "
        )
        assert it["title"].replace("`", "") == heading[2:].replace("`", ""), it["path"]
        assert len(it["sentence"]) > 15, it["path"]


def test_links_of_the_twins_lead_somewhere(site: Path, pages: dict[str, Path]) -> None:
    for path in pages:
        for link in _links_of((site / path).read_text("utf-8")):
            address, _, anchor = link.partition("#")
            target = (site / path).parent / unquote(address) if address else site / path
            assert target.exists(), f"{path}: {link}"
            if anchor:
                html = pages[target.resolve().relative_to(site.resolve()).as_posix()]
                assert f'id="{anchor}"' in html.read_text("utf-8"), f"{path}: {link}"


def _links_of(text: str) -> Iterator[str]:
    for link in _LINK.findall(_CODE.sub("", text)):
        if "://" not in link and not link.startswith("mailto:"):
            yield link
