#!/bin/bash
# Tests nodes in an allocation of their own, as docs/executors.md says: check.sh FOLDER NODES COUNT
folder=$1 nodes=$2 count=$3
. "$folder/month.env"
if [ -z "${SLURM_JOB_ID:-}" ]; then
    exec salloc --quiet --priority=TOP --immediate=60 --exclusive --nodelist="$nodes" --nodes="$count" --time=5 bash "$0" "$@"
fi
# All nodes are this machine, so each check needs ports of its own, and how long a node takes says nothing.
where=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | sed 's/$/=127.0.0.1/' | paste -sd,)
exec "$folder/python" -m diagnose nodes check --launcher srun --nodes "$where" --port $((20000 + SLURM_JOB_ID % 500 * 20)) \
    --slow 1000 --python "$folder/probe" --json
