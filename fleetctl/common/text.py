"""Formats text for users: escaping, widths, ages, sizes, and credentials removed. Pure; called by
every screen.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

MINUTE_S = 60
HOUR_S = 3600
DAY_S = 86400
YEAR_10000_S = 253_402_300_800
# Spaces that str.isprintable() rejects although they only take room.
_HARMLESS = frozenset("\u00a0\u3000")

CREDENTIAL_NAME = re.compile(
    r"(?:^|[_\-.])(?:api_?key|access_?key|key|token|secret|passw(?:or)?d|credentials?)(?:$|[_\-.])",
    re.I,
)
HIDDEN = "***"
_URL_USER = re.compile(r"//[^/\s@]+@")
_URL_FIELD = re.compile(r"(?P<before>[?&;])(?P<name>[^=&;#\s]{1,100})=(?P<value>[^&;#\s`'\"]+)")


def escape_line(text: str) -> str:
    """Returns one line that cannot drive a terminal. Everything that is not printable is shown as
    an escape: C0 and C1 controls, DEL, bidirectional marks, line separators, zero-width characters
    and lone surrogates.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in _HARMLESS else _escape_char(c) for c in text)


def format_hinted(message: str, hint: str | None) -> str:
    """Returns a message in one line with its hint."""
    return f"{message}; hint: {hint}" if hint else message


def escape_lines(text: str) -> list[str]:
    """Returns the lines of `text`, each made safe; tabs become spaces, a CR before an LF is
    dropped.
    """
    return [escape_line(line.rstrip("\r").expandtabs(8)) for line in text.rstrip("\n").split("\n")]


def _escape_char(char: str) -> str:
    named = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(char)
    if named:
        return named
    code = ord(char)
    if code < 0x100:
        return f"\\x{code:02x}"
    if code < 0x10000:
        return f"\\u{code:04x}"
    return f"\\U{code:08x}"


def cell_width(text: str) -> int:
    """Returns the terminal cells that `text` takes: wide East Asian characters two, combining marks
    zero.
    """
    if text.isascii():
        return len(text)
    import unicodedata

    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in text
    )


def pad_cells(text: str, cells: int) -> str:
    return text + " " * (cells - cell_width(text))


def shorten_text(text: str, cells: int) -> str:
    """Shortens to at most `cells` characters, the cut marked with an ellipsis."""
    if len(text) <= cells:
        return text
    return text[: cells - 1] + "…"


def format_age(span_s: float) -> str:
    """Formats an age, in the units that matter: `45s`, `18m`, `9h`, `12d`; `3d4h` below 8 days."""
    span = max(0, int(span_s))
    if span < 2 * MINUTE_S:
        return f"{span}s"
    if span < 2 * HOUR_S:
        return f"{span // MINUTE_S}m"
    if span < 2 * DAY_S:
        return f"{span // HOUR_S}h"
    days, rest = divmod(span, DAY_S)
    hours = rest // HOUR_S
    if days < 8 and hours:
        return f"{days}d{hours}h"
    return f"{days}d"


def format_duration(span_s: float) -> str:
    """Formats a duration at the precision that readers need: `0.4s`, `41s`, `3m02s`."""
    span = max(0.0, span_s)
    if span < 9.95:
        return f"{span:.1f}s"
    whole = round(span)
    if whole < MINUTE_S:
        return f"{whole}s"
    if whole < HOUR_S:
        return f"{whole // MINUTE_S}m{whole % MINUTE_S:02d}s"
    if whole < 2 * DAY_S:
        return f"{whole // HOUR_S}h{whole % HOUR_S // MINUTE_S:02d}m"
    return f"{whole // DAY_S}d{whole % DAY_S // HOUR_S}h"


def format_money(amount: float) -> str:
    """Formats money with the digits that matter: `$0.0031`, `$0.45`, `$1,204.10`; less shows as
    `<$0.0001`.
    """
    if 0 < amount < 0.0001:
        return "<$0.0001"
    if 0 < amount < 0.1:
        return f"${amount:.4f}"
    return f"${amount:,.2f}"


def format_timestamp(at_s: float) -> str:
    """Formats RFC 3339 in UTC with whole seconds, as Kubernetes writes it; years 1970 to 9999."""
    return _format_second(int(min(max(at_s, 0.0), YEAR_10000_S - 1)))


# A status has the same time several times over, and the objects of a tick share it.
@lru_cache(maxsize=256)
def _format_second(at_s: int) -> str:
    import time

    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at_s))


def byte_size(count: int) -> str:
    """Formats a size: `812 B`, `4.0 KiB`, `1.2 GiB`."""
    if count < 1024:
        return f"{count} B"
    size = float(count)
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        size /= 1024
        # A size that would round up to 1024.0 belongs to the next unit.
        if size < 1023.95 or unit == "TiB":
            return f"{size:.1f} {unit}"
    raise AssertionError


def format_assignments(values: Mapping[str, object]) -> str:
    """Formats assignments as `lr=0.01 batch_size=64`: numbers in full, strings bare when
    unambiguous, the rest as JSON.
    """
    return " ".join(f"{key}={format_scalar(value)}" for key, value in values.items())


def format_scalar(value: object) -> str:
    if isinstance(value, str) and value and not any(c in value for c in " \"'=,[]{}"):
        return value
    import json

    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def and_more(items: Sequence[str], *, most: int) -> str:
    """Returns a comma list that ends in `and 7 more` when it is longer than `most`."""
    shown = ", ".join(items[:most])
    if len(items) > most:
        return f"{shown} and {len(items) - most} more"
    return shown


def count_noun(count: int, noun: str) -> str:
    if count == 1:
        return f"{count} {noun}"
    return f"{count} {noun}s"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    r"""Returns `did you mean \`x\`?`, or an empty text when no known word is near."""
    import difflib

    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    if near:
        return f"did you mean `{near[0]}`?"
    return ""


def without_credentials(text: str) -> str:
    """Returns the text, in which no URL has a user, a password, or a field of its query that is
    named like a credential.
    """
    return _URL_FIELD.sub(_hidden_field, _URL_USER.sub(f"//{HIDDEN}@", text))


def has_credential_field(url: str) -> bool:
    """Returns true if a field of its query is named like a credential."""
    return any(CREDENTIAL_NAME.search(it["name"]) for it in _URL_FIELD.finditer(url))


def _hidden_field(field: re.Match[str]) -> str:
    if not CREDENTIAL_NAME.search(field["name"]):
        return field[0]
    return f"{field['before']}{field['name']}={HIDDEN}"
