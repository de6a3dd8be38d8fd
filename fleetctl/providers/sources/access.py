"""What git may use to reach one repository: a token for https, a key for ssh, and which hosts are
trusted. Nothing of it is ever an argument of a program, where others could see it.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from fleetctl.common.errors import Refused

TOKEN, PASSWORD, USERNAME, KEY = "GIT_TOKEN", "GIT_PASSWORD", "GIT_USERNAME", "GIT_SSH_KEY"
# GitHub wants this name beside a token; GitLab, Gitea and Bitbucket take any.
ANY_USERNAME = "x-access-token"
# Only git's own question for this very host is answered.
_HELPER = (
    '!f() { test "$1" = get && printf "username=%s\\npassword=%s\\n"'
    ' "$FLEETCTL_GIT_USERNAME" "$FLEETCTL_GIT_PASSWORD"; }; f'
)
SSH = ("ssh", "-oBatchMode=yes", "-oStrictHostKeyChecking=yes")


@dataclass(frozen=True, slots=True)
class Access:
    """options: of git's configuration, none of them secret."""

    options: tuple[tuple[str, str], ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)

    def with_options(self, *options: tuple[str, str], **environment: str) -> Access:
        return Access((*self.options, *options), {**self.environment, **environment})


PLAIN = Access()


def access_to(
    url: str, values: Mapping[str, str], place: Path, *, known_hosts: Sequence[str] = ()
) -> Access:
    """values: of the Secret that a Source names. place: a private directory for what ssh reads from
    files; who calls removes it. Raises Refused where a value cannot be meant for this url.
    """
    scheme = urlsplit(url).scheme if "://" in url else "ssh"
    access = PLAIN
    if values.get(TOKEN) or values.get(PASSWORD):
        if scheme != "https":
            raise Refused(
                f"a token is not sent over `{scheme}`", hint="write the url with https://"
            )
        access = _token(url, values)
    if scheme == "ssh":
        access = _ssh(values.get(KEY, ""), place, known_hosts)
    return access.with_options(("remote.origin.url", url))


def _token(url: str, values: Mapping[str, str]) -> Access:
    host = urlsplit(url).netloc.rpartition("@")[2]
    options = (
        ("credential.helper", ""),
        (f"credential.https://{host}.helper", _HELPER),
        # Another host would be asked for by name, and never get this; better said than tried.
        ("http.followRedirects", "false"),
    )
    environment = {
        "FLEETCTL_GIT_USERNAME": values.get(USERNAME) or ANY_USERNAME,
        "FLEETCTL_GIT_PASSWORD": values.get(TOKEN) or values[PASSWORD],
    }
    return Access(options, environment)


def _ssh(key: str, place: Path, known_hosts: Sequence[str]) -> Access:
    words = [*SSH]
    if known_hosts:
        hosts = _written(place / "known_hosts", "\n".join(known_hosts))
        words += [f"-oUserKnownHostsFile={hosts}", f"-oGlobalKnownHostsFile={os.devnull}"]
    if key:
        words += ["-oIdentitiesOnly=yes", "-i", str(_written(place / "key", key))]
    return Access((), {"GIT_SSH_COMMAND": shlex.join(words)})


def _written(path: Path, text: str) -> Path:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with open(handle, "w", encoding="utf-8") as file:
        file.write(text.rstrip("\n") + "\n")
    return path
