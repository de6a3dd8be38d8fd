"""The command that clones a repository inside a sandbox, where a provider has no git of its own.

A token for a private repository is read from the environment, where the task's secrets are; it is
in no argument, no url and no file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from fleetctl.providers.sources import git
from fleetctl.specs.blocks.template import GitSource

NO_GIT = 127  # exit code of the script where the image has no git

# Git asks the helper on its standard input. $GIT_TOKEN is for the host of the source alone: a
# submodule must not send it elsewhere. The others are known to belong to their hosts.
_HELPER = """!f() {
[ "$1" = get ] || return 0
protocol= host=
while IFS== read -r key value; do
case $key in protocol) protocol=$value;; host) host=$value;; esac
done
case $protocol://$host in https://*|http://127.0.0.1|http://127.0.0.1:*) ;; *) return 0;; esac
token= user=${GIT_USERNAME:-x-access-token}
[ "$host" = "$FLEETCTL_GIT_HOST" ] && token=${GIT_TOKEN-}
case $host in
github.com) token=${token:-${GITHUB_TOKEN:-${GH_TOKEN-}}};;
gitlab.com) token=${token:-${GITLAB_TOKEN-}}; user=${GIT_USERNAME:-oauth2};;
huggingface.co) token=${token:-${HF_TOKEN-}};;
esac
[ -n "$token" ] || return 0
printf 'username=%s\\npassword=%s\\n' "$user" "$token"
}; f"""

_SCRIPT = """set -eu
url=$1 ref=$2 directory=$3 submodules=$4 helper=$5 path=$7 lfs=$8
FLEETCTL_GIT_HOST=$6 GIT_TERMINAL_PROMPT=0 GIT_ASKPASS=true SSH_ASKPASS=true
export FLEETCTL_GIT_HOST GIT_TERMINAL_PROMPT GIT_ASKPASS SSH_ASKPASS
if ! command -v git >/dev/null 2>&1; then
    echo "the image has no git, which source.git needs; add it to the image" >&2
    exit 127
fi
if [ "$lfs" = yes ] && ! command -v git-lfs >/dev/null 2>&1; then
    echo "the image has no git-lfs, which source.git.lfs needs; add it to the image" >&2
    exit 127
fi
ask() {
    if [ "$lfs" = yes ]; then
        set -- -c filter.lfs.process='git-lfs filter-process' -c filter.lfs.required=true \\
            -c filter.lfs.smudge='git-lfs smudge -- %f' "$@"
    fi
    git -c advice.detachedHead=false -c protocol.ext.allow=never \
        -c credential.helper= -c credential.helper="$helper" "$@"
}
clone=$directory
[ -z "$path" ] || clone=$directory.git-clone
mkdir -p "$directory" "$clone"
cd "$clone"
ask init --quiet .
ask remote add origin "$url"
# A shortened commit, or one that no branch ends with, may only be found among all of them.
if ask fetch --quiet --depth=1 origin "${ref:-HEAD}" 2>/dev/null; then
    ask checkout --quiet FETCH_HEAD
else
    ask fetch --quiet --tags origin '+refs/heads/*:refs/remotes/origin/*'
    ask checkout --quiet --detach "origin/$ref" 2>/dev/null \
        || ask checkout --quiet --detach "${ref:-FETCH_HEAD}"
fi
if [ "$submodules" = yes ]; then
    ask submodule update --quiet --init --recursive
fi
if [ -n "$path" ]; then
    cp -R -P -p "$clone/$path/." "$directory/"
    cd "$directory"
    rm -rf "$clone"
fi
"""


def clone_command(source: GitSource, directory: str) -> list[str]:
    """Returns the argv that makes `directory` a checkout. Raises Refused for a url that git could
    misread.

    It exits with another code than 0 when it cannot, with the reason on its standard error.
    """
    git.check_source(source)
    words = [source.url, source.ref or "", directory, "yes" if source.submodules else "no"]
    words += [_HELPER, git.url_host(source.url), source.path or "", "yes" if source.lfs else "no"]
    return ["/bin/sh", "-c", _SCRIPT, "fleetctl-source", *words]


def clone_credentials(source: GitSource, environment: Mapping[str, str]) -> tuple[str, str] | None:
    """Returns (user, token) by the same rules, for callers that clone without this command; None
    without a token.

    environment: the variables of the task's secrets.
    """
    host = git.url_host(source.url)
    if not _SAFE.match(source.url):
        return None
    token, user = environment.get("GIT_TOKEN", ""), "x-access-token"
    for name in _TOKENS.get(host, ()):
        token = token or environment.get(name, "")
    if host == "gitlab.com":
        user = "oauth2"
    if token:
        return (environment.get("GIT_USERNAME") or user, token)
    return None


# A token is for an encrypted line, or for one that leaves no machine.
_SAFE = re.compile(r"https://|http://127\.0\.0\.1(:[0-9]+)?/")
_TOKENS = {
    "github.com": ("GITHUB_TOKEN", "GH_TOKEN"),
    "gitlab.com": ("GITLAB_TOKEN",),
    "huggingface.co": ("HF_TOKEN",),
}
