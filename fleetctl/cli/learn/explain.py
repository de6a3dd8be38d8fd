"""`fleetctl explain`: shows the fields of a manifest, from the shipped schemas. Needs no store."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Sequence

from fleetctl.cli.command.flags import Parser
from fleetctl.cli.output.screen import Screen
from fleetctl.common.errors import NotFound
from fleetctl.common.text import escape_line
from fleetctl.controllers.reasons import REASONS, is_reason
from fleetctl.manifest.hints.fields import (
    FieldMatch,
    SchemaField,
    list_origins,
    look_up,
    manifest_field,
    rendered_kind,
)
from fleetctl.specs.kinds.registry import API_VERSION, KINDS
from fleetctl.views.kinds import kind_of

INDENT = "  "
DEPTH_MAX = 12  # of --recursive; deeper levels repeat themselves


PAGE = """\
KIND[.FIELD[.FIELD ...]] [--recursive] | REASON

Show what a manifest may hold: type, default, what is allowed, what it means,
and what it is called elsewhere. Fields of lists are written without an index.
Or show what a reason means, as `get` and `describe` show it.

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
    made.add_argument("path", metavar="KIND[.FIELD]", help="kind, field or reason to explain")
    made.add_argument("--recursive", action="store_true", help="all fields below it, as a tree")
    return made


def run(args: Namespace, screen: Screen) -> int:
    if is_reason(args.path):
        word = args.path.partition(":")[0]
        screen.data(f"REASON:   {escape_line(args.path)}\n\n{INDENT}{REASONS[word]}")
        return 0
    word, *path = args.path.split(".")
    name = rendered_kind(word) or kind_of(word).name
    field = _must_find(name, word, path)
    screen.data("\n".join(render_page(name, field, tuple(path), recursive=args.recursive)))
    return 0


def _must_find(
    kind: str,
    word: str,
    path: Sequence[str],
) -> SchemaField:
    """Returns the field. Raises NotFound with the nearest field, also when only `spec` was left
    out."""
    top = manifest_field(kind)
    found = look_up(top, path)
    if found.depth < len(path) and (kind, found.depth) == ("Provider", 1):
        found = _look_up_block(path) or found
    if found.depth == len(path):
        return found.field
    from fleetctl.manifest.hints.synonyms import guess_name, join_names

    place = ".".join((word, *path[: found.depth]))
    missing = path[found.depth]
    names = [child.name for child in found.field.children()]
    near = guess_name(missing, names)
    hint = f"did you mean `{place}.{near}`?" if near else ""
    if not hint and found.depth == 0:
        hint = _suggest_in_spec(top, word, path)
    if not hint:
        hint = f"it has {join_names(names)}" if names else f"`{place}` has no fields"
    raise NotFound(
        f"`{escape_line(place)}` has no field `{escape_line(missing)}`", hint=escape_line(hint)
    )


def _look_up_block(path: Sequence[str]) -> FieldMatch | None:
    """Follows a path to the block of a type that another project's package provides; None where no
    installed package does. Raises NotFound where that package cannot be used.
    """
    from fleetctl.specs.builtin import UnusableType, plugin_from
    from fleetctl.specs.kinds.provider import ProviderSpec

    try:
        plugin_from(path[1])
    except UnusableType as error:
        if not error.installed:
            return None
        raise NotFound(error.what, hint=error.fix) from error
    schema = ProviderSpec.model_of({"type": path[1]}).model_json_schema()
    top = SchemaField("", {}, (schema,), schema.get("$defs", {}), True)
    inner = look_up(top, path[1:])
    return FieldMatch(inner.field, inner.depth + 1)


def _suggest_in_spec(
    top: SchemaField,
    word: str,
    path: Sequence[str],
) -> str:
    """Returns a hint for a path that begins below `spec`, also with a slip in its first part."""
    from fleetctl.manifest.hints.synonyms import guess_name

    first, *rest = path
    near = guess_name(first, [child.name for child in look_up(top, ("spec",)).field.children()])
    whole = ("spec", near or first, *rest)
    there = look_up(top, whole).depth == len(whole)
    if there:
        return f"did you mean `{'.'.join((word, *whole))}`?"
    return ""


def render_page(
    kind: str,
    field: SchemaField,
    path: tuple[str, ...],
    *,
    recursive: bool,
) -> Iterator[str]:
    yield f"KIND:     {kind}"
    yield f"VERSION:  {API_VERSION}"
    if path:
        yield f"FIELD:    {'.'.join(path)}  <{field.type}>"
    row = KINDS.get(kind)
    if row is not None and not path:
        if row.short:
            yield f"SHORT:    {', '.join(row.short)}"
        yield ""
        yield row.summary
    if field.description:
        yield ""
        yield field.description
    yield from _render_facts(field, path)
    children = field.children()
    if children:
        yield ""
        yield "FIELDS:"
        yield from _render_tree(children, 1) if recursive else _render_list(children)


def _render_facts(field: SchemaField, path: tuple[str, ...]) -> Iterator[str]:
    facts = (
        ("required", "yes" if path and field.required else ""),
        ("default", field.default),
        ("allowed", "; ".join(field.allowed)),
        ("elsewhere", ", ".join(list_origins(path)) if path else ""),
    )
    shown = [f"{INDENT}{name + ':':<10} {text}" for name, text in facts if text]
    if shown:
        yield ""
        yield from shown


def _render_list(children: Sequence[SchemaField]) -> Iterator[str]:
    for child in children:
        yield f"{INDENT}{_format_heading(child)}"
        if child.description:
            yield from (f"{INDENT * 3}{line}" for line in child.description.split("\n"))


def _render_tree(children: Sequence[SchemaField], depth: int) -> Iterator[str]:
    for child in children:
        yield f"{INDENT * depth}{_format_heading(child)}"
        if depth < DEPTH_MAX and not _holds_itself(child):
            yield from _render_tree(child.children(), depth + 1)


def _holds_itself(field: SchemaField) -> bool:
    """Returns true for a field that contains itself: a GPU's alternatives are GPUs, and one level
    of alternatives is enough."""
    return any(field.forms == below.forms for below in field.children()) or (
        field.name == "otherwise"
    )


def _format_heading(field: SchemaField) -> str:
    default = f"  = {field.default}" if field.default else ""
    return f"{field.name}  <{field.type}>{default}{'  -required-' if field.required else ''}"
