#!/bin/bash
# Epilog= in slurm.conf, on each node: what the kernel said while the job ran. An Xid or the OOM killer is there before the scheduler
# takes the node away.
# Only the node's own token (role node) may write the source node:NAME/...
: "${DIAGNOSE_TOKEN_FILE:=/etc/diagnose/node-token}"
# shellcheck source=deploy/slurm/common.sh
. "${DIAGNOSE_SLURM:-$(dirname "$0")}/common.sh"

node=${SLURMD_NODENAME:-$(hostname -s)}
since=${SLURM_JOB_START_TIME:+@$SLURM_JOB_START_TIME}
said=$(journalctl --quiet --dmesg --no-pager --output=short-iso --since "${since:--1h}" 2>/dev/null | tail -n 2000)
if [ -n "$said" ]; then
    post "/v1/jobs/$(job_name)/logs?source=node:$node/kernel&attempt=$(attempt)" "$said
" text/plain
fi
forget_attempt
exit 0
