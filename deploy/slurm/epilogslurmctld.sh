#!/bin/bash
# EpilogSlurmctld= in slurm.conf, on the controller: the job has ended, and how. It runs once a job, which the node's epilog does not.
# While it runs, Slurm says of each job that it is COMPLETING, with the status 0 for who was cancelled or out of time. So a process of
# its own waits for Slurm's last word, and tells that. This script itself is done at once.
here=${DIAGNOSE_SLURM:-$(dirname "$0")}
# shellcheck source=deploy/slurm/common.sh
. "$here/common.sh"

# Prints "STATE RESTARTS", or nothing if Slurm does not answer.
last_word() {
    local said='' silent=0
    while [ "$SECONDS" -lt 120 ] && [ "$silent" -lt 5 ]; do
        said=$(timeout 5 scontrol --oneliner show job "$SLURM_JOB_ID" 2>/dev/null |
            sed -n 's/.* JobState=\([A-Z_]*\) .* Restarts=\([0-9]*\) .*/\1 \2/p' | head -n 1)
        case $said in
            '') silent=$((silent + 1)) && sleep 1 ;;
            COMPLETING\ *) sleep 1 ;;
            *) break ;;
        esac
    done
    case $said in COMPLETING\ *) ;; *) printf '%s' "$said" ;; esac
}

# Whether slurmctld itself has found one of the job's nodes dead: then it says nothing else of a job that it has requeued.
node_failed() {
    timeout 5 sinfo --noheader --Node --states=down --nodes="${SLURM_JOB_NODELIST:-}" --format=%E 2>/dev/null |
        grep -q -e '^Not responding' -e '^Node unexpectedly rebooted'
}

# SLURM_JOB_EXIT_CODE is the status of wait(2): the exit code is in its upper byte, the signal in its lower seven bits.
tell() {
    local status=${SLURM_JOB_EXIT_CODE:-0} count=${SLURM_JOB_RESTART_COUNT:-0} state restarts how
    local signal=$((status & 127)) code=$((status >> 8 & 255))
    read -r state restarts <<<"$(last_word)"
    if [ "$signal" -ne 0 ]; then how="\"exit_code\": $((128 + signal)), \"signal\": $signal"; else how="\"exit_code\": $code"; fi
    case $state in
        '' ) ;;
        PENDING | REQUEUE* | CONFIGURING | RUNNING | SUSPENDED | SPECIAL_EXIT)
            # If it was requeued while it ran, its count has grown already: this is the end of the attempt before. If a node failed, it
            # grows only now, and the status is 0.
            if [ "$restarts" -eq "$count" ] && [ "$count" -gt 0 ]; then
                count=$((count - 1)) how='"state": "REQUEUED"'
            elif [ "$restarts" -gt "$count" ] && [ "$status" -eq 0 ]; then
                how='"state": "REQUEUED"'
            fi
            if [ "$how" = '"state": "REQUEUED"' ] && node_failed; then how='"state": "NODE_FAIL"'; fi ;;
        COMPLETED | FAILED) how="$how, \"state\": \"$state\"" ;;
        *) if [ "$status" -ne 0 ]; then how="$how, \"state\": \"$state\""; else how="\"state\": \"$state\""; fi ;;
    esac
    post "/v1/jobs/$(job_name)/end" "{$how, \"attempt\": $((count + 1))}"
}

# Of a heterogeneous job the first part tells: the batch script ran in it.
if [ "${SLURM_HET_JOB_OFFSET:-0}" -gt 0 ]; then exit 0; fi
if [ "${1:-}" = tell ]; then
    echo "in a session of its own"
    exec >/dev/null
    tell
else
    # When this script ends, slurmctld kills what is still in its process group. So it waits until the other one has left it.
    read -r _ < <(DIAGNOSE_SLURM=$here exec setsid "$BASH" "$0" tell </dev/null 2>/dev/null)
fi
exit 0
