# Streams a run's frames to stdout, from any offset, live, until its end.

read_bytes=49152

follow() {
    run=$1 journal=runs/$1.jsonl journal_at=$2 log=runs/$1.log log_at=$3
    pipe=follow.$$ opened= ended= torn= part=
    # Made once and left: another attach with this pid finds it.
    [ -p "$pipe" ] || mkfifo "$pipe"
    exec 3<>"$pipe"
    reminder= quiet=0 gone=
    (read -r -t 0.01 word </dev/null) 2>/dev/null
    if [ $? -gt 1 ]; then # this shell has no time limit for `read`
        (exec </dev/null >/dev/null 2>&1 3>&- && remind $$ "$pipe") &
        reminder=$!
        trap 'kill "$reminder" 2>/dev/null' EXIT
        trap 'exit 0' HUP INT TERM
    fi
    while :; do
        # Checked first: frames from before the supervisor's death are still read below.
        dead=
        content_of "runs/$run.keeper" && lives "$content" || dead=yes
        [ -n "$dead" ] || gone=
        said=
        read_journal
        printf '%s' "$lines"
        # The journal was read first, so the log holds all output from before its end.
        say_log
        [ -z "$ended" ] || say_rest_of_log
        printf '%s' "$last"
        [ -z "$lines$last" ] || said=yes
        if [ -n "$ended" ]; then
            echo '{"e":"eof"}'
            exit 0
        elif [ -n "$said" ]; then
            quiet=0
            [ -z "$dead" ] || continue
        elif [ -n "$dead" ] && [ -n "$opened" ] && [ -z "$gone" ]; then
            gone=yes # it may have begun between both looks
            continue
        elif [ -n "$dead" ] && [ -n "$opened" ]; then
            echo '{"e":"lost","message":"the process that looked after the run died"}'
            exit 3
        elif [ -n "$dead" ] && [ $quiet -gt 0 ]; then # it had time to come
            write_unbegun "$run"
            continue
        elif [ $quiet -ge 3 ]; then
            echo '{"e":"alive"}'
            quiet=0
        fi
        wait_for_news
    done
}

# Until we are woken. The journal's creator makes it after our pipe existed, or before we looked for
# it.
wait_for_news() {
    word=reminder
    if [ -n "$reminder" ]; then
        read -r word <&3
    else
        read -r -t 5 word <&3
    fi
    [ -p "$pipe" ] || exit 0 # somebody has removed the directory
    [ "$word" = . ] || quiet=$((quiet + 1))
}

# Every five seconds: does the supervisor live, is a sign of life of ours due, is the directory
# there?
remind() {
    while sleep 5; do
        lives "$1" && [ -p "$2" ] || break
        echo reminder 1<>"$2"
    done
    kill "$1" 2>/dev/null # nothing would wake it any more
}

# lines: new ones of the journal, whole lines only; last: from its end record on.
read_journal() {
    lines= last=
    if [ -z "$opened" ]; then
        [ -f "$journal" ] || return 0
        exec 4<"$journal"
        opened=yes
        if [ "$journal_at" -gt 0 ]; then
            before=$newline$(dd bs="$journal_at" count=1 <&4 2>/dev/null)
            case $before in *"$newline"'{"e":"ended"'*) ended=yes ;; esac
        fi
    fi
    while IFS= read -r line <&4; do
        line=$torn$line torn=
        case $line in '{"e":"ended"'*) ended=yes ;; esac
        if [ -n "$ended" ]; then
            last=$last$line$newline
        else
            lines=$lines$line$newline
        fi
    done
    torn=$torn$line
}

# All new output in the log, as frames.
say_log() {
    [ -s "$log" ] || [ -n "$part" ] || return 0
    # Times of files are coarse: output of the moment of a look is read again.
    [ -n "$part" ] && [ -z "$ended$dead" ] && [ "$pipe.seen" -nt "$log" ] && return 0
    content_of "runs/$run.base" || return 0 # the log starts empty at this moment
    : >"$pipe.seen"
    if [ "$content" != "$part" ]; then
        next=$content
        [ -n "$part" ] || part=$(oldest_part)
        if [ "$part" != "$next" ] && [ -f "runs/$run.$part.log" ]; then
            exec 5<"runs/$run.$part.log"
            skip_to_offset
            pass_on old
        fi
        part=$next
        exec 5<"$log"
        skip_to_offset
    fi
    pass_on && return
    pause 0.02
    say_log
}

# After the end no event repeats a look that failed, such as when no process could be started for
# it.
say_rest_of_log() {
    tries=0
    while [ -s "$log" ] && [ $tries -lt 100 ]; do
        bytes=$(wc -c <"$log")
        content_of "runs/$run.base" && [ -n "$bytes" ] || bytes=
        [ -z "$bytes" ] || [ "$log_at" -lt $((content + bytes)) ] || return 0
        pause 0.05
        tries=$((tries + 1)) part=
        say_log
    done
}

# The offset at which the old part of the log begins; that of the log itself when there is none.
oldest_part() {
    for file in "runs/$run".[0-9]*.log; do
        file=${file#"runs/$run."}
        [ "$file" = "[0-9]*.log" ] && echo "$content" || echo "${file%.log}"
        return
    done
}

# The bytes that descriptor 5 has now. Fails when the log was emptied while it was read, unless
# the descriptor is an old part of it.
pass_on() {
    size=$read_bytes
    while [ "$size" = "$read_bytes" ]; do
        encode dd bs=$read_bytes count=1 2>/dev/null <&5
        [ "$size" -gt 0 ] || return 0
        [ "$1" = old ] || { content_of "runs/$run.base" && [ "$content" = "$part" ]; } || return 1
        printf '{"e":"log","at":%s,%s}\n' "$log_at" "$encoded"
        log_at=$((log_at + size)) said=yes
    done
}

# Continue at the log's last offset, or at the beginning of this part.
skip_to_offset() {
    [ "$log_at" -ge "$part" ] || log_at=$part
    [ "$log_at" -le "$part" ] || dd bs=$((log_at - part)) count=1 <&5 >/dev/null 2>&1
}
