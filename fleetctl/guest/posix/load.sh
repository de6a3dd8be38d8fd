# Samples what a run's processes use, as supervision/pace.py does: their CPU time since the sample
# before in percent of a core, and their memory. Called by the ticker; reads /proc without a program
# of its own, in 0.25 ms for each process of the machine.

load_every=15        # ticks between two samples; twice as many after each load_max of them
load_again=60        # seconds after which a nearly constant sample is recorded
load_max=1000        # samples that are recorded before the next are taken half as often
ticks_per_s=100      # of /proc/PID/stat, on every machine that we know

begin_load() {
    load_pids= page_kib= load_spent=0 load_count=0 load_cpu= load_kib=0
    tell_time
    count_hundredths
    load_looked=$at_hundredths load_told=$at_hundredths
}

# page_kib: asked once, by a run that is long enough for a sample.
read_page_size() {
    page_kib=4
    size=$(getconf PAGESIZE 2>/dev/null)
    case $size in *[!0-9]* | "") ;; *) page_kib=$((size / 1024)) ;; esac
}

# at_hundredths: of a second, from what tell_time found.
count_hundredths() {
    at_hundredths=$((whole * 100 + 1$hundredths - 100))
}

take_load() {
    found_pids=" $task " known_pids=$load_pids spent=0 pages=0
    set -- /proc/[0-9]*
    # Where a machine has many processes, a look at them takes longer, and is taken more seldom.
    [ $# -le 500 ] || [ $load_every -ge $load_again ] || load_every=$load_again
    for directory in "$@"; do
        read_stat "${directory#/proc/}" || continue
        add_load "${directory#/proc/}" ${stat##*) }
    done
    load_pids=$found_pids
    [ $pages -gt 0 ] || return 0 # they have ended
    [ -n "$page_kib" ] || read_page_size
    tell_time
    count_hundredths
    since=$((at_hundredths - load_looked))
    [ $since -gt 0 ] || return 0
    # Ended processes take their time along: then it seems to shrink.
    [ $spent -ge "$load_spent" ] && used=$((spent - load_spent)) || used=0
    cpu=$((used * 100 * 1000 / ticks_per_s / since)) kib=$((pages * page_kib))
    load_spent=$spent load_looked=$at_hundredths
    is_news || return 0
    load_cpu=$cpu load_kib=$kib load_told=$at_hundredths load_count=$((load_count + 1))
    if [ $load_count -ge $load_max ]; then
        load_count=0 load_every=$((load_every * 2))
        [ $load_every -le $load_again ] || load_again=$load_every
    fi
    tenths=$((kib * 10 / 1024))
    printf '{"e":"load","at":%s,"cpu":%s,"memory_mib":%s}\n' "$now" \
        "$((cpu / 10)).$((cpu % 10))" "$((tenths / 10)).$((tenths % 10))" >>"$journal"
    poke
}

# Add process $1 where it is of the run; $2 on: its stat from the state on. A child that began a
# session of its own is found by its parent, at the latest by the sample after.
add_load() {
    case ${13}${14}${15}${16}${23} in *[!0-9]* | "") return 0 ;; esac
    if [ "$1" != "$task" ] && [ "$4" != "$task" ] && [ "$5" != "$task" ]; then
        case "$found_pids$known_pids" in *" $3 "*) ;; *) return 0 ;; esac
        found_pids="$found_pids$1 "
    elif [ "$1" != "$task" ]; then
        found_pids="$found_pids$1 "
    fi
    spent=$((spent + ${13} + ${14} + ${15} + ${16})) pages=$((pages + ${23}))
}

# Succeeds where a sample differs from the one before: by 10 % of a core, by a tenth of the memory.
is_news() {
    [ -n "$load_cpu" ] && [ $((at_hundredths - load_told)) -lt $((load_again * 100)) ] || return 0
    busier=$((cpu - load_cpu)) larger=$((kib - load_kib)) most=$kib
    [ $kib -ge "$load_kib" ] || most=$load_kib
    [ ${busier#-} -ge 100 ] || [ $((${larger#-} * 10)) -gt "$most" ]
}
