"""Provider types of other projects' packages: found by entry points, and whatever is wrong with one
is a finding that stops nothing else.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

import fleetctl.providers
from fleetctl.common.errors import Refused, Unavailable
from fleetctl.common.finding import Severity
from fleetctl.manifest import Document, load_manifests
from fleetctl.manifest.problems import ManifestErrors
from fleetctl.providers.contract.account import account_of
from fleetctl.providers.contract.base import RunRef
from fleetctl.specs import builtin
from fleetctl.specs.blocks.template import Template
from fleetctl.specs.builtin import BUILT_IN
from fleetctl.specs.kinds.provider import ProviderSpec
from fleetctl.specs.kinds.registry import dump_spec, parse_spec
from fleetctl.wiring.account_registry import AccountRegistry, UnusableBackend, check_providers
from fleetctl.wiring.plugins import check_packages, plugin_of

GOOD = """
from pydantic import Field
from fleetctl.providers import CheckResult, Plugin, Spec

class Settings(Spec):
    root: str = Field(description="Where it is.")
    token_env: str | None = None

    @property
    def variables(self):
        return (self.token_env,) if self.token_env else ()

class Backend:
    def __init__(self, home, *, store_id, notify, account):
        self.account = account

async def check(home, account):
    return [CheckResult(account.name, "root", True, account.settings["root"])]

PLUGIN = Plugin(
    api=1, backend=f"{__name__}:Backend", orphans="", check=f"{__name__}:check",
    settings=f"{__name__}:Settings",
)
"""


class Packages:
    """Installs packages, each a module beside its dist-info."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def install(self, name: str, types: dict[str, str], source: str = GOOD) -> None:
        """types: names of types, each with the module that it is in."""
        for module in types.values():
            (self.directory / f"{module}.py").write_text(dedent(source))
        about = self.directory / f"{name.replace('-', '_')}-2.5.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 2.5\n")
        lines = "".join(f"{it} = {module}:PLUGIN\n" for it, module in types.items())
        (about / "entry_points.txt").write_text(f"[fleetctl.providers]\n{lines}")
        importlib.invalidate_caches()


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Packages]:
    place = tmp_path / "packages"
    place.mkdir()
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(place))
    monkeypatch.setattr(builtin, "_loaded", {})
    yield Packages(place)
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(place)):
            del sys.modules[name]


def manifest(name: str, **spec: object) -> Document:
    head = {"apiVersion": "fleetctl.dev/v1alpha1", "kind": "Provider"}
    return Document("p.yaml", json.dumps({**head, "metadata": {"name": name}, "spec": spec}), ".")


def refusal(name: str, **spec: object) -> tuple[str, str]:
    """The message and the hint of a manifest that is refused for one reason."""
    with pytest.raises(ManifestErrors) as caught:
        load_manifests([manifest(name, **spec)])
    (problem,) = caught.value.problems
    return str(problem), problem.hint


def test_an_installed_type_has_its_block_and_its_spec_survives_the_store(
    packages: Packages,
) -> None:
    packages.install("acme-hut", {"hut": "acme_hut"})
    (loaded,) = load_manifests([manifest("hut-a", type="hut", hut={"root": "/x", "tokenEnv": "T"})])
    assert isinstance(loaded.spec, ProviderSpec)
    assert loaded.spec.variables == ("T",)
    text = dump_spec(loaded.spec)
    assert json.loads(text) == {"type": "hut", "hut": {"root": "/x", "tokenEnv": "T"}}
    assert parse_spec("Provider", text) == loaded.spec


def test_a_short_manifest_may_have_the_block(packages: Packages) -> None:
    packages.install("acme-hut", {"hut": "acme_hut"})
    short = "kind: Provider\nname: hut-a\ntype: hut\nhut: {root: /x}\n"
    (loaded,) = load_manifests([Document("p.yaml", short, ".")])
    assert json.loads(dump_spec(loaded.spec)) == {"type": "hut", "hut": {"root": "/x"}}


def test_its_block_is_checked_as_any_other(packages: Packages) -> None:
    packages.install("acme-hut", {"hut": "acme_hut"})
    message, hint = refusal("hut-a", type="hut", hut={"root": "/x", "tokenEnf": "T"})
    assert "hut.tokenEnf is an unknown field" in message and "tokenEnv" in hint
    message, _ = refusal("hut-a", type="hut")
    assert "spec.hut is missing" in message
    message, hint = refusal("hut-a", type="hut", hut={"root": "/x"}, slurm={"partition": "a"})
    assert "spec" in message


def test_a_type_of_no_installed_package_names_the_fix() -> None:
    message, hint = refusal("hut-a", type="hut", hut={"root": "/x"})
    assert "spec.type is `hut`: no installed package provides the type `hut`" in message
    assert "install the package that provides `hut`" in hint and "modal" in hint
    _, hint = refusal("b", type="modla")
    assert "did you mean `modal`?" in hint


BROKEN = {
    "does not import": ("import no_such_module_of_anybody", "No module named", "reinstall"),
    "raises": ("raise RuntimeError('out of paint')", "out of paint", "reinstall"),
    "leaves": ("raise SystemExit(3)", "SystemExit: 3", "reinstall"),
    "has no plugin": ("", "PLUGIN", "reinstall"),
    "is older": (GOOD.replace("api=1", "api=0"), "made for API 0", "for API 1"),
    "is newer": (GOOD.replace("api=1", "api=2"), "made for API 2", "for API 1"),
    "is no plugin": ("PLUGIN = object()", "no API of this fleetctl", "for API 1"),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_package_is_a_finding_and_stops_nothing_else(
    fault: str, packages: Packages, tmp_path: Path
) -> None:
    source, says, fix = BROKEN[fault]
    packages.install("acme-hut", {"hut": "acme_hut"}, source)
    packages.install("acme-den", {"den": "acme_den"})
    message, hint = refusal("hut-a", type="hut", hut={"root": "/x"})
    assert "acme-hut 2.5" in message and says in message and fix in hint
    assert load_manifests([manifest("den-a", type="den", den={"root": "/x"})])

    checks = {it.topic: it for it in check_packages()}
    assert (checks["hut"].ok, checks["den"].ok) == (False, True)
    assert says in checks["hut"].says and fix in checks["hut"].fix

    registry = AccountRegistry(tmp_path / "home", store_id="store-a")
    registry.open("hut-a", {"type": "hut", "hut": {"root": "/x"}})
    registry.open("den-a", {"type": "den", "den": {"root": "/x"}})
    assert isinstance(registry.backends["hut-a"], UnusableBackend)
    assert type(registry.backends["den-a"]).__name__ == "Backend"
    accounts = [account_of(it, {"type": it, it: {"root": "/x"}}) for it in ("hut", "den")]
    found = {it.topic: it for it in asyncio.run(check_providers(tmp_path, accounts))}
    assert (found["hut"].ok, found["den"].ok) == (False, True)


def test_a_name_that_exists_is_refused_and_what_has_it_goes_on(packages: Packages) -> None:
    packages.install("acme-modal", {"modal": "acme_modal", "limits": "acme_limits"})
    assert load_manifests([manifest("modal", type="modal")])
    assert plugin_of("modal").sdk == "modal"
    checks = {it.topic: it for it in check_packages()}
    assert "takes the name `modal`, which is a built-in type's" in checks["modal"].says
    assert "cannot be a type's name" in checks["limits"].says
    assert not (packages.directory / "__pycache__").exists()  # neither was imported


def test_a_type_of_two_packages_is_neithers(packages: Packages) -> None:
    packages.install("acme-hut", {"hut": "acme_hut"})
    packages.install("other-hut", {"hut": "other_hut"})
    message, hint = refusal("hut-a", type="hut")
    assert "acme-hut 2.5 and other-hut 2.5 both provide the type `hut`" in message
    assert hint == "uninstall one of them"


def test_a_stored_object_outlives_its_package(tmp_path: Path) -> None:
    """Its spec is read, its calls report the fault, and a package that comes takes over."""
    text = json.dumps({"type": "hut", "hut": {"root": "/x"}, "limits": {"maxConcurrent": 2}})
    spec = parse_spec("Provider", text)
    assert json.loads(dump_spec(spec)) == json.loads(text)

    registry = AccountRegistry(tmp_path / "home", store_id="store-a")
    backend = registry.open("hut-a", json.loads(text))
    assert isinstance(backend, UnusableBackend)

    async def play() -> None:
        with pytest.raises(Unavailable) as caught:
            await backend.stop(RunRef("r", "r", "", 0, "u"), grace_s=0)
        assert "no installed package provides the type `hut`" in str(caught.value)
        assert "install the package" in caught.value.hint
        assert list(await backend.observe([RunRef("r", "r", "", 0, "u")])) == []
        template = Template.model_validate({"command": ["true"]})
        (found,) = [it async for it in backend.foresee(template, account_of("hut-a", {}))]
        assert found.severity is Severity.LATER

    asyncio.run(play())


def test_a_package_that_comes_takes_over(packages: Packages, tmp_path: Path) -> None:
    registry = AccountRegistry(tmp_path / "home", store_id="store-a")
    spec = {"type": "hut", "hut": {"root": "/x"}}
    assert isinstance(registry.open("hut-a", spec), UnusableBackend)
    packages.install("acme-hut", {"hut": "acme_hut"})
    backend = registry.open("hut-a", spec)
    assert type(backend).__name__ == "Backend"
    assert registry.open("hut-a", spec) is backend


def test_the_names_of_every_spec_are_taken() -> None:
    fields = {info.alias or name for name, info in ProviderSpec.model_fields.items()}
    assert fields == {*builtin.TAKEN, *(it for it in BUILT_IN if it in fields)}
    with pytest.raises(Refused):
        plugin_of("nobodys")


FACE = """
API_VERSION Account Alive Backend BuiltInProvider Cause CheckResult Contract CredentialVariable
Ended Fate Finding FunctionAsset Gone GuestCommand GuestEnded HostedOrphans HostedSandbox LogChunk
NonEmptyText Observation Owned Plugin Refused RunRef RunRequest SandboxBackend SandboxHost
SandboxOrder SandboxOver Severity Spec Template Unavailable VolumeHost guest_program
"""


def test_the_public_face_is_stated_and_whole() -> None:
    """A name that goes, or changes its meaning, raises API_VERSION: then this test changes too."""
    assert (fleetctl.providers.API_VERSION, fleetctl.providers.__all__) == (1, FACE.split())
    for name in FACE.split():
        assert getattr(fleetctl.providers, name) is not None
    with pytest.raises(AttributeError):
        _ = fleetctl.providers.RemoteRuns
