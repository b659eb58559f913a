#!/bin/bash
# The interpreter of a probe. On a bad node a check finds the fault with the chance that the scenario gives, in all its tests or in none.
folder=$(dirname "$0")
. "$folder/month.env"
if grep -q "^$SLURMD_NODENAME " "$folder/bad"; then
    drawn=$folder/check-$SLURM_JOB_ID-$SLURMD_NODENAME
    [ -e "$drawn" ] || echo $((RANDOM % 100)) >"$drawn"
    if [ "$(cat "$drawn")" -lt "$check_finds" ]; then
        echo "NVLink: fatal error detected" >&2
        exit 1
    fi
fi
exec "$folder/python" "$@"
