# The agent of a machine without Python: one request of a controller, then its process ends. The
# counterpart of machines/shipped/agent.py for `ssh`; see machines/shell_link.py, which calls it:
#
#   agent.sh <verb> <arguments>       below shell/agent/<version> of the directory of ours
#
# A reply is a line of JSON; of `attach` the frames of a run, of `entries`, `digests` and `send` text.

# Report why a request fails: $1, a word of machines/shipped/boxes.py, and $2.
fail() {
    printf '{"error":"%s","message":"%s"}\n' "$1" "$(escape "$2")"
    exit 5
}

# As the inside of a text in JSON.
escape() {
    printf %s "$1" | sed 's/[\\"]/\\&/g' | tr '\n\t' '  '
}

# What a controller plans with. $1: of a network, or empty; $2, $3: the store and its lease.
say_hello() {
    cpu=$(nproc 2>/dev/null || grep -c '^processor' /proc/cpuinfo)
    while read -r name number _; do
        [ "$name" != MemTotal: ] || memory=$number
    done </proc/meminfo
    gpus=$(nvidia-smi -L 2>/dev/null | sed -n 's/^GPU [0-9]*: *\([^(]*[^( ]\).*/"\1"/p' | tr '\n' ,)
    set -- "$1" "$2" "$3" $(df -Pk . | tail -n 1)
    address=$(uname -n)
    [ -z "$SSH_CONNECTION" ] || { address=${SSH_CONNECTION#* * } && address=${address%% *}; }
    [ -z "$2" ] || renew_lease "$2" "$3"
    printf '{"cpu":%s,"memory":%s,"gpus":[%s],' "$cpu" "$((memory * 1024))" "${gpus%,}"
    printf '"guest":"shell","root":"%s","free":%s,' "$(escape "$PWD")" "$(($7 * 1024))"
    printf '"ends_with_login":%s,"address":"%s"}\n' "$(ends_with_login)" "$address"
}

# Print whether logind would kill our processes when the last connection closes.
ends_with_login() {
    if [ "$(id -u)" != 0 ] && [ -d /run/systemd/seats ] &&
        [ ! -f "/var/lib/systemd/linger/$(id -un)" ] &&
        grep -qsi '^ *KillUserProcesses *= *yes' /etc/systemd/logind.conf \
            /etc/systemd/logind.conf.d/*.conf; then
        echo true
    else
        echo false
    fi
}

look() {
    find_state "$1"
    tags={}
    [ "$state" = gone ] || read -r tags <"boxes/$box/tags"
    printf '{"state":"%s","box_id":"%s","tags":%s}\n' "$state" "$id" "$tags"
}

list_boxes() {
    printf '{"boxes":['
    comma=
    for directory in boxes/*; do
        find_state "${directory#boxes/}"
        case $state in new | live) ;; *) continue ;; esac
        read -r tags <"$directory/tags"
        printf '%s{"box":"%s@%s","tags":%s}' "$comma" "$box" "$id" "$tags"
        comma=,
    done
    printf ']}\n'
}

# Put new tags, the input, on a box that has not ended.
change_tags() {
    find_state "$1"
    ok=false
    case $state in
        new | live | stale | restarted)
            cat >"boxes/$box/tags.$$" && mv "boxes/$box/tags.$$" "boxes/$box/tags" && ok=true
            ;;
    esac
    printf '{"ok":%s}\n' $ok
}

# Begin a run, or follow it. $1: `yes` where the input is its secrets and its order; $2: the box;
# $3: the run; then arguments of the guest's `attach`.
attach_run() {
    begins=$1 wanted=$2 run=$3
    shift 3
    find_state "$wanted"
    place=$PWD/boxes/$box
    if [ "$state" = gone ]; then
        place=$PWD/boxes/.$wanted.gone cores= devices=-
        [ "$begins" != yes ] && [ -d "$place" ] || exit 97
    elif [ "$begins" = yes ] && [ ! -f "$place/state/runs/$run.begun" ]; then
        case $state in new | live) ;; *) exit 98 ;; esac
    fi
    [ "$begins" != yes ] || read_secrets
    unset SSH_CLIENT SSH_CONNECTION SSH_TTY SSH_AUTH_SOCK SSH_ORIGINAL_COMMAND
    HOME=$place/home LANG=C.UTF-8
    export HOME LANG
    if [ "$devices" != - ]; then
        CUDA_VISIBLE_DEVICES=$devices
        export CUDA_VISIBLE_DEVICES
    fi
    [ -z "$cores" ] || taskset -pc "$cores" $$ >/dev/null 2>&1
    [ "$begins" != yes ] || set -- "$@" --order -
    exec sh "${agent%/*}/guest.sh" attach --dir "$place/state" --run "$run" "$@"
}

# Set variables until an empty line; each line is a name, and a value as `printf` reads it.
read_secrets() {
    while IFS= read -r line && [ -n "$line" ]; do
        name=${line%% *}
        value=$(printf "${line#* }.")
        value=${value%.}
        export "$name=$value"
    done
    unset line name value
}

stop_run() {
    find_state "$1"
    [ ! -d "boxes/$box/state" ] || [ "$state" = gone ] ||
        sh "${agent%/*}/guest.sh" stop --dir "$PWD/boxes/$box/state" --run "$2" --grace "$3"
    echo '{}'
}

agent=$0 verb=$1
shift
umask 077
cd "${agent%/agent/*}" || exit 1
read -r boot </proc/sys/kernel/random/boot_id
read_uptime
case $verb in
    hello) say_hello "$@" ;;
    here)
        renew_lease "$@"
        sweep
        for directory in boxes/*; do
            [ ! -d "$directory" ] || { start_warden && break; }
        done
        echo '{}'
        ;;
    claims) list_claims ;;
    make) make_box "$@" ;;
    look) look "$@" ;;
    list) list_boxes ;;
    change) change_tags "$@" ;;
    end) end_box "$@" && echo '{"ok":true}' || echo '{"ok":false}' ;;
    attach) attach_run "$@" ;;
    stop) stop_run "$@" ;;
    warden) serve_warden ;;
    entries) list_entries "$@" ;;
    digests) list_digests "$@" ;;
    receive) receive "$@" ;;
    send) send "$@" ;;
    remove) remove "$@" ;;
    ensure) mkdir -p "$1/$2" && echo '{}' ;;
    touch) touch_copy "$@" ;;
    *) exit 64 ;;
esac
