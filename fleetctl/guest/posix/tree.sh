# Finds the processes of a run: by session, by parent, by the run's name in their environment, and by
# a mark that they cannot lose, their hard limit on file locks (see supervision/processes.py).
# Searched only when a run does not end by itself, or when its sandbox lives on.

# mark: of this directory; empty without `cksum`.
name_mark() {
    set -- $(printf %s "$PWD" | cksum 2>/dev/null)
    mark=${1:+$((4611686018427387904 + $1))}
}

# Mark this process and all that it begins, where the kernel allows it. Shells differ in the letter.
carry_mark() {
    name_mark
    [ -z "$mark" ] || { ulimit -w "$mark" || ulimit -x "$mark"; } 2>/dev/null || :
}

# tree: the living pids of group or session $1, those that carry the name of run $2, those that were
# in `tree` before, and all that descend from one of them.
find_tree() {
    look_once "$1" "$2"
    # A process that was born during the search was in no list.
    [ "$tree" != " " ] || look_once "$1" "$2"
}

look_once() {
    known=" $(carrying "$2")"
    for pid in $tree; do
        lives "$pid" && known="$known$pid "
    done
    tree=$known more=yes
    while [ -n "$more" ]; do
        more=
        for directory in /proc/[0-9]*; do
            look_at "${directory#/proc/}" "$1"
        done
    done
}

look_at() {
    case $tree in *" $1 "*) return ;; esac
    read_stat "$1" || return
    # $3 on: state, parent, group, session
    set -- "$1" "$2" ${stat##*) }
    case $3 in [ZX]) return ;; esac
    if [ "$5" = "$2" ] || [ "$6" = "$2" ]; then
        tree="$tree$1 "
    else
        case $tree in *" $4 "*) tree="$tree$1 " more=yes ;; esac
    fi
}

# Pids of processes with the mark, or with a run's name in their environment: not a longer name with
# it, nor that of a run in another directory, where processes of several sandboxes are seen.
carrying() {
    for file in $(grep -lsF "FLEETCTL_RUN=$1" /proc/[0-9]*/environ 2>/dev/null); do
        variables=$newline$(tr '\0' '\n' 2>/dev/null <"$file")$newline
        case $variables in *"${newline}FLEETCTL_RUN=$1$newline"*) ;; *) continue ;; esac
        case $variables in *"${newline}FLEETCTL_PARAMS=$PWD/"*) ;; *) continue ;; esac
        file=${file#/proc/}
        printf '%s ' "${file%/environ}"
    done
    name_mark
    [ -n "$mark" ] || return 0
    for file in $(grep -lsE "^Max file locks +$mark " /proc/[0-9]*/limits 2>/dev/null); do
        file=${file#/proc/} file=${file%/limits}
        ! lives "$file" || printf '%s ' "$file"
    done
}

# Send signal $1 to the group $2 (or the process, where it leads none), and to the rest of `tree`.
send_all() {
    kill "-$1" "-$2" 2>/dev/null || kill "-$1" "$2" 2>/dev/null
    for pid in $tree; do
        read_stat "$pid" || continue
        set -- "$1" "$2" ${stat##*) }
        [ "$5" = "$2" ] || kill "-$1" "$pid" 2>/dev/null
    done
}
