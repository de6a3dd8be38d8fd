"""Lives of one attempt of several nodes on this machine: the supervisor's own code for them, with
sandboxes, timers and processes played from a seed. `broken(seed)` says which promise did not hold.
"""

from __future__ import annotations

import json
import os
import random
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fleetctl.guest.journal.record import Journal
from fleetctl.providers.local.supervisor.run.gang import LocalGang
from fleetctl.providers.local.supervisor.run.together import GangRunner

RUN = "run-0"
RESUMED = {"step": 5, "path": "/ckpt/step-5"}  # what node 0 has found to go on from


@dataclass
class Run:
    name: str
    journal: Journal
    ending: str = ""

    def close_logs(self) -> None:
        """It has none."""


@dataclass
class Box:
    """A node's sandbox, and the process in it."""

    order: dict[str, Any]
    rank: int = 0
    gang: Any = None
    run: Run | None = None
    channel: int | None = None
    ended_at_s: float = 0.0
    theirs: int = -1
    told: bool = False  # the word to begin has arrived
    ready: bool = False
    over: bool = False
    asked: list[str] = field(default_factory=list)  # why it was to end, each time


class Life:
    """One seed's world."""

    def __init__(self, seed: int, directory: Path) -> None:
        self.rng = random.Random(seed)
        self.directory = directory
        self.runs = os.open(directory, os.O_RDONLY)
        self.boxes: list[Box] = []
        self.timers: list[Callable[[], None]] = []
        self.now_s = 1.0
        self.wrong: list[str] = []
        self.count = self.rng.randint(2, 4)
        # Node 0's failure leaves nothing to let go of but its journal; it is a case as well.
        self.fails_at = self.rng.choice([None, None, None, *range(self.count)])
        self.together = GangRunner(
            self.runs,
            hearing=self,  # type: ignore[arg-type]
            timers=self,  # type: ignore[arg-type]
            make=self.make,  # type: ignore[arg-type]
            begin=self.begin,  # type: ignore[arg-type]
            end=self.end,  # type: ignore[arg-type]
            remove=lambda box: None,
            changed=lambda run: None,
        )

    # -- what the supervisor does for one sandbox --------------------------------------------------

    def make(self, order: dict[str, Any]) -> Box:
        box = Box(order)
        self.boxes.append(box)
        return box

    def begin(self, box: Box, order: dict[str, Any], journal: Journal) -> None:
        box.run = Run(order["run"], journal)
        journal.begin(self.now_s, '"keeper":"k"')
        if self.fails_at == box.rank:
            box.run = None
            if box.rank:
                os.unlink(f"{order['run']}.jsonl", dir_fd=self.runs)
                journal.close()
            raise OSError("no process to be had")
        box.theirs, box.channel = os.pipe()
        os.set_blocking(box.theirs, False)

    def end(self, box: Box, why: str, grace_s: float) -> None:
        box.asked.append(why)
        if box.run is not None:
            box.run.ending = box.run.ending or why

    def after(self, seconds: float, call: Callable[[], None]) -> None:
        self.timers.append(call)

    def finish(self, box: Box, run: Run) -> None:
        """Last words of one that never began."""

    def hang_up(self, box: Box) -> None:
        if box.channel is not None:
            os.close(box.channel)
            box.channel = None

    # -- what happens ------------------------------------------------------------------------------

    def play(self) -> None:
        gang, reply = self._order()
        if gang is None:
            self._nothing_began(reply)
            return
        for _ in range(200):
            if all(box.over for box in self.boxes):
                break
            self._step(gang)
            self._look(gang)
        self._is_over()

    def _order(self) -> tuple[LocalGang[Any] | None, dict[str, Any]]:
        """As the supervisor's `start`: an attempt that has a journal has begun before."""
        try:
            journal = Journal(self.runs, RUN)
        except FileExistsError:
            return None, {"ok": True, "adopted": True}
        gang = LocalGang({"run": RUN, "sandbox": RUN, "nodes": self.count, "procs": 1, "gpus": [],
                     "grace_s": 5.0, "timeout_s": None})  # fmt: skip
        reply = self.together.begin(gang, journal)
        return (gang if "ok" in reply else None), reply

    def _again(self) -> None:
        """The reply was lost, or another controller has come: the order is repeated."""
        self._order()
        if len(self.boxes) > self.count:
            self.wrong.append("an attempt has a second gang")

    def _step(self, gang: LocalGang[Any]) -> None:
        self.now_s += self.rng.random()
        waiting = [box for box in self.boxes if not box.ready and not box.over]
        working = [box for box in self.boxes if box.told and not box.over]
        asked = [box for box in self.boxes if box.asked and not box.over]
        choices: list[Callable[[], None]] = [lambda: None, self._again]
        choices += [lambda box=box: self._ready(gang, box) for box in waiting]  # type: ignore[misc]
        for box in working:
            code = self.rng.choice((0, 0, 0, 3, 137))
            choices.append(lambda box=box, code=code: self._exit(gang, box, code))  # type: ignore[misc]
        choices += [lambda box=box: self._exit(gang, box, 143) for box in asked]  # type: ignore[misc]
        if self.timers and gang.begun:
            choices.append(lambda: self.timers.pop(0)())
        self.rng.choice(choices)()

    def _ready(self, gang: LocalGang[Any], box: Box) -> None:
        box.ready = True
        if gang.is_ready(box):
            gang.begin(RESUMED)

    def _exit(self, gang: LocalGang[Any], box: Box, code: int) -> None:
        box.over, box.ended_at_s = True, self.now_s
        why = box.run.ending if box.run is not None else ""
        ok = code == 0 and not why
        reason = why or ("Completed" if ok else f"ExitCode:{code}")
        ended = {"ok": ok, "infra": False, "reason": reason, "message": "", "exit": code,
                 "at": self.now_s, "started_at": 1.0}  # fmt: skip
        self.together.over(gang, box, "", ended)  # type: ignore[arg-type]

    def _look(self, gang: LocalGang[Any]) -> None:
        for box in self.boxes:
            box.told = box.told or (box.theirs >= 0 and _told(box.theirs))
        if any(box.told for box in self.boxes) and not all(box.ready for box in self.boxes):
            self.wrong.append("a node began before all were ready")
        failed = [end for end in gang.ends if end and not end["ok"] and not end.get("stopped")]
        if failed and not all(box.over or box.asked for box in self.boxes):
            self.wrong.append("a node failed, and another one was left to itself")
        if self._ends() and not all(box.over for box in self.boxes):
            self.wrong.append("the attempt is over, and a node of it is not")

    # -- what is left ------------------------------------------------------------------------------

    def _nothing_began(self, reply: dict[str, Any]) -> None:
        if any(_told(box.theirs) for box in self.boxes if box.theirs >= 0):
            self.wrong.append("a node began of an attempt that was not made")
        if [it.name for it in self.directory.glob("*.jsonl")]:
            self.wrong.append("the next try finds traces of one that was not made")
        if any(box.channel is not None or not box.asked for box in self.boxes):
            self.wrong.append("a node waits for an attempt that was not made")
        if reply["message"].split(" of ")[0] != str(self.fails_at):
            self.wrong.append("it does not say how many nodes could be had")

    def _ends(self) -> list[dict[str, Any]]:
        lines = (self.directory / f"{RUN}.jsonl").read_text().splitlines()
        return [event for event in map(json.loads, lines) if event["e"] == "ended"]

    def _is_over(self) -> None:
        ends = self._ends()
        if len(ends) != 1:
            self.wrong.append(f"an attempt has {len(ends)} ends")
            return
        if ends[0]["ok"] and ends[0]["exit"] != 0:
            self.wrong.append("it succeeded with another code than 0")


def _told(handle: int) -> bool:
    try:
        word = os.read(handle, 4096)
        return bool(word) and json.loads(word) == RESUMED
    except BlockingIOError:
        return False


def broken(seed: int) -> list[str]:
    """The promises that one life breaks; none in code that is right."""
    with tempfile.TemporaryDirectory() as directory:
        life = Life(seed, Path(directory))
        life.play()
        for box in life.boxes:
            for handle in (box.theirs, box.channel):
                if handle is not None and handle >= 0:
                    os.close(handle)
        os.close(life.runs)
        return life.wrong
