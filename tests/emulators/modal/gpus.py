"""How many GPUs there are, and who waits for one: shared by sandboxes and function containers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from grpclib import GRPCError, Status

# The aliases of a type count as one; `H100!` only pins what may be swapped.
TYPES = {
    "T4": "T4", "L4": "L4", "A10": "A10", "A10G": "A10", "L40S": "L40S",
    "A100": "A100-40GB", "A100-40GB": "A100-40GB", "A100-80GB": "A100-80GB",
    "RTX-PRO-6000": "RTX-PRO-6000", "H100": "H100", "H100!": "H100", "H200": "H200",
    "B200": "B200", "B200+": "B200", "B300": "B300", "ANY": "ANY",
}  # fmt: skip
COUNT_MAX = {"A10": 4}
COUNT_MAX_ELSE = 8


class Gpus:
    """`capacity` is by type or alias; a type that is not named is without limit."""

    def __init__(self, capacity: Mapping[str, int]) -> None:
        self.capacity = capacity
        self.taken: Counter[str] = Counter()
        self.on_freed: list[Callable[[], None]] = []

    def take(self, label: str, times: int = 1) -> bool:
        """False when there are not so many now. `label` is as in `A100:4`; "" is none. times: for
        so many containers, for all or none.
        """
        if not label:
            return True
        kind, count = parse(label)
        limits = {TYPES.get(name, name): limit for name, limit in self.capacity.items()}
        limit = limits.get(kind, limits.get("*"))
        if limit is not None and self.taken[kind] + count * times > limit:
            return False
        self.taken[kind] += count * times
        return True

    def release(self, label: str) -> None:
        if label:
            kind, count = parse(label)
            self.taken[kind] -= count
            self.changed()

    def changed(self) -> None:
        """Also to be called when the capacity has grown."""
        for tell in self.on_freed:
            tell()


def parse(label: str) -> tuple[str, int]:
    """Raises INVALID_ARGUMENT for what the service does not have."""
    name, _, count = label.partition(":")
    kind = TYPES.get(name.upper())
    if kind is None:
        raise GRPCError(Status.INVALID_ARGUMENT, f"Invalid GPU type: '{name}'")
    wanted = int(count or 1)
    if not 1 <= wanted <= COUNT_MAX.get(kind, COUNT_MAX_ELSE):
        raise GRPCError(Status.INVALID_ARGUMENT, f"Invalid GPU count for {name}: {wanted}")
    return kind, wanted
