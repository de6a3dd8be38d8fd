"""What is used of Daytona's SDK is public, or is named here and fails at once when it goes."""

from __future__ import annotations

import ast
import asyncio
import tomllib
from pathlib import Path

import pytest

import fleetctl.providers.daytona as ours
from fleetctl.common.errors import Refused
from fleetctl.common.program import tree_of
from fleetctl.providers.daytona.assets import daytona_images
from fleetctl.providers.daytona.connection import sdk
from fleetctl.providers.daytona.connection.daytona_connection import import_sdk

HOME = Path(ours.__file__).parent
# For type checkers alone; nothing at run time depends on them.
TYPES_ALONE = {
    ("assets/daytona_volumes.py", "daytona.common.volume"),
    ("runs/daytona_exec.py", "daytona.handle.async_pty_handle"),
}
GENERATED = ("daytona_api_client", "daytona_toolbox_api_client", "daytona_analytics_api_client")


def trees() -> list[tuple[str, ast.Module]]:
    return [
        (str(path.relative_to(HOME)), tree_of(path.read_text()))
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
        tree = tree_of((HOME / name).read_text())
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


def test_one_module_names_what_is_used_of_the_sdk() -> None:
    importers = {name for name, tree in trees() for it, _ in imported(tree) if it == "daytona"}
    assert importers == {"connection/sdk.py"}
    used = {
        node.attr
        for name, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "sdk"
        and name != "connection/sdk.py"
    }
    own = {name for name in used if name in vars(sdk)}
    assert used - own == {*sdk.NEEDED, *sdk.NOT_EVERYWHERE}


@pytest.mark.parametrize("name", sorted(sdk.NEEDED))
def test_each_name_that_is_used_is_exported(name: str) -> None:
    import daytona

    assert hasattr(daytona, name)
    assert name in daytona.__all__


def test_an_error_that_a_version_does_not_know_is_one_that_nobody_raises(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import daytona

    for name in sdk.NOT_EVERYWHERE:
        assert getattr(sdk, name) is getattr(daytona, name, sdk.NeverRaised)
    monkeypatch.setattr(sdk, "NOT_EVERYWHERE", ("DaytonaNewError",))
    assert getattr(sdk, "DaytonaNewError") is sdk.NeverRaised  # noqa: B009


def test_a_version_that_lacks_a_name_is_said_to_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """As 2.0.0 alpha is, whose types have moved."""
    assert sdk.find_problem() == ""
    monkeypatch.setattr(sdk, "NEEDED", (*sdk.NEEDED, "Moved"))
    problem = sdk.find_problem()
    assert problem.startswith(
        f"{sdk.installed_version()} is installed, and has no `Moved`: a version "
    )
    with pytest.raises(Refused, match=r"needs the package `daytona`: it .* is installed"):
        asyncio.run(import_sdk())
    monkeypatch.setattr(sdk, "PACKAGE", "daytona_of_nobody")
    assert (sdk.installed_version(), sdk.find_problem()) == ("", "is not installed")


def test_the_range_is_that_of_the_extra() -> None:
    project = tomllib.loads((HOME.parents[2] / "pyproject.toml").read_text())
    assert f"daytona{sdk.RANGE}" in project["project"]["optional-dependencies"]["daytona"]


def test_our_list_of_slim_pythons_is_the_sdks() -> None:
    from daytona import DaytonaError, Image

    for series in daytona_images.SLIM_SERIES:
        assert Image.debian_slim(series).dockerfile()  # type: ignore[arg-type]
    with pytest.raises(DaytonaError):
        Image.debian_slim("3.99")  # type: ignore[arg-type]
