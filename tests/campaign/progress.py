"""How far a part of the campaign came with this product, in .campaign/PART.json."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field

from tests.campaign.pieces import Piece
from tests.record.results import PRODUCT, ROOT, find_commit, is_same_code

FOLDER = ROOT / ".campaign"


@dataclass(slots=True)
class Progress:
    """commit: the last commit that changed the product. pieces: number of the next piece, which
    grows on when the product changes. done, seconds, cpu_s: of this product's pieces together.
    """

    part: str
    commit: str
    pieces: int = 0
    done: int = 0
    findings: list[str] = field(default_factory=list)
    seconds: float = 0.0
    cpu_s: float = 0.0

    def add(self, piece: Piece, *, seconds: float) -> None:
        self.pieces += 1
        self.done += piece.done
        self.findings += piece.findings
        self.cpu_s += piece.cpu_s
        self.seconds += seconds


def load_progress(part: str) -> Progress:
    """A new one where the product has changed since, whose pieces are none of those before."""
    file, pieces = FOLDER / f"{part}.json", 0
    if file.exists():
        kept = Progress(**json.loads(file.read_text("utf-8")))
        if is_same_code(kept.commit, PRODUCT):
            return kept
        pieces = kept.pieces
    return Progress(part, find_commit(PRODUCT), pieces)


def save_progress(progress: Progress) -> None:
    FOLDER.mkdir(exist_ok=True)
    file = FOLDER / f"{progress.part}.json"
    fresh = file.with_suffix(".new")
    fresh.write_text(json.dumps(asdict(progress), indent=2), "utf-8")
    fresh.replace(file)
