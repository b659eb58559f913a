# shellcheck shell=bash
# Shared by the samples: how to reach the service. A prolog or an epilog must never fail or hang because of it: a node whose prolog
# fails is drained. Put it beside them; Slurm sets no PATH for them.
PATH=/usr/local/bin:/usr/bin:/bin
# The one file to edit: DIAGNOSE_URL=https://…:8321. slurmctld and slurmd give scripts no environment of their own.
for configuration in "$(dirname "${BASH_SOURCE[0]}")/diagnose.env" /etc/diagnose/diagnose.env; do
    # shellcheck source=/dev/null
    if [ -r "$configuration" ]; then . "$configuration" && break; fi
done
: "${DIAGNOSE_URL:=http://diagnose.example:8321}"
# deploy/README.md says which tokens there are.
: "${DIAGNOSE_TOKEN_FILE:=/etc/diagnose/token}"

# From a file descriptor: a token on a command line is seen by every user of the node.
authorization() {
    if [ -r "$DIAGNOSE_TOKEN_FILE" ]; then printf 'header = "Authorization: Bearer %s"\n' "$(cat "$DIAGNOSE_TOKEN_FILE")"; fi
}

# send PATH BODY [CONTENT-TYPE [TRIES]]: at most 5 seconds, and two more tries if nothing else is said. It fails if it was not taken.
send() {
    printf '%s' "$2" | curl --silent --show-error --fail --output /dev/null --max-time 5 --retry "${4:-2}" --retry-max-time 15 \
        --header "Content-Type: ${3:-application/json}" --config <(authorization) --data-binary @- "$DIAGNOSE_URL$1"
}

# post PATH BODY [CONTENT-TYPE]: the same, but its failure is nobody's.
post() { send "$@" || logger -t diagnose "could not tell $DIAGNOSE_URL of job ${SLURM_JOB_ID:-?}" || true; }

# The name that squeue shows, and that the runner's pattern %A_%a gives. The parts of a heterogeneous job are one job: the batch script
# runs in the first, and its number is what tasks and log files have.
job_name() {
    if [ -n "${SLURM_ARRAY_JOB_ID:-}" ] && [ -n "${SLURM_ARRAY_TASK_ID:-}" ]; then
        printf '%s_%s' "$SLURM_ARRAY_JOB_ID" "$SLURM_ARRAY_TASK_ID"
    elif [ "${SLURM_HET_JOB_ID:-0}" -ne 0 ]; then
        printf '%s' "$SLURM_HET_JOB_ID"
    else
        printf '%s' "$SLURM_JOB_ID"
    fi
}

# Prologs and epilogs have SLURM_JOB_RESTART_COUNT. If a job is requeued while it runs, its epilog already sees the next count: the prolog
# keeps the count for it.
: "${DIAGNOSE_RUN:=/run/diagnose}"
remember_attempt() {
    mkdir -p "$DIAGNOSE_RUN" 2>/dev/null
    printf '%s' "$(attempt)" 2>/dev/null >"$DIAGNOSE_RUN/attempt-$SLURM_JOB_ID" || true
}
forget_attempt() { rm -f "$DIAGNOSE_RUN/attempt-$SLURM_JOB_ID"; }
attempt() {
    cat "$DIAGNOSE_RUN/attempt-$SLURM_JOB_ID" 2>/dev/null || printf '%s' "$((${SLURM_JOB_RESTART_COUNT:-0} + 1))"
}
