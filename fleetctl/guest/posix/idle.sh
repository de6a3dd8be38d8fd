# The inert entrypoint of a sandbox:
#
#   idle   --dir D --begin-s S
#
# First in the file, and it ends here: a shell reads no further than it has executed, so that a
# sandbox does not pay for the rest. Making its directory would take a program as large as itself.
idle() {
    trap 'kill $! 2>/dev/null; exit 0' TERM INT
    echo $$ >"$directory.idle" # the reader may send the signal at once
    sleep "$begin_s" &
    wait $!
    while [ -f "$directory/supervisor" ]; do
        sleep 86400 &
        wait $!
    done
}

directory=/tmp/.fleetctl
if [ "$1" = idle ]; then
    while [ $# -gt 2 ]; do
        case $2 in
            --dir) directory=$3 ;;
            --begin-s) begin_s=$3 ;;
        esac
        shift 2
    done
    umask 077
    idle
    exit
fi
