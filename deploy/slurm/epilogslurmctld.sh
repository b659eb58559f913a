#!/bin/bash
# EpilogSlurmctld= in slurm.conf, on the controller: the job has ended, and how. It runs once a job, which the node's epilog does not.
# SLURM_JOB_EXIT_CODE is the status of wait(2): the exit code is in its upper byte, the signal in its lower seven bits.
# shellcheck source=deploy/slurm/common.sh
. "${DIAGNOSE_SLURM:-$(dirname "$0")}/common.sh"

status=${SLURM_JOB_EXIT_CODE:-0}
signal=$((status & 127))
code=$((status >> 8 & 255))
if [ "$signal" -ne 0 ]; then
    post "/v1/jobs/$(job_name)/end" "{\"exit_code\": $((128 + signal)), \"signal\": $signal, \"attempt\": $(attempt)}"
else
    post "/v1/jobs/$(job_name)/end" "{\"exit_code\": $code, \"attempt\": $(attempt)}"
fi
exit 0
