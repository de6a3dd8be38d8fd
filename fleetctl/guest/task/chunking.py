"""Helpers that look at text: `peek`, `grep` and the four ways to cut a text into chunks.

Part of the guest; tasks find these names in their namespace. They never touch files.
"""

from __future__ import annotations

TYPE_CHECKING = False  # only modules that every task needs are imported
if TYPE_CHECKING:
    import re
    from typing import Any


def peek(
    text: str,
    start: int = 0,
    length: int = 2000,
) -> str:
    """Returns `length` characters of `text` from `start`."""
    return text[start : start + length]


def grep(
    text: str,
    pattern: str,
    *,
    context: int = 0,
) -> list[str]:
    """Returns the lines that contain `pattern`, literally and in any case, each with `context`
    lines around it.

    Hits whose surroundings touch are joined into one item.
    """
    lines = text.splitlines()
    wanted = pattern.lower()
    groups: list[list[int]] = []
    for number, line in enumerate(lines):
        if wanted not in line.lower():
            continue
        first = max(0, number - context)
        end = min(len(lines), number + context + 1)
        if context and groups and first <= groups[-1][1]:
            groups[-1][1] = end
        else:
            groups.append([first, end])
    return ["\n".join(lines[first:end]) for first, end in groups]


def chunk_by_size(
    text: str,
    size: int = 4000,
    overlap: int = 200,
) -> list[str]:
    """Returns pieces of `size` characters, each beginning `overlap` before the last one ended."""
    if size <= 0 or not 0 <= overlap < size:
        raise ValueError(
            f"chunk_by_size: overlap is {overlap} and size is {size}; 0 <= overlap < size"
        )
    chunks = []
    for start in range(0, len(text), size - overlap):
        chunks.append(text[start : start + size])
        if start + size >= len(text):
            break
    return chunks


def chunk_by_headers(
    text: str,
    pattern: str = r"^#{1,3}\s",
    flags: int = 0,
) -> list[dict[str, str]]:
    """Returns one {"header", "body"} for each line that matches; text before the first has the
    header "".
    """
    import re

    return [
        {"header": head, "body": body}
        for head, body, _ in _split_sections(text, re.compile(pattern, flags))
    ]


def chunk_by_timestamps(
    text: str,
    pattern: str = r"^\d{4}-\d{2}-\d{2}[T ]",
    flags: int = 0,
) -> list[dict[str, Any]]:
    """Returns one {"timestamp", "content", "start_pos"} for each line with a leading time stamp."""
    import re

    matcher = re.compile(pattern, flags)
    chunks = []
    for head, body, position in _split_sections(text, matcher):
        stamp = head.split(maxsplit=1)[0] if head else ""
        content = head + ("\n" + body if body else "") if head else body
        chunks.append({"timestamp": stamp, "content": content, "start_pos": position})
    return chunks


def chunk_by_json_keys(text: str) -> list[dict[str, str]]:
    """Returns one {"key", "content", "value_type"} for each key of the JSON object in `text`."""
    import json

    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError(
            f"chunk_by_json_keys: the text is a JSON {type(value).__name__}, not an object"
        )
    return [
        {"key": key, "content": json.dumps(item, indent=2), "value_type": type(item).__name__}
        for key, item in value.items()
    ]


def _split_sections(text: str, matcher: re.Pattern[str]) -> list[tuple[str, str, int]]:
    """Returns (matching line, text up to the next one, position of the line), top to bottom."""
    sections: list[tuple[str, list[str], int]] = []
    position = 0
    for line in text.splitlines(keepends=True):
        if matcher.search(line):
            sections.append((line.strip(), [], position))
        elif sections:
            sections[-1][1].append(line)
        elif line.strip():
            sections.append(("", [line], position))
        position += len(line)
    return [(head, "".join(body).strip(), start) for head, body, start in sections]
