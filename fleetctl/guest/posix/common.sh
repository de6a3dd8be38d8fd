# Shared by all verbs of the POSIX guest: paths, time, encodings. For dash, busybox ash and bash.
#
# The state directory is the working directory, as for the guest in Python (see remote/place.py):
#   supervisor           its existence shows that a run has begun; the newest supervisor's pid
#   open                 the sandbox takes another run: the process that removes this file begins it
#   runs/<run>.begun     the latch of a run          runs/<run>.order   its order, sourced
#   runs/<run>.jsonl     its journal, also a latch   runs/<run>.log     its output
#   runs/<run>.keeper    the pid of its supervisor   runs/<run>.pid     the pid of its task
#   runs/<run>.why       why it is being ended       runs/<run>.ender   the pid of the ender
#   runs/<run>.stopped   a stop was requested
#   runs/<run>.base      the offset of the first byte of its log
#   follow.<pid>         a pipe that wakes one attach

newline='
'

# Make a file; fails when it existed.
latch() {
    set -C
    true 2>/dev/null >"$1"
    latched=$?
    set +C
    return $latched
}

# now: seconds since the epoch with hundredths. `date` is run once; then the uptime is enough.
tell_time() {
    uptime=
    [ -r /proc/uptime ] && read -r uptime _ </proc/uptime && uptime=${uptime%.*}${uptime#*.}
    if [ -n "$uptime" ] && [ -n "$epoch" ]; then
        whole=$(((epoch + uptime) / 100)) hundredths=$(((epoch + uptime) % 100))
        case $hundredths in ?) hundredths=0$hundredths ;; esac
    else
        now=$(date +%s.%N 2>/dev/null)
        case $now in *[!0-9.]* | *. | "") now=$(date +%s).00 ;; esac
        whole=${now%.*} hundredths=${now#*.}00
        hundredths=${hundredths%"${hundredths#??}"}
        [ -z "$uptime" ] || epoch=$((whole * 100 + 1$hundredths - 100 - uptime))
    fi
    now=$whole.$hundredths
}

# encoded: a command's output, as one member of a JSON object; size: its bytes.
encode() {
    if [ -z "$encoder" ]; then
        encoder=od
        command -v base64 >/dev/null 2>&1 && encoder=base64
    fi
    if [ $encoder = base64 ]; then
        text=$("$@" | base64)
        old=$IFS IFS=$newline
        set -- $text
        IFS=
        text=$*
        IFS=$old
        size=$((${#text} / 4 * 3))
        case $text in *==) size=$((size - 2)) ;; *=) size=$((size - 1)) ;; esac
        encoded="\"b64\":\"$text\""
    else
        text=$("$@" | od -An -v -tx1 | tr -d ' \n')
        size=$((${#text} / 2))
        encoded="\"hex\":\"$text\""
    fi
}

# stat: of process $1, in one line: the name of a process may have line breaks.
read_stat() {
    { { read -r stat && while read -r rest; do stat="$stat $rest"; done; } \
        <"/proc/$1/stat"; } 2>/dev/null
}

# Succeeds when a process runs; a zombie that no parent collects does not.
lives() {
    [ -n "$1" ] && kill -0 "$1" 2>/dev/null || return 1
    [ -r "/proc/$1/stat" ] || return 0
    read_stat "$1" || return 1
    case ${stat##*) } in [ZX]*) return 1 ;; esac
}

# content: of a small file; fails when there is none.
content_of() {
    content=
    [ -r "$1" ] && { read -r content <"$1"; } 2>/dev/null
    [ -n "$content" ]
}

# Where fractions are not known, a whole second.
pause() {
    sleep "$1" 2>/dev/null || sleep 1
}

# Wake all followers of a run.
poke() {
    for pipe in follow.*; do
        [ -p "$pipe" ] && echo . 1<>"$pipe"
    done
    return 0
}

# Run $1 ends here without its work having begun, $2 says why; no effect when its journal is there.
write_unbegun() {
    latch "runs/$1.jsonl" || return 0
    tell_time
    {
        printf '{"e":"started","at":%s,"keeper":"","note":""}\n' "$now"
        printf '{"e":"ended","at":%s,"started_at":%s,"ok":false,"infra":true,' "$now" "$now"
        printf '"reason":"SandboxClosed","message":"%s","exit":null,' "${2:-its sandbox takes no more work}"
        printf '"note":"","open":false}\n'
    } >>"runs/$1.jsonl"
}

# Take the sandbox's last chance for a run; record that in the journal of the last run.
close_sandbox() {
    [ -f open ] && { mv open closed; } 2>/dev/null || return 0
    tell_time
    content_of closed && printf '{"e":"closed","at":%s}\n' "$now" >>"runs/$content.jsonl"
    poke
}

end_entrypoint() {
    content_of "$PWD.idle" && kill -TERM "$content" 2>/dev/null
    return 0
}
