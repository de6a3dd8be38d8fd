"""`fleetctl explain`: what can stand in a manifest, from the shipped schemas. Needs no store."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Sequence

from fleetctl.cli.command.flags import Parser
from fleetctl.cli.output.render import Screen
from fleetctl.common.errors import NotFound
from fleetctl.common.text import safe
from fleetctl.controllers.vocabulary.reasons import REASONS, is_reason
from fleetctl.manifest.hints.fields import Field, look_up, manifest_field, rendered_kind
from fleetctl.manifest.hints.origins import origins
from fleetctl.specs.kinds.registry import API_VERSION
from fleetctl.views.kinds import kind_of

INDENT = "  "
DEPTH_MAX = 12  # of --recursive; what is deeper repeats itself


PAGE = """\
KIND[.FIELD[.FIELD ...]] [--recursive] | REASON

Tell what can stand in a manifest: type, default, what is allowed, what it means,
and what it is called elsewhere. Fields of lists are written without an index.
Or tell what a reason means, as `get` and `describe` show it.

examples:
  fleetctl explain sweep
  fleetctl explain job.spec.template.resources.gpu
  fleetctl explain trainingrun.spec --recursive
  fleetctl explain NoCapacity

exit codes:
  0 ok, 2 no such kind, 4 no such field
"""


def parser(verb: str) -> Parser:
    made = Parser(verb, PAGE)
    made.add_argument("path", metavar="KIND[.FIELD]", help="what to explain")
    made.add_argument("--recursive", action="store_true", help="all fields below it, as a tree")
    return made


def run(args: Namespace, screen: Screen) -> int:
    if is_reason(args.path):
        word = args.path.partition(":")[0]
        screen.data(f"REASON:   {safe(args.path)}\n\n{INDENT}{REASONS[word]}")
        return 0
    word, *path = args.path.split(".")
    name = rendered_kind(word) or kind_of(word).name
    field = _must_find(name, word, path)
    screen.data("\n".join(_page(name, field, tuple(path), recursive=args.recursive)))
    return 0


def _must_find(kind: str, word: str, path: Sequence[str]) -> Field:
    """Raises NotFound with the nearest field, also when only `spec` was left out."""
    top = manifest_field(kind)
    found = look_up(top, path)
    if found.depth == len(path):
        return found.field
    from fleetctl.manifest.hints.words import listed, meant

    place, missing = ".".join((word, *path[: found.depth])), path[found.depth]
    names = [child.name for child in found.field.children()]
    near = meant(missing, names)
    hint = f"did you mean `{place}.{near}`?" if near else ""
    if not hint and found.depth == 0:
        hint = _in_the_spec(top, word, path)
    if not hint:
        hint = f"it has {listed(names)}" if names else f"`{place}` has no fields"
    raise NotFound(f"`{safe(place)}` has no field `{safe(missing)}`", hint=safe(hint))


def _in_the_spec(top: Field, word: str, path: Sequence[str]) -> str:
    """A hint for a path that begins below `spec`, also with a slip in its first part."""
    from fleetctl.manifest.hints.words import meant

    first, *rest = path
    near = meant(first, [child.name for child in look_up(top, ("spec",)).field.children()])
    whole = ("spec", near or first, *rest)
    there = look_up(top, whole).depth == len(whole)
    return f"did you mean `{'.'.join((word, *whole))}`?" if there else ""


def _page(kind: str, field: Field, path: tuple[str, ...], *, recursive: bool) -> Iterator[str]:
    yield f"KIND:     {kind}"
    yield f"VERSION:  {API_VERSION}"
    if path:
        yield f"FIELD:    {'.'.join(path)}  <{field.type}>"
    if field.description:
        yield ""
        yield field.description
    yield from _facts(field, path)
    children = field.children()
    if children:
        yield ""
        yield "FIELDS:"
        yield from _tree(children, 1) if recursive else _list(children)


def _facts(field: Field, path: tuple[str, ...]) -> Iterator[str]:
    facts = (
        ("required", "yes" if path and field.required else ""),
        ("default", field.default),
        ("allowed", "; ".join(field.allowed)),
        ("elsewhere", ", ".join(origins(path)) if path else ""),
    )
    shown = [f"{INDENT}{name + ':':<10} {text}" for name, text in facts if text]
    if shown:
        yield ""
        yield from shown


def _list(children: Sequence[Field]) -> Iterator[str]:
    for child in children:
        yield f"{INDENT}{_heading(child)}"
        if child.description:
            yield from (f"{INDENT * 3}{line}" for line in child.description.split("\n"))


def _tree(children: Sequence[Field], depth: int) -> Iterator[str]:
    for child in children:
        yield f"{INDENT * depth}{_heading(child)}"
        if depth < DEPTH_MAX and not _holds_itself(child):
            yield from _tree(child.children(), depth + 1)


def _holds_itself(field: Field) -> bool:
    """A GPU's alternatives are GPUs: one level of them is enough."""
    return any(field.forms == below.forms for below in field.children()) or (
        field.name == "otherwise"
    )


def _heading(field: Field) -> str:
    default = f"  = {field.default}" if field.default else ""
    return f"{field.name}  <{field.type}>{default}{'  -required-' if field.required else ''}"
