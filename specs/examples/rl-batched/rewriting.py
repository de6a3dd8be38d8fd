"""An ordinary gymnasium environment: rewrite a search until a small retriever finds its page.

It has no code for batches. A step makes two calls one after the other: a model rewrites the
search, another one embeds it for the next observation. How many environments wait for their calls
at once is up to the vector environment around them.
"""

from typing import Any, ClassVar

import gymnasium
import numpy as np
from corpus import PAGES, Retriever
from fleetctl_llm import embed, llm_query

OPERATORS = (
    "Reduce this search to its two or three most telling keywords.",
    "Repeat this search and add two synonyms of its main words.",
    "Name the technical term for what this search is about, and its likely cause.",
    "Turn this search into one precise question of an expert.",
    "Write the first sentence of a page that answers this search.",
)
STEPS_MAX = 5
OBSERVATION = 768  # numbers; a shorter embedding is filled up with zeros, a longer one is cut
SEARCH_CHARACTERS_MAX = 300
SYSTEM = "You rewrite searches. Answer with the new search alone, on one line."


class Rewriting(gymnasium.Env[np.ndarray, np.int64]):
    """Reward of a step: 1/rank of the wanted page, so 1 when it is found, which ends the episode.

    A call that fails leaves the search, or the observation, as it was; fleetctl counts that, and
    ends the training when it happens to more than a few.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}

    def __init__(self, chat: str = "chat", embedder: str = "embed") -> None:
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (OBSERVATION,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(len(OPERATORS))
        self._chat, self._embedder = chat, embedder
        self._retriever = Retriever()
        self._vector: list[float] = [0.0]
        self._wanted, self._search, self._rank, self._steps = 0, "", 0, 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self._wanted, self._steps = int(self.np_random.integers(len(PAGES))), 0
        self._search = PAGES[self._wanted][0]
        self._rank = self._retriever.rank(self._search, self._wanted)
        return self._observed(), {"rank": self._rank}

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        rewritten = self._rewritten(OPERATORS[int(action)])
        rank = self._retriever.rank(rewritten, self._wanted)
        if rank <= self._rank:  # a worse search is not continued
            self._search, self._rank = rewritten, rank
        self._steps += 1
        found = rank == 1
        ended = self._steps == STEPS_MAX and not found
        return self._observed(), 1.0 / rank, found, ended, {"rank": rank}

    def _rewritten(self, operator: str) -> str:
        answer = llm_query(
            f"{operator}\n{self._search}",
            model=self._chat,
            system=SYSTEM,
            temperature=0.7,
            max_tokens=64,
            on_error={"text": self._search},
        )
        text = " ".join(answer.split()).strip("\"'")
        return text[:SEARCH_CHARACTERS_MAX] or self._search

    def _observed(self) -> np.ndarray:
        (self._vector,) = embed(
            [self._search], model=self._embedder, on_error={"vector": self._vector}
        )
        observed = np.zeros(OBSERVATION, np.float32)
        kept = self._vector[:OBSERVATION]
        observed[: len(kept)] = kept
        return observed
