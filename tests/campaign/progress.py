"""How far each part of the campaign came, in played/PART.json: a share for each commit of the
product. A seed is used once: pieces have numbers that only grow, and a piece that a stop
interrupted is played again.
"""

from __future__ import annotations

import datetime
import json
from dataclasses import asdict, dataclass, field

from tests.campaign.parts import Part
from tests.campaign.pieces import Piece
from tests.record.results import PLAYED, PRODUCT, describe_machine, find_commit

FOLDER = PLAYED


@dataclass(slots=True)
class Share:
    """The trials with one commit of the product. first, last: dates. seconds, cpu_s: of all of
    its pieces together.
    """

    commit: str
    first: str
    last: str
    machine: str
    done: int = 0
    seconds: float = 0.0
    cpu_s: float = 0.0


@dataclass(slots=True)
class Finding:
    """test: the one that failed with the fault, `FILE::NAME`; while empty, the finding is open."""

    text: str
    commit: str
    date: str
    test: str = ""


@dataclass(slots=True)
class Progress:
    """next_piece: the number of the next fresh piece. begun: pieces that have not ended. shares:
    by commit, oldest first; a finding ends none of them.
    """

    part: str
    next_piece: int = 0
    begun: list[int] = field(default_factory=list)
    shares: list[Share] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    @property
    def done(self) -> int:
        return sum(share.done for share in self.shares)

    @property
    def open(self) -> list[Finding]:
        return [finding for finding in self.findings if not finding.test]

    def begin_piece(self, running: set[int]) -> int:
        """Returns the number of the next piece: one that was interrupted, or a fresh one."""
        for number in self.begun:
            if number not in running:
                return number
        self.begun.append(self.next_piece)
        self.next_piece += 1
        return self.begun[-1]

    def add(self, piece: Piece, commit: str) -> None:
        today = datetime.datetime.now(datetime.UTC).date().isoformat()
        machine = describe_machine()
        if not self.shares or (self.shares[-1].commit, self.shares[-1].machine) != (
            commit,
            machine,
        ):
            self.shares.append(Share(commit, today, today, machine))
        share = self.shares[-1]
        share.last = today
        share.done += piece.done
        share.seconds = round(share.seconds + piece.seconds, 1)
        share.cpu_s = round(share.cpu_s + piece.cpu_s, 1)
        self.findings += [Finding(text, commit, today) for text in piece.findings]
        self.begun.remove(piece.number)

    def describe_count(self, part: Part) -> str:
        count = f"{self.done:,} of {part.wanted:,} {part.unit}"
        if len({share.commit for share in self.shares}) > 1:
            count += f", {self.shares[-1].done:,} of them at {self.shares[-1].commit}"
        found = len(self.findings)
        return f"{count}; {found:,} finding{'' if found == 1 else 's'}"


def load_progress(part: str) -> Progress:
    file = FOLDER / f"{part}.json"
    if not file.exists():
        return Progress(part)
    kept = json.loads(file.read_text("utf-8"))
    kept["shares"] = [Share(**it) for it in kept["shares"]]
    kept["findings"] = [Finding(**it) for it in kept["findings"]]
    return Progress(**kept)


def save_progress(progress: Progress) -> None:
    """Replaces the file at once, so that a stop at any moment leaves the state before or after."""
    FOLDER.mkdir(exist_ok=True)
    file = FOLDER / f"{progress.part}.json"
    fresh = file.with_suffix(".new")
    fresh.write_text(json.dumps(asdict(progress), indent=2) + "\n", "utf-8")
    fresh.replace(file)


def find_product_commit() -> str:
    """Returns the last commit that changed the product."""
    return find_commit(PRODUCT)
