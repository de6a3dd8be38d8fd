#compdef fleetctl
# Completion of fleetctl for zsh. Load it with: source <(fleetctl completion zsh)

_fleetctl() {
    local line name
    local -a whole whole_shown begun begun_shown
    for line in "${(@f)$("${words[1]/#\~/$HOME}" __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
        name=${line%%$'\t'*}
        case $line in
            '') ;;
            :files) _files ;;
            # What ends so is only the beginning of a word.
            *) if [[ $name == *[/:.=] ]]; then
                   begun+=("$name") begun_shown+=("${line/$'\t'/  -- }")
               else
                   whole+=("$name") whole_shown+=("${line/$'\t'/  -- }")
               fi ;;
        esac
    done
    (( $#whole )) && compadd -l -d whole_shown -a whole
    (( $#begun )) && compadd -l -S '' -d begun_shown -a begun
}

if [[ ${funcstack[1]} == _fleetctl ]]; then
    _fleetctl "$@"
else
    compdef _fleetctl fleetctl
fi
