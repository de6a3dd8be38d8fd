"""The files that every pod finds below /.fleetctl: the guest, and the program that its container
begins with.

They come from one immutable ConfigMap for all pods of a namespace: a task brings no file of them
along.
"""

from __future__ import annotations

from functools import cache
from hashlib import sha256

from fleetctl.guest.ship.assemble import posix_source, remote_source
from fleetctl.kubernetes.connection import Object
from fleetctl.providers.kubernetes.manifests.labels import MANAGED
from fleetctl.providers.uv import ANY_USERNAME, LOGIN_NAME, PASSWORD, USERNAME

HERE = "/.fleetctl"  # where the ConfigMap is shown
STATE_DIR = "/tmp/.fleetctl"  # in the pod, which has no other user
CACHE = "/.fleetctl-packages"
SITE = "FLEETCTL_SITE"  # names the directory of installed packages, where there are any
UNBEGUN_WORD = "unbegun"
TOLD_WORD = "story-of"  # begins a run's part of the pod's log
STORIES_WORD = "stories"  # from here on: before it is output, as its programs wrote it
# For output, at the end and before it: kubelets keep 10 MiB of a container's log, and the part at
# the end must be whole.
LOG_TOLD_BYTES = LOG_SHOWN_BYTES = 4 * 1024 * 1024
OUTPUTS_TOLD_BYTES = 1024 * 1024  # larger ones would push the rest out of a node's log
GUESTS = {
    "python": ("python3", "-I", "-S", f"{HERE}/guest.py"),
    "posix": ("sh", f"{HERE}/guest.sh"),
}

# The output of the pod's newest run is shown as it comes, for `kubectl logs`.
#
# The container lives while the inert entrypoint does. The records of its runs are printed to its
# log at the end: a controller that was down reads them there, also when no command can run in the
# pod any more. The exit code of a node among several shows the Job whether it failed: the others
# end with it. For runs that ended before the newest one only the journal is left to print, which
# takes no Python: a pod that took a thousand tasks would be killed before it had printed half of
# them.
_ENTRY = f"""#!/bin/sh
# $1: seconds in which work must begin; then the guest's program.
dir={STATE_DIR} begin_s=$1
shift
show() {{
    newest= shown= log=
    while [ ! -e $dir.over ]; do
        for file in $dir/runs/*.begun; do
            [ -e "${{file%.begun}}.log" ] && [ "$file" != "$newest" ] || continue
            [ -z "$newest" ] || [ "$file" -nt "$newest" ] || continue
            [ -z "$shown" ] || kill $shown
            newest=$file log=${{file%.begun}}.log
            tail -n +1 -F "$log" &
            shown=$!
        done
        if [ -n "$shown" ] && [ "$(wc -c <"$log")" -gt {LOG_SHOWN_BYTES} ]; then
            kill $shown
            shown=
        fi
        sleep 1
    done
    [ -z "$shown" ] || kill $shown
}}
show 2>/dev/null &
showing=$!
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
: >$dir.over
while kill -0 $showing 2>/dev/null; do wait $showing; done
[ -z "$known" ] || printf '\\n{{"e":"{STORIES_WORD}"}}\\n'
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
    kept=0 pack=$dir/runs/$run.outputs
    [ ! -e "$pack" ] || [ "$(wc -c <"$pack")" -le {OUTPUTS_TOLD_BYTES} ] || kept=999999999999
    "$@" attach --dir $dir --run "$run" --journal 0 --log "$at" --outputs "$kept" \\
        </dev/null 2>/dev/null
done
[ -n "${{JOB_COMPLETION_INDEX:-}}" ] || exit 0
grep -q '^{{"e":"ended".*"ok":true' $dir/runs/*.jsonl 2>/dev/null
"""

# Installs once for all pods that share the cache; a half installed set has another name.
_PREPARE = f"""#!/bin/sh
# $1: the key of what is to be installed; then the requirements.
set -e
site={CACHE}/sites/$1 new={CACHE}/sites/.$1.${{HOSTNAME:-pod}}.$$
shift
[ ! -d "$site" ] || exit 0
mkdir -p {CACHE}/sites
export UV_CACHE_DIR={CACHE}/uv UV_LINK_MODE=copy
for it in "$@"; do
    case $it in --*index={LOGIN_NAME}[0-9]*=*)
        it=${{it#*=}} it=${{it%%=*}}
        export "UV_INDEX_${{it}}_USERNAME=${{{USERNAME}:-{ANY_USERNAME}}}"
        export "UV_INDEX_${{it}}_PASSWORD=${PASSWORD}"
    esac
done
uv pip install --quiet --python python3 --target "$new" "$@"
mv -T "$new" "$site" 2>/dev/null || rm -rf "$new"
"""

# Programs that are run in a pod find its packages; a container's own PATH cannot be known before.
_INSIDE = (
    f'[ -z "${SITE}" ] || {{ PATH=${SITE}/bin:$PATH PYTHONPATH=${SITE}'
    "${PYTHONPATH:+:$PYTHONPATH}; export PATH PYTHONPATH; }; "
    'exec "$@"'
)
# Input begins with bytes of variables; read a byte at a time, as all else reads ahead.
_GIVEN = 'eval "$(dd bs=1 count="$1" 2>/dev/null)"; shift; exec "$@"'
# The order has this many bytes, and then it ends.
_ORDERED = 'size=$1; shift; head -c "$size" | "$@" --order -'


def wrap_command(argv: list[str]) -> list[str]:
    """The command as pods are asked to run it."""
    return ["sh", "-c", _INSIDE, "fleetctl", *argv]


def with_variables(variables: int, argv: list[str]) -> list[str]:
    """Returns a command whose input begins with variables, as a shell exports them. variables:
    bytes.
    """
    if variables:
        return ["sh", "-c", _GIVEN, "fleetctl", str(variables), *argv]
    return argv


def with_order(order: int, argv: list[str]) -> list[str]:
    """Returns the command of the guest in shell, whose input is an order. order: bytes."""
    return ["sh", "-c", _ORDERED, "fleetctl", str(order), *argv]


@cache
def build_config_map() -> Object:
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
    return str(build_config_map()["metadata"]["name"])
