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

MOST: Final = 600
"""only so many characters of a line are read"""

_WORDS: Final = {
    # "GPU hours" is a price, not a device.
    "device": r"(?:cuda|gpus?(?!-?(?:hours?|days?|h)\b)|npus?|hpus?|tpus?|xpus?|mlus?|gcus?|dcus?|accelerators?"
    r"|rocm|hip|hbm|vram|cann|neuron(?:core)?s?)",
    "collective": r"(?:[nhrxom]?ccl|gloo|collectives?|all[_-]?(?:reduce|gather|to[_-]?all)|reduce[_-]?scatter|broadcast|barrier"
    r"|process ?group\w*|communicator|rendezvous|watchdog)",
    "fabric": r"(?:infiniband|roce|rdma|mlx[45]\w*|ib\d|hcas?|ibv_\w+|verbs|qps?|queue pair|ucx|uct|ucp|ofi|libfabric|efa"
    r"|psm[23]|hfi\d?|nics?|eth\d+|bond\d+|en[ops]\w*\d\w*|fabric|subnet manager|switch port|transport|net/ib)",
    "filesystem": r"(?:nfs|lustre|lustreerror|gpfs|mmfs|beegfs|ceph\w*|weka\w*|juicefs|ost\d*|mdt\d*)",
    "lost": r"(?:lost|gone|dead|died|down|unreachable|unresponsive|not respond\w*|no response|not ready|unhealthy"
    r"|failed|failure)",
    "trouble": r"(?:not responding|failed|error|lost|timed out|timeout|unavailable|evicted|disconnected|refused)",
    "state": r"(?:(?:is|are|was|were|has|have|went|status is now:?) )?(?:been )?(?:marked )?(?:as )?",
    "numbers": r"(?:loss|grad(?:ient)?s?(?:[ _]norms?)?|activations?|logits)",
    "model": r"(?:checkpoints?|models?|weights|state_?dict|safetensors|tokenizer|pretrained)",
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
            r"\bnan (?:loss|grad\w*)\b",
        ),
    ),
    Subject(
        "host_out_of_memory",
        plain=(
            r"oom[-_ ]?kill",
            r"\boomkilled\b",
            r"\bout[- ]of[- ]memory:? (?:handler|killer|killed)",
            r"\bkill(?:ed|ing)\b.{0,60}\b(?:out of|low on|memory)\b.{0,20}memory",
            r"\bmemory cgroup\b",
            r"\bmemory\b.{0,30}\b(?:limit|limits|threshold)\b.{0,20}\b(?:exceeded|reached)",
            r"\bexceed\w*\b.{0,40}\bmemory limits?",
            r"low on memory",
            r"\bcannot allocate memory\b",
            r"\bstd::bad_alloc\b",
            r"\bhost memory\b.{0,30}\b(?:exhausted|full|failed)",
            r"java\.lang\.outofmemoryerror",
            r"\benomem\b",
            r"\bmemory (?:usage|pressure)\b.{0,40}\bkill",
        ),
    ),
    Subject(
        "out_of_memory",
        plain=(
            r"\b<device>\b.{0,60}\bout of memory",
            r"\bout of (?:<device>|device|<device> device|video|graphics) memory",
            r"\bout of memory\b.{0,60}\b(?:<device>|device)\b",
            r"\bresource_?exhausted\b.{0,60}\b(?:alloc\w*|memory|hbm|oom)",
            r"\b(?:failed|unable|could not|cannot) to allocate\b.{0,60}\b(?:bytes|[kmgt]i?b|tensor|device|buffer)",
            r"\boutofmemory(?:error)?\b",
            r"\bdevice memory\b.{0,30}\b(?:exhausted|full|alloc\w*)",
        ),
        vague=(
            r"\bout of memory\b",
            r"\boom\b",
            r"\bmemory exhausted\b",
        ),
    ),
    Subject(
        "nvlink_error",
        plain=(
            r"(?:\b|_)nv-?(?:link|switch)",
            r"\b(?:xgmi|sxid|hccs|fabric ?manager)\b",
        ),
    ),
    Subject(
        "ecc_error",
        plain=(
            r"\becc\b",
            r"\buncorrectable\b",
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
        "gpu_fell_off_bus",
        plain=(
            r"\bfall(?:en)? off the bus",
            r"\bfell off the bus",
            r"\b<device>\b.{0,30}\b(?:is|has been|was) lost\b",
            r"\bunable to determine the device handle",
            r"\bpcie?\b.{0,40}\b(?:link down|surprise|bus error|fatal error|uncorrected)",
            r"\bno (?:cuda|gpu|npu|hip|xpu|hpu)[\w -]* (?:was |were |is )?(?:detected|found|available)",
            r"\b<device>\b.{0,40}\b(?:not (?:detected|found)|disappeared|missing from)",
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
        "node_failure",
        plain=(
            r"\bnodes?\b(?: [\w.:/-]+)?(?: \([^)]*\))? <state><lost>\b",
            r"\bnode ?(?:not ?ready|failure|failed|lost)\b",
            r"\bnodenotready\b",
            r"\bkubelet stopped posting",
            r"\blost (?:contact|connection|communication) (?:with|to) (?:the )?(?:node|host|machine|worker node)",
            r"\bheart ?beats?\b.{0,30}\b(?:lost|missed|missing|timeout|timed out)",
            r"\bmissed (?:too many )?heart ?beats?",
            r"\bkernel panic\b",
            r"\bhost (?:[\w.-]+ )?(?:is |went )?(?:down|unreachable|rebooted)\b",
            r"\b(?:broker|daemon|agent|slurmd|raylet|kubelet)\b.{0,40}\b<lost>",
        ),
    ),
    Subject(
        "storage_error",
        plain=(r"\b<filesystem>\b.{0,100}\b<trouble>",),
    ),
    Subject(
        "preempted",
        plain=(
            r"\bpreempt(?:ed|ion|ing)\b",
            r"\bspot\b.{0,40}\b(?:interrupt\w*|terminat\w*|reclaim\w*|notice)",
            r"\bevict(?:ed|ion|ing)\b",
            r"\breclaimed\b",
            r"\b(?:time|wall[- ]?time|wall[- ]?clock|run)[- ]?(?:time)?[- ]?limit\b",
            r"\bwalltime\b.{0,30}\bexceed\w*",
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
            r"\bdeadlineexceeded\b",
        ),
        vague=(
            r"(?:^|[\s\\])terminated\W*$",
            r"\bsigterm\b",
            r"\bsignal[ :=]*15\b",
            r"\bexit (?:code|status) 143\b",
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
            r"\bcollective\b.{0,40}\b(?:stuck|hang|mismatch|desync)",
        ),
    ),
    Subject(
        "hang",
        plain=(
            r"\bstalled (?:ops?|ranks?|tensors?)\b",
            r"\bmissing ranks\b",
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
            r"\bcould(?: not|n't) connect\b",
            r"\bgateway time-?out",
            r"\bincompleteread\b",
            r"\bconnection (?:was |has been |is |to \S+ )?(?:refused|reset|timed[ -]?out|aborted|lost|closed)",
            r"\bconnecttimeout",
            r"\bbroken pipe\b",
            r"\b(?:could not|failed|unable|cannot|can't) (?:to )?(?:connect|reach|resolve|contact|establish)",
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
            r"\bcompletion (?:from peer \S+ )?with error\b",
        ),
    ),
    Subject(
        "storage_error",
        plain=(
            r"\bno space left\b",
            r"\bdisk (?:is )?full\b",
            r"\bquota (?:exceeded|reached)",
            r"\bdisk quota\b",
            r"\binput/output error",
            r"\bi/o error",
            r"\bio error\b",
            r"\bstale (?:nfs )?file handle",
            r"\bread-only file ?system",
            r"\b(?:fuse|csi|s3|gcs bucket)\b.{0,100}\b<trouble>",
            r"\bfailed(?:attach|mount|map)\w*",
            r"\bmount(?:volume|ing|device)?\b.{0,60}\bfail\w*",
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
        ),
    ),
    Subject(
        "syntax_error",
        plain=(
            r"\bsyntax ?error\b",
            r"\bunexpected (?:token|indent|end of (?:file|input)|eof)\b",
            r"\binvalid syntax\b",
            r"\bparse error\b",
        ),
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
        ),
    ),
    Subject(
        "file_not_found_error",
        plain=(
            r"\bno such file\b",
            r"\bfile (?:was |is )?not found",
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
            r"\b(?:load\w*|restor\w*|read\w*|deseriali\w*|resum\w*)\b.{0,60}\b<model>\b",
            r"\b(?:checkpoint|safetensors|state_?dict)\b.{0,60}\b(?:corrupt\w*|invalid|mismatch|missing|incomplete|truncated)",
        ),
    ),
    Subject(
        "dataset_loading_error",
        plain=(
            r"\b(?:load\w*|read\w*|open\w*|prepar\w*|pars\w*|decod\w*)\b.{0,60}\b<data>\b",
            r"\b(?:dataset|shard|parquet|jsonl|tfrecord)\b.{0,60}\b(?:corrupt\w*|invalid|missing|empty|truncated|malformed)",
        ),
    ),
    Subject(
        "index_error",
        plain=(
            r"\b(?:index|idx\w*|srcindex|subscript)\b.{0,80}\b(?:out of (?:range|bounds)|failed)",
            r"\bassertion .{0,4}\w*(?:index|idx)",
            r"\bindex ?out ?of ?(?:range|bounds)",
            r"\bindexoutofbounds",
            r"\bboundserror\b",
        ),
    ),
    Subject(
        "assertion_error",
        plain=(
            r"\bassert(?:ion|ionerror)?\b.{0,200}\bfail\w*",
            r"\bassert(?:ion)?_?error\b",
            r"\bcheck failed\b",
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
            r"\bexit ?(?:code|status)\W{1,3}(?:-6|-11|-7|134|135|136|139)\b",
        ),
        vague=(
            r"\bpanic(?:ked)?\b",
            r"\baborted\b",
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
            r"\bname '\w+' is not defined\b",  # a logger printed the exception without its class
            r"\b(?:local|free) variable '\w+' referenced before assignment",
            r"\bcannot access (?:local|free) variable '\w+'",
            r"\bundefvarerror\b",
        ),
    ),
    Subject(
        "attribute_error",
        plain=(r"\bobject has no attribute '", r"\bmodule '[\w.]+' has no attribute '"),
    ),
    Subject(
        "type_error",
        plain=(
            r"\b\w+\(\) (?:got an unexpected keyword argument|missing \d+ required (?:positional|keyword))",
            r"\bobject is not (?:callable|iterable|subscriptable)\b",
            r"\bunsupported operand type",
            r"\btype ?mismatch",
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
            r"\bxid\b.{0,30}\d",
            r"\b(?:<device>|driver|device)\b.{0,60}\b(?:error|fault|exception|reset|hang|hung|timeout|abnormal)",
        ),
        vague=(
            r"\b<device>\b",
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


@functools.cache
def _compiled() -> tuple[tuple[str, re.Pattern[str] | None, re.Pattern[str] | None], ...]:
    def made(words: tuple[str, ...]) -> re.Pattern[str] | None:
        if not words:
            return None
        return re.compile(_NAME.sub(lambda found: _WORDS[found[1]], "|".join(words)), re.IGNORECASE)

    return tuple((one.reason, made(one.plain), made(one.vague)) for one in SUBJECTS)


_NAME = re.compile(r"<([a-z]+)>")


@functools.lru_cache(8192)
def about(body: str) -> About | None:
    """What the words of a line are about: a plain subject, else a vague one, else None."""
    text = body[:MOST]
    for reason, plain, _ in _compiled():
        if plain is not None and plain.search(text):
            return About(reason, True)
    for reason, _, vague in _compiled():
        if vague is not None and vague.search(text):
            return About(reason, False)
    return None
