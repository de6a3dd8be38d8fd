"""A small library of household advice, and a retriever over it that only knows words.

People ask in words that the pages do not use, so that a search finds its page when it is rewritten.
"""

import math
import re
from collections import Counter
from pathlib import Path

# Each line: a question that finds the page, a tab, and the page.
_FILE = Path(__file__).with_name("pages.tsv")
PAGES = [line.split("\t") for line in _FILE.read_text("utf-8").splitlines()]
_WORD = re.compile(r"[a-z]+")


class Retriever:
    """Ranks pages by the words that they share with a search, rare ones first."""

    def __init__(self) -> None:
        self._pages = [Counter(split_words(page)) for _, page in PAGES]
        found = Counter(word for page in self._pages for word in page)
        self._weight = {word: math.log(1 + len(PAGES) / count) for word, count in found.items()}

    def rank(self, search: str, wanted: int) -> int:
        """Place of the wanted page, from 1; pages that share as much count before it."""
        asked = set(split_words(search))
        scores = [self._score(page, asked) for page in self._pages]
        return sum(score >= scores[wanted] for score in scores)

    def _score(self, page: Counter[str], asked: set[str]) -> float:
        shared = sum(self._weight[word] for word in asked if word in page)
        return shared / math.sqrt(page.total())


def split_words(text: str) -> list[str]:
    """Without the ending of plurals."""
    return [word.removesuffix("s") for word in _WORD.findall(text.lower())]
