"""What is used of Daytona's SDK is public, or is named here and fails at once when it goes."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import fleetctl.providers.daytona as ours
from fleetctl.providers.daytona.assets import layers

HOME = Path(ours.__file__).parent
# For type checkers alone; nothing at run time depends on them.
TYPES_ALONE = {
    ("assets/volumes.py", "daytona.common.volume"),
    ("runs/terminals.py", "daytona.handle.async_pty_handle"),
}
GENERATED = ("daytona_api_client", "daytona_toolbox_api_client", "daytona_analytics_api_client")


def trees() -> list[tuple[str, ast.Module]]:
    return [
        (str(path.relative_to(HOME)), ast.parse(path.read_text()))
        for path in sorted(HOME.rglob("*.py"))
    ]


def imported(tree: ast.Module) -> list[tuple[str, str]]:
    """Module and name of each import."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            found += [(node.module, alias.name) for alias in node.names]
        elif isinstance(node, ast.Import):
            found += [(alias.name, "") for alias in node.names]
    return found


def test_nothing_is_imported_but_what_the_sdk_exports() -> None:
    inner = {
        (name, module)
        for name, tree in trees()
        for module, _ in imported(tree)
        if module.startswith(("daytona.", *GENERATED))
    }
    assert inner == TYPES_ALONE


def test_types_that_it_does_not_export_are_imported_for_checkers_alone() -> None:
    for name, module in TYPES_ALONE:
        tree = ast.parse((HOME / name).read_text())
        guarded = [
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        ]
        within = {it for node in guarded for it, _ in imported(ast.Module(node.body, []))}
        assert module in within, f"{name} imports {module} at run time"


def test_no_private_attribute_of_anything_else_is_read() -> None:
    reached = [
        f"{name}:{node.lineno}: {ast.unparse(node)}"
        for name, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and node.attr.startswith("_")
        and not node.attr.startswith("__")
        and not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls", "test"))
    ]
    assert reached == []


@pytest.mark.parametrize(
    "name",
    sorted(
        {
            one
            for _, tree in trees()
            for module, one in imported(tree)
            if module == "daytona" and one
        }
        | {
            node.attr
            for _, tree in trees()
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id in ("daytona", "sdk")
        }
    ),
)
def test_each_name_that_is_used_is_exported(name: str) -> None:
    import daytona

    assert hasattr(daytona, name)
    assert name in daytona.__all__


def test_our_list_of_slim_pythons_is_the_sdks() -> None:
    from daytona import DaytonaError, Image

    for series in layers.SLIM_SERIES:
        assert Image.debian_slim(series).dockerfile()  # type: ignore[arg-type]
    with pytest.raises(DaytonaError):
        Image.debian_slim("3.99")  # type: ignore[arg-type]
