"""Takes out what must not leave the process: secrets, e-mail addresses, people's names in paths. All text for a model goes
through it.

``redact`` promises this, also for hostile input:

- What is evidence stays: Xids, PCI addresses, ranks, error numbers, tensor shapes, hashes of commits, addresses in
  memory, UUIDs of GPUs; IP addresses and host names too, unless a site wants ``hosts=True``.
- The time is linear in the text. Every pattern either starts at the border of a run of its own characters, so that a run is
  read once, or is bounded.
- A second run changes nothing in redacted text. The text never grows to more than twice its length and 100 characters.

Give it whole texts and not single lines: a private key has many lines. Nothing can be restored.
"""

from __future__ import annotations

import ipaddress
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from diagnose.redaction.gate import gate
from diagnose.redaction.known import KNOWN

KINDS = ("token", "private_key", "email", "user", "host")

_MOST_PASSES = 6
_JUDGED = 160  # so many characters of a value decide whether it is a secret
_PLACEHOLDER = re.compile(r"<(?:token|private_key|email|user\d*|host\d*)>")

# --- Names before a secret --------------------------------------------------------------------------------------------------

_WORD = r"A-Za-z0-9_.\-"
_NAMED = re.compile(
    rf"""(?<![{_WORD}])([{_WORD}]++)(\\{{0,3}}["']?[ \t]*+(?:=>|:=|={{1,3}}|:|(?<=[ \t])\.{{3,}}(?=[ \t]))[ \t]*+)"""
)
_FLAG = re.compile(rf"""(?<![{_WORD}])(--?[A-Za-z][{_WORD}]*+)(["']?,?[ \t]++)(?=[^\s\-])""")
_LISTED = re.compile(
    rf"""(?i:(?<![{_WORD}])name["']?[ \t]{{0,9}}[:=][ \t]{{0,9}}["']?)([{_WORD}]++)"""
    r"""(["']?,?\s{0,80}["']?(?i:value)["']?[ \t]{0,9}[:=][ \t]{0,9})"""
)
_VALUE_ALONE = re.compile(r"""\s{0,80}["']?value["']?[ \t]{0,9}[:=]""", re.IGNORECASE)
_PLAIN = re.compile(
    r"""\s{0,80}["']?[Vv][Aa][Ll][Uu][Ee]["']?[ \t]{0,9}[:=][ \t]{0,9}["']?"""
    r"""(?:[-+]?\d[\d.]{0,30}(?:[eE][-+]?\d{1,3})?%?|(?![A-Za-z0-9]{16})(?:[A-Z]?[a-z]{1,15}|[A-Z]{1,15})\d{0,15}|)["']?,?\s{0,9}\Z"""
)
"""a number, or one short word with a number behind it: true, healthy, gpu014"""
_UNNAMED = re.compile(r"""(?im)^([ \t]{0,80}["']?value)(["']?[ \t]{0,9}[:=][ \t]{0,9})""")
"""a value whose name stands in a line that may not be here: only if it looks random is it a secret"""
LEFT_OUT = "- name: PASSWORD"
"""stands for lines that are not here, before a value that one of them may have named: a value without its name says little"""
_QUERY = re.compile(r"([?&;][A-Za-z0-9_.%\-]++)(=)(?=[^&\s])")
_SCHEME = re.compile(r"""(?:\\{0,3}["'])?(?i:bearer|basic|digest|negotiate|token|apikey)[ \t]++(?=[^\s"'])""")

# Only repeats of one character are possessive: before 3.11.5 Python's re gets some repeats of groups wrong. Where one of these
# gives back what it took, the end that is looked for cannot stand there.
_QUOTED = re.compile(r"""[bBfFrRuU]?(["'])((?:\\[^\r\n]|(?!\1)[^\r\n\\])*)\1""")
_ESCAPED = re.compile(r"""[bBfFrRuU]?(\\{1,3}["'])((?:(?!\1)[^\r\n])*)\1""")
_BARE = re.compile(r"""\\{0,3}["']?([^\s"'`,;&)\]}\\]++)""")

_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_WHOLE_WORD = re.compile(r"([A-Za-z0-9]{1,20}) \Z")

_ALWAYS, _LIKELY, _RANDOM = 3, 2, 1
_SECRET_WORDS = {
    **dict.fromkeys("password passwd passphrase passcode pwd secret apikey secretkey accesskey authtoken".split(), _ALWAYS),
    **dict.fromkeys("accesstoken authorization sshpass pgpassword".split(), _ALWAYS),
    **dict.fromkeys("token jwt webhook".split(), _LIKELY),
    **dict.fromkeys("key auth credential credentials cookie sas sig signature pat dsn session".split(), _RANDOM),
}  # fmt: skip
# Before "key" or "token" these words say that it opens something …
_OPENING = frozenset(
    "access account admin anthropic api app auth bearer bot client csrf deploy encryption gh git github gitlab hf hub"
    " huggingface id login master ngc oauth oauth2 openai personal private refresh registry secret security service session"
    " shared signing slack subscription user vault wandb xsrf".split()
)
# … and these that it is a token of a language model, or a key of a dictionary.
_HARMLESS = frozenset(
    "additional audio avg begin bos cache cls config consumed cur current dataset decoder decode dict dictionary end eod eol"
    " eos first foreign generated group hash image index input label last layer map mask max mean metric min missing mm model"
    " n next num num_of output pad param parameter partition per prefix prefill primary prompt public routing sep shape"
    " sort special start state stop total unexpected unk video vision weight".split()
)
_PASS = frozenset("admin db ftp http mail mysql pg postgres proxy rabbitmq redis root smtp ssh user".split())
# Last words of names that are secrets behind just these two: "access_key_id", "secret_key_base".
_ENDINGS = {"id": ["access", "key"], "base": ["secret", "key"]}
# What follows "password:" in messages and code, and is no secret.
_PROSE = frozenset(
    "a accepted an and any argument authentication authorization be been bool boolean bytes can cannot changed could"
    " default deny denied dict disabled does empty enabled environment error expected expired fail failed failure false"
    " field flag for forbidden found from get give given hash has have if in incorrect int invalid is it length list login"
    " masked may mismatch missing must needed nil no none not null object off ok on optional or option parameter prompt"
    " provided reading redacted rejected required reset see set should str string the to true type unauthorized undefined"
    " unknown unset using valid value was will with wrong yes your".split()
)
_QUERY_NAMES = frozenset(
    "sig signature key code auth token x-amz-signature x-amz-credential x-goog-signature x-goog-credential".split()
)

_FORMAT = re.compile(
    r"(?:%{1,2}(?:[-+#0]?\d{0,3}(?:\.\d{0,3})?(?:hh?|ll?|z)?[A-Za-z]|[A-Z_]{1,64}\d{0,2}%?|[A-Za-z_]{1,64}%"
    r"|[({<][\w.:@\[ -]{0,64}(?:[)}>][-+#.0-9]{0,9}[a-z]?)?)[.:!?/@-]{0,3}){1,4}\Z"
)
"""places for values (%s, %5.2f, %(name)s) or variables (%NAME, %name%), and nothing else. A password may begin with % as well:
one that is a word (%secret) or goes on (%NAMEx%y, %(name!x) is neither
"""
_NUMBER_WITH_UNIT = re.compile(r"[-+~]?\d[\d.,:]*(?:[eE][-+]?\d+)?[A-Za-z%/µ]*(?:/[A-Za-z]+)?\Z")
_STAMP = re.compile(r"\d{4}-\d\d-\d\d[T_ ]?[\d:.,Z+-]*\Z")
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_RUN = re.compile(r"[A-Za-z0-9]{12,}")
_MASK = re.compile(r"[*xX.•…#-]+\Z|.*\*\*\*")
_CODE = re.compile(r"[A-Za-z_][\w.]*[(\[]\Z|[A-Za-z_][\w.]*\[")
_FILE = re.compile(r"(?:~|\.{1,2})?(?:/[\w.@+{}$-]+){2,}/?\Z|[A-Za-z]:[\\/]|(?:~|\.{1,2})/|/[\w-]+\.[a-z]{2,5}\Z")

# --- Secrets that are known by their form -----------------------------------------------------------------------------------

_KNOWN = re.compile(rf"(?:(?<![A-Za-z0-9_\-])|(?<=\\[nrt]))(?:{'|'.join(pattern for _, pattern in KNOWN)})", re.ASCII)
_SK = re.compile(r"(?:(?<![A-Za-z0-9_\-])|(?<=\\[nrt]))sk-[\w\-]{16,}")
_HOOK = re.compile(r"(/hooks?/|/webhooks?/|hooks\.slack\.com/services/)([\w\-/]{16,})")
_BEARER = re.compile(r"((?<![A-Za-z0-9_])(?i:bearer|basic)[ \t]{1,9})([\w.~+/=\-]{8,})")
_USERINFO = re.compile(r"""(://)([^\s/:@"'<>\\]*+:[^\s/"'<>\\]+)(?=@)""")
_USERINFO_ALONE = re.compile(r"(://)([\w.~%\-]{20,})(?=@)")
_BASIC_LOGIN = re.compile(r"""((?<![\w\-])(?:-u|--user|--proxy-user)[ \t=]{1,4}["']?[\w.@\-]{1,64}+:)([^\s"'@]++)""")
_HEX_KEY = re.compile(  # no "<" between: a placeholder is no sign of another key
    r"(?i)((?<!<)(?:wandb|api[ _-]?key|login|password|passwd|token|secret)\b[^\r\n<]{0,60}?(?<![0-9a-z]))"
    r"([0-9a-f]{40})(?![0-9a-z])"
)
_LONG = re.compile(r"(?<![A-Za-z0-9+/_\-])[A-Za-z0-9+/_\-]{40,}+=*")
_COOKIE = re.compile(r"""((?<![\w\-])(?i:set-)?(?i:cookie):[ \t]{0,9})([^\s"'<][^\r\n"'<]*+)""")

_KEY_BEGINS = re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_KEY_BODY = re.compile(r"[A-Za-z0-9+/=\s\\:,.()]*+(?:-(?!----)[A-Za-z0-9+/=\s\\:,.()]*+)*-----END [A-Z0-9 ]{0,40}-----")
_KEY_LINES, _KEY_CHARACTERS = 200, 16_384
_LAST_WORD = re.compile(r"(?<![A-Za-z0-9+/=])[A-Za-z0-9+/=]++(?=[ \t\r\"',]*\Z)")

# --- People -----------------------------------------------------------------------------------------------------------------

_EMAIL = re.compile(
    r"(?<![A-Za-z0-9._%+\-])([A-Za-z0-9._%+\-]++)@(?=([A-Za-z0-9\-]+(?:\.[A-Za-z0-9\-]+)*))((?:[A-Za-z0-9\-]+\.)+([A-Za-z]{2,24}))(?![A-Za-z0-9\-@])"
)
_NO_DOMAIN = frozenset(
    "so py sh log txt json yaml yml pt pth bin md cc cpp cu cuh hpp whl tar gz zip toml ini cfg conf".split()
)
_OWN_DOMAIN = frozenset("local localdomain internal intern cluster lan svc corp home private".split())
_SYSTEM_USERS = frozenset("root git nobody hdfs postgres slurm".split())
_HOME = re.compile(
    r"""((?i:[/\\]{1,4}|%2f)(?i:homes|home[0-9]{0,3}|users|user)(?:[/\\]{1,4}|%2[Ff]))([^\s/\\:"'<>|,;()\[\]{}=*?&%#!`$~.][^\s/\\:"'<>|,;()\[\]{}=*?&%#!`]*+)"""
)
_NO_USER = re.compile(
    r"[0-9.]+\Z|.*\.(?:py|pyc|so|sh|c|cc|cpp|cu|h|hpp|go|rs|js|json|ya?ml|toml|txt|log|md|html?|slice|service)\Z"
)
_USER_IS = re.compile(
    r"""((?<![A-Za-z0-9_])(?:USER|LOGNAME|USERNAME|SUDO_USER|SLURM_JOB_USER|UserId|[Ll]ogged in as)["']?[ \t]{0,9}"""
    r"""(?:[=:][ \t]{0,9}|(?<=as ))["']?)([A-Za-z_][\w.\-]*+)"""
)

# --- Machines (only when asked) ---------------------------------------------------------------------------------------------

_IPV4 = re.compile(r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?![\w]|\.\d)")
_IPV6 = re.compile(r"(?<![\w:.])(?:[0-9A-Fa-f]{0,4}:){2,7}[0-9A-Fa-f]{0,4}(?![\w:]|\.\d)")
_URL_HOST = re.compile(r"(?<=://)(?:<token>@|[\w.%~\-]{0,64}@)?()([A-Za-z0-9][A-Za-z0-9.\-]*+)")
_DOMAIN = re.compile(
    r"(?<![A-Za-z0-9_.\-])(?=[A-Za-z0-9.\-]{3,253}(?![A-Za-z0-9.\-]))(?:[A-Za-z0-9\-]+\.)+(?:com|net|org|edu|gov|cloud|local|localdomain|internal|intern|lan|cluster|svc|corp|cn|de|eu|uk|fr|jp)(?![\w\-]|\.\w)"
)
_NODE = re.compile(
    r"(?<![A-Za-z0-9_./<\-])(?:(?:[a-z]{1,20}[0-9]{0,6}-){0,4}(?:gpu|node|host|worker|server|srv|compute|dgx|hgx|nid|cn|gn|login|rack|slurmd?|a100|h100|h200|b200|pod)"
    r"(?:-[0-9]{1,12}(?:-[0-9]{1,12}){0,3}|(?<!gpu)(?<!worker)(?<!pod)[0-9]{1,12}|[0-9]{3,12}))(?![A-Za-z0-9_])"
)
_HOST_IS = re.compile(
    r"""((?<![A-Za-z0-9])(?i:master_addr|hostname|host|nodename|node|server|endpoint)["']?[ \t]{0,9}[=:][ \t]{0,9}["']?)"""
    r"""(?=[A-Za-z.\-]*[0-9.\-])([A-Za-z][A-Za-z0-9.\-]*+)"""
)
_LOOPBACK = frozenset(["localhost", "127.0.0.1", "0.0.0.0", "255.255.255.255", "::1", "::"])  # noqa: S104  # not bound to, kept


@dataclass(frozen=True, slots=True)
class Redacted:
    """A redacted text, and how many things of each kind were taken out."""

    text: str
    counts: Counter[str] = field(default_factory=Counter)


def redact(text: str, *, hosts: bool = False) -> Redacted:
    """``text`` without secrets and personal data. For several texts of one job use one :class:`Redactor`."""
    return Redactor(hosts=hosts).redact(text)


def clear(lines: Sequence[str]) -> list[str]:
    """The lines that have nothing to redact. Each is judged together with the others."""
    return [line for line, told in zip(lines, Redactor().lines(lines), strict=True) if line == told]


def suspects(lines: Sequence[str]) -> list[int]:
    """Which lines have something that may have to be taken out. The others stay as they are."""
    hits = gate().hits([line.encode("utf-8", "replace") for line in lines])
    return [hit.line for hit in hits if not hit.only_long or any(map(_base64, _LONG.findall(lines[hit.line])))]


def _with_names(lines: Sequence[str], suspect: Iterable[int]) -> list[tuple[int, int]]:
    """(first, last) of lines that are looked at together: a value follows its name, perhaps in one of the next lines."""
    found: list[tuple[int, int]] = []
    for number in suspect:
        first = number
        if _VALUE_ALONE.match(lines[number]):
            first = next((other for other in range(number - 1, -1, -1) if lines[other].strip()), number)
        if found and first <= found[-1][1]:
            first = found.pop()[0]
        found.append((first, number))
    return found


def holds_value(line: str) -> bool:
    """Whether the line holds a value whose name stands in the line before."""
    return _VALUE_ALONE.match(line) is not None


def may_hide(line: str) -> bool:
    """Whether the line holds a value that may be a secret, if a line named it that is not here."""
    return holds_value(line) and _PLAIN.match(line) is None


def together(before: str, line: str) -> str:
    """``line`` redacted as what follows ``before``."""
    return Redactor().lines([before, line])[1]


class Redactor:
    """Redacts the texts of one job: the same name becomes the same placeholder, so that lines stay comparable.

    ``names`` are host names (of three characters or more) that the caller knows; with ``hosts`` they are replaced too,
    whatever they look like.
    """

    def __init__(self, *, hosts: bool = False, names: Iterable[str] = ()) -> None:
        self.counts: Counter[str] = Counter()
        """what was taken out of all texts so far"""
        self._hosts = hosts
        self._numbers: dict[tuple[str, str], int] = {}
        self._last: Counter[str] = Counter()
        known = sorted({name for name in names if len(name) > 2}, key=lambda name: (-len(name), name))
        self._known = (
            re.compile(rf"(?<![A-Za-z0-9_.<\-])(?:{'|'.join(map(re.escape, known))})(?![A-Za-z0-9_\-])") if known else None
        )

    def redact(self, text: str) -> Redacted:
        """``text`` without secrets and personal data."""
        if not self._hosts and not suspects(text.split("\n")):
            return Redacted(text)
        return self._redact(text)

    def _redact(self, text: str) -> Redacted:
        counts: Counter[str] = Counter()
        # A second pass finds nothing, except where the first one made a new border (a placeholder).
        for _ in range(_MOST_PASSES):
            before = text
            text = self._pass(text, counts)
            if text == before:
                break
        self.counts += counts
        return Redacted(text, counts)

    def lines(self, lines: Sequence[str]) -> list[str]:
        """Each line redacted together with the others: a key takes many lines, and a value may stand below its name."""
        if self._hosts:
            return self._together(lines)
        suspect = suspects(lines)
        if any("PRIVATE KEY" in lines[number] for number in suspect):
            return self._together(lines)
        told = list(lines)
        for first, last in _with_names(lines, suspect):
            told[first : last + 1] = self._together(lines[first : last + 1])
        return told

    def _together(self, lines: Sequence[str]) -> list[str]:
        redacted = self._redact("\n".join(lines)).text.split("\n")
        if len(redacted) == len(lines):
            return redacted
        # A private key went with its line ends. Behind marks its lines stay lines.
        marked = self._redact("\n".join(f"| {line}" for line in lines)).text.split("\n")
        redacted = self._redact("\n".join(line.removeprefix("| ") for line in marked)).text.split("\n")
        return redacted if len(redacted) == len(lines) else [self._redact(line).text for line in lines]

    def _pass(self, text: str, counts: Counter[str]) -> str:
        def put(kind: str, accept: Callable[[str], bool] = lambda value: True) -> Callable[[re.Match[str]], str]:
            """Replaces the last group of a match (or all of it) with the placeholder of ``kind``."""

            def replaced(found: re.Match[str]) -> str:
                head, value = (found[1], found[2]) if found.re.groups else ("", found[0])
                if not accept(value) or _PLACEHOLDER.fullmatch(value):
                    return found[0]
                counts[kind] += 1
                return f"{head}<{kind}>"

            return replaced

        text = _private_keys(text, counts)
        text = _USERINFO.sub(put("token", lambda value: _PLACEHOLDER.search(value) is None), text)
        text = _USERINFO_ALONE.sub(put("token", _random), text)
        text = _COOKIE.sub(put("token", lambda value: "=" in value), text)
        for pattern, level_of in (
            (_QUERY, _query_level),
            (_LISTED, _level),
            (_NAMED, _level),
            (_FLAG, _level),
            (_UNNAMED, lambda name, before: _RANDOM),
        ):
            text = _named_values(text, pattern, level_of, counts)
        text = _KNOWN.sub(put("token"), text)
        text = _SK.sub(put("token", lambda value: any(map(str.isdigit, value))), text)
        text = _BEARER.sub(put("token", _opaque), text)
        text = _BASIC_LOGIN.sub(put("token", lambda value: not value.isdigit() and not _harmless(value)), text)
        text = _HOOK.sub(put("token", lambda value: _changes(value[:_JUDGED])[0] >= 4), text)
        text = _HEX_KEY.sub(put("token"), text)
        text = _LONG.sub(put("token", _base64), text)
        text = _HOME.sub(self._user(counts), text)
        text = _USER_IS.sub(self._user(counts), text)
        text = _EMAIL.sub(self._address(counts), text)
        if self._hosts:
            text = self._without_hosts(text, counts)
        return text

    def _placeholder(self, kind: str, name: str, room: int) -> str:
        """``<user3>``, the same for the same name; only ``<user>`` if that would make the text more than twice as long."""
        number = self._numbers.get((kind, name))
        if number is None:
            self._last[kind] += 1
            number = self._numbers[kind, name] = self._last[kind]
        full = f"<{kind}{number}>"
        return full if len(full) <= room else f"<{kind}>"

    def _user(self, counts: Counter[str]) -> Callable[[re.Match[str]], str]:
        def replaced(found: re.Match[str]) -> str:
            head, name = found[1], found[2]
            dots = name[len(name.rstrip(".")) :]  # the end of a sentence
            name = name.removesuffix(dots)
            if not name or name in _SYSTEM_USERS or _NO_USER.match(name):
                return found[0]
            counts["user"] += 1
            return head + self._placeholder("user", name, 2 * len(found[0]) - len(head) - len(dots)) + dots

        return replaced

    def _address(self, counts: Counter[str]) -> Callable[[re.Match[str]], str]:
        def replaced(found: re.Match[str]) -> str:
            name, domain, ending = found[1], found[3], found[4].lower()
            # ``cudaMalloc@libcudart.so.12`` is a symbol, ``alice@gpu-17.cluster.local`` a person on a host, which is evidence.
            if ending in _NO_DOMAIN or found[2] != domain:
                return found[0]
            if ending in _OWN_DOMAIN:
                if name in _SYSTEM_USERS:
                    return found[0]
                counts["user"] += 1
                return f"{self._placeholder('user', name, 2 * len(found[0]) - len(domain) - 1)}@{domain}"
            counts["email"] += 1
            return "<email>"

        return replaced

    def _without_hosts(self, text: str, counts: Counter[str]) -> str:
        def put(found: re.Match[str]) -> str:
            name = found[found.re.groups].rstrip(".-")
            tail = found[0][found[0].rindex(name) + len(name) :]
            start = found[0][: len(found[0]) - len(tail) - len(name)]
            if not name or name.lower() in _LOOPBACK or name.startswith("127."):
                return found[0]
            if found.re in (_IPV4, _IPV6):
                try:
                    ipaddress.ip_address(name)
                except ValueError:
                    return found[0]
                key = name
            else:
                key = name if _IPV4.fullmatch(name) else name.split(".")[0].lower()  # gpu-17 and gpu-17.cluster.local are one
            counts["host"] += 1
            return start + self._placeholder("host", key, 2 * len(found[0]) - len(start) - len(tail)) + tail

        for pattern in (self._known, _IPV4, _IPV6, _URL_HOST, _DOMAIN, _HOST_IS, _NODE):
            if pattern is not None:
                text = pattern.sub(lambda found: put(found), text)
        return text


# --- Values after names -----------------------------------------------------------------------------------------------------


def _named_values(text: str, pattern: re.Pattern[str], level_of: Callable[[str, str], int], counts: Counter[str]) -> str:
    """``text`` with the values after the names that ``pattern`` finds replaced, if name and value look like a secret."""
    parts: list[str] = []
    done = position = run_ends = 0
    while found := pattern.search(text, position):
        position = found.end()
        name = found[1]
        before = text[max(0, found.start(1) - 24) : found.start(1)]
        if before.endswith("\\") and name[0] in "nrt":
            name = name[1:]  # "\npassword=…" in a string that was printed as a literal
        level = level_of(name, before)
        if not level:
            continue
        if scheme := _SCHEME.match(text, position):
            position, level = scheme.end(), max(level, _LIKELY)
            value, quoted = _BARE.match(text, position), True
        else:
            value = _QUOTED.match(text, position) or _ESCAPED.match(text, position)
            quoted = value is not None
            if value is None and position >= run_ends:
                value = _BARE.match(text, position)
        if value is not None:
            start, end = value.span(value.re.groups)
        elif position < run_ends:  # in the run after an earlier name, which ended in the same place: it is read once
            start, end = position, run_ends
        else:
            continue
        if not quoted:
            run_ends = end
        content = text[start : min(end, start + _JUDGED)]
        assigned = quoted or "=" in found[2] or "..." in found[2] or pattern is not _NAMED
        if not _secret(content, level, quoted=quoted, assigned=assigned, is_pwd=name.lower() in ("pwd", "oldpwd")):
            continue
        parts += (text[done:start], "<token>")
        counts["token"] += 1
        done = position = end
    parts.append(text[done:])
    return "".join(parts)


def _level(name: str, before: str) -> int:
    """How certain the name makes it that its value is a secret: 0, _RANDOM (if the value looks random), _LIKELY or _ALWAYS."""
    if len(name) > 100:
        name = name[-100:]
    # No name of a secret ends in another letter, so most names are done here.
    if not name[-1:].isdigit() and name[-1:].lower() not in "ndteyshgkl":
        return 0
    words = [word.lower() for word in re.split(r"[_.\-]+", _CAMEL.sub("_", name)) if word]
    if words and words[-1].isdigit():
        words.pop()
    return _level_of(words, before) if words else 0


def _level_of(words: list[str], before: str) -> int:
    """The same for a name in its words, and what stands before it in the line."""
    last = words[-1].rstrip("0123456789")
    if words[-3:-1] == _ENDINGS.get(last):
        return _ALWAYS
    if last == "pass":
        return _ALWAYS if len(words) > 1 and words[-2] in _PASS else 0
    if last == "tokens" and words[-2:-1] in (["access"], ["auth"]):
        return _LIKELY
    level = _SECRET_WORDS.get(last, 0)
    if last not in ("key", "token"):
        return level
    if level and len(words) == 1 and (earlier := _WHOLE_WORD.search(before)):
        words.insert(0, earlier[1].lower())  # "API key: …"
    if len(words) > 1 and words[-2] in _OPENING:
        return _ALWAYS
    return 0 if len(words) > 1 and words[-2] in _HARMLESS else level


def _query_level(name: str, before: str) -> int:
    name = name[1:]
    return _LIKELY if name.lower() in _QUERY_NAMES else _level(name, "")


def _secret(value: str, level: int, *, quoted: bool, assigned: bool, is_pwd: bool) -> bool:
    value = _PLACEHOLDER.sub("x", value)  # what was replaced says nothing about the rest
    if _harmless(value, quoted=quoted):
        return False
    if level == _ALWAYS:
        if is_pwd and value[0] in "/~.":
            return False
        return not (_FILE.match(value) and not _random(value))
    if len(value) < 8 or " " in value:
        return False
    if level == _LIKELY and assigned:
        return _opaque(value)
    return _random(value)


def _harmless(value: str, *, quoted: bool = False) -> bool:
    """Whether a value is certainly no secret: nothing, a word of a message, a variable, a mask, a piece of code."""
    bare = value.strip(" .:!?")
    if not any(map(str.isalnum, bare)) or bare.lower() in _PROSE or _PLACEHOLDER.fullmatch(value):
        return True
    if (
        value[0] in "${"
        or _FORMAT.match(value)
        or (value[0] == "<" and value[-1] == ">")
        or value[0] == "["
        or _MASK.match(value)
        or _CODE.match(value)
    ):
        return True
    # ``password=self.password``: a line of code.
    return not quoted and len(bare) <= 60 and bare.replace(".", "").replace("_", "").isalpha() and bool(_level(bare, ""))


def _opaque(value: str) -> bool:
    """Whether it has letters and digits, and is neither a number with its unit, nor a time, an address or a path."""
    if value.startswith(("0x", "GPU-", "MIG-")) or _NUMBER_WITH_UNIT.match(value) or _STAMP.match(value):
        return False
    if _FILE.match(value) and not _random(value):
        return False
    has_digit = any(map(str.isdigit, value))
    has_letter = any(map(str.isalpha, value))
    return (has_digit and has_letter) or _random(value)


def _random(value: str) -> bool:
    """Whether the value looks random: within a run of letters and digits the kind of character changes often."""
    if value.startswith(("0x", "GPU-", "MIG-")):
        return False
    for run in _RUN.finditer(value):
        letters_digits, cases = _changes(run[0])
        if letters_digits >= 3 or (len(run[0]) >= 16 and cases >= 5):
            return True
    return False


def _base64(value: str) -> bool:
    """Whether it is a long word of base64: small letter, capital and digit change at nearly two of three places; in names at
    one of four.
    """
    core = value.rstrip("=")
    if _UUID.search(core) or not (any(map(str.isupper, core)) and any(map(str.islower, core)) and any(map(str.isdigit, core))):
        return False
    if core.count("/") * 12 > len(core):
        return False  # a path
    letters_digits, cases = _changes(core)
    return letters_digits + cases >= 0.46 * len(core)


def _changes(text: str) -> tuple[int, int]:
    """(how often a letter and a digit are neighbours, how often a small letter and a capital are)."""
    letters_digits = cases = 0
    previous = ""
    for character in text:
        if previous and character.isalnum() and previous.isalnum():
            if character.isdigit() != previous.isdigit():
                letters_digits += 1
            elif character.isupper() != previous.isupper():
                cases += 1
        previous = character
    return letters_digits, cases


# --- Private keys -----------------------------------------------------------------------------------------------------------


def _private_keys(text: str, counts: Counter[str]) -> str:
    """``text`` without private keys. If the lines of a key have prefixes, the key is taken out and the prefixes stay."""
    parts: list[str] = []
    done = 0
    while found := _KEY_BEGINS.search(text, done):
        if body := _KEY_BODY.match(text, found.end()):
            parts += (text[done : found.start()], "<private_key>")
            counts["private_key"] += 1
            done = body.end()
            continue
        region = text[found.end() : found.end() + _KEY_CHARACTERS]
        lines = region.split("\n")
        if len(region) == _KEY_CHARACTERS:
            lines.pop()  # perhaps not whole
        lines = lines[:_KEY_LINES]
        ends = next((number for number, line in enumerate(lines) if "-----END" in line), None)
        least = 40 if ends is None else 4  # without an end, only what can be nothing else
        parts.append(text[done : found.end()])
        done = found.end()
        hit = False
        for number, line in enumerate(lines if ends is None else lines[:ends]):
            done += len(line) + bool(number)
            word = _LAST_WORD.search(line) if number else None
            if word and len(word[0]) >= least:
                line = f"{line[: word.start()]}<private_key>{line[word.end() :]}"
                hit = True
            parts.append(f"\n{line}" if number else line)
        if hit:
            counts["private_key"] += 1
    parts.append(text[done:])
    return "".join(parts)
