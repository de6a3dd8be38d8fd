# Ending a run before it ends by itself: at a stop, at its timeout, or at the sandbox's end.

# End run $1 for reason $2: TERM now, KILL after the grace of $3 seconds. The first reason counts.
end_run() {
    [ ! -s "runs/$1.end" ] || return 0
    content_of "runs/$1.keeper" && lives "$content" && latch "runs/$1.why" &&
        echo "$2" >"runs/$1.why"
    content_of "runs/$1.pid" || return 0
    leader=$content tree=
    sh -c 'echo $PPID' >"runs/$1.ender"
    find_tree "$leader" "$1"
    case $3 in
        0 | 0.0) ;;
        *)
            latch "runs/$1.termed" && send_all TERM "$leader"
            wait_grace "$leader" "$3"
            find_tree "$leader" "$1"
            ;;
    esac
    [ "$tree" = " " ] || send_all KILL "$leader"
    # Processes that one of them had just started.
    find_tree "$leader" "$1"
    [ "$tree" = " " ] || send_all KILL "$leader"
}

# Until all found processes have ended or the grace has passed, in steps of a tenth of a second.
wait_grace() {
    whole=${2%.*} tenths=0
    case $2 in *.*) tenths=${2#*.} tenths=${tenths%"${tenths#?}"} ;; esac
    left=$((whole * 10 + tenths))
    while [ "$left" -gt 0 ] && any_lives "$1"; do
        pause 0.1
        left=$((left - 1))
    done
}

any_lives() {
    lives "$1" && return 0
    for pid in $tree; do
        lives "$pid" && return 0
    done
    return 1
}
