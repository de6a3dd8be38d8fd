"""The share of checking manifests that goes to the expansion of the short form, paired: each round
loads the same short files and expands the same documents, in CPU time.
"""

from __future__ import annotations

import time
from copy import deepcopy
from pathlib import Path
from statistics import median

from fleetctl.manifest import Document, load_manifests
from fleetctl.manifest.document.short import expand_document, shorten_manifest
from fleetctl.manifest.yaml.emit import to_yaml
from fleetctl.manifest.yaml.reader import read_yaml
from fleetctl.specs.kinds.registry import API_VERSION, KINDS
from tests.bench.harness import Figure

EXAMPLES = Path(__file__).resolve().parents[2] / "specs" / "examples"
COPIES = 5  # of each example, so that a round takes a second
ROUNDS = 7
SHARE_MAX = 0.03


def figures() -> list[Figure]:
    texts = _short_texts()
    shares = [_measure_share(texts) for _ in range(ROUNDS)]
    share = median(shares)
    what = f"expanding {len(texts):,} short manifests, of the time that checking them takes"
    return [Figure(what, f"{share:.1%}", f"{SHARE_MAX:.0%}", reached=share <= SHARE_MAX)]


def _short_texts() -> list[str]:
    texts = []
    for path in sorted(EXAMPLES.glob("*.yaml")):
        for root in read_yaml(path.name, path.read_text(encoding="utf-8")).roots:
            value = root.value
            if value.get("kind") in KINDS and value.get("apiVersion") == API_VERSION:
                texts.append(to_yaml(shorten_manifest(deepcopy(value))))
    return texts * COPIES


def _measure_share(texts: list[str]) -> float:
    """Seconds of the expansion for each second of a load."""
    documents = [read_yaml("short.yaml", text).roots[0].value for text in texts]
    began_s = time.process_time()
    for value in documents:
        expand_document(value)
    expanded_s = time.process_time()
    for text in texts:
        load_manifests([Document("short.yaml", text, str(EXAMPLES))])
    return (expanded_s - began_s) / (time.process_time() - expanded_s)
