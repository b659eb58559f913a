#!/bin/bash
# HealthCheckProgram= in slurm.conf, with HealthCheckInterval=60, on each node: what the kernel has said of the hardware since the
# last time, and whether the site's own quick check passes (DIAGNOSE_HEALTH_COMMAND in diagnose.env). It drains nothing: the service
# decides. It always exits with 0, and well before the 60 s after which slurmd kills it.
# Only the node's own token (role node) may tell what was found of it.
: "${DIAGNOSE_TOKEN_FILE:=/etc/diagnose/node-token}"
# shellcheck source=deploy/slurm/common.sh
. "${DIAGNOSE_SLURM:-$(dirname "$0")}/common.sh"
export LC_ALL=C
: "${DIAGNOSE_KMSG:=/dev/kmsg}"

node=${SLURMD_NODENAME:-$(hostname -s)}
state=$DIAGNOSE_RUN/health-$node
limit=${DIAGNOSE_HEALTH_SECONDS:-20} # for the site's check
if ! [ "$limit" -le 40 ] 2>/dev/null; then limit=40; fi
# One at a time: the descriptor is held until this script ends.
{ mkdir -p "$DIAGNOSE_RUN" && : >>"$state.lock"; } 2>/dev/null || exit 0
exec 9>>"$state.lock"
flock --nonblock 9 || exit 0

not_told() { logger -t diagnose "could not tell $DIAGNOSE_URL of the health of $node" || true; }

# Not dmesg: in /dev/kmsg a line that a user has smuggled into another one stays within it, what a program has written itself (a
# facility above the kernel's) is told apart, and each record has a number, from which the next run goes on. dd reads it to its
# end, and does not wait for more.
watch_kernel() {
    local boot up now told_boot='' seq=-1 since=0 lines
    if ! [ -r "$DIAGNOSE_KMSG" ]; then
        logger -t diagnose "cannot read $DIAGNOSE_KMSG" || true
        return
    fi
    read -r boot </proc/sys/kernel/random/boot_id && read -r up _ </proc/uptime || return
    now=$(date +%s)
    if [ -r "$state.kernel" ]; then read -r told_boot seq since <"$state.kernel"; fi
    if [ "$told_boot" != "$boot" ]; then seq=-1 since=0; fi
    # The kernel's clock runs off over months. What is new was said since the last time.
    lines=$(dd if="$DIAGNOSE_KMSG" iflag=nonblock bs=8192 2>/dev/null |
        awk -v seq="$seq" -v since="$since" -v now="$now" -v up="$up" -v node="$node" -v boot="$boot" -v next_file="$state.next" '
            /^[0-9]+,[0-9]+,[0-9]+,/ {
                semicolon = index($0, ";")
                split(substr($0, 1, semicolon - 1), head, ",")
                if (head[2] + 0 <= seq + 0) next
                seq = head[2]
                message = substr($0, semicolon + 1, 1000)
                if (head[1] >= 8 || message !~ /^(NVRM: |nvidia|amdgpu |EDAC |mce: |[{][0-9]+[}]\[Hardware |\[Hardware |Kernel panic)/) next
                at = now - up + head[3] / 1000000
                if (at < since) at = since
                if (at > now) at = now
                printf "%.3f %s kernel: %s\n", at, node, message
            }
            END { printf "%s %s %s\n", boot, seq, now > next_file }' | tail -n 500)
    if [ -n "$lines" ] && ! send "/v1/nodes/$node/findings/kernel" "$lines
" text/plain 0; then
        not_told
        return # what was not told is told the next time
    fi
    mv -f "$state.next" "$state.kernel"
}

# A program that hangs in the driver cannot be killed, and whoever waits for it hangs too. So it has a session and a file of its own,
# nobody waits for it longer than $limit, and while it is there, no other one is started.
run_check() {
    local pid tries
    setsid flock --nonblock --close --conflict-exit-code 254 "$state.check" \
        timeout --kill-after=2 "$limit" bash -c "$DIAGNOSE_HEALTH_COMMAND" </dev/null >"$state.said" 2>&1 9>&- &
    pid=$!
    for ((tries = 0; tries < (limit + 3) * 5; tries++)); do
        kill -0 "$pid" 2>/dev/null || break
        sleep 0.2
    done
    if kill -0 "$pid" 2>/dev/null; then return 124; fi
    wait "$pid"
}

check() {
    local status=0 said='' told='' since
    if [ -r "$state.told" ]; then read -r told <"$state.told"; fi
    if [ -n "${DIAGNOSE_HEALTH_COMMAND:-}" ]; then
        run_check || status=$?
        said=$(tr -cd '[:print:]\n' <"$state.said" | grep . | tail -n 1 | cut -c 1-400)
        case $status:$said in
            254:) said='the check before has not ended' ;;
            124:*) said="it did not end within $limit s. $said" ;;
        esac
    elif [ -z "$told" ]; then
        return
    fi
    # Told when it changes; and once after a start, as nobody knows what was told before.
    if [ "$told" = "$((status == 0))" ]; then return; fi
    said=${said//\\/\\\\}
    since=$(date -u +%Y-%m-%dT%H:%M:%SZ)
    if send "/v1/nodes/$node/findings/health-check" \
        "{\"status\": $status, \"since\": \"$since\", \"said\": \"${said//\"/\\\"}\"}" application/json 0; then
        printf '%s\n' "$((status == 0))" >"$state.told"
    else
        not_told
    fi
}

watch_kernel
check
exit 0
