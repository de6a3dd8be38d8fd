"""What a person reads about a manifest that is wrong: every case of refused.txt, word for word.

To add a case, write its title and manifest there and run this file as a program: it fills in the
answers, which are then to be read before they are committed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from fleetctl.manifest import Document, ManifestErrors, load_manifests
from fleetctl.specs.kinds.registry import KINDS

CASES = Path(__file__).with_name("refused.txt")
CASES_MIN = 200
WHERE = re.compile(r"^error: job\.yaml(:[0-9]+:[0-9]+)?: ")
TITLE, SAYS = "=== ", "--- says"


@dataclass(frozen=True)
class Case:
    title: str
    manifest: str
    says: str


def cases() -> Iterator[Case]:
    for block in CASES.read_text(encoding="utf-8").split("\n" + TITLE)[1:]:
        title, _, rest = block.partition("\n")
        manifest, _, says = rest.partition("\n" + SAYS)
        yield Case(title, manifest, says.strip("\n"))


def answer(case: Case, directory: str) -> str:
    try:
        found = load_manifests([Document("job.yaml", completed(case.manifest), directory)])
    except ManifestErrors as error:
        return f"error: {error}"
    return f"accepted: {', '.join(f'{it.kind}/{it.name}' for it in found)}"


def completed(manifest: str) -> str:
    """Cases leave the first lines of a BatchJob out: what begins with `spec:` gets them."""
    if not manifest.startswith(("spec:", "metadata:")):
        return manifest
    head = "apiVersion: fleetctl.dev/v1alpha1\nkind: BatchJob\n"
    return head + ("" if manifest.startswith("metadata:") else "metadata: {name: x}\n") + manifest


@pytest.mark.parametrize("case", list(cases()), ids=lambda it: it.title)
def test_a_wrong_manifest_is_answered_word_for_word(case: Case, tmp_path: Path) -> None:
    assert answer(case, str(tmp_path)) == case.says


def test_there_are_enough_cases_and_each_is_refused() -> None:
    found = list(cases())
    assert len(found) >= CASES_MIN
    assert len({case.title for case in found}) == len(found)
    assert [case.title for case in found if not case.says.startswith("error: ")] == []


def test_each_answer_says_where_and_what_and_at_most_one_hint() -> None:
    wrong = []
    for case in cases():
        before = ""
        for line in case.says.splitlines():
            told = WHERE.sub("", line)
            wrong += [line] * (not line.startswith(("error: job.yaml:", "hint: ")))
            wrong += [line] * (told.endswith(".") and not told.endswith("..."))
            wrong += [line] * (line.startswith("hint: ") and before.startswith("hint: "))
            wrong += [line] * (told.count("`") % 2)
            before = line
    assert wrong == []


def test_the_cases_cover_every_kind() -> None:
    written = CASES.read_text(encoding="utf-8")
    assert [kind for kind in KINDS if f"kind: {kind}\n" not in written] == []


def _fill_in() -> None:
    head = CASES.read_text(encoding="utf-8").split("\n" + TITLE)[0]
    blocks = [
        f"\n{TITLE}{it.title}\n{it.manifest}\n{SAYS}\n{answer(it, '/nowhere')}\n" for it in cases()
    ]
    CASES.write_text(head + "".join(blocks), encoding="utf-8")


if __name__ == "__main__":
    _fill_in()
