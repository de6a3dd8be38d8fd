# Completion of fleetctl for bash. Load it with: source <(fleetctl completion bash)

_fleetctl() {
    local current=${COMP_WORDS[COMP_CWORD]} line
    COMPREPLY=()
    while IFS= read -r line; do
        if [[ $line == :files ]]; then
            compopt -o filenames 2>/dev/null
            while IFS= read -r line; do
                COMPREPLY+=("$line")
            done < <(compgen -f -- "$current")
        else
            COMPREPLY+=("${line%%$'\t'*}")
        fi
    done < <("${COMP_WORDS[0]/#\~/$HOME}" __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
    # What ends so is only the beginning of a word.
    if [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *[/:.=] ]]; then
        compopt -o nospace 2>/dev/null
    fi
}

complete -F _fleetctl fleetctl
