#!/bin/bash
# Prolog= in slurm.conf, on each node: says that the job begins here, and what the kernel has said of GPUs lately, so that a node that
# comes with a fault is known before the job meets it.
# Only the node's own token (role node) may write the source node:NAME/...
: "${DIAGNOSE_TOKEN_FILE:=/etc/diagnose/node-token}"
# shellcheck source=deploy/slurm/common.sh
. "${DIAGNOSE_SLURM:-$(dirname "$0")}/common.sh"

forget_attempt
remember_attempt
node=${SLURMD_NODENAME:-$(hostname -s)}
recent=$(dmesg --time-format iso 2>/dev/null | grep -E 'NVRM: Xid|nvlink|Uncorrected|MCE|Out of memory' | tail -n 50)
if [ -n "$recent" ]; then
    post "/v1/jobs/$(job_name)/logs?source=node:$node/kernel-before&attempt=$(attempt)" "$recent
" text/plain
fi
exit 0
