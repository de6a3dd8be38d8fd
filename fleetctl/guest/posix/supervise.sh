# Supervises one run in a session of its own: prepares, starts, waits, and writes its journal.

supervise() {
    run=$1 journal=runs/$1.jsonl log=runs/$1.log
    [ ! -f "$PWD.ending" ] || exit 0 # its box is being removed; see boxes.sh
    echo $$ >"runs/$run.keeper"
    echo $$ >supervisor
    command -v setsid >/dev/null 2>&1 && alone=setsid || alone=
    . "./runs/$run.order"
    hold_secrets
    latch "$journal" || exit 0
    tell_time
    started=$now ending= message= code=null infra=false
    : >"$log"
    echo 0 >"runs/$run.base"
    printf '{"e":"started","at":%s,%s}\n' "$started" "$identity" >>"$journal"
    poke
    prepare && start && watch
    conclude
    linger
}

# Files, links and commands, the latter two once a sandbox; fails when the run cannot begin.
prepare() {
    [ -d work ] || mkdir -p files work
    printf '%s' "$params" >files/params.json
    latch prepared || return 0
    make_links || return 1
    for step in $steps; do
        (carry_mark && give_secrets && $step) </dev/null >>"$log" 2>&1 &
        echo $! >"runs/$run.pid"
        wait $!
        failed=$?
        if [ -f "runs/$run.why" ]; then
            until content_of "runs/$run.why"; do pause 0.02; done
            ending=$content
            return 1
        fi
        [ $failed = 0 ] && continue
        ending=SourceFailed infra=true
        message=$(tail -c 1024 "$log" | tr -c '[:alnum:] .,:;=_/@()\n-' ' ' | tr '\n' ' ')
        return 1
    done
}

# Let path $1 lead to the volume at $2, or fail with message $3. An empty directory of the image
# gives way.
lead() {
    [ -L "$1" ] && return 0
    mkdir -p "${1%/*}"
    { [ ! -d "$1" ] || rmdir "$1"; } 2>/dev/null && ln -s "$2" "$1" 2>/dev/null && return 0
    ending=StartFailed message=$3
    return 1
}

# Start the task. Fails when it cannot be.
start() {
    directory=${source:-$PWD/work}
    case $workdir in
        "") ;;
        /*) directory=$workdir ;;
        *) directory=$directory/$workdir ;;
    esac
    state=$PWD
    if [ -f "runs/$run.stopped" ]; then
        ending=Stopped
        return 1
    elif [ ! -d "$directory" ]; then
        refuse "$no_directory"
    elif ! find_program "$program"; then
        case $program in
            */*) (cd "$directory" && [ -f "$program" ]) && not_found=$not_executable ;;
        esac
        refuse "$not_found" CommandNotFound
    else
        [ -z "$remark" ] || echo "fleetctl: $remark" >>"$log"
        (
            carry_mark
            give_secrets
            give_variables
            umask 022
            cd "$directory" && task
        ) </dev/null >>"$log" 2>&1 &
        task=$!
        echo $task >"runs/$run.pid"
    fi
}

# Record why it cannot be started. $2: the reason, where it is a different one.
refuse() {
    ending=${2:-StartFailed} message=$1 code=127
    echo "fleetctl: $1" >>"$log"
    return 1
}

# Succeeds when a program is where `execvp` would look for it.
find_program() {
    case $1 in
        */*) (cd "$directory" && [ -x "$1" ] && [ ! -d "$1" ]) && return 0 || return 1 ;;
    esac
    old=$IFS IFS=:
    for place in $PATH; do
        [ -x "${place:-.}/$1" ] && [ ! -d "${place:-.}/$1" ] && IFS=$old && return 0
    done
    IFS=$old
    return 1
}

# Wait for the end of the task, while a ticker does the periodic work.
watch() {
    tick &
    ticker=$!
    wait $task
    code=$?
    kill -TERM $ticker 2>/dev/null
    wait $ticker 2>/dev/null
    if [ -f "runs/$run.why" ]; then
        until content_of "runs/$run.why"; do pause 0.02; done
        ending=$content
        # The ender of a run leaves when all processes have ended, or at the end of the grace.
        while content_of "runs/$run.ender" && lives "$content"; do pause 0.02; done
    elif [ "$reusable" = true ]; then
        tree= looks=0
        find_tree $task "$run"
        while [ "$tree" != " " ] && [ $looks -lt 50 ]; do
            send_all KILL $task
            pause 0.02
            find_tree $task "$run"
            looks=$((looks + 1))
        done
    else
        kill -KILL -$task 2>/dev/null
    fi
}

# Once a second: the limit of time, metrics, the limit of the log, volumes, what the processes use, a
# notice to followers.
tick() {
    over= idle= nap=1 left=$timeout_whole ticks=0
    [ -n "$left" ] && [ "$timeout_fraction" != 0 ] && nap=$timeout_fraction
    begin_load
    # On a signal to end, it finishes its current step; while it only waits it leaves at once.
    trap 'over=yes; [ -z "$idle" ] || stop_ticking' TERM
    while :; do
        if [ "$left" = 0 ] && [ "$nap" = 1 ]; then
            left=
            (trap - TERM && end_run "$run" Timeout "$grace") &
        fi
        idle=yes
        [ -z "$over" ] || stop_ticking
        sleep $nap &
        wait $!
        idle=
        [ "$nap" = 1 ] && [ -n "$left" ] && left=$((left - 1))
        nap=1 ticks=$((ticks + 1))
        [ -f "runs/$run.begun" ] || end_removed
        tell_metrics
        limit_log
        [ -n "$sync_ticks" ] && [ $((ticks % sync_ticks)) = 0 ] && sync_all
        [ $((ticks % load_every)) != 0 ] || take_load
        if [ ! "runs/$run.told" -nt "$log" ]; then
            : >"runs/$run.told"
            poke
        fi
    done
}

# Somebody has removed the directory, so that nobody will end the task or know of its end.
end_removed() {
    tree=
    find_tree $task "$run"
    send_all KILL $task
    exit 0
}

stop_ticking() {
    kill $! 2>/dev/null
    exit 0
}

# Pass on the whole new lines of $FLEETCTL_METRICS, or the first of them; the host parses
# them. With `all`, also a last one that has no end. Fails when there are none.
tell_metrics() {
    [ -f files/metrics.jsonl ] && [ ! -L files/metrics.jsonl ] || return 1
    seen=0 number=0
    content_of "runs/$run.metrics" && seen=${content% *} number=${content#* }
    lines=$(tail -c +$((seen + 1)) files/metrics.jsonl | head -c 262144 && echo .)
    lines=${lines%.}
    [ "$1" = all ] || lines=${lines%"${lines##*"$newline"}"}
    [ -n "$lines" ] || return 1
    encode printf '%s' "$lines"
    tell_time
    printf '{"e":"metrics","at":%s,"offset":%s,"line":%s,%s}\n' "$now" "$seen" "$number" "$encoded" >>"$journal"
    number=$((number + $(printf '%s' "$lines" | wc -l)))
    echo "$((seen + ${#lines})) $number" >"runs/$run.metrics"
    poke
}

# A log above half its limit becomes an old part, of which the newest is kept, and starts empty. The
# task's output at this very moment is lost: only the task itself holds its output open.
limit_log() {
    { [ ! -s "$log" ] || [ "runs/$run.told" -nt "$log" ]; } && return 0
    [ "$(wc -c <"$log")" -gt $((log_bytes_max / 2)) ] || return 0
    content_of "runs/$run.base"
    rm -f "$old_part" "runs/$run.base" # followers wait until it is there again
    old_part=runs/$run.$content.log
    cat "$log" >"$old_part"
    : >"$log"
    echo $((content + $(wc -c <"$old_part"))) >"runs/$run.base"
}

# Make volumes durable; unsynced: the first mount with which that failed.
sync_all() {
    unsynced=
    sync_mounts
}

sync_one() {
    sync "$1" || unsynced=${unsynced:-$1}
}

conclude() {
    if [ "$code" != null ]; then
        while tell_metrics; do :; done
        tell_metrics all
        sync_all
    fi
    reason=Completed ok=false open=false
    name_ending
    if [ $reason = Completed ] && [ -n "$unsynced" ]; then
        reason=SyncFailed infra=true
        message="sync of a volume failed, so what the task wrote there may be lost"
        message="$message: $(printf %s "$unsynced" | tr -c '[:alnum:] ./_-' ' ')"
    fi
    if [ $reason = Completed ]; then
        ok=true
        if [ -f files/result.json ] && [ ! -L files/result.json ]; then
            encode head -c 262145 files/result.json
            printf '{"e":"result",%s}\n' "$encoded" >>"$journal"
        elif [ -e files/result.json ] || [ -L files/result.json ]; then
            message="$odd_result"
            echo "fleetctl: $message" >>"$log"
        fi
    fi
    # Each program that is started costs as much as all of this file.
    if [ -e files/result.json ] || [ -L files/result.json ] || [ -e files/metrics.jsonl ]; then
        rm -rf files/result.json files/metrics.jsonl
    fi
    if [ "$reusable" = true ] && [ -z "$ending" ]; then
        open=true
        echo "$run" >open.new && mv open.new open
    fi
    tell_time
    echo over >"runs/$run.end"
    printf '{"e":"ended","at":%s,"started_at":%s,"ok":%s,"infra":%s,"reason":"%s","message":"%s",%s}\n' \
        "$now" "$started" $ok $infra "$reason" "$message" \
        "\"exit\":$code,\"note\":\"$note\",\"open\":$open" >>"$journal"
    poke
}

# reason and message, from what ended the run and its exit code.
name_ending() {
    if [ -n "$ending" ]; then
        reason=$ending
        [ "$ending" = Timeout ] && message=$timed_out
        [ "$ending" = SandboxEnded ] && infra=true message="its sandbox was asked to end"
    elif [ "$code" -gt 128 ] && [ "$code" -le 192 ]; then
        # A program that exits with such a code by itself looks the same as one that was killed.
        name_signal $((code - 128))
        reason=Signal:$name message="ended by signal $((code - 128))"
    elif [ "$code" != 0 ]; then
        reason=ExitCode:$code
    fi
}

name_signal() {
    number=$1 name=$1
    set -- HUP INT QUIT ILL TRAP ABRT BUS FPE KILL USR1 SEGV USR2 PIPE ALRM TERM STKFLT CHLD
    set -- "$@" CONT STOP TSTP TTIN TTOU URG XCPU XFSZ VTALRM PROF WINCH IO PWR SYS
    [ "$number" -gt $# ] && return
    shift $((number - 1))
    name=$1
}

# Stay for a while: the host ends the sandbox, or gives it another run.
linger() {
    trap 'kill $! 2>/dev/null; exit 0' TERM
    sleep "$linger_s" &
    wait $!
    if [ $open = true ]; then
        { mv open closed; } 2>/dev/null || exit 0
        mv closed open
    fi
    close_sandbox
    end_entrypoint
}
