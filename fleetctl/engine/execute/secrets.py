"""Values of secrets, found when a run starts. They live in memory alone: never in the store, a log
or a status.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.manifest.files import fence
from fleetctl.manifest.files.patience import read_briefly
from fleetctl.providers.uv import login_of
from fleetctl.specs.blocks.template import Template
from fleetctl.specs.kinds.secret import SecretSpec
from fleetctl.specs.values.namespaces import DEFAULT_NAMESPACE, object_key
from fleetctl.stores.base import Store


@dataclass(frozen=True, slots=True)
class ResolvedSecrets:
    """The resolved Secret objects. values: values known here. refs: names of secrets that the
    provider keeps. unlisted: names in refs that no allow list has for the namespace.
    """

    values: Mapping[str, str] = field(default_factory=dict, repr=False)
    refs: tuple[str, ...] = ()
    unlisted: tuple[str, ...] = ()

    def beside(self, env: Mapping[str, str]) -> dict[str, str]:
        """Returns the values whose names `env` does not have: it goes before them, as in
        Kubernetes.
        """
        return {name: value for name, value in self.values.items() if name not in env}

    def refs_at(self, provider: str, *, guards_secrets: bool) -> tuple[str, ...]:
        """Returns the names to pass to a provider. guards_secrets: the provider itself checks who
        owns a secret.

        Raises Refused where neither checks: all users of an account share its secrets.
        """
        if self.unlisted and not guards_secrets:
            raise Refused(
                f"secret `{self.unlisted[0]}`, which provider `{provider}` keeps, is none that this"
                " namespace may have",
                hint="the operator's `--allow-provider-secrets NAMESPACE=NAME` lets it",
            )
        return self.refs


ANY_NAMESPACE = "*"  # in an allow list
Names = Mapping[str, frozenset[str]]  # by namespace, or ANY_NAMESPACE


class BarredVariable(NamedTuple):
    """The reason why Secrets of a namespace may not read a variable, and what a user can do."""

    why: str
    fix: str


@dataclass(frozen=True, slots=True)
class AllowList:
    """The only values that Secrets of each namespace may read in a controller that teams share.

    variables: names of its environment variables. kept: names of secrets in accounts of clouds.
    credentials: variables with keys of accounts, which no Secret reads, even if they are listed.
    """

    variables: Names
    kept: Names
    credentials: Callable[[], frozenset[str]]

    def bars(self, variable: str, namespace: str) -> BarredVariable | None:
        """Returns why a Secret of the namespace may not read the variable; None where it may."""
        if variable in self.credentials():
            return BarredVariable(
                "which is a key of an account, and no task gets those",
                f"make a Kubernetes Secret with a key of your own in `{namespace}`, and name it in"
                " `fromProvider`",
            )
        if variable not in _listed_names(self.variables, namespace):
            return BarredVariable(
                f"which namespace `{namespace}` may not read of the controller's environment",
                f"the operator's `--allow-env {namespace}={variable}` lets it",
            )
        return None

    def unlisted(self, names: Iterable[str], namespace: str) -> tuple[str, ...]:
        """Returns the secrets of an account among `names` that the namespace may not have."""
        may = _listed_names(self.kept, namespace)
        return tuple(name for name in names if name not in may)


def _listed_names(names: Names, namespace: str) -> frozenset[str]:
    return names.get(namespace, frozenset()) | names.get(ANY_NAMESPACE, frozenset())


REASON_MISSING = "SecretMissing"  # why a start waits
SECRET_BYTES_MAX = 64 * 1024
MASKED_CHARS_MIN = 6  # a shorter value is part of many words
MASKED_MAX = 1_000
MEND = "make the file, or fix the path"
COPY = "copy it to a file of your own, and name that"
_HINTS = {
    errno.EACCES: "`chmod u+r {}`, or copy it to a file of your own",
    errno.EISDIR: "name a file in it",
    errno.ELOOP: "name the file itself: a link is not followed",
}


class SecretValues:
    """environ: the controller's own variables; `learn` adds variables of the user's shell that an
    apply sent. allowed: the allow list; None: the controller has a single user.
    """

    def __init__(
        self,
        store: Store,
        environ: Mapping[str, str],
        *,
        allowed: AllowList | None = None,
    ) -> None:
        self._store = store
        self._environ = environ
        self._allowed = allowed
        self._learnt: dict[str, str] = {}
        self._resolved: dict[str, None] = {}  # values that runs got, the newest last

    def __repr__(self) -> str:
        return "SecretValues(***)"

    def learn(self, values: Mapping[str, str]) -> None:
        """Takes values from the applying user's shell. Lost with this process."""
        self._learnt.update(values)

    def mask(self, text: str) -> str:
        """Returns the text without the values of secrets that were used here."""
        for value in (*self._learnt.values(), *self._resolved):
            if len(value) >= MASKED_CHARS_MIN and value in text:
                text = text.replace(value, "***")
        return text

    def missing(self, names: tuple[str, ...]) -> list[str]:
        """Returns which of these variables are not known here."""
        return [name for name in names if self.value(name) is None]

    def value(self, variable: str) -> str | None:
        """Returns the value of a variable, as the last apply brought it or as the controller has
        it.
        """
        return self._learnt.get(variable, self._environ.get(variable))

    def bars(self, variable: str, namespace: str) -> BarredVariable | None:
        """Returns why Secrets of the namespace may not read the variable; None where they may."""
        return None if self._allowed is None else self._allowed.bars(variable, namespace)

    def resolve(
        self, names: tuple[str, ...], namespace: str = DEFAULT_NAMESPACE
    ) -> ResolvedSecrets:
        """Resolves all these Secret objects.

        Raises Unavailable with the sentence how to fix it; a run waits until then.
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
            spec = SecretSpec.model_validate_json(resource.spec)
            values.update(self._from_env(name, spec, namespace))
            for variable, path in spec.from_file.items():
                values[variable] = read_secret_file(name, path)
            if spec.from_provider is not None:
                refs.append(spec.from_provider)
        self._resolved.update(dict.fromkeys(values.values()))
        while len(self._resolved) > MASKED_MAX:
            del self._resolved[next(iter(self._resolved))]
        allowed = self._allowed
        unlisted = () if allowed is None else allowed.unlisted(refs, namespace)
        return ResolvedSecrets(values, tuple(refs), unlisted)

    def _from_env(
        self,
        name: str,
        spec: SecretSpec,
        namespace: str,
    ) -> dict[str, str]:
        for variable in spec.from_env:
            if barred := self.bars(variable, namespace):
                raise Unavailable(
                    f"secret/{name} needs `{variable}`, {barred.why}",
                    reason=REASON_MISSING,
                    hint=barred.fix,
                )
        missing = self.missing(spec.from_env)
        if missing:
            raise Unavailable(
                f"secret/{name} needs {', '.join(missing)}, which the controller does not have",
                reason=REASON_MISSING,
                hint=f"export {missing[0]}=... and run `fleetctl apply` again from that shell",
            )
        return {variable: str(self.value(variable)) for variable in spec.from_env}


def with_login(
    template: Template,
    resolve: Callable[[tuple[str, ...], str], ResolvedSecrets],
    namespace: str,
) -> Template:
    """Returns the template with the login of its package index, for the build of its image. Raises
    Unavailable.
    """
    image = template.image
    if image is None or image.pip_index is None or image.pip_index.secret is None:
        return template
    found = resolve((image.pip_index.secret,), namespace)
    index = image.pip_index.with_login(login_of(found.values), *found.refs)
    return template.model_copy(update={"image": image.model_copy(update={"pip_index": index})})


def check_file(name: str, path: str) -> None:
    """Raises Unavailable where a start could not read the value of a Secret from there."""
    read_secret_file(name, path)


def read_secret_file(name: str, path: str) -> str:
    """Returns the text without its last newline, of a regular file of ours that is not a link."""

    def wrong(why: str, hint: str) -> Unavailable:
        return Unavailable(f"secret/{name}: `{path}` {why}", reason=REASON_MISSING, hint=hint)

    try:
        raw = read_briefly(path, partial(_read_content, name, path))
    except TimeoutError as error:
        raise wrong("does not answer", "make the disk of this file answer again") from error
    except (IsADirectoryError, fence.NotRegularFile) as error:
        raise wrong("must be a regular file of yours", COPY) from error
    except OSError as error:
        hint = _HINTS.get(error.errno or 0, MEND)
        raise wrong(f"cannot be read: {fence.describe_error(error)}", hint.format(path)) from error
    if len(raw) > SECRET_BYTES_MAX:
        hint = "a value is a text such as a token; keep data on a volume"
        raise wrong(f"is larger than {SECRET_BYTES_MAX} bytes", hint)
    try:
        return raw.decode().removesuffix("\n")
    except UnicodeDecodeError as error:
        raise wrong("is not UTF-8 text", "encode it, such as by `base64`") from error


def _read_content(name: str, path: str) -> bytes:
    with fence.open_regular(path, follow=False) as file:
        if os.fstat(file.fileno()).st_uid not in (os.getuid(), 0):
            text = f"secret/{name}: `{path}` must be a regular file of yours"
            raise Unavailable(text, reason=REASON_MISSING, hint=COPY)
        return file.read(SECRET_BYTES_MAX + 1)
