"""Removes the values of a run's secrets from its records: output, results, messages.

Made by the run's supervisor, from the secrets of its order, and handed to its logs and journal. A
task that prints its own key, or raises an error that quotes it, is the usual way in which a secret
would reach a disk. By value alone: an encoded value (base64, hex, in pieces) is not recognised, and
a short value is left, since it would remove ordinary words and numbers everywhere.
"""

from __future__ import annotations

from fleetctl.guest.journal.digest import result_line
from fleetctl.guest.task.text import encode_canonical, encode_compact, parse_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, AnyStr, Iterable, Iterator, Sequence

MASK = "***"
_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_METRIC = '{"e":"metric",'
CHARACTERS_MIN = 6
CUT_CHARACTERS_MIN = 256  # the shortest length to which any text is cut


class Masking:
    """Masks values. values: of secrets; those below `shortest` characters are left as they are."""

    def __init__(self, values: Iterable[str], *, shortest: int = CHARACTERS_MIN) -> None:
        forms = {
            form for value in values for form in _list_printed_forms(value) if len(form) >= shortest
        }
        # Longest first: one value may be the beginning of another.
        self._texts = sorted(forms, key=len, reverse=True)
        self._data = [text.encode("utf-8", "surrogateescape") for text in self._texts]
        self._shortest = shortest

    def __repr__(self) -> str:
        return f"Masking({MASK})"

    def stream(self) -> MaskedStream:
        """Returns a mask for output that comes in pieces."""
        return MaskedStream(self)

    def text(self, text: str) -> str:
        found = find_forms(text, self._texts)
        if found:
            return _cut_spans(text, found, MASK)
        return text

    def data(self, data: bytes) -> bytes:
        stream = self.stream()
        return stream.feed(data) + stream.end()

    def find_spans(self, data: bytes) -> list[tuple[int, int]]:
        """Returns where values are in `data`: (begin, end), in order and apart."""
        return find_forms(data, self._data)

    def value(self, value: Any) -> Any:
        """Masks a JSON value: its texts and keys, also where one was cut within a secret. Numbers
        stay as they are.
        """
        if isinstance(value, str):
            return self._edges(self.text(value))
        if isinstance(value, dict):
            return {self.text(str(key)): self.value(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.value(item) for item in value]
        return value

    def lines(self, text: str) -> str:
        """Masks lines of a journal, each a JSON object."""
        lines = []
        for line in text.splitlines():
            if line.startswith(_METRIC) and not any(form in line for form in self._texts):
                lines.append(line + "\n")  # millions of them, of names and numbers
                continue
            event = parse_json(line)
            if event.get("e") == "result":
                lines.append(self._result(event))
                continue
            masked = self.value(event)
            lines.append((line if masked == event else encode_compact(masked)) + "\n")
        return "".join(lines)

    def unfinished(self, data: bytes) -> int:
        """Returns how many bytes at the end of `data` may be the beginning of a value."""
        most = len(self._data[0]) if self._data else 0
        for at in range(max(0, len(data) - most + 1), len(data)):
            rest = data[at:]
            if any(len(it) > len(rest) and it.startswith(rest) for it in self._data):
                return len(rest)
        return 0

    def _edges(self, text: str) -> str:
        """Masks a value's cut end or beginning in a text that was shortened."""
        for form in self._texts if len(text) >= CUT_CHARACTERS_MIN else ():
            at = text.find(form[: self._shortest], max(0, len(text) - len(form)))
            if at >= 0 and form.startswith(text[at:]):
                text = text[:at] + MASK
            end = text.find(form[-self._shortest :], 0, len(form)) + self._shortest
            if end >= self._shortest and form.endswith(text[:end]):
                text = MASK + text[end:]
        return text

    def _result(self, event: dict[str, Any]) -> str:
        return result_line(encode_canonical(self.value(parse_json(event["text"]))))


class MaskedStream:
    """Masks output that comes in pieces, cut anywhere: an end that may be the beginning of a value
    is kept back until more bytes arrive.
    """

    def __init__(self, masking: Masking) -> None:
        self._masking = masking
        self._held = b""
        self._covered = 0  # how many of its bytes belong to a value that is masked already

    def feed(self, data: bytes) -> bytes:
        data = self._held + data
        return self._take(data, len(data) - self._masking.unfinished(data))

    def end(self) -> bytes:
        """Returns the bytes that were kept back."""
        return self._take(self._held, len(self._held))

    def _take(self, data: bytes, cut: int) -> bytes:
        """Returns `data` up to `cut`, masked; keeps the rest back."""
        found = merge_spans([(0, self._covered), *self._masking.find_spans(data)])
        parts = []
        at = 0
        into = 0
        for begin, end in found:
            masked = begin == 0 and self._covered > 0
            if begin >= cut and not masked:
                break
            parts += [data[at:begin], b"" if masked else MASK.encode()]
            at = min(end, cut)
            into = max(0, end - cut)
        parts.append(data[at:cut])
        self._held = data[cut:]
        self._covered = into
        return b"".join(parts)


def find_forms(text: AnyStr, forms: Sequence[AnyStr]) -> list[tuple[int, int]]:
    """Returns where these forms are, also where they overlap: (begin, end), in order and apart."""
    found = []
    for form in forms:
        at = text.find(form)
        while at >= 0:
            found.append((at, at + len(form)))
            at = text.find(form, at + 1)
    return merge_spans(found)


def merge_spans(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for begin, end in sorted(span for span in spans if span[0] < span[1]):
        if merged and begin < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((begin, end))
    return merged


def _cut_spans(
    text: str,
    spans: list[tuple[int, int]],
    mask: str,
) -> str:
    parts = []
    at = 0
    for begin, end in spans:
        parts += [text[at:begin], mask]
        at = end
    return "".join([*parts, text[at:]])


def _list_printed_forms(value: str) -> Iterator[str]:
    """Yields the value as programs print it: as it is, within JSON or `repr`, in a URL; and each of
    several lines, since logs are read by lines. The frame of a key in PEM is public.
    """
    for text in (value, *value.splitlines()):
        text = text.strip("\r\n")
        if text.startswith("-----") and text.endswith("-----") and "\n" not in text:
            continue
        yield text
        yield encode_compact(text)[1:-1]
        yield encode_canonical(text)[1:-1]
        yield repr(text)[1:-1]
        yield _percent_encoded(text)


def _percent_encoded(text: str) -> str:
    """Encodes as in a URL; `urllib` would be imported for every run that has a secret."""
    data = text.encode("utf-8", "surrogateescape")
    return "".join(chr(it) if it in _UNRESERVED else f"%{it:02X}" for it in data)
