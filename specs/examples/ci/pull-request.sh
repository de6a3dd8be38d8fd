#!/bin/sh
# What a pull request would change, as one comment on it that later runs update. For any CI: needs git,
# fleetctl and python3; where GITHUB_TOKEN or GITLAB_TOKEN is not set, the comment is left in $PLAN alone.
#
#     sh pull-request.sh --diff-from origin/main -f jobs/ [--fail-on 'cost>50,destroys-data']
#
# All arguments are those of `fleetctl plan`. Ends as that does: 2 a manifest is wrong, 3 a condition holds.
set -u
here=$(dirname "$0")
plan=${PLAN:-plan.md}
code=0
fleetctl plan "$@" -o markdown > "$plan" 2> "$plan.errors" || code=$?
cat "$plan.errors" >&2
if [ "$code" -ne 0 ] && [ ! -s "$plan" ]; then
    {
        echo '<!-- fleetctl-plan -->'
        echo "### fleetctl plan: failed with $code"
        echo
        echo '~~~~~~text'
        head -c 50000 "$plan.errors" | sed 's/^ *~/ /' # a comment has room for 65,536
        echo
        echo '~~~~~~'
    } > "$plan"
fi
rm -f "$plan.errors"
python3 "$here/comment.py" "$plan" || echo "the plan is in $plan, and not on the pull request" >&2
exit "$code"
