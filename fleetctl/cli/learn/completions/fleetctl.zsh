#compdef fleetctl
# Completion of fleetctl for zsh. Load it with: source <(fleetctl completion zsh)

_fleetctl() {
    local line name
    local -i nothing=1
    local -a whole whole_shown begun begun_shown
    for line in "${(@f)$("${words[1]/#\~/$HOME}" __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
        name=${line%%$'\t'*}
        case $line in
            '') ;;
            :files) _files && nothing=0 ;;
            # What ends so is only the beginning of a word.
            *) if [[ $name == *[/:.=] ]]; then
                   begun+=("$name") begun_shown+=("${line/$'\t'/  -- }")
               else
                   whole+=("$name") whole_shown+=("${line/$'\t'/  -- }")
               fi ;;
        esac
    done
    (( $#whole )) && compadd -l -d whole_shown -a whole && nothing=0
    (( $#begun )) && compadd -l -S '' -d begun_shown -a begun && nothing=0
    return nothing  # else zsh takes it that nothing was found, and rings
}

if [[ ${funcstack[1]} == _fleetctl ]]; then
    _fleetctl "$@"
else
    compdef _fleetctl fleetctl
fi
