# Leases: the work of a store ends when its controller has sent no message for so long. The same as
# machines/shipped/warden.py: times are counted here, never compared, so a clock that is set wrong
# ends nothing.

look_s=5
idle_looks=6   # without a box, until the warden leaves
lease_s=86400  # of a store whose lease somebody removed

# Note that the controller of store $1 works; its boxes live $2 seconds without another beat.
renew_lease() {
    case $1 in "" | .* | */*) return ;; esac
    mkdir -p leases
    echo "$2 $uptime.$$" >"leases/$1.$$" && mv "leases/$1.$$" "leases/$1"
}

# Start the warden, unless one is there.
start_warden() {
    content_of warden && is_warden "$content" && return
    if command -v setsid >/dev/null 2>&1; then
        (cd / && setsid sh "$agent" warden </dev/null >/dev/null 2>&1 &)
    else
        (cd / && trap '' HUP INT && sh "$agent" warden </dev/null >/dev/null 2>&1 &)
    fi
}

is_warden() {
    lives "$1" || return 1
    words=$(tr '\0' ' ' 2>/dev/null <"/proc/$1/cmdline")
    case $words in *"/agent.sh warden "*) return 0 ;; esac
    return 1
}

# Two that begin at once both write their number; the one that is not read leaves.
serve_warden() {
    echo $$ >warden
    idle=0
    while [ $idle -lt $idle_looks ]; do
        sleep $look_s
        content_of warden && [ "$content" = $$ ] || return
        read_uptime
        idle=$((idle + 1))
        for directory in boxes/*; do
            [ -d "$directory" ] || continue
            idle=0
            look_after "${directory#boxes/}"
        done
        sweep
    done
}

look_after() {
    find_state "$1"
    case $state in
        stale) end_box "$1" ;;
        new | live)
            content_of "boxes/$1/fleet" && is_over "$content" || return
            # Its journals stay for a controller that comes back.
            : >"boxes/$1/expired"
            : >"boxes/$1/state.ending"
            (cd "boxes/$1/state" && kill_box)
            ;;
    esac
}

# Succeeds when no beat of store $1 came for the time of its lease.
is_over() {
    stamp="$lease_s none"
    content_of "leases/$1" && stamp=$content
    known= since=
    { read -r since known; } 2>/dev/null <"leases/.$1"
    if [ "$known" != "$stamp" ] || [ "$since" -gt "$uptime" ]; then
        mkdir -p leases
        echo "$uptime $stamp" >"leases/.$1"
        return 1
    fi
    limit=${stamp%% *}
    [ $((uptime - since)) -gt "${limit%.*}" ]
}
