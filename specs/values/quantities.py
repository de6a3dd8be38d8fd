"""Durations, byte quantities, CPU counts and index sets, in the form of manifests.

Used by the models in specs/ and by command line flags. Standard library only, so that read paths
may import it. Every function raises ValueError with a sentence that describes the right form.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from itertools import pairwise

# Ten years: a longer wait is a typing error, and sums of such values stay exact in a float.
DURATION_MAX_S = 10 * 365 * 86400.0
# 8 EiB, the largest that a signed 64-bit column holds.
BYTES_MAX = 2**63 - 1

DURATION_FORM = "seconds, or a text such as `30s`, `5m`, `2h` or `7d`"
BYTES_FORM = "a number of bytes, or a text such as `512Mi` or `4Gi`"
CPU_FORM = "a number of cores such as `2` or `0.5`, or a text such as `500m`"
INDEXES_FORM = "numbers and rising ranges such as `0-2,5`"

_DURATION_PART = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,9})?)(ms|s|m|h|d)")
_DURATION = re.compile(rf"(?:{_DURATION_PART.pattern})+")
_UNIT_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}

_BYTES = re.compile(r"([0-9]{1,19}(?:\.[0-9]{1,9})?)(Ki|Mi|Gi|Ti|Pi|Ei|k|M|G|T|P|E)?")
_UNIT_BYTES = {
    "": 1,
    **{unit: 1000 ** (power + 1) for power, unit in enumerate("kMGTPE")},
    **{f"{unit}i": 1024 ** (power + 1) for power, unit in enumerate("KMGTPE")},
}
_CPU = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(m)?")
_INDEXES = re.compile(r"[0-9]{1,10}(?:-[0-9]{1,10})?(?:,[0-9]{1,10}(?:-[0-9]{1,10})?)*")


def parse_duration(value: str | float) -> float:
    """Returns seconds. `90`, `"90"`, `"90s"` and `"1m30s"` are equal."""
    if isinstance(value, str):
        value = _duration_of_text(value)
    if not 0 <= value <= DURATION_MAX_S:
        raise ValueError("a duration must lie between 0 and ten years")
    return float(value)


def parse_bytes(value: str | int) -> int:
    """Returns bytes, by the Kubernetes suffixes: `4Gi` is 4 * 1024**3, `4G` is 4 * 1000**3."""
    if isinstance(value, str):
        match = _BYTES.fullmatch(value)
        if match is None and _BYTES.fullmatch(value.removeprefix("-")):
            raise ValueError("a size must be more than 0")
        if match is None:
            raise ValueError(f"a size must be {BYTES_FORM}")
        value = int(Decimal(match[1]) * _UNIT_BYTES[match[2] or ""])
    if not 1 <= value <= BYTES_MAX:
        raise ValueError("a size must lie between 1 byte and 8Ei")
    return value


def parse_cpu(value: str | float) -> float:
    """Returns cores. `"500m"` is half a core."""
    if isinstance(value, str):
        match = _CPU.fullmatch(value)
        if match is None and _CPU.fullmatch(value.removeprefix("-")):
            raise ValueError("cpu must be more than 0")
        if match is None:
            raise ValueError(f"cpu must be {CPU_FORM}")
        value = float(match[1]) / (1000 if match[2] else 1)
    if not 0 < value <= 1_000_000:
        raise ValueError("cpu must be more than 0 and at most 1,000,000 cores")
    return float(value)


def parse_indexes(text: str) -> tuple[range, ...]:
    """Returns `"0-2,5"` as ranges, rising and apart, in the form of a Kubernetes Job's
    completedIndexes.
    """
    if not _INDEXES.fullmatch(text):
        raise ValueError(f"indexes must be {INDEXES_FORM}")
    ranges = tuple(_parse_ranges(text))
    for before, after in pairwise(ranges):
        if after.start < before.stop:
            raise ValueError(f"indexes must be {INDEXES_FORM}, each number once")
    return ranges


def _duration_of_text(text: str) -> float:
    if re.fullmatch(r"[0-9]{1,12}(\.[0-9]{1,9})?", text):
        return float(text)
    if text.startswith("-") and _DURATION.fullmatch(text[1:]):
        raise ValueError("a duration must be 0 or more")
    if not _DURATION.fullmatch(text):
        raise ValueError(f"a duration must be {DURATION_FORM}")
    return sum(float(number) * _UNIT_S[unit] for number, unit in _DURATION_PART.findall(text))


def _parse_ranges(text: str) -> Iterator[range]:
    for part in text.split(","):
        first, _, last = part.partition("-")
        if int(last or first) < int(first):
            raise ValueError(f"indexes must be {INDEXES_FORM}")
        yield range(int(first), int(last or first) + 1)


INDEX_MAX = 2**31 - 1
