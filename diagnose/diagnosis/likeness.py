"""Line -> whether it sounds like a failure, in any language. No rule needs to know the line.

General signs count: a logger's level, the name of an exception, an exit status, words of failure. General signs also take it
back: a level that every line of the source carries, a count of zero, a list of possible causes, a hint, an interpreter's
warning.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from diagnose.diagnosis.vocabulary import Sought, Vocabulary, Words, alternatives, small
from diagnose.matching.databases import core
from diagnose.memory import remembered

HEAD: Final = 100
"""a logger's level is looked for in so many characters"""


def _letter(letters: str) -> str:
    """A level of one letter: before the file that printed the line (TensorFlow, XLA), or before the numbers of the process and
    the thread (Ray)."""
    return rf"|\b[{letters}] (?=[\w./-]+\.(?:cc|cpp|cu|c|h|hpp|go|rs|py):\d+\])|\d [{letters}] (?=\d+ \d+\])"


_CLOCK = r"^\W?(?:\d{4}[-/]\d\d[-/]\d\d[T ])?\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z| ?[-+]\d\d:?\d\d)?\W{1,4}"
"""a line that begins with its time: there a level may be written small"""
_FATAL_LEVEL = re.compile(
    r"\b(?:FATAL|CRITICAL|EMERG(?:ENCY)?|PANIC|SEVERE)\b|^\W{0,3}[FC](?:\d{4}| \d{4}-\d\d-\d\d) \d\d:"
    r"|(?i:\blevel\W{1,3}(?:fatal|critical|panic)\b)|(?m:^)(?:fatal|Fatal)(?: error)?: "
    + _letter("FC")
    + rf"|{_CLOCK}(?:fatal|critical)\b(?! error)"
)
_ERROR_LEVEL = re.compile(
    r"\bERR(?:OR)?\b|^(?:\[rank\d+\]:)?\W{0,3}E(?:\d{3,4}| (?:\d{4}-)?\d\d-\d\d) \d\d:"
    r"|(?i:\blevel\W{1,3}err(?:or)?\b)|\[(?:error|err|E)\]|^(?:[\w./-]+: ){0,2}(?:error|Error): "
    r"|\.(?:err|crit|alert|emerg)\[\d+\]: |(?<![\w.])E/\w+|^error(?:\[E\d+\])?: "
    + _letter("E")
    + rf"|{_CLOCK}err(?:or)?\b(?! ?[=:]? ?\d+\.)"
)
_WARN_LEVEL = re.compile(
    r"\b(?:WARN(?:ING)?|Warning)\b|^\W{0,3}W(?:\d{3,4}| (?:\d{4}-)?\d\d-\d\d) \d\d:|(?i:\blevel\W{1,3}warn(?:ing)?\b)"
    r"|[\[<]warn(?:ing)?[\]>]"
    r"|^(?:[\w./-]+:? )?warning: " + _letter("W") + rf"|{_CLOCK}warn(?:ing)?\b"
)
_INFO_LEVEL = re.compile(
    r"\b(?:INFO(?!: (?:task \S+ blocked|rcu_))|NOTICE|DEBUG|TRACE|Normal)\b"
    r"|^\W{0,3}[ID](?:\d{3,4}| (?:\d{4}-)?\d\d-\d\d) \d\d:"
    r"|(?i:\blevel\W{1,3}(?:info|debug|notice)\b)"
    r"|[\[<](?:info|debug|notice)[\]>]|^(?:[\w./-]+: )?(?:note|Note|info): "
    + _letter("IDV")
    + rf"|{_CLOCK}(?:info|debug|trace|notice)\b"
)
_LEVELS: Final = (
    ("fatal", _FATAL_LEVEL, ("fatal", "critical", "emerg", "panic", "severe")),
    ("error", _ERROR_LEVEL, ("err", "crit", "alert", "emerg")),
    ("soft", _WARN_LEVEL, ("warn",)),
    ("info", _INFO_LEVEL, ("info", "notice", "debug", "trace", "normal", "note")),
)
"""the levels, the highest first: name, pattern, and words of which it has one, if it is not written as a single letter"""
_OF_LEVELS: Final = tuple((word, name) for name, _, words in _LEVELS for word in words)
_LEVEL_WORDS: Final = Words([word for word, _ in _OF_LEVELS])
_ONE_LETTER = re.compile(r"[A-Z](?:\d{3,4} \d\d:| (?:\d{4}-)?\d\d-\d\d \d\d:| (?=[\w./-]+:\d+\]|\d+ \d+\])|\]|/\w)")
"""stands wherever a level is a single letter"""
_GRAVE = Sought(
    r"(?i)\b(?:fatal(?:ly)?|abort(?:s|ed|ing)?|killed|crash(?:ed|es)?|unrecoverable|terminated|terminating"
    r"|panic(?:ked)?|segfault"
    r"|segmentation fault|core dumped|out of memory|evicted|preempted|cancell?ed|died|dead|unexpected error|giving up|gave up"
    r"|exiting|giving up|reclaimed|revoked|unhandled|uncaught)\b"
)
_EXCEPTION = Sought(
    r"(?<![\w/])(?:[A-Za-z_]\w*(?:\.|::)){0,20}[A-Z]\w*(?:Error|Exception|Failure|Fault|Panic|Timeout|Interrupt)\b(?=\W*(?::|$|\())"
    r"|\bpanic: |panicked at |terminate called |goroutine \d+ \[running\]|Exception in thread |ERROR: LoadError: |\bCaused by: "
    r"|\bUnhandled (?:exception|rejection)|Uncaught |\((?:[A-Za-z_]\w*(?:\.|::)){0,20}[A-Z]\w*(?:Error|Exception)\)"
)
_EXIT = Sought(
    r"(?i)\b(?:exit(?:ed|ing|s)?|(?:exit|return(?:ed)?)[ _-]?(?:code|status|value)"
    r"|(?:failed|ended|terminated|finished)(?:[ _](?:with|on|by|non-zero|error|return|exit|abnormally|due to))*"
    r"[ _](?:code|status|value|signal))\b(?:[ _](?:with|on|by|code|status|is|was|value|non-zero|error|return|exit))*"
    r"[ :=('\"]{1,4}(?P<code>-?\d{1,3})(?![\d.%/:x-])"
    r"|\b(?:killed|terminated|died|crashed|exited|ended|caught|received) (?:by|with|on|due to|from)? ?"
    r"(?:<?Signals?\.?|signal|SIG)[ :=#]?(?P<signal>\w+)|\bnon-?zero (?:exit|return|status)\b|\bexited abnormally\b"
)
_FAILS: Final = (
    r"error|errors|fail(?:s|ed|ure|ures|ing)?|fatal(?:ly)?|abort(?:s|ed|ing)?|kill(?:ed|ing)|crash(?:ed|es"
    r"|ing)?|cannot|can't"
    r"|could ?n[o']t|couldn't|unable to|unrecoverable|denied|refused|rejected|time[ds]?[ -]?out|not found|no such|invalid"
    r"|not enough|isn'?t enough|exceeds|no longer|not operational|not healthy|compromised|unbound|interruption|rate limit"
    r"|(?:is|are|was|were|went|state:?|currently|link|port) down|expires"
    r"|not responded|waiting for (?:the )?remainder|missing ranks|not up|suspended"
    r"|unreachable|corrupt(?:ed|ion)?|terminated|terminating|panic(?:ked)?|segfault|segmentation fault"
    r"|core dumped|lost|not responding"
    r"|out of (?:disk|storage|space|room)|no (?:more|free|disk) (?:space|room)|no (?:space|room) (?:is )?left"
    r"|(?:disk|drive|volume|file ?system|partition) (?:is )?full"
    r"|out[- ]of[- ]memory|oom|exceeded|insufficient|exhausted|disconnected|unavailable|unhealthy|evicted"
    r"|preempt(?:ed|ion|ing)?"
    r"|cancell?ed|interrupted|undefined|unexpected(?:ly)?|illegal|unsupported|not supported|does not exist"
    r"|doesn't exist|hung|hang"
    r"|stuck|stalled|deadlock|dead|missing|abnormal(?:ly)?|fallen off|no route to|retry count|oom[-_ ]?kill(?:er|ed)?"
    r"|blocked for more than|unresponsive|assertion|fault|revoked|expired"
    r"|reclaimed|bad|broken|died|unhandled|giving up|gave up|stopping|shutting down|not ready|notready"
    r"|(?:reset|reboot|power[- ]cycle)(?: or (?:reset|reboot|power[- ]cycle))? (?:is |are )?(?:required|needed|necessary)"
    r"|(?:requires?|needs?) (?:a |an |to be )?(?:\w+ )?(?:reset|reboot|power[- ]cycle)"
)
_FAILS_ELSEWHERE: Final = (
    r"(?-i:[a-z](?:Failed|Failure|NotReady|Evicted|Eviction|Lost|Unreachable|Deleted|Exceeded|Unhealthy"
    r"|Unschedulable|Exhausted"
    r"|Preempted|Killed|Expired|Denied|Interrupted)|OOMKilled|BackOff|[A-Z]+_Abort|SIG(?:SEGV|BUS|ABRT|ILL|FPE|KILL))\b"
    r"|(?:错误|失败|异常|无法|超时|崩溃|拒绝|中断|不存在|找不到|没有那个文件|内存不足|空间不足|已杀死|权限不够|エラー|失敗|例外が)"
    r"|\b(?:fehler|fehlgeschlagen|erreur|échec|échoué|ошибка)\b"
)
_WORDS = Vocabulary([*(rf"\b(?:{one})\b" for one in alternatives(_FAILS)), *alternatives(_FAILS_ELSEWHERE)])
HEARD: Final = (_GRAVE.whole.pattern, _EXIT.whole.pattern, rf"(?i)\b(?:{_FAILS})\b|{_FAILS_ELSEWHERE}")
"""the native core must know a beginning of whatever these find (``stems`` in ``matching/_masks.h``), or it would fold"""
_NUMBERED: Final = "".join(  # "rank 0 failed" counts nothing
    f"(?<!{noun} )"
    for noun in "rank worker node gpu process proc trial task job step attempt replica pod thread device shard case epoch"
    " iteration batch sample run episode actor stage host server client request group block partition chunk".split()
)
_NONE = re.compile(
    r"(?i)\b(?:(?:no|0|zero|without(?: any)?) (?:\w+ )?(?:errors?|failures?|problems?)"
    rf"|(?:no|{_NUMBERED}0|zero) (?:\w+ )?(?:failed|errored|xfailed))\b"
)
_IS_NONE = re.compile(
    r"(?i)\b[\w-]{0,80}(?:errors?|err|failures?|failed|fails?|errs|lost|dropped|rejected|unavailable|invalid|aborted"
    r"|exceptions?|skipped"
    r"|timeouts?|retries)\b\s*\W{0,3}[=:]\W{0,2}(?:0(?:\.0+)?|none|null|false|no|\[\]|\{\}|set\(\))(?![\w.])"
)
_A_NONE = re.compile(r"[=:]\W{0,2}(?:0|[NnFfSs]|\[\]|\{\})")
"""stands in whatever ``_IS_NONE`` finds: to look for it is many times faster"""
_AN_ERROR_RATE = re.compile(
    r"(?i)\b\w{0,80}(?:error|err|loss)\w{0,80}(?:(?: (?:is|was|of|norm|rate))?\W{1,3}|(?: [a-z]+){1,5} {0,2}= {0,4})"
    r"-?\d+\.\d+(?:e[-+]?\d+)?"
)
_A_RATE = re.compile(
    r"(?i)\b(?:\w+[ _-])?\w{1,40}[ _-](?:rate|ratio|percentage|fraction)s?\b\W{0,3}[=:]\W{0,2}\d+(?:\.\d+)?(?![\w.])"
)
"""how often something happened in what was tried: a measurement, whatever is counted"""
_ENDED_WELL = re.compile(
    r"(?i)\b(?:terminated|exit(?:ed|ing|s)?|ended|stopp(?:ed|ing)|aborted|cancell?ed|killed|interrupted|shut(?:ting)? ?down)"
    r" (?:successfully|normally|cleanly|gracefully|of (?:its|their) own accord)\b(?!,? but)"
)
_A_COUNT = re.compile(r"(?:rate|ratio|percentage|fraction)s?\W{0,3}[=:]\W{0,3}\d")
"""stands in whatever ``_A_RATE`` finds"""
_FULL_PATH = re.compile(r"(?<![\w.)/])(?:\w+:/)?/[\w.@%+=~-]+(?:/[\w.@%+=~-]*)*")
"""a path, or an address: the words in it are names"""
_NONE_IN_CHINESE = re.compile(
    r"(?:无|没有|未发现|0 ?个)(?:任何)?(?:错误|失败|异常)|(?:错误|失败|异常)\w{0,2}\s*[=:：]\s*0\b(?!\.)"
)
"""what was counted and is none, and an error that is a number: neither is a failure, nor speaks for the rest of the line"""
_NO_ERRORS: Final = "|".join(  # written out, as these words are rare, and their parts are not
    f"{what}{between}{trouble}"
    for what in "on if ignore raise fail log print max num mean test train val eval squared absolute".split()
    for between in ("", "_")
    for trouble in ("error", "failure")
)
_OF_NO_ERROR = Vocabulary(
    alternatives(
        rf"\b(?:{_NO_ERRORS})s?\b[ =:_]"
        r"|^\W*(?:[A-Za-z]+ ){0,4}(?:Errors|Failures|Faults)\W*$|\bnot an error\b"
        r"|^-- (?:performing test|looking for|check)\b|^checking (?:for|whether|if|how|the)\b"
    )
)
_NOTHING = Vocabulary(
    alternatives(
        r"\b\d+ passed\b|N/A|\bnot (?:killed|failed|lost)\b|(?:will|may|to) retry"
        r"|(?<!\bnot )(?<!\bno )\bretry(?:ing)?\b(?! (?:count\w*|limit|budget|failed|exceeded)\b)"
        r"|\brecovered\b|\bskip(?:ping|ped)?\b|\bignor(?:ed|ing)\b"
        r"|\bfall(?:ing)? ?back\b|\bdeprecat|\bdisabled?\b|\busing (?:the )?(?:default|cached)|, use (?:the )?default\b"
        r"|\bearly[ _-]?stopp(?:ing|ed)\b|\bleft out\b|\b(?:harmless|benign)\b"
        r"|\((?:not required|optional|expected|as expected|ok)\)"
        r'|- (?:\[[^\]]{1,40}\] )?"(?:GET|HEAD|POST|PUT|DELETE|PATCH|OPTIONS) [^"]*HTTP/[\d.]+"'
    )
)
_SUPPOSED: Final = (
    r"(?:possible|common|potential|likely|typical|frequent) (?:causes?|reasons?|solutions?"
    r"|fix(?:es)?)|causes? includes?"
    r"|reasons? includes?|(?:one|any|some) of the following|(?:could|may|might|can) (?:also )?(?:be"
    r"|have been|indicate|mean|happen|occur)\b"
    r"|(?:will|would) (?:likely |probably |eventually )?(?:result in|lead to|cause)\b|(?:will|would) fail (?:if|when|unless)\b"
    r"|usually|typically|often (?:caused|means|due)|commonly|for example|e\.g\.|such as"
)
_LISTED = Vocabulary([rf"\b(?:{one})" for one in alternatives(_SUPPOSED)])
_HINT = re.compile(
    r"(?i)^\W*(?:hint|tip|note|help|suggestion|solution|see(?: also)?|try|please|consider|make sure"
    r"|check (?:that|whether|if|your|the)"
    r"|you (?:can|may|might|should|must)|to (?:fix|avoid|resolve|suppress|disable|enable|install|use|run)"
    r"|if you|if the|for more"
    r"|(?:pip3?|conda|apt(?:-get)?|sudo|brew) install|run `|set the|refer to|visit|in order to|ensure)\b"
)
_BULLET = re.compile(r"^\s*(?:[-*•·]|\(?\d{1,2}[.)])\s+\S")
_WARNING = re.compile(r"\b[A-Z]\w+Warning: |:\d+: \w*Warning\b|:\d+:\d+: warning: |^\s*warnings\.warn\(")
_LIBRARY_WARNS = re.compile(
    r"^\S*/(?:site|dist)-packages/\S+\.py:\d+: (?!(?:[\w.]+\.)?\w*(?:Error|Exception)\b|(?i:fatal|error|critical)\b)"
)
"""how Lightning has warnings printed: without the name of a class"""
_QUOTED = re.compile(r"^\s*(?:#|//|>>> |\$ |\+{1,3} |raise |return |print\(|logger?\.|log\.|assert |if |elif |except |echo )")
_OVERFLOW = re.compile(r"(?i)\boverflow\b")
_WELL = re.compile(
    r"(?i)\b(?:completed|finished|done|ended|exits|exited|terminated|saved|stopped) (?:successfully|normally|cleanly|ok)\b"
    r"|\bsuccess(?:ful(?:ly)?)?\b|\bsucceeded\b|\b(?:passed|all done|bye|goodbye)\b"
    r"|\b(?:job|run|training|tasks?|tests?|experiment|work|processing|evaluation|everything|simulation|calculation|computation"
    r"|optimi[sz]ation|minimi[sz]ation|conversion|compilation|inference|generation|indexing|export|analysis|workflow|pipeline"
    r"|benchmark|fine-?tuning|pre-?training|sweep|installation|backup|transfer|upload|download)\b(?: \w+){0,2}"
    r" (?:is |are |was |has )?(?:complete[d]?|finished|done)\b"
    r"|^\W*(?:(?:\w+ )?\w+(?: \d+)?: )?(?:done|finished|completed?|ok|success)\b|\b100 ?%\)? (?:done|complete[d]?)\b"
    r"|\bnormal (?:termination|completion|exit|end)\b|\bbuilt target\b"
    r"|\bfinal (?:accuracy|loss|result|score|checkpoint|model)|\b(?:saved|wrote|written|uploaded"
    r"|synced)\b.{0,60}\b(?:to|files?)\b"
    r"|\btotal (?:time|runtime|wall)\b.{0,30}\d"
)
_UNWELL = re.compile(
    r"(?i)\b(?:not|un\w+|never|without|no) (?:been )?(?:success\w*|complete\w*|finished|done|passed|saved)\b|\bunsuccess"
    r"|\brefus"
)
_TIMES = re.compile(r"\d[\d:.,/TZ+-]*")


_BAR = re.compile(r".*\d%\|[^|]{0,400}\|[^\]]{0,200}/(?:s|it|\w+)\b[^\]]{0,200}\](?=\S)")
"""a bar of progress that another message was written behind, in the same line"""
_STREAM = re.compile(r"[^\n]{0,60}?\b(?:ERROR|WARNING|INFO)\b ?[|:\]-] ?\[?std(?:err|out)\b ?[|:\]-] ?")
"""a logger that stands for a stream of the program, as those of FastChat and LLaVA do"""
_PLAIN_WORD = re.compile(r"[\"'(]?[A-Za-z][a-z]*(?:['’-][a-z]+)?[.,;:!?)\"']{0,3}\Z|[.,;:!?'\"-]+\Z").match
_TEXT_WORDS, _TEXT_SHARE = 30, 0.9
"""of so many words, so large a share are plain ones"""
_SPEAKS_TO, _SPEAKS_FROM = 600, 300
"""words of failure count among so many first and last characters of a line: between them is data"""


class Likeness(NamedTuple):
    """How a line sounds. Each value is 0 or 1."""

    fatal: int = 0
    """a logger's highest level"""
    error: int = 0
    """a logger's level for errors"""
    soft: int = 0
    """a logger's level for warnings"""
    info: int = 0
    """a logger's level below that"""
    exception: int = 0
    """name of an exception, in any programming language"""
    exit: int = 0
    """an exit status other than 0, or a signal"""
    words: int = 0
    """words of failure"""
    grave: int = 0
    """words of an end"""
    listed: int = 0
    """a possibility, not a fact"""
    hint: int = 0
    """advice to a person"""
    warning: int = 0
    """a warning of an interpreter or a compiler"""
    quoted: int = 0
    """a line of a program or a command, not of its output"""

    @property
    def loud(self) -> bool:
        """Whether it sounds like an end, not only like trouble."""
        return bool(self.fatal or self.error or self.exception or self.exit or self.grave) and not (self.soft or self.info)

    @property
    def sounds(self) -> bool:
        """Whether anything in it sounds like a failure."""
        return bool(self.fatal or self.error or self.exception or self.exit or self.words)


CALM = Likeness()


def likeness(text: str, body: str) -> Likeness:
    """How a line sounds. ``text`` is the whole line, ``body`` the message without its prefix."""
    named = _level(_head(text))
    body = _of_stream(body)
    leveled = named in ("fatal", "error")
    exception = _EXCEPTION.search(body) is not None
    exit_ = leaves(body)
    words = _WORDS.any(body)
    if not (leveled or exception or exit_ or words):
        return CALM
    if words and (rest := _without_names(_without_none(body))) != body:
        body = rest
        words, exception = _WORDS.any(body), exception and _EXCEPTION.search(body) is not None
        if not (leveled or exception or exit_ or words):
            return CALM
    grave = words and _GRAVE.search(body) is not None
    if takes_back(body):
        words = exception = grave = False
    return Likeness(
        int(named == "fatal"),
        int(named == "error"),
        int(named == "soft"),
        int(named == "info"),
        int(exception),
        int(exit_),
        int(words),
        int(grave),
        int(listed(body)),
        int(_HINT.match(body) is not None),
        int(is_warning(body)),
        int(_QUOTED.match(body) is not None),
    )


@remembered
def heard(text: str, body: str) -> Likeness:
    """The same as ``likeness``, but for the middle of long lines. The native core is asked first: it knows most calm lines."""
    calm = core is not None and not core.masked(text.encode("utf-8", "replace"), 0)[2] & 1
    if calm and _bar(text) is None:
        return CALM
    if len(body) > _SPEAKS_TO + _SPEAKS_FROM:
        body = f"{body[:_SPEAKS_TO]}\n{body[-_SPEAKS_FROM:]}"
    return likeness(text, body)


def _bar(text: str) -> re.Match[str] | None:
    return _BAR.match(text) if "%|" in text else None


def _head(text: str) -> str:
    """Where a logger's level is looked for: the beginning of the line, or of what was written behind a bar of progress."""
    bar = _bar(text)
    return _of_stream(text if bar is None else text[bar.end() :])[:HEAD]


def _of_stream(text: str) -> str:
    """What the program wrote to a stream, where a logger is called by that stream: its level stands for the stream."""
    if "std" not in text[:HEAD] or (stream := _STREAM.match(text)) is None:
        return text
    return text[stream.end() :]


def sounds(text: bytes, start: int) -> bool:
    """Whether anything in a line sounds like a failure. Its body begins at ``start``. ``compression.folds`` uses this."""
    line = text.decode("utf-8", "replace")
    if _OVERFLOW.search(line) is not None:  # every loss scale counts, see candidates.overflows
        return True
    return likeness(line, text[start:].decode("utf-8", "replace") if start else line).sounds


def set_aside(sound: Likeness, transport: str | None) -> Likeness:
    """How a line sounds without the level that all lines of its source carry."""
    if transport is None:
        return sound
    rest = sound._replace(**{transport: 0})
    return rest if rest.sounds else CALM


@remembered
def level(text: str) -> str | None:
    """The logger's level in a line: ``fatal``, ``error``, ``soft`` (warnings) or ``info``."""
    return _level(_head(text))


def _level(head: str) -> str | None:
    possible = {_OF_LEVELS[word][1] for word in _LEVEL_WORDS.among(small(head))}
    letter = _ONE_LETTER.search(head) is not None
    for name, pattern, _ in _LEVELS:
        if (letter or name in possible) and pattern.search(head) is not None:
            return name
    return None


def is_warning(body: str) -> bool:
    """Whether the line is a warning of an interpreter or a compiler."""
    if "arning" in body and _WARNING.search(body[:400]) is not None:
        return True
    return "-packages/" in body and _LIBRARY_WARNS.match(body[:400]) is not None


def listed(body: str) -> bool:
    """Whether the line introduces possibilities."""
    return _LISTED.any(body[:300])


@remembered
def takes_back(body: str) -> bool:
    """Whether the line itself says that nothing came of it: none, skipped, ignored, tried again."""
    return _OF_NO_ERROR.any(body) or _NOTHING.any(body)


def _without_none(body: str) -> str:
    """The line without what was counted and is none. Each pattern is asked only where it can find something."""
    low = body.lower()
    if any(word in low for word in ("no ", "0 ", "zero ", "without ")):
        body = _NONE.sub("", body)
    if _A_NONE.search(body) is not None:
        body = _IS_NONE.sub("", body)
    if "." in body and ("err" in low or "loss" in low):
        body = _AN_ERROR_RATE.sub("", body)
    if _A_COUNT.search(low) is not None:
        body = _A_RATE.sub("", body)
    return body if body.isascii() else _NONE_IN_CHINESE.sub("", body)


def _without_names(body: str) -> str:
    """The line without paths, and without what it says ended well."""
    low = body.lower()
    if "ly" in low or "accord" in low:
        body = _ENDED_WELL.sub("", body)
    return _FULL_PATH.sub("", body) if "/" in body else body


def says_done(body: str) -> bool:
    """Whether the line says that something was completed."""
    return _WELL.search(body[:300]) is not None and _UNWELL.search(body[:300]) is None


def prose(body: str) -> bool:
    """Whether the line is a text for readers: so many plain words in a row are no message of a program."""
    words = body.split()
    if len(words) < _TEXT_WORDS or "Error" in body or "xception" in body:
        return False
    return sum(_PLAIN_WORD(word) is not None for word in words) >= _TEXT_SHARE * len(words)


def bullet(body: str) -> bool:
    """Whether the line is an item of a list."""
    return _BULLET.match(body) is not None


def leaves(body: str) -> bool:
    """Whether the line states an exit status other than 0, or a signal."""
    found = _EXIT.search(body)
    while found is not None:
        code = found["code"]
        if code is None or int(code) != 0:
            return True
        found = _EXIT.whole.search(body, found.end())
    return False
