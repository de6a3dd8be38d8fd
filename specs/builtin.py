"""The types of providers: one row for each that is built in, with its properties for specs and pure
decisions, and those of other projects' packages.

A provider is added by a row here, and its package in fleetctl/providers/ with a `plugin.py`. In
another project's package, an entry point `NAME = "module:PLUGIN"` of the group GROUP gives the type
NAME. Such types are known here, and not in a layer above, because a spec's block is read by its
type. They are never looked for on the way to a list or to help: finding a package reads the list of
all installed ones.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


GROUP = "fleetctl.providers"
# Of the names in fleetctl.providers. It rises when a package that was made for it may fail.
API_VERSION = 1
TAKEN = ("account", "breaker", "limits", "prices", "type")  # the fields of every Provider's spec
_TYPE = re.compile(r"[a-z][a-z0-9-]{0,62}")


class RunMachine(NamedTuple):
    """The machine of a run. word: its sort, as in `Slurm job`; name: its provider's own name of it,
    several with commas; both empty where the run is on this machine or has none yet.
    """

    word: str = ""
    name: str = ""


class BuiltInProvider(NamedTuple):
    """A sort of provider.

    accounts: each row is a complete way to select the account, in fields of ProviderAccount; empty
    for a provider with a single account. extras: fields that may stand beside any row. here: the
    provider is this machine, with its files and its network, and no bill comes. keys: names of
    variables that hold the credentials of its usual account. machines: (word, pattern) rows that
    find the machine in the handle of a run, as the pattern's group; the first match wins.
    """

    accounts: tuple[tuple[str, ...], ...] = ()
    extras: tuple[str, ...] = ()
    here: bool = False
    keys: tuple[str, ...] = ()
    machines: tuple[tuple[str, str], ...] = (("sandbox", r"(.+)"),)


# By name; a provider of each sort is there without being declared, under the same name.
SORTS = {
    "daytona": BuiltInProvider(
        accounts=(("apiKeyEnv",),),
        extras=("apiUrl", "target"),
        keys=("DAYTONA_API_KEY", "DAYTONA_JWT_TOKEN"),
    ),
    "endpoint": BuiltInProvider(here=True, machines=()),
    "kubernetes": BuiltInProvider(
        accounts=(("context",), ("kubeconfig",), ("context", "kubeconfig")),
        # Before its pod is known, a run has its Job alone.
        machines=(("pod", r"[^/]+/([^/]+).*"), ("Job", r"(?:[^:/]*:)?([^/]+)/?.*")),
    ),
    "local": BuiltInProvider(here=True, machines=()),
    "modal": BuiltInProvider(
        accounts=(("profile",), ("tokenIdEnv", "tokenSecretEnv")),
        keys=("MODAL_TOKEN_ID", "MODAL_TOKEN_SECRET"),
        # `fn:` is a call that is about to be made.
        machines=(("call", r"fc:([^:]+).*"), ("sandbox", r"((?!fn:).+)")),
    ),
    # Machines are an account without a field: their block and OpenSSH's own files name them.
    "slurm": BuiltInProvider(accounts=((),), machines=(("Slurm job", r"(\d+)/.+"),)),
    "ssh": BuiltInProvider(accounts=((),), machines=(("host", r"(.+)/.+"),)),
}
BUILT_IN = tuple(SORTS)
DEFAULT_PROVIDER = "local"  # the provider of work without a placement
CLUSTER = "kubernetes"  # providers whose Provider objects have a block with this name
PROMPT_PROVIDER = "endpoint"  # the provider of prompts, and of no other work


def runs_here(provider: str) -> bool:
    """Returns True if a provider's work runs on this machine. Providers that users declare never
    do.
    """
    return provider in SORTS and SORTS[provider].here


class OutsidePlugin(Protocol):
    """The part of a plugin that specs need; it is fleetctl.providers.Plugin.

    settings: `module:class` of the model of the block with the type's name; empty without a block.
    """

    @property
    def api(self) -> int: ...

    @property
    def row(self) -> BuiltInProvider: ...

    @property
    def settings(self) -> str: ...


class UnusableType(Exception):
    """A provider type that cannot be used here. fix: a sentence on what its user may do."""

    def __init__(self, what: str, fix: str, *, installed: bool = True) -> None:
        super().__init__(what)
        self.what = what
        self.fix = fix
        self.installed = installed


class InstalledType(NamedTuple):
    """A type that an installed package names. package: its name and version."""

    name: str
    package: str


_loaded: dict[str, OutsidePlugin] = {}


def list_installed() -> list[InstalledType]:
    """Returns the types that installed packages name, usable or not. Imports none of them."""
    found = _find_entry_points()
    return sorted(InstalledType(it.name, _package_of(it)) for it in found)


def plugin_from(name: str) -> OutsidePlugin:
    """Returns the plugin of a type that is not built in. Raises UnusableType."""
    known = _loaded.get(name)
    if known is not None:
        return known
    found = [it for it in _find_entry_points() if it.name == name]
    if name in BUILT_IN and found:
        raise UnusableType(
            f"{_package_of(found[0])} takes the name `{name}`, which is a built-in type's",
            f"uninstall it: provider `{name}` goes on without it",
        )
    if not found:
        raise UnusableType(
            f"no installed package provides the type `{name}`",
            f"install the package that provides `{name}` where this command and its controller"
            f" run, or use a type that is there: {', '.join(f'`{it}`' for it in list_types())}",
            installed=False,
        )
    if len({_package_of(it) for it in found}) > 1:
        packages = " and ".join(sorted({_package_of(it) for it in found}))
        raise UnusableType(f"{packages} both provide the type `{name}`", "uninstall one of them")
    _loaded[name] = _load_plugin(found[0])
    return _loaded[name]


def list_types() -> list[str]:
    """Returns the names of all types: built-in ones, and those that installed packages name."""
    return [*BUILT_IN, *(it.name for it in list_installed() if it.name not in BUILT_IN)]


def row_of(name: str) -> BuiltInProvider | None:
    """Returns the row of a type; None where it is not built in and cannot be used here."""
    if name in SORTS:
        return SORTS[name]
    try:
        return plugin_from(name).row
    except UnusableType:
        return None


def name_machine(sort: str, handle: str) -> RunMachine:
    """Returns the machine that a run's handle stands for. sort: of its provider, usable or not.
    Nodes of one run are joined by `+` in its handle; those on the same machine are named once.
    """
    row = row_of(sort) or BuiltInProvider()
    for word, pattern in row.machines:
        found = [re.fullmatch(pattern, node) for node in handle.split("+")]
        names = [match[1] for match in found if match is not None]
        if names:
            return RunMachine(word, ",".join(dict.fromkeys(names)))
    return RunMachine()


def _find_entry_points() -> tuple[EntryPoint, ...]:
    from importlib.metadata import entry_points  # 10 ms, which lists do without

    return tuple(entry_points(group=GROUP))


def _load_plugin(found: EntryPoint) -> OutsidePlugin:
    """Loads the provider type of an entry point. Raises UnusableType."""
    package = _package_of(found)
    if not _TYPE.fullmatch(found.name) or found.name in TAKEN:
        raise UnusableType(
            f"{package} names a type `{found.name}`, which cannot be a type's name",
            "it must be small letters, digits and `-`, and no field of a Provider's spec",
        )
    try:
        plugin = found.load()
    # A package of another project may raise anything; what it raises is what its user is to see.
    except (Exception, SystemExit) as error:
        raise UnusableType(
            f"{package} cannot be imported for the type `{found.name}`:"
            f" {type(error).__name__}: {error}",
            f"reinstall {package}, or ask its authors",
        ) from error
    level = getattr(plugin, "api", None)
    if level != API_VERSION or not hasattr(plugin, "backend"):
        made_for = f"API {level}" if isinstance(level, int) else "no API of this fleetctl"
        raise UnusableType(
            f"{package} is made for {made_for}, and this fleetctl has API {API_VERSION}",
            f"install a version of {package.partition(' ')[0]} for API {API_VERSION}",
        )
    return cast(OutsidePlugin, plugin)


def _package_of(found: EntryPoint) -> str:
    dist = found.dist
    return f"{dist.name} {dist.version}" if dist is not None else "an unnamed package"
