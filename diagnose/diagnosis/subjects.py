"""A line that no rule knows -> a reason, from its words.

All software fails in the same few ways, and says so in words that all engineers use: a link is down, memory ran out, a peer
closed the connection, no space is left. Each subject here is a reason of the taxonomy with such words. Subjects are tried from
the hardware up, and from exact words to vague ones. The first that fits is taken.

A subject is *plain* if its words leave little doubt ("no space left on device"). Else it is vague: a line that sounds like a
failure mentions a GPU. Plain subjects also say what an exception of a general class is about.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import Final, NamedTuple

from diagnose.diagnosis.vocabulary import Vocabulary
from diagnose.memory import remembered

MOST: Final = 600
"""only so many characters of a line are read"""

_WORDS: Final = {
    # "GPU hours" is a price, not a device.
    "device": r"(?:cuda|gpus?(?!-?(?:hours?|days?|h)\b)|npus?|hpus?|tpus?|xpus?|mlus?|gcus?|dcus?|accelerators?"
    r"|rocm|hip|hbm|vram|cann|neuron(?:core)?s?)",
    "collective": r"(?:[nhrxom]?ccl|gloo|collectives?|all[_-]?(?:reduce|gather|to[_-]?all)|reduce[_-]?scatter|broadcast|barrier"
    r"|process ?group\w*|communicator|rendezvous|watchdog|quorum)",
    "fabric": r"(?:infiniband|roce|rdma|mlx[45]\w*|ib\d|hcas?|ibv_\w+|verbs|qps?|queue pair|ucx|uct|ucp|ofi|libfabric|efa"
    r"|psm[23]|hfi\d?|nics?|eth\d+|bond\d+|en[ops]\w*\d\w*|fabric|subnet manager|switch port|net/ib)",
    "filesystem": r"(?:nfs|cifs|smb|hdfs|minio|lustre|lustreerror|gpfs|mmfsd?|beegfs|ceph\w*|libceph|weka\w*|juicefs"
    r"|ost\d*|mdt\d*|file ?system|mount point|storage (?:target|server|node|backend|cluster)s?)",
    "lost": r"(?:lost|gone|dead|died|down|unreachable|unresponsive|not respond\w*|no response|not ready(?! yet)|unhealthy"
    r"|timed out|failed|failure)",
    "trouble": r"(?:not respond\w*|failed|error|lost|timed out|timeout|unavailable|unreachable|evicted|disconnected|refused"
    r"|hung|stale|unmounted|offline)",
    "state": r"(?:(?:is|are|was|were|has|have|went|status is now:?) )?(?:been )?(?:marked )?(?:as )?",
    "numbers": r"(?:loss|grad(?:ient)?s?(?:[ _]norms?)?|activations?|logits)",
    "model": r"(?:checkpoints?|models?|weights|state_?dict|safetensors|tokenizer|pretrained|onnx|engine plan|gguf)",
    "data": r"(?:datasets?|shards?|corpus|parquet|jsonl|arrow|tfrecord|webdataset|samples?)",
}
"""what <device> and the like stand for below"""


@dataclass(frozen=True, slots=True)
class Subject:
    """Words that say what a line is about."""

    reason: str
    plain: tuple[str, ...] = ()
    vague: tuple[str, ...] = ()


class About(NamedTuple):
    """What a line is about, according to its words."""

    reason: str
    plain: bool


SUBJECTS: Final = (
    Subject(
        "loss_anomaly",
        plain=(
            r"\b<numbers>\b.{0,40}\b(?:is|are|was|becomes?|became|has|have|contains?|to) "
            r"(?:an? |not an? )?(?:nan|inf|number|infinit[ey])\b",
            r"\b<numbers>\b ?[=:] ?(?:nan|inf)\b",
            r"\b<numbers>\b.{0,40}\b(?:diverg|explod)\w+",
            r"\bloss diverged",
            r"\b<numbers>\b.{0,40}\b(?:not finite|non-?finite)\b",
            r"\bnan (?:loss|grad\w*)\b",
            r"\b(?:nan|inf|non-?finite)\w*(?: values?)? (?:was |were )?(?:detected|found|encountered)\b",
            r"\bloss scale\b.{0,40}\b(?:minimum|floor|too small)|\bminimum loss scale reached",
        ),
    ),
    Subject(
        "host_out_of_memory",
        plain=(
            r"无法分配内存|(?:主机|系统)?内存不足",
            r"oom[-_ ]?kill",
            r"\boomkilled\b",
            r"\bout[- ]of[- ]memory:? (?:handler|killer|killed)",
            r"\bkill(?:ed|ing)\b.{0,60}\b(?:out of|low on|memory)\b.{0,20}memory",
            r"\bmemory cgroup\b",
            r"\bmemory\b.{0,30}\b(?:limit|limits|threshold)\b.{0,20}\b(?:exceeded|reached)",
            r"\bexceed\w*\b.{0,60}\b(?:mem|h_vmem|virtual memory|memory)\b.{0,12}\blimits?",
            r"\bexceed\w*\b.{0,30}\blimit\W{1,3}(?:[hs]_(?:vmem|rss)|mem|vmem)\b",
            r"\b(?:v?mem|memory|rss)(?:[ =:]+[\d.]+ ?[kmgt]?i?b)?,? (?:has )?(?:gone over|exceed(?:s|ed)|is (?:over"
            r"|above)|reached)\b"
            r".{0,30}\blimit",
            r"\b(?:over|reach\w*|hit)\b.{0,30}\bmemory (?:usage )?limit",
            r"\bheap (?:space|limit|out of memory)\b",
            r"low on memory",
            r"\bcannot allocate (?:memory|vector of size)\b",
            r"\bstd::bad_alloc\b",
            r"\bhost memory\b.{0,30}\b(?:exhausted|full|failed)",
            r"(?:java\.lang|system)\.outofmemory(?:error|exception)",
            r"\bexceed\w*\b.{0,20}\bmemory (?:budget|threshold|quota|allocation|allowance|request)\b",
            r"\benomem\b",
            r"\bmemory (?:usage|pressure)\b.{0,40}\bkill",
            r"\b(?:system|host|main|physical|virtual) memory\b.{0,60}"
            r"\b(?:than is available|exhausted|not enough|insufficient|full)\b",
            r"\bkilled signal terminated program\b",
        ),
    ),
    Subject(
        "out_of_memory",
        plain=(
            r"显存不足|(?:显存|设备内存)\S{0,10}(?:不足|溢出|耗尽)",
            r"\b<device>\b.{0,60}\bout of memory",
            r"\bcuda\w*\b.{0,60}\bout of memory|\bout of <device>\b.{0,30}\bmemory",
            r"\bout of (?:<device>|device|<device> device|video|graphics) memory",
            r"\bout of memory\b.{0,60}\b(?:<device>|device)\b",
            r"\b(?:cuda|hip|musa|cnrt|mc|hsa_)malloc\w*\b.{0,60}\b(?:out of memory|fail\w*)",
            r"\bresource_?exhausted\b.{0,60}\b(?:alloc\w*|memory|hbm|oom)",
            r"\b(?:fail(?:ed|ure)|unable|could not|cannot|can't)(?: to)? alloc(?:ate|ation)?\b.{0,60}\b(?:bytes|[kmgt]i?b"
            r"|tensor|device|buffer)",
            r"\b(?:not enough|insufficient|too little) (?:free |available |<device> |device )*memory\b",
            r"\bmemory\b.{0,20}\b(?:is not|isn'?t|was not|wasn'?t) (?:enough|sufficient)\b",
            r"\bmemory alloc\w* (?:has )?fail",
            r"\bexceeds? (?:the )?(?:maximum|available|total) (?:array size|<device> memory|device memory)",
            r"\boutofmemory(?:error|exception)?\b",
            r"\bmemory\b.{0,40}\bcould not be allocated\b|\bnot be enough free memory\b",
            r"\bdevice memory\b.{0,30}\b(?:exhausted|full|alloc\w*)",
        ),
        vague=(
            r"\bout[- ]of[- ]memory\b",
            r"\bout of resources?\b",
            r"\boom\b",
            r"\bmemory exhausted\b",
        ),
    ),
    Subject(
        "nvlink_error",
        plain=(
            r"(?:\b|_)nv-?(?:link|switch)",
            r"\b(?:xgmi|sxid|hccs|fabric ?manager|imex)\b",
            r"\bici (?:link|port|network)s?\b.{0,60}\b(?:down|fail\w*|errors?)",
        ),
    ),
    Subject(
        "ecc_error",
        plain=(
            r"\becc\b",
            r"\buncorrect(?:able|ed)\b(?! i/o)",
            r"\bhardware memory (?:error|corruption)\b",
            r"\bdouble[- ]bit\b",
            r"\brow[- ]?remap\w*",
            r"\bmachine check\b",
            r"\bmce: \[hardware",
            r"\bhardware error\b",
            r"\bpage retire\w*",
            r"\bmemory (?:parity|poison)\b",
        ),
    ),
    Subject(
        "argument_error",  # who asks for more than there is, names devices that are not at fault
        plain=(
            r"\b(?:un(?:satisfiable|schedulable)|infeasible)\b",
            r"\b\d+/\d+ (?:nodes|tasks|pods)\b.{0,40}\b(?:available|unschedulable)\b",
            r"\b(?:not enough|insufficient) (?:slots|nodes|cpus?|cores|processors|gpus?|devices|resources|quota)\b",
            r"\brequested\b.{0,40}\b(?:is|are) not available",
            r"\bmore (?:processors|cpus|cores|nodes|gpus|tasks|memory) requested than\b",
            r"\b(?:available|visible) (?:gpus?|npus?|devices)\b.{0,20}\b(?:is |are )?less than\b",
            r"\binvalid (?:account|partition|qos|queue|reservation|generic resource|feature|node name|job id)\b",
            r"\bunsupported gpu arch\w*",
            r"\bunsatisfied condition\b|\bnot defined for option\b|\binvalid value:",
            r"\bexceeded quota\b|\bdoes not fit on any\b|\bresources are insufficient\b",
            r"\binsufficient [\w.]+/\w+",
            r"\bonly supports?\b.{0,60}\b<device>\b|\b<device>\b.{0,60}\b(?:not supported|unsupported|incompatible|too old)\b",
            r"\brequires?\b.{0,40}\b(?:compute capability|sm_?\d\d)|\bnot (?:compiled|built) for\b",
        ),
    ),
    Subject(
        "gpu_fell_off_bus",
        plain=(
            r"\b<device>\b.{0,60}\b(?:reset|reboot)(?: or (?:reset|reboot))? (?:is )?"
            r"(?:required|needed|necessary)\b",
            r"\b<device>\b.{0,40}\b(?:requires?|needs?) (?:a |an |to be )?(?:\w+ )?(?:reset|reboot)",
            r"\bfall(?:en)? off the bus",
            r"\bfell off the bus",
            r"\b<device>\b.{0,30}\b(?:is|has been|was) lost\b",
            r"\bunable to determine the device handle",
            r"\bpcie?\b.{0,40}\b(?:link down|surprise|bus error|fatal error|uncorrected)",
            r"\bno (?:cuda|gpu|npu|hip|xpu|hpu)[\w -]* (?:was |were |is )?(?:detected|found|available)",
            r"\b<device>\b(?!\W{1,4}(?:error\W{1,3})?\w*(?:nvcc|toolkit|lib|home|compiler))"
            r".{0,40}\b(?:not (?:detected|found)|disappeared|missing from)",
        ),
    ),
    Subject(
        "dataloader_killed",
        plain=(
            r"\bencountered in worker\b",
            r"\bdata ?loader\b.{0,40}\bworker\b.{0,60}\b(?:killed|exited|died|bus error|signal)",
        ),
    ),
    Subject(
        "storage_error",
        plain=(
            r"\b<filesystem>\b.{0,100}\b<trouble>",
            r"\b(?:ext[234]|xfs|btrfs|zfs)(?:-fs)?\b.{0,60}\b(?:errors?|corrupt\w*|shut\w*)\b",
            r"\bdisk\b.{0,20}\b(?:failure|failed|errors?|died|offline)\b",
        ),
    ),
    Subject(
        "node_failure",
        plain=(
            r"\bnodes?\b(?: [\w.:/-]+)?(?: \([^)]*\))? <state><lost>\b",
            r"\bnode[ _-]?(?:not ?ready|failure|failed|lost|died|dead)\b",
            r"\bnodes?\b(?: [\w.:/-]+)? (?:it was running on )?(?:is|was|has|went) (?:dead|died|timed out|gone|lost"
            r"|unresponsive)\b",
            r"\bnodenotready\b",
            r"\bkubelet stopped posting",
            r"\blost (?:contact|connection|communication) (?:with|to) (?:a |the )?(?:remote )?(?:node|host|machine"
            r"|worker node|daemon|executor)",
            r"\blost contact with\b",
            r"\bprolog(?:ue)? (?:has )?failed\b",
            r"\bheart ?beats?\b.{0,30}\b(?:lost|missed|missing|timeout|timed out)",
            r"\bmissed (?:too many )?heart ?beats?",
            r"\bkernel panic\b",
            r"\bcritical temperature\b|\boverheat\w*|\bthermal (?:trip|shutdown)\b|\bpower supply\b.{0,30}\bfail\w*",
            r"\bhost (?:[\w.-]+ )?(?:is |went )?(?:down|unreachable|rebooted)\b",
            r"\b(?:broker|daemon|agent|slurmd|raylet|kubelet)\b.{0,40}\b<lost>",
        ),
    ),
    Subject(
        "preempted",
        plain=(
            r"\bpreempt(?:ed|ing)?\b|\bpreemption\b(?!:| victims?\b| is not)",
            r"\b(?:killed|cancell?ed|deleted|stopped) by (?:its )?(?:the )?(?:owner|user|admin\w*|operator)\b",
            r"\b(?:allocation|reservation|lease) (?:has )?(?:expired|ended)\b",
            r"\b(?:insufficient|not enough|no|out of|(?:not|n't) have (?:enough|sufficient)"
            r"|unable to provision)\b.{0,40}\bcapacity\b",
            r"\binsufficient(?:instance)?capacity\b|\bresource_pool_exhausted|\bdoes not have enough resources available",
            r"\bevicteddueto\w+|\bmark(?:ed|ing) for deletion\b",
            r"\bspot\b.{0,40}\b(?:interrupt\w*|terminat\w*|reclaim\w*|notice)",
            r"\bevict(?:ed|ion|ing)\b",
            r"\breclaimed\b",
            r"\b(?:time|wall[- ]?time|wall[- ]?clock|run)[- ]?(?:time)?[- ]?limit\b",
            r"\b(?:maximum )?(?:execution|run|elapsed?) ?time\b.{0,20}\bexceeded\b",
            r"\bwalltime\b.{0,30}\b(?:exceed\w*|reached)\b",
            r"\bdue to time\b",
            r"\bexceed\w*\b.{0,30}\b(?:wall|run|wall ?clock) ?time",
            r"\bcancell?ed (?:at|by|due|from)\b",
            r"\bjob\b.{0,40}\b(?:was |been |is )?(?:cancell?ed|deleted|requeued|suspended)\b",
            r"\bscheduled maintenance",
            r"\bmaintenance (?:event|window)",
            r"\bterm_runlimit\b",
            r"\breceived sigterm\b",
            r"\bsigterm (?:received|caught)",
            r"\bkeyboard ?interrupt\w*",
            r"\b(?:got|received|caught)\b.{0,30}\b(?:signal[ :=]*(?:1|2|15)\b|sighup|sigint|sigterm)",
            r"\bterminated by (?:user|admin\w*|scheduler)",
            r"(?<!status: )(?<!code: )\bdeadlineexceeded\b(?!, message)",  # gRPC calls a time-out so
        ),
        vague=(
            r"^(?:[^:]{0,40}: *){0,3}(?:\d+ +)?terminated\W*$",
            r"\bsigterm\b",
            r"\bsignal[ :=]*15\b",
            r"\bexit ?(?:code|status)?[ :=]*(?:143\b|-15\b)",
            r"\bcancell?ed\b",
        ),
    ),
    Subject(
        "nccl_remote_error",
        plain=(
            r"\b[nhr]ccl\b.{0,80}\b(?:remote (?:process|peer|error)|connection closed|closed by|peer (?:exited|died|failed))",
            r"\b[nhr]ccl\b.{0,80}\bunhandled system error",
            r"ncclremoteerror",
            r"\banother (?:task|worker|rank|process)(?: has)? (?:died|failed|exited)",
            r"ncclsystemerror",
            r"\bconnection closed by remote peer\b",
            r"\b(?:peer|remote) (?:rank|process|worker)\b.{0,40}\b(?:exited|died|failed|closed|gone|lost)",
        ),
    ),
    Subject(
        "nccl_timeout",
        plain=(
            r"\b<collective>\b.{0,120}\btime[ds]?[ -]?out",
            r"\btim(?:ed|ing|e|es)[ -]?out\b.{0,80}\b<collective>\b",
            r"\btimes? out\b.{0,160}\bremote rank",
            r"\btime[ds]?[ -]?out\b.{0,60}\brank\b",
            r"\bquorum\b.{0,80}\b(?:time[ds]?[ -]?out|failed|deadline)",
            r"\b(?:waiting for|lost) (?:the )?(?:peers|ranks)\b.{0,20}\btime[ds]?[ -]?out",
            r"\bcollective\b.{0,40}\b(?:stuck|hang|mismatch|desync)",
        ),
    ),
    Subject(
        "hang",
        plain=(
            r"\bstalled (?:ops?|ranks?|tensors?)\b",
            r"\bmissing ranks\b",
            r"\b(?:has|have) been waiting for\b.{0,80}\b\d+ ?(?:s|sec|seconds|min|minutes)\b",
            r"\bwaiting for (?:remainder|the other|other|all|missing) (?:of )?(?:ranks|workers|peers|processes)",
            r"\bdid not (?:get|receive)\b.{0,30}\bheart ?beats?\b",
            r"\b(?:no|without|lacks?) progress (?:for|in|since)\b",
            r"\bdeadlock\b",
            r"\bhang (?:detected|check)",
            r"\b(?:job|training|process|worker|rank \d+|step) (?:is |has been |seems )?(?:hung|stuck|stalled|hanging)\b",
        ),
    ),
    Subject(
        "connection_error",
        plain=(
            r"拒绝连接|连接被拒绝|连接超时|无法连接|\bverbindungsaufbau abgelehnt|connexion refusée",
            r"\bcould(?: not|n't) connect\b",
            r"\becon(?:nrefused|nreset|naborted)\b|\be(?:host|net)unreach\b|\betimedout\b",
            r"\bconnection (?:attempt |communication )?fail(?:ed|ure)|\bcommunication (?:connection )?failure",
            r"\bfailed to (?:fetch|download|pull)\b",
            r"\btemporary failure (?:in|resolving)",
            r"\brate limit|\btoo ?many ?requests\b|\breduce your request rate",
            r"\b(?:server|service|endpoint|engine|router)\b.{0,40}\b(?:is not healthy|not (?:become )?(?:ready"
            r"|healthy)|did not start)\b",
            r"\bpeer\b.{0,40}\bdisconnected\b|\bdisconnected\b.{0,40}\b(?:peer|socket|server|client)\b",
            r"\bgateway time-?out",
            r"\b(?:status|code)[ =:]+(?:statuscode\.)?deadline_?exceeded\b",
            r"\bincompleteread\b",
            r"\bconnection (?:was |has been |is |to \S+ )?(?:refused|reset|time[ds]?[ -]?out|aborted|lost|closed)",
            r"\btime[ds]? ?out (?:trying to |while |when )?(?:connect|reach|contact)\w*",
            r"\btoo many (?:clients|connections)\b|\bno such host\b|:\d{2,5}: timed out\b|\benotfound\b",
            r"\berror while dialing\b|\bdial tcp\b|\bname or service not known\b|\bunknown ?host\w*",
            r"\bconnecttimeout",
            r"\bbroken pipe\b|\b(?:link|connection|channel|socket|stream) (?:is|was) broken\b",
            r"\b(?:could not|failed|unable|cannot|can't) (?:to )?(?:connect|reach|resolve|contact|establish|communicate)",
            r"\bname resolution\b",
            r"\bgetaddrinfo\b",
            r"\btemporary failure in name",
            r"\bcould not resolve\b",
            r"\bnetwork error \(",
            r"\bmax retries exceeded",
            r"\bread timed out",
            r"\b(?:http|https|status)\b.{0,30}\b(?:429|50[0234])\b",
            r"\bssl\b.{0,40}\b(?:error|failed|eof)",
            r"\bcertificate verify failed",
            r"\btls handshake",
            r"\baddress already in use",
            r"\beaddrinuse\b",
            r"\bsocket\b.{0,60}\b(?:timed out|closed|reset)",
            r"\brpc (?:error|failed)",
            r"\bsocket closed\b",
            r"\bunable to complete a tcp connection",
            r"\btcp connection\b.{0,30}\bfail",
            r"\b(?:service|endpoint|host|server) (?:is )?unavailable",
            r"\bstatus ?code\W{0,3}unavailable",
        ),
    ),
    Subject(
        "network_error",
        plain=(
            r"\b<fabric>\b.{0,100}\b(?:down|exceeded|unreachable|flap\w*"
            r"|async(?:hronous)? event|time(?:d )?out|fail(?:ed|ure)|error)\b",
            r"\btransport retry",
            r"\bretry (?:count )?exceeded\b.{0,60}",
            r"\bno (?:usable |suitable )?(?:socket|network) interface",
            r"\bnetwork is unreachable",
            r"\bno route to host",
            r"\blink (?:is |status )?(?:definitely )?down\b",
            r"\bpacket loss\b",
            r"\b(?:uplink|downlink|link|port)\b.{0,40}\bwent down\b|\bdropped out of the fabric\b",
            r"\bcompletion (?:from peer \S+ )?with (?:error|status=[1-9]\d*)\b",
            r"\b(?:links?|ports?|nics?|interfaces?)(?: [\w/.:-]+)?:? (?:is|are|was|went|state:?|status:?|currently"
            r"|now| )*\bdown\b",
            r"\bstate: down\b|\blink (?:failures?|flap\w*)\b|\bdestination is unreachable\b",
            r"\b(?:modify|create|destroy)\w* (?:the )?(?:qp|queue pair)\b.{0,40}\bfail|\bfail\w* to (?:modify"
            r"|create) (?:the )?(?:qp|queue pair)",
        ),
    ),
    Subject(
        "storage_error",
        plain=(
            r"\bno space left\b",
            r"\bdisk (?:is )?full\b|\b(?:not enough|insufficient|out of) (?:free )?(?:disk )?space\b",
            r"\bcould not obtain block\b|\bmissing blocks?\b",
            r"\bquota (?:exceeded|reached)",
            r"\bdisk quota\b",
            r"\binput/output error",
            r"\bi/o error",
            r"(?<!fatal )\bio error\b",
            r"\bstale (?:nfs )?file handle",
            r"\bread-only file ?system",
            r"\b(?:fuse|csi|s3(?!\.\w)|gcs bucket)\b.{0,100}\b<trouble>",
            r"\bfailed(?:attach|mount|map)\w*",
            r"\bmount(?:volume|ing|device)?\b.{0,60}\bfail\w*|\bfail\w* to mount\b",
            r"\btransport endpoint is not connected\b",
            r"\bslowdown\b",
            r"\bfile write failed",
            r"\bfail\w* (?:to write|writing)\b",
            r"\b(?:short|partial) write",
            r"\bwrite error\b",
            r"\bbuffer i/o",
            r"\bnvme\d.{0,60}\b(?:error|timeout|reset|abort)",
            r"\bblocked for more than \d+ seconds",
            r"\bchecksum (?:error|mismatch)",
            r"\benospc\b",
            r"\bedquot\b",
            r"\bestale\b",
        ),
    ),
    Subject(
        "permission_error",
        plain=(
            r"权限不够|没有权限|拒绝访问|\bkeine berechtigung\b|permission non accordée|отказано в доступе",
            r"\bpermission denied\b",
            r"\baccess (?:is )?denied",
            r"\bnot permitted\b",
            r"\bforbidden\b",
            r"\bunauthori[sz]ed\b",
            r"\bnot authori[sz]ed\b",
            r"\beacces\b",
            r"\beperm\b",
            r"\bauthentication failed",
            r"\binvalid (?:token|credentials|api key)",
            r"\bgated repo",
            r"\blicen[sc]e\b.{0,40}\b(?:fail\w*|denied|expired|not available|invalid)\b",
            r"\b(?:error|status|http|code)\W{0,3}40[13]\b",
            r"\bdoes not have\b.{0,60}\b(?:access|permissions?)\b",
            r"\bhost key verification failed|\bterminal prompts disabled|\bcould not read username",
        ),
    ),
    Subject(
        "import_error",
        plain=(
            r"\bno module named\b",
            r"\bcannot import\b",
            r"\bundefined symbol\b",
            r"\bcannot open shared object",
            r"\b(?:shared )?librar(?:y|ies)\b.{0,40}\b(?:not found|missing|not load\w*)",
            r"\bversion .?glibc",
            r"\bmodulenotfound",
            r"\bclassnotfound",
            r"\bnoclassdeffound",
            r"\bunsupported class version",
            r"\bfailed building wheel",
            r"\bno matching distribution",
            r"\bcould not find a version\b|\bno solution found when resolving|\bresolution ?impossible\b",
            r"\brequires a different python\b|\bpackages? (?:are|is|was|were|could)? ?not (?:available|be found|found)\b",
            r"\bpackages ?not ?found\w*|\bunable to locate (?:package|a modulefile)\b|\bmodule\(s\) are unknown\b",
            r"\bcan(?:no|')t (?:locate|find) (?:module|package|\S+\.pm|-l\w+)",
            r"\bno package called\b|\bpackage or namespace load failed\b",
            r"\bconda environment\b|\benvironmentnamenotfound\b",
        ),
    ),
    Subject(
        "syntax_error",
        plain=(
            r"\bsyntax ?error\b",
            r"\bunexpected (?:token|indent|end of (?:file|input)|eof)\b(?! in (?:the )?archive)",
            r"\bwas not declared in this scope\b",
            r"\binvalid syntax\b",
            r"\bparse error\b",
        ),
        vague=(r"\bcompilation (?:aborted|terminated|failed)\b",),
    ),
    Subject(
        "argument_error",
        plain=(
            r"\bunrecogni[sz]ed (?:argument|option|flag|parameter)",
            r"\b(?:unknown|invalid|illegal|unexpected|bad) (?:command[- ]line )?(?:argument|option|flag|choice|parameter)s?\b",
            r"\bmissing (?:required )?(?:argument|option|parameter|field|key)s?\b",
            r"\bthe following arguments are required",
            r"\b(?:no such option|flag provided but not defined)",
            r"\bconfig(?:uration)?\b.{0,40}\b(?:is )?(?:invalid|wrong|error|missing|not valid)",
            r"\binvalid (?:configuration|config|value for)",
            r"\bmutually exclusive\b",
            r"\b(?:could not find|missing|no) (?:the )?required (?:keyword|parameter|option|argument|key|field|setting)s?\b",
            r"\bunused parameter\b|\bunknown (?:keyword|setting)\b|\binvalid option name\b",
        ),
    ),
    Subject(
        "file_not_found_error",
        plain=(
            r"没有那个文件或目录|(?:文件|目录|路径)\S{0,40}(?:不存在|找不到|未找到)"
            r"|(?:找不到|无法打开|未找到)(?:文件|目录|路径)",
            r"\bdatei (?:oder verzeichnis )?nicht gefunden|aucun fichier ou dossier|нет такого файла",
            r"\bno such file\b",
            r"\bfile (?:[\w./~-]+ )?(?:was |is |could )?not (?:be )?found",
            r"\bunable to find (?:the )?(?:specified )?(?:executable|file|image|program|command)",
            r"\b(?:could ?n[o']t|could not|can't) (?:open|find|stat|access|locate) (?:the )?"
            r"(?:image|(?:\w+ )?file|path|directory|folder|/)",
            r"\bfile\b.{0,120}\b(?:it )?does(?: not|n't) exist\b",
            r"\bno rule to make target\b",
            r"\b404 not found\b|\bmanifest unknown\b",
            r"\bmissing (?:\w+ )?file\b",
            r"\b(?:file|path|directory|folder) .{0,120}\bdoes(?: not|n't) exist",
            r"\bcannot (?:open|find|stat|access)\b",
            r"\benoent\b",
            r"\bcan't open file",
            r"\bcommand not found\b",
            r"\bexecutable file not found",
            r"\bnosuchkey\b",
        ),
    ),
    Subject(
        "model_loading_error",
        plain=(
            r"\b(?:load\w*|restor\w*|read\w*|deseriali\w*|resum\w*|pars\w*|import\w*)\b.{0,60}\b<model>\b",
            r"\b<model>\b.{0,20}\b(?:loading|parsing|import|conversion) (?:has )?failed\b|\bpars\w* model failed\b",
            r"\b(?:checkpoint|safetensors|state_?dict)\b.{0,60}\b(?:corrupt\w*|invalid|mismatch|missing|incomplete|truncated)",
        ),
    ),
    Subject(
        "dataset_loading_error",
        plain=(
            r"\b(?:load\w*|read\w*|open\w*|prepar\w*|pars\w*|decod\w*)\b.{0,60}\b<data>\b",
            r"\bcorrupt(?:ed)? (?:records?|samples?|images?)\b|\bcannot identify image\b|\bunexpected end of data\b",
            r"\bno (?:\w+ )?(?:images|samples|examples|records|documents|shards|data files|training data)\b"
            r" (?:\w+ ){0,2}(?:found|left|in|under|at)\b",
            r"\btruncated (?:file|image|record)\b|\binvalid data found when processing input\b",
            r"\b(?:dataset|shard|parquet|jsonl|tfrecord)\b.{0,60}\b(?:corrupt\w*|invalid|missing|empty|truncated|malformed)",
        ),
    ),
    Subject(
        "index_error",
        plain=(
            r"\b(?:index|idx\w*|srcindex|subscript)\b.{0,80}\b(?:out of (?:range|bounds)|failed)",
            r"\bassertion .{0,4}\w*(?:index|idx)",
            r"\bindex ?out ?of ?(?:range|bounds)",
            r"indexoutofbounds",
            r"\bboundserror\b",
        ),
    ),
    Subject(
        "key_error",
        plain=(r"\(keyerror\)", r"\bkeyerror[(:]", r"\bkey not found\b", r"\bkey \S+ (?:was |is )?not found\b"),
    ),
    Subject(
        "assertion_error",
        plain=(
            r"\bassert(?:ion|ionerror)?\b.{0,200}\bfail\w*",
            r"\bassert(?:ion)?_?error\b",
            r"\bcheck failed ?:",
            r"\binternal ?compiler error",
        ),
    ),
    Subject(
        "native_crash",
        plain=(
            r"\bsegmentation fault",
            r"\bsegfault\b",
            r"\bsig(?:segv|abrt|bus|ill|fpe)\b",
            r"\bcore dumped\b",
            r"\bsignal[ :=]*(?:4|6|7|8|11)\b",
            r"\billegal instruction",
            r"\bbus error\b",
            r"\bdouble free",
            r"\bstack smashing",
            r"\bheap corruption",
            r"\bnil pointer",
            r"\bnull ?pointer\w*",
            r"\bterminate called",
            r"\binvalid memory address",
            r"\bgeneral protection fault",
            r"\baccess violation",
            r"\bbuffer overflow detected\b|\baddresssanitizer\b|\bheap-use-after-free\b|\bcode=dumped\b",
            r"\bexit ?(?:code|status)\W{1,3}(?:-6|-11|-7|134|135|136|139)\b",
        ),
        vague=(
            r"\bpanic(?:ked)?\b",
            r"(?<!compilation )(?<!-)\baborted\W*(?:\(core dumped\)\W*)?$",
        ),
    ),
    Subject(
        "zero_division_error",
        plain=(
            r"\bdivi(?:sion|ded?) by zero",
            r"\binteger divide by zero",
            r"\barithmeticexception",
        ),
    ),
    Subject(
        "name_error",
        plain=(
            r"\bunbound variable\b",
            r"\bname '\w+' is not defined\b",  # a logger printed the exception without its class
            r"\b(?:local|free) variable '\w+' referenced before assignment",
            r"\bcannot access (?:local|free) variable '\w+'",
            r"\bundefvarerror\b",
            r"\b(?:unrecognized|undefined) (?:function or )?variable\b|\bobject '\w+' not found\b",
            r"\bundefined (?:function|identifier|local variable)\b|\breferenceerror\b",
            r"^(?:\S+: )?(?:error: )?'[\w.]+' undefined\b",
        ),
    ),
    Subject(
        "attribute_error",
        plain=(
            r"\bobject has no attribute '",
            r"\bmodule '[\w.]+' has no attribute '",
            r"\bundefined method\b|\(nomethoderror\)",
            r"\battempt to (?:index|call)\b.{0,60}\(a nil value\)",
        ),
    ),
    Subject(
        "type_error",
        plain=(
            r"\b\w+\(\) (?:got an unexpected keyword argument|missing \d+ required (?:positional|keyword))",
            r"\bobject is not (?:callable|iterable|subscriptable)\b",
            r"\bunsupported operand type",
            r"\btype ?mismatch|\bmismatched types?\b",
            r"\bcannot (?:convert|cast)\b",
            r"\bclasscastexception",
            r"\bincompatible types?\b",
            r"\bexpected type\b",
        ),
    ),
    Subject(
        "cuda_error",
        plain=(
            r"\bnvrm: xid\b",
            r"\b(?:cuda_error_|hip_error|hiperror|cuda_error|cudaerror|musa_error|musaerror|cnrt_ret_err|mu_error)\w+",
            r"\bxid\b.{0,30}\d",
            r"\b(?:illegal|invalid) (?:memory access|device function|address during)\b|\b(?:unspecified )?launch ?failure\b"
            r"|\bmisaligned address\b",
            r"\bai ?core\b.{0,20}\bexception\b|\bengine reset\b|\bring [\w.]+ timeout\b|\bdevice[_ ]?lost(?:error)?\b",
            r"gpus?_?unhealthy|\b<device>\b.{0,40}\b(?:unhealthy|not operational|inoperable|not ready)\b"
            r"|\bdevice is not operational\b",
            r"\b(?:<device>|driver|device)\b.{0,60}\b(?:error|fault|exception|reset|hang|hung|timeout|abnormal)",
        ),
        vague=(
            r"(?<![\w/.'\"-])<device>(?![\w/.'\"=-])",
            r"\bdevices?\b",
            r"\bdrivers?\b",
        ),
    ),
    Subject(
        "host_out_of_memory",
        vague=(
            r"\bsigkill\b",
            r"\bsignal[ :=]*9\b",
            r"\bexit ?(?:code|status)\W{1,3}(?:-9|137)\b",
            r"(?:^|\s)killed\W*$",
        ),
    ),
)


_NAME = re.compile(r"<([a-z]+)>")


def whole(words: str) -> str:
    """``words`` of a subject as a regular expression."""
    return _NAME.sub(lambda found: _WORDS[found[1]], words)


@functools.cache
def _vocabulary() -> tuple[Vocabulary, tuple[About, ...]]:
    """All words, plain ones first; and what each says."""
    words = [(About(one.reason, True), word) for one in SUBJECTS for word in one.plain]
    words += [(About(one.reason, False), word) for one in SUBJECTS for word in one.vague]
    return Vocabulary([whole(word) for _, word in words]), tuple(told for told, _ in words)


@remembered
def about(body: str) -> About | None:
    """What the words of a line are about: a plain subject, else a vague one, else None."""
    vocabulary, told = _vocabulary()
    first = next(vocabulary.found(body[:MOST]), None)
    return told[first] if first is not None else None
