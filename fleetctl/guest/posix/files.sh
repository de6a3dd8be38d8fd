# Files of a machine: volumes listed, read, written and removed, and copies of sources received. The
# same as machines/shipped/machine_files.py. A path is relative to a directory of ours or to a
# shared one that its user named, and no link leads out of it.

# top, path: of path $2 below directory $1, absolute. Fails for one that leads out.
resolve() {
    top=$(cd -P "$1" 2>/dev/null && pwd) || top=$1
    path=$top above=$top
    [ -z "$2" ] || path=$top/$2
    [ -z "$2" ] || above=${path%/*}
    while [ ! -d "$above" ] && [ "$above" != "$top" ]; do above=${above%/*}; done
    real=$(cd -P "$above" 2>/dev/null && pwd) || real=$above
    case $real/ in
        "$top"/*) ;;
        *) fail path "\`$2\` leads out of the volume" ;;
    esac
}

# A line for each entry: its mode in hexadecimal, size, time of change, and path. Exits with 3
# without the path, with 4 without the volume.
list_entries() {
    resolve "$1" "$2"
    [ -d "$top" ] || exit 4
    [ -e "$path" ] || [ -L "$path" ] || exit 3
    cd "$top" || exit 4
    if [ ! -d "$path" ] || [ -L "$path" ]; then
        set -- "./$2"
    elif [ "$3" = yes ]; then
        set -- "./$2" -mindepth 1
    else
        set -- "./$2" -mindepth 1 -maxdepth 1
    fi
    find "$@" ! -name "*$newline*" -exec stat -c '%f %s %Y %n' {} +
}

# The SHA-256 of each file below $1 that its input names.
list_digests() {
    resolve "$1" ""
    cd "$top" || exit 4
    while IFS= read -r file; do
        [ ! -f "$file" ] || [ -L "$file" ] || sha256sum -- "$file"
    done
}

# Write the input to a file, which is there whole or not at all. $3: its mode; $4: its bytes.
receive() {
    resolve "$1" "$2"
    mkdir -p "${path%/*}" 2>/dev/null
    [ ! -d "$path" ] || fail path "\`$2\` is a directory"
    part=$path.$$.part
    cat >"$part" 2>/dev/null
    bytes=$(wc -c 2>/dev/null <"$part")
    if [ "$bytes" != "$4" ] && [ "$((bytes))" != "$4" ]; then
        rm -f "$part"
        fail machine "$((bytes)) of $4 bytes came, or the disk that holds \`$top\` is full"
    fi
    chmod "$3" "$part" && mv -f "$part" "$path" && echo "{\"bytes\":$4}"
}

send() {
    resolve "$1" "$2"
    [ -f "$path" ] || exit 1
    exec cat "$path"
}

# $3: with all that is in it; $4: the volume itself as well.
remove() {
    resolve "$1" "$2"
    if [ ! -e "$path" ] && [ ! -L "$path" ]; then
        echo '{"removed":false}'
        return
    elif [ ! -d "$path" ] || [ -L "$path" ]; then
        rm -f "$path"
    elif [ "$3" != yes ]; then
        echo '{"removed":false,"directory":true}'
        return
    else
        chmod -R u+rwx "$path" 2>/dev/null
        if [ -n "$2" ] || [ "$4" = yes ]; then
            rm -rf "$path"
        else
            find "$path" -mindepth 1 -maxdepth 1 -exec rm -rf {} +
        fi
    fi
    echo '{"removed":true}'
}

touch_copy() {
    resolve "$1" "$2"
    [ -f "$path" ] && touch "$path" && echo '{"there":true}' || echo '{"there":false}'
}
