"""A command beside a task in a remote sandbox: begins where the task is. Pure; called by the
providers' entering.py.
"""

from __future__ import annotations

from fleetctl.providers.entering import Place

# The task's own directory, if one of its processes tells it; else the source's, else the one that
# tasks begin in. FLEETCTL_RUN is set last: it is what marks the processes of a task.
_SCRIPT = r"""
run=$1 source=$2 work=$3
shift 3
cd "${source:-$work}" 2>/dev/null || cd "$work" 2>/dev/null || cd /
for about in /proc/[0-9]*/environ; do
    if tr '\0' '\n' <"$about" 2>/dev/null | grep -qx "FLEETCTL_RUN=$run"; then
        cd -P "${about%environ}cwd" 2>/dev/null && break
    fi
done 2>/dev/null
export FLEETCTL_RUN="$run"
exec "$@"
"""


def command(place: Place, argv: tuple[str, ...], *, work: str) -> list[str]:
    """work: the directory that tasks begin in."""
    return ["sh", "-c", _SCRIPT, "fleetctl", place.run, place.directory, work, *argv]


def variables(place: Place) -> dict[str, str]:
    """What is given to the command; see above for the one that is left out."""
    return {name: value for name, value in place.env.items() if name != "FLEETCTL_RUN"}
