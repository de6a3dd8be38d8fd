# The boxes of a machine without Python: the claims of all stores that work there, and their ends.
# The same as machines/shipped/boxes.py, of which it is the counterpart, except for the order of
# claims: no lock is held, as the process that holds one in shell may be killed. Claims are numbered,
# and `ln` makes the next number for one process alone; whoever comes second counts again.
#
# The directory of ours is the working directory:
#   claims/<number>      a claim; also boxes/<box>/claim       boxes/<box>/home, state
#   boxes/<box>/tags     tags, as their owner wrote them       boxes/<box>/links      see make_links
#   boxes/<box>/fleet    the store whose lease it needs        boxes/<box>/expired    its lease ended
#   boxes/.<box>@<id>.gone, an ended one, for a while          boxes/.<box>.<pid>     half-made

begin_s=900     # that a box may wait for its first order
publish_s=60    # that a process may take between its claim and its box
kill_looks=100  # for killed processes to be gone

read_uptime() {
    read -r uptime _ </proc/uptime
    uptime=${uptime%.*}
}

# id, boot_then, at, claim, cores, devices: of the claim in file $1; fails when there is none.
read_claim() {
    id=
    { read -r id && read -r boot_then at && read -r claim && read -r cores && read -r devices; } \
        2>/dev/null <"$1"
    owner=${id%@*} id=${id##*@}
    [ -n "$id" ]
}

# state: of box $1, which is `gone` too when another one has its name. $1: with or without `@` and
# its id. box: its name alone.
find_state() {
    box=${1%%@*} state=gone
    case $box in "" | .* | */*) return ;; esac
    read_claim "boxes/$box/claim" || return
    case $1 in *@*) [ "${1#*@}" = "$id" ] || return ;; esac
    if [ -f "boxes/$box/expired" ]; then
        state=expired
    elif [ "$boot_then" != "$boot" ]; then
        state=restarted
    elif [ ! -f "boxes/$box/state/supervisor" ]; then
        state=new
        [ $((uptime - at)) -lt $begin_s ] || state=stale
    elif is_supervised "boxes/$box/state"; then
        state=live
    else
        state=over
    fi
}

# Succeeds when the newest supervisor of state directory $1 lives, or one is just being started.
is_supervised() {
    content_of "$1/supervisor" && supervises "$content" "$PWD/$1" && return 0
    for file in "$1"/runs/*.begun; do
        begun=${file%.begun}
        [ -f "$file" ] && [ ! -f "$begun.keeper" ] && [ ! -f "$begun.jsonl" ] || continue
        [ -z "$(find "$file" -mmin -1)" ] || return 0
    done
    return 1
}

# Succeeds when process $1 is a supervisor of state directory $2: another one may have its number.
supervises() {
    lives "$1" || return 1
    words=$(tr '\0' ' ' 2>/dev/null <"/proc/$1/cmdline")
    case $words in *" supervise --dir $2 "*) return 0 ;; esac
    return 1
}

# number: of the newest claim.
newest_claim() {
    number=0
    for file in claims/*; do
        file=${file#claims/}
        [ "$file" = "*" ] || [ "$file" -le "$number" ] || number=$file
    done
}

# The claims that count, and the number after which the next one is made.
list_claims() {
    newest_claim
    printf '{"number":%s,"claims":[' "$number"
    comma=
    for file in claims/*; do
        read_claim "$file" || continue
        name=$owner wanted=$id
        find_state "$name@$wanted"
        if [ "$state" = gone ] && [ ! -d "boxes/$name" ]; then
            read_claim "$file" && [ "$boot_then" = "$boot" ] &&
                [ $((uptime - at)) -lt $publish_s ] && [ ! -d "boxes/.$name@$wanted.gone" ] &&
                state=new
        fi
        case $state in new | live) ;; *) continue ;; esac
        printf '%s{"box":"%s@%s","claim":%s}' "$comma" "$name" "$wanted" "$claim"
        comma=,
    done
    printf ']}\n'
}

# Make box $1 with id $2 after claim $3, for store $4. Its input: the claim, its cores, its devices,
# the tags, and links.
make_box() {
    if read_claim "boxes/$1/claim"; then
        printf '{"box":{"id":"%s"}}\n' "$id"
        return
    fi
    making=boxes/.$1.$$
    {
        read -r claim && read -r cores && read -r devices && read -r tags
        mkdir -p "$making/home" "$making/state/runs" claims &&
            printf '%s@%s\n%s %s\n%s\n%s\n%s\n' "$1" "$2" "$boot" "$uptime" \
                "$claim" "$cores" "$devices" >"$making/claim" &&
            printf '%s\n' "$tags" >"$making/tags" && echo "$4" >"$making/fleet" &&
            cat >"$making/links" && [ -s "$making/claim" ]
    } 2>/dev/null || {
        rm -rf "$making"
        fail machine "\`$PWD\` cannot be written to: its disk is full, or is for reading alone"
    }
    if ! ln "$making/claim" "claims/$(($3 + 1))" 2>/dev/null; then
        rm -rf "$making"
        echo '{"again":true}'
        return
    fi
    mv "$making" "boxes/$1"
    # The other guest looks for ours after it has made its own: one of both gives way.
    for other in ../boxes/*/box.json; do
        [ -f "$other" ] || continue
        end_box "$1@$2"
        fail full "the host has work of fleetctl's guest in Python"
    done
    fault=
    make_links "boxes/$1/links"
    [ -z "$fault" ] || { end_box "$1@$2"; fail "$sort" "$fault"; }
    start_warden
    printf '{"box":{"id":"%s"}}\n' "$2"
}

# Make paths lead to directories of ours. Three lines for each: the path, the directory, and `used`
# when another task needs the path to lead elsewhere. sets fault and its sort.
make_links() {
    while IFS= read -r path && IFS= read -r target && IFS= read -r use; do
        mkdir -p "$target" 2>/dev/null
        there=$(readlink "$path" 2>/dev/null)
        [ "$there" != "$target" ] || continue
        case $there in
            "$PWD"/*)
                sort=full fault="\`$path\` leads to another directory for another task"
                [ -z "$use" ] || return
                rm -f "$path"
                ;;
            *)
                sort=path fault="\`$path\` exists on this machine and is not fleetctl's"
                [ -z "$there" ] || return
                [ ! -e "$path" ] || [ -d "$path" ] || return
                ;;
        esac
        sort=path fault="\`$path\` cannot lead to \`$target\`"
        [ ! -d "$path" ] || rmdir "$path" 2>/dev/null || return
        mkdir -p "${path%/*}" 2>/dev/null
        ln -s "$target" "$path" 2>/dev/null || return
        fault=
    done <"$1"
}

# Remove the links of box $1, except those that another box needs.
remove_links() {
    while IFS= read -r path && IFS= read -r target && IFS= read -r use; do
        [ "$(readlink "$path" 2>/dev/null)" = "$target" ] || continue
        used=
        for other in $(grep -lsxF "$path" boxes/*/links); do
            other=${other#boxes/} other=${other%/links}
            [ "$other" != "$1" ] || continue
            find_state "$other"
            case $state in new | live) used=yes ;; esac
        done
        [ -n "$used" ] || rm -f "$path"
    done <"boxes/$1/links"
}

# Kill all processes of a box and remove it; fails when some live on. No error when it is gone.
end_box() {
    find_state "$1"
    [ "$state" != gone ] || return 0
    name=$box wanted=$id
    # A supervisor that has not looked yet does nothing more from now on.
    : >"boxes/$name/state.ending"
    (cd "boxes/$name/state" && kill_box) || return 1
    remove_links "$name"
    gone="boxes/.$name@$wanted.gone"
    [ ! -d "$gone" ] && mv "boxes/$name" "$gone" 2>/dev/null && touch "$gone"
    # A result as the task wrote it may hold its secret; the journal has it masked.
    rm -rf "$gone/state/files"
    return 0
}

# Kill the processes of the state directory we are in, of whom none is there when this succeeds.
kill_box() {
    looks=0 clean=0
    while [ $looks -lt $kill_looks ]; do
        find_box
        if [ "$tree" = " " ]; then
            clean=$((clean + 1))
            [ $clean -lt 2 ] || return 0 # a process that was born during a look was not seen
        else
            clean=0
            kill -KILL $tree 2>/dev/null
            pause 0.05
        fi
        looks=$((looks + 1))
    done
    return 1
}

# tree: the living supervisors of the directory, what carries its mark or the variables of its
# tasks, and all that descend from one of them.
find_box() {
    name_mark
    tree=" " more=yes
    for file in $(
        grep -lsF -e "FLEETCTL_PARAMS=$PWD/" /proc/[0-9]*/environ 2>/dev/null
        [ -z "$mark" ] || grep -lsE -e "^Max file locks +$mark " /proc/[0-9]*/limits 2>/dev/null
    ); do
        file=${file#/proc/} file=${file%/*}
        [ "$file" = $$ ] || ! lives "$file" || tree="$tree$file "
    done
    for file in $(grep -lsF -e "$PWD" /proc/[0-9]*/cmdline 2>/dev/null); do
        file=${file#/proc/} file=${file%/*}
        ! supervises "$file" "$PWD" || tree="$tree$file "
    done
    while [ -n "$more" ] && [ "$tree" != " " ]; do
        more=
        for directory in /proc/[0-9]*; do
            look_at "${directory#/proc/}" none
        done
    done
}

# Remove boxes that ended a while ago, what a killed process left half-made, and claims that count
# no more; the newest number stays.
sweep() {
    for directory in $(find boxes -maxdepth 1 -name '.*.gone' -mmin +0 2>/dev/null) \
        $(find boxes -maxdepth 1 -name '.*.[0-9]*' -mmin +15 2>/dev/null); do
        chmod -R u+rwx "$directory" 2>/dev/null
        rm -rf "$directory"
    done
    newest_claim
    newest=$number
    for entry in claims/*; do
        read_claim "$entry" && [ "${entry#claims/}" -lt "$newest" ] || continue
        [ -n "$(find "$entry" -mmin +2)" ] || continue
        find_state "$owner@$id"
        case $state in new | live) ;; *) rm -f "$entry" ;; esac
    done
    find ../sources -type f -mtime +7 -exec rm -f {} + 2>/dev/null
}
