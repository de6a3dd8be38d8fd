#!/bin/sh
# A sweep as a step of any CI. Leaves plan.md, results.csv and best.txt in DIR, and at the providers nothing.
#
#     sh sweep.sh lr.yaml sweep/lr 5 [DIR]    # 5: the most that it may cost, in USD
#
# Ends as `fleetctl apply --wait` does: 0 it succeeded, 1 it failed, 2 a manifest is wrong, 3 it may cost
# more, 124 it took too long.
set -eu
manifest=$1 object=$2 usd=$3 dir=${4:-.}

fleetctl plan -f "$manifest" -o markdown --max-cost "$usd" > "$dir/plan.md"
cat "$dir/plan.md"

trap 'fleetctl delete "$object" --ignore-not-found && fleetctl down' EXIT
trap 'exit 130' INT TERM
code=0
fleetctl apply -f "$manifest" --wait --max-cost "$usd" --timeout "${TIMEOUT:-2h}" || code=$?
case $code in
    0 | 1 | 124)
        fleetctl results "$object" -o csv > "$dir/results.csv"
        fleetctl results "$object" --best > "$dir/best.txt"
        ;;
esac
exit "$code"
