"""Counts names, words and sizes over the modules of the product and over the pages of the docs."""

from __future__ import annotations

import ast
import hashlib
import io
import json
import re
import tempfile
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("fleetctl", "specs", "controllers")
CACHE = ROOT / ".style_cache.json"
SMALL_LINES = 60
FOLDERS_SAME_NAME = 4
# The two verbs of a command module, and of a module that is run.
ONE_WORD_KEPT = frozenset({"main", "run", "parser"})

# Per 1,000 words of prose: words of this house that no other code base has.
PROSE = {
    "what": r"(?:^|[.:;(] ?)[Ww]hat(?:ever)? [a-z]+",
    "told": r"\b(told|tells?|telling|said|says?|saying|hears?|heard)\b",
    "nobody": r"\b([Nn]obody|[Nn]othing|[Nn]one)\b",
    "of-it": r"\bof (one|those|that|it|them)\b",
    "of-opener": r"(?:^|\. )Of [a-z]+",
    "who": r"(?:^|[.:;(] ?)(?:For|for|Of|of|By|by)? ?[Ww]ho(?:ever)? [a-z]+",
    "people": r"\b(a person|people|persons?)\b",
    "anew": r"\b(anew|is let go of|lets? go of|but for|so (?:many|long|much|far) (?:of|as)?)\b",
    "place": r"\bplaces?\b",
}

# Words of this house in what users read: messages, hints, help, descriptions of fields.
PRIVATE = {
    "mend": r"\bmend(?:s|ed|ing)?\b",
    "anew": r"\banew\b",
    "over": r"\b(?:is|are|was|were|not) over\b",
    "told": r"\b(?:told|tells?|hears?|heard)\b",
    "nobody": r"\b(?:nobody|somebody)\b",
    "let go": r"\b(?:lets?|letting) (?:\S+ )?go of\b",
    "ends with": r"\bend(?:s|ed)? with (?:exit code )?(?:\d|X\b)",
    "place": r"(?<![Ii]n )(?<!\bits )\bplaces?\b(?! (?:it|the|a|work)\b)",
    "home": r"\b(?:of|the) home\b|\bHome:",
    "wish": r"\bwish(?:ed|es)?\b",
    "away": r"(?<!answer )(?<!machine )\baway\b",
    "opener": r"^(?:What|Who|Whom|Of)\b(?!.*\?$)",
}
# Docstrings begin with a verb and its object, or with a noun.
OPENER = re.compile(r"(?:What|Who|Whom|Whose|Of|Whether)\b")
_WORDS_OF_A_TEXT = 3
# Tokens that are no code.
LAYOUT = frozenset({
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
    tokenize.ENDMARKER, tokenize.ENCODING,
})  # fmt: skip


@dataclass
class Measured:
    """values: by the name of the measure. where: what each has found, a line each."""

    values: dict[str, float] = field(default_factory=dict)
    where: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))


@dataclass(frozen=True, slots=True)
class Prose:
    """words: their number. hits: the finds of each measure of PROSE, with the words around."""

    words: int
    hits: dict[str, list[str]]


@dataclass(frozen=True, slots=True)
class ModuleFacts:
    """All that the measures need of one module; `private` has lines, names and texts."""

    lines: int
    classes: list[str]
    functions: list[str]
    tokens: int
    code_lines: int
    prose: Prose
    private: list[tuple[int, str, str]]


def measure_code() -> Measured:
    """The measures of all modules of the product."""
    found = Measured()
    modules = read_modules()
    classes: dict[str, set[str]] = defaultdict(set)
    for shown, facts in modules.items():
        for name in facts.classes:
            classes[name].add(shown)
    functions = [(name, shown) for shown, facts in modules.items() for name in facts.functions]
    files = [it for it, facts in modules.items() if facts.lines and _name(it) != "__init__.py"]
    names = Counter(map(_name, files))
    twins = {name: paths for name, paths in classes.items() if len(paths) > 1}
    one_word = [(name, path) for name, path in functions if _is_one_word(name)]
    same = {name: count for name, count in names.items() if count >= FOLDERS_SAME_NAME}
    found.where["small"] = [it for it in files if modules[it].lines < SMALL_LINES]
    found.where["twins"] = [f"{it}: {', '.join(sorted(twins[it]))}" for it in sorted(twins)]
    found.where["one-word"] = [f"{name}: {path}" for name, path in sorted(one_word)]
    found.where["same-file"] = [f"{name}: {count}" for name, count in sorted(same.items())]
    _add_prose(found, {shown: facts.prose for shown, facts in modules.items()})
    tokens = sum(facts.tokens for facts in modules.values())
    code_lines = sum(facts.code_lines for facts in modules.values())
    found.values |= {
        "twins": 100 * sum(map(len, twins.values())) / sum(map(len, classes.values())),
        "one-word": 100 * len(one_word) / len(functions),
        "small": 100 * len(found.where["small"]) / len(files),
        "same-file": len(same),
        "dense": tokens / code_lines,
    }
    return found


def measure_docs() -> Measured:
    """The measures of prose over README.md and docs/, without code and generated screens."""
    found = Measured()
    prose = {}
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        text = re.sub(r"```.*?```", " ", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        prose[str(page.relative_to(ROOT))] = _measure_prose([re.sub(r"`[^`]*`", "X", text)])
    _add_prose(found, prose)
    return found


def private_words() -> list[str]:
    """Returns each text of the product that has a private word: path, line, word and text."""
    return [
        f"{shown}:{line}: {name}: {text[:120]}"
        for shown, facts in read_modules().items()
        for line, name, text in facts.private
    ]


def read_modules() -> dict[str, ModuleFacts]:
    """Returns the facts of each module of the product, by its path from the root.

    Those of modules that are as they were come from CACHE; to work all out takes seconds.
    """
    rules = Path(__file__).read_bytes()
    known = _load_cache()
    facts: dict[str, ModuleFacts] = {}
    kept: dict[str, Any] = {}
    for path in list_modules():
        shown, source = str(path.relative_to(ROOT)), path.read_bytes()
        key = hashlib.sha256(rules + source).hexdigest()
        if key not in known:
            known[key] = asdict(measure_module(source.decode()))
        kept[key] = fields = known[key]
        facts[shown] = ModuleFacts(**{**fields, "prose": Prose(**fields["prose"])})
    if kept.keys() != known.keys() or not CACHE.exists():
        _store_cache(kept)
    return facts


def measure_module(source: str) -> ModuleFacts:
    tree = ast.parse(source)
    nodes = [*ast.walk(tree)]
    comments, tokens, code_lines = _count_tokens(source)
    functions = ast.FunctionDef | ast.AsyncFunctionDef
    return ModuleFacts(
        lines=source.count("\n") + 1 if source.strip() else 0,
        classes=[it.name for it in tree.body if isinstance(it, ast.ClassDef)],
        functions=[it.name for it in tree.body if isinstance(it, functions)],
        tokens=tokens,
        code_lines=code_lines,
        prose=_measure_prose([*_docstrings(nodes), *comments]),
        private=[*_private_words(nodes)],
    )


def _load_cache() -> dict[str, Any]:
    try:
        loaded = json.loads(CACHE.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return loaded if isinstance(loaded, dict) else {}


def _store_cache(kept: dict[str, Any]) -> None:
    # Whole at once: another run may read it meanwhile.
    with tempfile.NamedTemporaryFile("w", dir=ROOT, prefix=CACHE.name, delete=False) as file:
        json.dump(kept, file)
    Path(file.name).replace(CACHE)


def list_modules() -> Iterator[Path]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            linked = any(it.is_symlink() for it in path.parents if it != ROOT)
            if "__pycache__" not in path.parts and not linked:
                yield path


def _name(shown: str) -> str:
    return shown.rpartition("/")[2]


def _docstrings(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield text


def _private_words(nodes: Sequence[ast.AST]) -> Iterator[tuple[int, str, str]]:
    """Yields line, name and text of each message that has one of PRIVATE."""
    for line, text in sorted(_messages(nodes)):
        if len(text.split()) < _WORDS_OF_A_TEXT or text.startswith("<"):
            continue
        for name, pattern in PRIVATE.items():
            if re.search(pattern, text):
                yield line, name, text


def _messages(nodes: Sequence[ast.AST]) -> Iterator[tuple[int, str]]:
    """Yields the line and the words of each text that is no docstring; X stands for a value."""
    bare = {id(it.value) for it in nodes if isinstance(it, ast.Expr)}
    formatted = [it for it in nodes if isinstance(it, ast.JoinedStr)]
    kept = bare | {id(part) for it in formatted for part in it.values}
    for it in formatted:
        texts = [str(part.value) if isinstance(part, ast.Constant) else "X" for part in it.values]
        yield it.lineno, " ".join("".join(texts).split())
    for node in nodes:
        if id(node) in kept or not isinstance(node, ast.Constant):
            continue
        if isinstance(node.value, str):
            yield node.lineno, " ".join(node.value.split())


def _count_tokens(source: str) -> tuple[list[str], int, int]:
    """Returns the texts of comments, the tokens of code, and the lines that have such."""
    comments, lines, count = [], set[int](), 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            comments.append(token.string[1:].strip())
        if token.type not in LAYOUT:
            count += 1
            lines.update(range(token.start[0], token.end[0] + 1))
    return comments, count, len(lines)


def _is_one_word(name: str) -> bool:
    return len([it for it in name.split("_") if it]) == 1 and name not in ONE_WORD_KEPT


def _measure_prose(texts: Sequence[str]) -> Prose:
    hits: dict[str, list[str]] = {}
    for text in texts:
        for name, pattern in PROSE.items():
            for match in re.finditer(pattern, text):
                around = " ".join(text[max(0, match.start() - 40) : match.end() + 60].split())
                hits.setdefault(name, []).append(around)
    return Prose(sum(len(text.split()) for text in texts), hits)


def _add_prose(found: Measured, prose: dict[str, Prose]) -> None:
    words = sum(it.words for it in prose.values())
    for name in PROSE:
        for path, it in prose.items():
            found.where[name] += [f"{path}: {around}" for around in it.hits.get(name, ())]
        found.values[name] = 1000 * len(found.where[name]) / max(1, words)


def list_openers(folders: Sequence[str]) -> list[str]:
    """Returns each docstring below these folders that opens with a pronoun: path, line, words."""
    found = []
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if "__pycache__" not in path.parts:
                found += _find_openers(path)
    return found


def _find_openers(path: Path) -> Iterator[str]:
    sorts = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        text = ast.get_docstring(node) if isinstance(node, sorts) else None
        if text is not None and OPENER.match(text):
            line = getattr(node, "lineno", 1)
            yield f"{path.relative_to(ROOT)}:{line}: {text.splitlines()[0]}"
