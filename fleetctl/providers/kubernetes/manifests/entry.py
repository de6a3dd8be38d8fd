"""What every pod finds below /.fleetctl: the guest, and the program that its container begins
with.

It comes from one immutable ConfigMap for all pods of a namespace: a task brings none of it along.
"""

from __future__ import annotations

from functools import cache
from hashlib import sha256

from fleetctl.guest.ship.assemble import posix_source, remote_source
from fleetctl.kubernetes.connection import Object
from fleetctl.providers.kubernetes.manifests.labels import MANAGED

HERE = "/.fleetctl"  # where the ConfigMap is shown
STATE_DIR = "/tmp/.fleetctl"  # noqa: S108 - in the pod, where nobody else is
CACHE = "/.fleetctl-packages"
SITE = "FLEETCTL_SITE"  # names the directory of installed packages, where there are any
UNBEGUN_WORD = "unbegun"
TOLD_WORD = "story-of"  # begins what the pod's log says of one run
LOG_TOLD_BYTES = 4 * 1024 * 1024  # of output: kubelets keep 10 MiB of a container's log
GUESTS = {
    "python": ("python3", "-I", "-S", f"{HERE}/guest.py"),
    "posix": ("sh", f"{HERE}/guest.sh"),
}

# The container lives while the inert entrypoint does. What its runs left is told in its log at the
# end: who was away meanwhile reads it there, also when nothing can be run in the pod any more. The
# exit code of one of several nodes tells the Job whether it failed: the others end with it. Of runs
# that ended before the newest one only the journal is left to tell, which takes no Python: a pod
# that took a thousand tasks would be killed before it had told of half of them.
_ENTRY = f"""#!/bin/sh
# $1: seconds in which work must begin; then the guest's program.
dir={STATE_DIR} begin_s=$1
shift
trap '"$@" leave --dir $dir --why SandboxEnded </dev/null >/dev/null 2>&1 &' TERM INT
sh {HERE}/guest.sh idle --dir $dir --begin-s "$begin_s" &
idle=$!
while kill -0 $idle 2>/dev/null; do wait $idle; done
newest= known=
for file in $dir/runs/*.begun; do
    [ -e "$file" ] || continue
    known=yes
    if [ -z "$newest" ] || [ "$file" -nt "$newest" ]; then newest=$file; fi
done
[ -n "$known" ] || echo '{{"e":"{UNBEGUN_WORD}"}}'
for file in $dir/runs/*.begun; do
    [ -e "$file" ] || continue
    run=${{file##*/}} run=${{run%.begun}} at=999999999999
    if [ "$file" = "$newest" ]; then
        last=$dir/runs/$run.log end=0
        for part in $dir/runs/$run.[0-9]*.log; do
            [ -e "$part" ] || continue
            from=${{part%.log}} from=${{from##*.}}
            if [ "$from" -gt "$end" ]; then end=$from last=$part; fi
        done
        if [ -e "$dir/runs/$run.base" ]; then
            end=$(cat "$dir/runs/$run.base") last=$dir/runs/$run.log
        fi
        [ ! -e "$last" ] || end=$((end + $(wc -c <"$last")))
        at=$((end - {LOG_TOLD_BYTES}))
        [ "$at" -gt 0 ] || at=0
    fi
    printf '{{"e":"{TOLD_WORD}","run":"%s"}}\\n' "$run"
    journal=$dir/runs/$run.jsonl
    if [ "$file" != "$newest" ] && [ ! -e "$dir/runs/$run.services" ] &&
        grep -q '^{{"e":"ended"' "$journal" 2>/dev/null; then
        cat "$journal"
        echo '{{"e":"eof"}}'
        continue
    fi
    "$@" attach --dir $dir --run "$run" --journal 0 --log "$at" </dev/null 2>/dev/null
done
[ -n "${{JOB_COMPLETION_INDEX:-}}" ] || exit 0
grep -q '^{{"e":"ended".*"ok":true' $dir/runs/*.jsonl 2>/dev/null
"""

# Installs once for all pods that share the cache; what is half installed has another name.
_PREPARE = f"""#!/bin/sh
# $1: the key of what is to be installed; then the requirements.
set -e
site={CACHE}/sites/$1 new={CACHE}/sites/.$1.${{HOSTNAME:-pod}}.$$
shift
[ ! -d "$site" ] || exit 0
mkdir -p {CACHE}/sites
export UV_CACHE_DIR={CACHE}/uv UV_LINK_MODE=copy
uv pip install --quiet --python python3 --target "$new" "$@"
mv -T "$new" "$site" 2>/dev/null || rm -rf "$new"
"""

# What is run in a pod finds its packages; a container's own PATH is not to be known before.
_INSIDE = (
    f'[ -z "${SITE}" ] || {{ PATH=${SITE}/bin:$PATH PYTHONPATH=${SITE}'
    "${PYTHONPATH:+:$PYTHONPATH}; export PATH PYTHONPATH; }; "
    'exec "$@"'
)
# Input begins with bytes of variables; read a byte at a time, as all else reads ahead.
_GIVEN = 'eval "$(dd bs=1 count="$1" 2>/dev/null)"; shift; exec "$@"'
# It is an order, of so many bytes, and then it ends.
_ORDERED = 'size=$1; shift; head -c "$size" | "$@" --order -'


def inside(argv: list[str]) -> list[str]:
    """The command as pods are asked to run it."""
    return ["sh", "-c", _INSIDE, "fleetctl", *argv]


def given(variables: int, argv: list[str]) -> list[str]:
    """A command whose input begins with so many bytes of variables, as a shell exports them."""
    return ["sh", "-c", _GIVEN, "fleetctl", str(variables), *argv] if variables else argv


def ordered(order: int, argv: list[str]) -> list[str]:
    """The guest in shell, whose input is an order of so many bytes."""
    return ["sh", "-c", _ORDERED, "fleetctl", str(order), *argv]


@cache
def files() -> Object:
    """The ConfigMap, named by its content."""
    data = {
        "entry.sh": _ENTRY,
        "prepare.sh": _PREPARE,
        "guest.py": remote_source(),
        "guest.sh": posix_source(),
    }
    key = sha256("\0".join(f"{name}\0{text}" for name, text in data.items()).encode()).hexdigest()
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": f"fleetctl-guest-{key[:12]}", "labels": dict(MANAGED)},
        "immutable": True,
        "data": data,
    }


def files_name() -> str:
    return str(files()["metadata"]["name"])
