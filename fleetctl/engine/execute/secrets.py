"""Values of secrets, found when a run starts. They live in memory alone: never in the store, a log
or a status.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fleetctl.common.errors import Unavailable
from fleetctl.providers.pip_index import login_of
from fleetctl.specs.blocks.template import Template
from fleetctl.specs.kinds.registry import parse_spec
from fleetctl.specs.values.namespaces import DEFAULT_NAMESPACE, object_key
from fleetctl.stores.base import Store

if TYPE_CHECKING:
    from fleetctl.specs.kinds.secret import SecretSpec


@dataclass(frozen=True, slots=True)
class Found:
    """What Secret objects stand for: values that we know, and names of secrets that the provider
    keeps.
    """

    values: Mapping[str, str] = field(default_factory=dict, repr=False)
    refs: tuple[str, ...] = ()

    def beside(self, env: Mapping[str, str]) -> dict[str, str]:
        """The values whose names `env` does not have: it goes before them, as in Kubernetes."""
        return {name: value for name, value in self.values.items() if name not in env}


REASON_MISSING = "SecretMissing"  # why a start waits
SECRET_BYTES_MAX = 64 * 1024
# A named pipe without a writer would hold up the whole controller.
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class SecretValues:
    """environ: the controller's own; `learn` adds what an apply brought from the user's shell."""

    def __init__(self, store: Store, environ: Mapping[str, str]) -> None:
        self._store = store
        self._environ = environ
        self._learnt: dict[str, str] = {}

    def __repr__(self) -> str:
        return "SecretValues(***)"

    def learn(self, values: Mapping[str, str]) -> None:
        """Values from the shell of the one who applied. Lost with this process."""
        self._learnt.update(values)

    def missing(self, names: tuple[str, ...]) -> list[str]:
        """Which of these variables are not known here."""
        return [name for name in names if self.value(name) is None]

    def value(self, variable: str) -> str | None:
        """Of one variable, as the last apply brought it or as the controller has it."""
        return self._learnt.get(variable, self._environ.get(variable))

    def resolve(self, names: tuple[str, ...], namespace: str = DEFAULT_NAMESPACE) -> Found:
        """What all these Secret objects stand for.

        Raises Unavailable with the sentence that tells what to do; a run waits until it is done.
        """
        values: dict[str, str] = {}
        refs: list[str] = []
        for name in names:
            resource = self._store.resources.get("Secret", name, namespace)
            if resource is None:
                raise Unavailable(
                    f"{object_key('Secret', name, namespace)} is not declared",
                    reason=REASON_MISSING,
                    hint=f"apply a manifest of kind Secret with the name `{name}`",
                )
            spec: SecretSpec = parse_spec("Secret", resource.spec)  # type: ignore[assignment]
            values.update(self._from_env(name, spec))
            for variable, path in spec.from_file.items():
                values[variable] = _read(name, path)
            if spec.from_provider is not None:
                refs.append(spec.from_provider)
        return Found(values, tuple(refs))

    def _from_env(self, name: str, spec: SecretSpec) -> dict[str, str]:
        missing = self.missing(spec.from_env)
        if missing:
            raise Unavailable(
                f"secret/{name} needs {', '.join(missing)}, which the controller does not have",
                reason=REASON_MISSING,
                hint=f"export {missing[0]}=... and run `fleetctl apply` again from that shell",
            )
        return {variable: str(self.value(variable)) for variable in spec.from_env}


def with_login(
    template: Template, resolve: Callable[[tuple[str, ...], str], Found], namespace: str
) -> Template:
    """The template, whose package index is known to what builds its image. Raises Unavailable."""
    image = template.image
    if image is None or image.pip_index is None or image.pip_index.secret is None:
        return template
    values = login_of(resolve((image.pip_index.secret,), namespace).values)
    index = image.pip_index.with_login(values)
    return template.model_copy(update={"image": image.model_copy(update={"pip_index": index})})


def check_file(name: str, path: str) -> None:
    """Raises Unavailable where a start could not read the value of a Secret from there."""
    _read(name, path)


def _read(name: str, path: str) -> str:
    """The text without its last newline, of a regular file of ours that is not a link."""
    try:
        handle = os.open(path, _OPEN)
    except OSError as error:
        raise Unavailable(
            f"secret/{name}: `{path}` cannot be read: {error.strerror}", reason=REASON_MISSING
        ) from error
    try:
        about = os.fstat(handle)
        if not stat.S_ISREG(about.st_mode) or about.st_uid not in (os.getuid(), 0):
            raise Unavailable(
                f"secret/{name}: `{path}` must be a regular file of yours", reason=REASON_MISSING
            )
        with open(handle, "rb", closefd=False) as file:
            raw = file.read(SECRET_BYTES_MAX + 1)
    finally:
        os.close(handle)
    if len(raw) > SECRET_BYTES_MAX:
        raise Unavailable(
            f"secret/{name}: `{path}` is larger than {SECRET_BYTES_MAX} bytes",
            reason=REASON_MISSING,
        )
    try:
        return raw.decode().removesuffix("\n")
    except UnicodeDecodeError as error:
        raise Unavailable(
            f"secret/{name}: `{path}` is not UTF-8 text", reason=REASON_MISSING
        ) from error
