"""How much of an attempt's outputs a provider keeps. Sent to the guest with the patterns."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from fleetctl.specs.blocks.template import Template

MIB = 1 << 20
GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class OutputLimits:
    """Bytes of one file, and bytes and files of one attempt."""

    file_bytes_max: int
    bytes_max: int
    files_max: int


# All of it passes through the line that carries a run's log, and stays on the disk of this machine:
# larger data belongs in a volume.
OUTPUT_LIMITS = OutputLimits(
    file_bytes_max=GIB,
    bytes_max=2 * GIB,
    files_max=20_000,
)


def outputs_order(
    template: Template, limits: OutputLimits = OUTPUT_LIMITS
) -> dict[str, object] | None:
    """Returns the template's `outputs` as the guest reads them; see guest/outputs. None without."""
    if not template.outputs:
        return None
    return {"patterns": list(template.outputs), **asdict(limits)}
