"""Variables that SkyPilot and dstack set for a program, as lines of a shell that set them from the
variables of a guest. On one node the variables of nodes are unset here, so each line has a default.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from fleetctl.manifest.foreign.foreign_mapping import ForeignMapping

_RANK = "${NODE_RANK:-0}"
_NODES = "${NNODES:-1}"
_IPS = "${FLEETCTL_NODE_IPS:-127.0.0.1}"
_FIRST = "${MASTER_ADDR:-127.0.0.1}"
_GPUS = "GPUS"  # stands for how many each node has
_ALL_GPUS = "ALL"  # and the number of GPUs of all nodes

SKYPILOT: Mapping[str, str] = {
    "SKYPILOT_NODE_RANK": _RANK,
    "SKYPILOT_NUM_NODES": _NODES,
    "SKYPILOT_NODE_IPS": _IPS,
    "SKYPILOT_NUM_GPUS_PER_NODE": _GPUS,
    "SKYPILOT_SETUP_NODE_RANK": _RANK,
    "SKYPILOT_SETUP_NODE_IPS": _IPS,
    "SKYPILOT_SETUP_NUM_GPUS_PER_NODE": _GPUS,
}
DSTACK: Mapping[str, str] = {
    "DSTACK_NODE_RANK": _RANK,
    "DSTACK_NODES_NUM": _NODES,
    "DSTACK_NODES_IPS": _IPS,
    "DSTACK_MASTER_NODE_IP": _FIRST,
    "DSTACK_GPUS_PER_NODE": _GPUS,
    "DSTACK_GPUS_NUM": _ALL_GPUS,
}
_WORD = re.compile(r"\b(?:SKYPILOT|DSTACK)_[A-Z0-9_]+")


def lines_for(
    source: ForeignMapping,
    key: str,
    text: str,
    known: Mapping[str, str],
    *,
    gpus: int,
    every: bool,
) -> list[str]:
    """Returns the lines that set the variables which the text uses, or every known one; adds a
    remark on `key` for variables without a counterpart.
    """
    used = dict.fromkeys(_WORD.findall(text))
    for name in used:
        if name not in known:
            source.say(key, f"uses `{name}`, which is not set here")
    wanted = [name for name in known if every or name in used]
    if wanted and not every:
        source.say(
            key, f"uses {_quote_names(wanted)}: set in its first lines from what is set here"
        )
    return [f'export {name}="{_expand_value(known[name], gpus)}"' for name in wanted]


def gpus_in(resources: Mapping[str, object]) -> int:
    """Returns the number of GPUs of a node, from `resources` of ours."""
    text = str(resources.get("gpu") or "")
    count = text.partition(":")[2] or "1"
    if text and count.isdigit():
        return int(count)
    return 0


def _expand_value(value: str, gpus: int) -> str:
    if value == _ALL_GPUS:
        return f"$(( {_NODES} * {gpus} ))"
    if value == _GPUS:
        return str(gpus)
    return value


def _quote_names(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
