# The verbs of the guest in a sandbox without Python; as those of the guest in Python, but an order
# comes as a text for the shell (see guest/posix/order.py), as it is or, after `-`, on stdin:
#
#   idle   (see idle.sh)
#   attach --dir D --run NAME --journal A --log B [--order TEXT | --order -] [--for 0]
#   stop   --dir D --run NAME --grace S
#   leave  --dir D [--why SandboxEnded]

attach() {
    if [ -n "$has_order" ] && latch "runs/$run.begun"; then
        begin
    elif [ ! -f "runs/$run.begun" ]; then
        echo '{"e":"unbegun"}'
        exit 4
    fi
    [ "$for_s" = 0 ] || follow "$run" "$journal_at" "$log_at"
}

# Start a supervisor that is independent of this process, unless the sandbox is taken.
begin() {
    if [ -f "runs/$run.stopped" ]; then
        write_unbegun "$run" "it was stopped before"
        return 0
    fi
    if ! latch supervisor; then
        if ! { mv open "runs/$run.claim"; } 2>/dev/null; then
            write_unbegun "$run"
            return 0
        fi
        content_of supervisor && end_lingering "$content"
    fi
    if [ "$order" = - ]; then
        cat >"runs/$run.order"
    else
        printf '%s\n' "$order" >"runs/$run.order"
    fi
    [ -z "${their_locale+x}" ] || LC_ALL=$their_locale
    if command -v setsid >/dev/null 2>&1; then
        (setsid sh "$guest" supervise --dir "$PWD" --run "$run" </dev/null >/dev/null \
            2>>supervisor.log &)
    else
        (trap '' HUP INT && sh "$guest" supervise --dir "$PWD" --run "$run" </dev/null >/dev/null \
            2>>supervisor.log &)
    fi
    LC_ALL=C
}

# Returns at once; a process of its own waits for the grace. The run's order may still be on its
# way, or its task about to start: both check whether the run was stopped.
stop() {
    : >"runs/$run.stopped"
    if content_of open && [ "$content" = "$run" ]; then
        close_sandbox
    elif [ -f "runs/$run.begun" ]; then
        # A redirection of the function alone would leave our stdout open in it.
        (exec </dev/null >/dev/null 2>&1 && end_run "$run" Stopped "$grace") &
    fi
}

leave() {
    close_sandbox
    content_of supervisor || {
        end_entrypoint
        exit 0
    }
    supervisor=$content
    for file in runs/*.keeper; do
        content_of "$file" && lives "$content" || continue
        keeper=$content
        run=${file#runs/} run=${run%.keeper}
        [ -s "runs/$run.end" ] || (end_run "$run" "$why" "$grace")
        while [ ! -s "runs/$run.end" ] && lives "$keeper"; do pause 0.05; done
    done
    end_lingering "$supervisor"
    end_entrypoint
}

# End a process with the command that it waits for.
end_lingering() {
    kill -TERM "-$1" 2>/dev/null || kill -TERM "$1" 2>/dev/null
    return 0
}

grace=5 why=Stopped
guest=$0 verb=$1 journal_at=0 log_at=0 has_order= for_s=
shift
while [ $# -gt 1 ]; do
    case $1 in
        --dir) directory=$2 ;;
        --run) run=$2 ;;
        --journal) journal_at=$2 ;;
        --log) log_at=$2 ;;
        --order) order=$2 has_order=yes ;;
        --grace) grace=$2 ;;
        --why) why=$2 ;;
        --for) for_s=$2 ;;
    esac
    shift 2
done
case $guest in /*) ;; *) guest=$PWD/$guest ;; esac
[ "${LC_ALL+x}" ] && their_locale=$LC_ALL
LC_ALL=C
umask 077
[ -d "$directory/runs" ] || mkdir -p "$directory/runs"
cd "$directory" || exit 1
case $verb in
    attach) attach ;;
    supervise) supervise "$run" ;;
    stop) stop ;;
    leave) leave ;;
    *) echo "fleetctl: the verb must be one of idle, attach, stop and leave" >&2 && exit 64 ;;
esac
