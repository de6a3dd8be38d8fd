# Completion of fleetctl for fish. Load it with: fleetctl completion fish | source

function __fleetctl_complete
    set -l current (commandline -ct)
    set -l words (commandline -opc) "$current"
    for line in (command $words[1] __complete $words[2..-1] 2>/dev/null)
        if test "$line" = :files
            __fish_complete_path "$current"
        else
            echo $line
        end
    end
end

complete -c fleetctl -f -a '(__fleetctl_complete)'
