"""A command beside a task in a remote sandbox: begins where the task is. Pure; called by the
providers' entering.py.
"""

from __future__ import annotations

from fleetctl.providers.contract.exec import ExecTarget

# The task's own directory and variables, if one of its processes shows them; else the source's
# directory, or the one that tasks begin in. Secrets of a task that started no process of its own
# are those of the guest that began it. Values go from one environment to the next inside the
# sandbox: never through a command line, and never here. FLEETCTL_RUN is set last: it marks the
# processes of a task.
_SCRIPT = r"""
run=$1 source=$2 work=$3 secrets=$4
shift 4
cd "${source:-$work}" 2>/dev/null || cd "$work" 2>/dev/null || cd /
newline=$(printf '\001')
take() {
    while IFS= read -r line; do
        name=${line%%=*} value=${line#*=}
        case $name in
            ''|[0-9]*|*[!A-Za-z0-9_]*|PWD|OLDPWD|SHLVL|TERM|_) continue ;;
        esac
        case " ${2:-$name} " in *" $name "*) ;; *) continue ;; esac
        case $value in
            *"$newline"*) value=$(printf '%s.' "$value" | tr '\001' '\n') && value=${value%.} ;;
        esac
        export "$name=$value"
    done <<END
$(tr '\n\0' '\001\n' <"$1" 2>/dev/null)
END
}
missing() {
    for name in $secrets; do
        eval "[ -n \"\${$name+set}\" ]" || printf '%s ' "$name"
    done
}
for about in /proc/[0-9]*/environ; do
    if tr '\0' '\n' <"$about" 2>/dev/null | grep -qx "FLEETCTL_RUN=$run"; then
        take "$about"
        cd -P "${about%environ}cwd" 2>/dev/null && break
    fi
done 2>/dev/null
for about in /proc/[0-9]*/environ; do
    left=$(missing)
    [ -n "$left" ] || break
    take "$about" "$left"
done 2>/dev/null
export FLEETCTL_RUN="$run"
exec "$@"
"""


def exec_command(
    place: ExecTarget,
    argv: tuple[str, ...],
    *,
    work: str,
) -> list[str]:
    """work: the directory that tasks begin in."""
    secrets = " ".join(place.secrets)
    return ["sh", "-c", _SCRIPT, "fleetctl", place.run, place.directory, work, secrets, *argv]


def exec_variables(place: ExecTarget) -> dict[str, str]:
    """Returns the variables for the command; see above for the one that is left out."""
    return {name: value for name, value in place.env.items() if name != "FLEETCTL_RUN"}
