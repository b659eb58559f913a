#!/bin/bash
# One job of the month: prints what a training prints, meets its fate, and sends its log as it comes.
#   job.sh FATE STEPS FABRIC FOLDER
fate=$1 steps=$2 fabric=$3 folder=$4
. "$folder/month.env"
attempt=$((${SLURM_RESTART_COUNT:-0} + 1))
node=$SLURMD_NODENAME
user=$(id -un)

post() { curl --silent --show-error --max-time 600 -o /dev/null -X POST -T - -H Expect: -H "Authorization: Bearer $2" "$url/v1/jobs/$SLURM_JOB_ID/logs?$1"; }
xid() {
    printf '%s %s kernel: [812345.670] NVRM: Xid (PCI:0000:3b:00): %s\n' "$(date '+%b %d %H:%M:%S')" "$1" "$2" |
        post "source=node:$1/kernel&attempt=$attempt&node=$1" "$node_token"
}
died() { printf '%s %s %s\n' "$SLURM_JOB_ID" "$attempt" "$(date +%s.%N)" >>"$folder/deaths"; exit "$1"; }
first() { [ "$attempt" -eq 1 ]; }

train() {
    for ((step = 1; step <= steps; step++)); do
        echo "step $step/1000 | loss 2.$((99 - step)) | grad_norm 0.5"
        sleep 0.5
        if [ "$step" -eq 4 ]; then happens || return $?; fi
    done
    echo "training finished"
}

happens() {
    local one kind
    for one in $(scontrol show hostnames "$SLURM_JOB_NODELIST"); do
        kind=$(sed -n "s/^$one //p" "$folder/bad")
        if [ -n "$kind" ] && [ $((RANDOM % 100)) -lt "${kind#* }" ]; then
            case $kind in
                xid79*) xid "$one" "79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus." ;;
                xid74*) xid "$one" "74, pid='<unknown>', name=<unknown>, NVLink: fatal error detected on link 6(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)" ;;
            esac
            echo "$SLURM_JOB_ID $attempt $one" >>"$folder/met"
            echo "RuntimeError: CUDA error: unspecified launch failure"
            return 3
        fi
    done
    if [ "$fabric" = 1 ] && first; then
        for rank in 0 1; do
            echo "[rank$rank]:[E ProcessGroupNCCL.cpp:616] [Rank $rank] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5, OpType=ALLREDUCE, NumelIn=8, NumelOut=8, Timeout(ms)=600000) ran for 600012 milliseconds before timing out."
        done
        return 6
    fi
    case $fate in
        key_error) printf 'Traceback (most recent call last):\n  File "/home/%s/train.py", line 31, in <module>\n    lr = config["lr"]\nKeyError: '"'lr'"'\n' "$user"; return 1 ;;
        import_error) printf 'Traceback (most recent call last):\n  File "/home/%s/train.py", line 3, in <module>\n    import flash_attn\nModuleNotFoundError: No module named '"'flash_attn'"'\n' "$user"; return 1 ;;
        cuda_oom) echo "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB of which 1.20 GiB is free."; return 1 ;;
        crash_once) first && { echo "[$node:4105 :0:4105] Caught signal 11 (Segmentation fault: address not mapped to object at address 0x18)"; return 139; } ;;
        storage_once) first && { echo "OSError: [Errno 5] Input/output error: '/lustre/$user/ckpt/step_100/model.safetensors'"; return 1; } ;;
        connection_once) first && { echo "ConnectionResetError: [Errno 104] Connection reset by peer"; return 1; } ;;
        killed_once) first && { echo "[rank0]: RuntimeError: NCCL communicator was aborted on rank 0."; return 1; } ;;
        hangs_once) first && { printf '%s %s\n' "$SLURM_JOB_ID" "$(date +%s.%N)" >>"$folder/hangs"; sleep 900; } ;;
    esac
    return 0
}

stopped() {
    [ $((SLURM_JOB_ID % 2)) -eq 0 ] && echo "RuntimeError: NCCL communicator was aborted on rank 0." >&"${out[1]}"
    exit 1
}

coproc out { post "source=$node/rank0&rank=0&node=$node&attempt=$attempt&label.user=$user&label.nodes=$SLURM_JOB_NUM_NODES" "$token"; }
[ "$fate" = cancelled ] && trap stopped TERM && steps=60
train >&"${out[1]}"
status=$?
sender=$out_PID
exec {out[1]}>&-
wait "$sender"
[ "$status" -eq 0 ] || died "$status"
