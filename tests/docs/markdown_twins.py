"""A hook of mkdocs: beside each page of the site its Markdown, and `llms.txt`, the list of all
pages with a sentence on each, as https://llmstxt.org has it.

A program that reads the documents gets them without menus and scripts: `how-to/install/` as
`how-to/install.md`. A twin is the page's own source, so that it is never older than the page, and
its links lead to other twins.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

SENTENCE_CHARACTERS_MAX = 300
_FENCE = re.compile(r"^(```|~~~).*?^\1", re.M | re.S)
_WORDS_OF_FENCE = re.compile(r"^([ ]*```[a-z]+) [^\n`]*$", re.M)
_COMMENT = re.compile(r"<!--.*?-->", re.S)
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_SENTENCE = re.compile(r".+?\.(?=\s|$)", re.S)


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:
    """Drops the words for our tests behind a language (`console run`): the site's Markdown would
    not begin a block at such a line, and would read the rest of the page as code."""
    del page, config, files
    return _WORDS_OF_FENCE.sub(r"\1", markdown)


def on_post_page(output: str, *, page: Any, config: Any) -> str:
    """Names the twin in the head of the page."""
    del config
    up = "../" * page.url.count("/")
    twin = f'<link rel="alternate" type="text/markdown" href="{up}{page.file.src_uri}">'
    return output.replace("</head>", f"{twin}</head>", 1)


def on_nav(nav: Any, *, config: Any, files: Any) -> Any:
    """Keeps the menu until the site is written."""
    del files
    config.extra["markdown_nav"] = nav
    return nav


def on_post_build(*, config: Any) -> None:
    """Writes the twins and the list."""
    docs, site = Path(config.docs_dir), Path(config.site_dir)
    nav = config.extra["markdown_nav"]
    for page in nav.pages:
        path = site / page.file.src_uri
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes((docs / page.file.src_uri).read_bytes())
    lines = [f"# {config.site_name}", "", f"> {config.site_description}"]
    lines += _list_sections(nav.items, docs)
    (site / "llms.txt").write_text("\n".join(lines) + "\n", "utf-8")


def _list_sections(items: Sequence[Any], docs: Path) -> Iterator[str]:
    for it in items:
        if it.is_section:
            yield from ("", f"## {it.title}", "")
            yield from (_describe_page(page, docs) for page in _list_pages(it.children))


def _list_pages(items: Sequence[Any]) -> Iterator[Any]:
    for it in items:
        if it.is_page:
            yield it
        elif it.children:
            yield from _list_pages(it.children)


def _describe_page(page: Any, docs: Path) -> str:
    text = (docs / page.file.src_uri).read_text("utf-8")
    title = html.unescape(page.title)
    return f"- [{title}]({page.file.src_uri}): {find_sentence(text)}"


def find_sentence(text: str) -> str:
    """Returns the first sentence of a page, without its links."""
    plain = _COMMENT.sub("", _FENCE.sub("", text))
    for paragraph in plain.split("\n\n"):
        words = " ".join(_LINK.sub(r"\1", paragraph).split())
        words = words.removeprefix("- ")
        if words and not words.startswith(("#", "|", "!", "<", "*20")):
            found = _SENTENCE.match(words)
            return (found[0] if found else words)[:SENTENCE_CHARACTERS_MAX].rstrip(":")
    return ""
