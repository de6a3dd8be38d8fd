"""A mutant: a patch of the product, the promise it breaks and the test that must fail.

A patch is a unified diff whose hunks bear no line numbers. A hunk is found by its own lines, which
must stand in the file once, so edits elsewhere in the file leave a mutant as it is, and an edit of
the mutated lines makes it fail at once and not silently apply elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PATCHES = Path(__file__).with_name("patches")

# An assertion of the test, or pytest's own `fail` and `raises`.
ASSERTION = "AssertionError"
REQUIRED = ("Breaks", "Promise", "Test")
OPTIONAL = ("Fails-by",)


class UnusablePatch(Exception):
    """A patch that cannot be read, or that does not fit the tree."""


@dataclass(frozen=True, slots=True)
class Hunk:
    """file: relative to the tree. before, after: whole lines; `before` stands in the file once."""

    file: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Mutant:
    """breaks: the fault, in a sentence. promise: P1-P10, or a subject. test: a node id of pytest.
    fails_by: the name of the exception by which the test must fail.
    """

    name: str
    breaks: str
    promise: str
    test: str
    fails_by: str
    hunks: tuple[Hunk, ...]

    @property
    def files(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(hunk.file for hunk in self.hunks))

    def apply(self, tree: Path) -> dict[str, str]:
        """The texts of the mutated files, by path relative to `tree`; nothing is written.

        Raises UnusablePatch where a hunk does not stand in its file exactly once.
        """
        texts = {file: (tree / file).read_text() for file in self.files if (tree / file).is_file()}
        for hunk in self.hunks:
            if hunk.file not in texts:
                raise UnusablePatch(f"{self.name}: {hunk.file} is not there")
            number = f"\n{texts[hunk.file]}".count(f"\n{hunk.before}")
            if number != 1:
                raise UnusablePatch(
                    f"{self.name}: the lines of a hunk stand {number} times in {hunk.file}; "
                    f"they must stand there once:\n{hunk.before}"
                )
            mutated = f"\n{texts[hunk.file]}".replace(f"\n{hunk.before}", f"\n{hunk.after}")
            texts[hunk.file] = mutated[1:]
        return texts


def load_mutants() -> list[Mutant]:
    """All mutants, by name. Raises UnusablePatch for a file that is none."""
    return [parse_mutant(path.stem, path.read_text()) for path in sorted(PATCHES.glob("*.patch"))]


def parse_mutant(name: str, text: str) -> Mutant:
    """Raises UnusablePatch where the text is no patch with a header."""
    header, _, diff = text.partition("\n\n")
    fields = dict(line.split(": ", 1) for line in header.splitlines() if ": " in line)
    if missing := [field for field in REQUIRED if not fields.get(field)]:
        raise UnusablePatch(f"{name}: the header lacks {', '.join(missing)}")
    if unknown := fields.keys() - {*REQUIRED, *OPTIONAL}:
        raise UnusablePatch(f"{name}: the header has an unknown {', '.join(sorted(unknown))}")
    return Mutant(
        name,
        breaks=fields["Breaks"],
        promise=fields["Promise"],
        test=fields["Test"],
        fails_by=fields.get("Fails-by", ASSERTION),
        hunks=tuple(_parse_hunks(name, diff)),
    )


def _parse_hunks(name: str, diff: str) -> list[Hunk]:
    hunks: list[Hunk] = []
    file = ""
    for part in _split_at_hunks(diff):
        if isinstance(part, str):
            file = part
            continue
        before = "".join(f"{line[1:]}\n" for line in part if line[:1] != "+")
        after = "".join(f"{line[1:]}\n" for line in part if line[:1] != "-")
        if not file or not before or before == after:
            raise UnusablePatch(f"{name}: a hunk names no file, no line, or changes nothing")
        hunks.append(Hunk(file, before, after))
    if not hunks:
        raise UnusablePatch(f"{name}: there is no hunk")
    return hunks


def _split_at_hunks(diff: str) -> list[str | list[str]]:
    """Names of files, and the lines of each hunk below the name of its file."""
    parts: list[str | list[str]] = []
    for line in diff.splitlines():
        if line.startswith("--- a/"):
            parts.append(line.removeprefix("--- a/"))
        elif line.startswith("@@"):
            parts.append([])
        elif not line.startswith("+++ b/") and parts and isinstance(parts[-1], list):
            parts[-1].append(line)
    return parts
