"""Gives git its access to one repository: a token for https, a key for ssh, and the trusted hosts.
No secret is ever an argument of a program, where others could see it.
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
class GitAccess:
    """The access of git to a repository. options: of git's configuration, without secrets."""

    options: tuple[tuple[str, str], ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)

    def with_options(self, *options: tuple[str, str], **environment: str) -> GitAccess:
        return GitAccess((*self.options, *options), {**self.environment, **environment})


PLAIN = GitAccess()


def access_to(
    url: str,
    values: Mapping[str, str],
    place: Path,
    *,
    known_hosts: Sequence[str] = (),
) -> GitAccess:
    """Returns the access by a Secret's values. values: of the Secret that a Source names. place: a
    private directory for the files that ssh reads; the caller removes it. Raises Refused where a
    value cannot be meant for this url.
    """
    scheme = urlsplit(url).scheme if "://" in url else "ssh"
    access = PLAIN
    if values.get(TOKEN) or values.get(PASSWORD):
        if scheme != "https":
            raise Refused(
                f"a token is not sent over `{scheme}`", hint="write the url with https://"
            )
        access = _use_token(url, values)
    if scheme == "ssh":
        access = _use_ssh_key(values.get(KEY, ""), place, known_hosts)
    return access.with_options(("remote.origin.url", url))


def _use_token(url: str, values: Mapping[str, str]) -> GitAccess:
    host = urlsplit(url).netloc.rpartition("@")[2]
    options = (
        ("credential.helper", ""),
        (f"credential.https://{host}.helper", _HELPER),
        # Another host would be asked for by name, and never get this; an error is better than a
        # try.
        ("http.followRedirects", "false"),
    )
    environment = {
        "FLEETCTL_GIT_USERNAME": values.get(USERNAME) or ANY_USERNAME,
        "FLEETCTL_GIT_PASSWORD": values.get(TOKEN) or values[PASSWORD],
    }
    return GitAccess(options, environment)


def _use_ssh_key(
    key: str,
    place: Path,
    known_hosts: Sequence[str],
) -> GitAccess:
    words = [*SSH]
    if known_hosts:
        hosts = _write_private(place / "known_hosts", "\n".join(known_hosts))
        words += [f"-oUserKnownHostsFile={hosts}", f"-oGlobalKnownHostsFile={os.devnull}"]
    if key:
        words += ["-oIdentitiesOnly=yes", "-i", str(_write_private(place / "key", key))]
    return GitAccess((), {"GIT_SSH_COMMAND": shlex.join(words)})


def _write_private(path: Path, text: str) -> Path:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with open(handle, "w", encoding="utf-8") as file:
        file.write(text.rstrip("\n") + "\n")
    return path
