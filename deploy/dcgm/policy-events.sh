#!/usr/bin/env bash
# Tells diagnose what DCGM's policies notice on this node: usage: policy-events.sh [GROUP]
# It runs for as long as dcgmi does, so let systemd start it again (Restart=always). A policy says what is noticed, for example
#   dcgmi policy -g 0 --set 0,0 -e -x -n -p -M 1
set -euo pipefail
: "${DIAGNOSE_URL:=http://diagnose.example:8321}"
: "${DIAGNOSE_TOKEN_FILE:=/etc/diagnose/token}" # of the role `node`, for this node
: "${DIAGNOSE_NODE:=$(hostname -s)}"

# From a file descriptor: a token on a command line is seen by every user of the node.
authorization() {
    if [ -r "$DIAGNOSE_TOKEN_FILE" ]; then printf 'header = "Authorization: Bearer %s"\n' "$(cat "$DIAGNOSE_TOKEN_FILE")"; fi
}

quoted() {
    local text=${1//[[:cntrl:]]/ }
    text=${text//\\/\\\\}
    printf '"%s"' "${text//\"/\\\"}"
}

dcgmi policy --group "${1:-0}" --reg | while IFS= read -r line; do
    lines=$(quoted "$line")
    count=1
    # An event is printed in three or four lines: they go together.
    while [ "$count" -lt 500 ] && IFS= read -r -t 1 line; do
        lines+=,$(quoted "$line")
        count=$((count + 1))
    done
    printf '{"lines": [%s]}' "$lines" | curl --silent --show-error --fail --output /dev/null --max-time 5 --retry 5 \
        --retry-max-time 60 --header 'Content-Type: application/json' --config <(authorization) --data-binary @- \
        "$DIAGNOSE_URL/v1/nodes/$DIAGNOSE_NODE/findings/dcgm" || logger -t diagnose "could not tell $DIAGNOSE_URL what DCGM noticed" || true
done
