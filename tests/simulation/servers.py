"""Simulates an endpoint's servers and callers whose prompts may be poisoned, by the gateway's own
rules, without a network and without a clock: which server rests, and which caller waits for it.

Every server answers a poisoned prompt with a 500; all poisoned prompts belong to one caller.
Servers become unreachable and return. Once all servers have been reachable for a while, a healthy
prompt must be answered soon, and no server may rest because of the prompts of one caller.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from fleetctl.gateway.rules.servers import UpstreamServer, choose_server

STEPS = 400
STEP_S = 0.5
TRIES_MAX = 6  # of a prompt, as a row has them
LOOK_S = 5.0  # between two looks at servers that rest
PATIENCE_S = 30.0  # within which a healthy prompt has its answer
RECOVERY_S = 70.0  # the longest rest, and the look after it
POISONED = 0.3


@dataclass(slots=True)
class Prompt:
    caller: str
    poisoned: bool
    since_s: float
    tries: int = 0
    failed_at: list[UpstreamServer] = field(default_factory=list)


@dataclass(slots=True)
class Endpoint:
    """away: unreachable servers. broken: violated rules."""

    dice: Random
    servers: list[UpstreamServer]
    waiting: list[Prompt] = field(default_factory=list)
    away: set[int] = field(default_factory=set)
    now_s: float = 0.0
    all_there_since_s: float = 0.0
    looked_at_s: float = 0.0
    broken: list[str] = field(default_factory=list)

    def live(self) -> None:
        for _ in range(STEPS):
            self.now_s += STEP_S
            self._move_servers()
            self._look()
            self._arrive()
            self.waiting = [it for it in self.waiting if not self._ask(it)]
            self._judge()

    def _move_servers(self) -> None:
        if self.dice.random() < 0.02:
            self.away ^= {self.dice.randrange(len(self.servers))}
            self.all_there_since_s = self.now_s

    def _look(self) -> None:
        """Sends the gateway's own probe to servers whose rest has ended."""
        if self.now_s < self.looked_at_s + LOOK_S:
            return
        self.looked_at_s = self.now_s
        for number, server in enumerate(self.servers):
            if server.resting and server.resting_until_s <= self.now_s:
                server.record_probe(self.now_s, there=number not in self.away)

    def _arrive(self) -> None:
        if self.dice.random() < 0.3:
            poisoned = self.dice.random() < POISONED
            # One object has all the bad prompts; what others ask is well.
            caller = "bad" if poisoned else f"good-{self.dice.randrange(3)}"
            self.waiting.append(Prompt(caller, poisoned, self.now_s))

    def _ask(self, prompt: Prompt) -> bool:
        """Returns whether that was its end."""
        server = choose_server(self.servers, failed=prompt.failed_at)
        if server is None:
            return False
        awake = [it for it in self.servers if not it.resting]
        if self.servers.index(server) in self.away:
            server.refused(self.now_s)
            prompt.failed_at.append(server)
            return False
        if not prompt.poisoned:
            server.succeeded()
            return True
        server.failed(self.now_s, caller=prompt.caller, status=500, last=len(awake) == 1)
        prompt.tries += 1
        prompt.failed_at.append(server)
        return prompt.tries >= TRIES_MAX

    def _judge(self) -> None:
        # After an outage a rest may be at its longest, whoever was at fault.
        if self.away or self.now_s - self.all_there_since_s < RECOVERY_S:
            return
        for prompt in self.waiting:
            since_s = max(prompt.since_s, self.all_there_since_s)
            if not prompt.poisoned and self.now_s - since_s > PATIENCE_S:
                self.broken.append(f"a healthy prompt waits since {prompt.since_s:.0f} s")
        if any(it.resting for it in self.servers):
            self.broken.append(f"a server rests at {self.now_s:.0f} s for prompts of one caller")


def live(seed: int) -> list[str]:
    """What is not as it must be in one life."""
    dice = Random(f"servers {seed}")
    servers = [
        UpstreamServer(f"http://s{number}", 4) for number in range(dice.choice((1, 1, 2, 3)))
    ]
    endpoint = Endpoint(dice, servers)
    endpoint.live()
    return endpoint.broken
