"""The private parts of other packages that the product uses: each has one module, which is named
here, and no other module reaches for one. Whether the parts are still there is looked at by
tests/unit/providers/modal/test_modal_private.py.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator

from fleetctl.common.program import tree_of
from tests.style.measures import ROOT, list_modules

MODAL = "fleetctl/providers/modal"
# (file, module) of imports with a private name in them.
IMPORTS = {
    (f"{MODAL}/assets/build_output.py", "modal._output.manager"),
    (f"{MODAL}/assets/modal_volumes.py", "modal._utils.async_utils"),
    (f"{MODAL}/functions/latches.py", "modal"),  # _serialization
    (f"{MODAL}/functions/plain_pickle.py", "modal._utils.async_utils"),
    (f"{MODAL}/functions/plain_pickle.py", "modal._utils.blob_utils"),
    (f"{MODAL}/functions/plain_pickle.py", "modal._utils.grpc_utils"),
    (f"{MODAL}/functions/plain_pickle.py", "modal.client"),  # _Client
    # Logs have only modules with a private name there; tests/telemetry sends records by them.
    ("fleetctl/daemon/serve.py", "opentelemetry._logs"),
    ("fleetctl/daemon/serve.py", "opentelemetry.sdk._logs"),
    ("fleetctl/daemon/serve.py", "opentelemetry.sdk._logs.export"),
    ("fleetctl/daemon/serve.py", "opentelemetry.exporter.otlp.proto.http._log_exporter"),
}
# (file, expression) of private attributes that are read in packages of providers.
ATTRIBUTES = {
    (f"{MODAL}/assets/build_output.py", "OutputManager._set"),
    (f"{MODAL}/assets/modal_volumes.py", "synchronizer._translate_in"),
    (f"{MODAL}/assets/modal_volumes.py", "synchronizer._translate_in(volume)._is_v1"),
    (f"{MODAL}/functions/plain_pickle.py", "client._stub"),
}
SDKS = ("modal", "daytona", "kubernetes", "ssh", "slurm", "endpoint", "remote")
OURS = ("self", "cls", "made", "super()", "os")
# All parts of the standard library come with Python.
STANDARD = sys.stdlib_module_names | {"fleetctl", "__future__", "_typeshed"}


def test_private_modules_of_other_packages_are_imported_where_it_is_named() -> None:
    assert set(_private_imports()) == IMPORTS


def test_private_attributes_of_an_sdk_are_read_where_it_is_named() -> None:
    assert set(_private_attributes()) == ATTRIBUTES


def _private_imports() -> Iterator[tuple[str, str]]:
    for path in list_modules():
        text = path.read_text(encoding="utf-8")
        if "._" not in text and "import _" not in text:
            continue
        for node in ast.walk(tree_of(text)):
            names = []
            if isinstance(node, ast.Import):
                names = [it.name for it in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names = [f"{node.module}.{it.name}" for it in node.names]
            for name in names:
                parts = name.split(".")
                if parts[0] not in STANDARD and any(it[:1] == "_" for it in parts):
                    module = node.module if isinstance(node, ast.ImportFrom) else name
                    yield str(path.relative_to(ROOT)), str(module)


def _private_attributes() -> Iterator[tuple[str, str]]:
    for path in list_modules():
        shown = str(path.relative_to(ROOT))
        if not shown.startswith(tuple(f"fleetctl/providers/{it}/" for it in SDKS)):
            continue
        for node in ast.walk(tree_of(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Attribute) or not _is_private(node.attr):
                continue
            if ast.unparse(node.value) not in OURS:
                yield shown, ast.unparse(node)


def _is_private(name: str) -> bool:
    return name[:1] == "_" and name[:2] != "__"
