"""The first lines of a log -> versions of software, and settings: what a run says of itself before it begins.

Programs print their arguments in a few forms: ``name ..... value`` (Megatron, DeepSpeed), ``Namespace(name=value)`` (argparse),
``"name": value`` and ``name: value`` (JSON, YAML), ``--name value`` (command lines) and ``NAME=value`` (environments).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from diagnose.reading.lines import clean
from diagnose.reading.prefixes import body_start

MOST_BYTES = 4 << 20
"""of a source that are looked at"""
_LONGEST = 32 << 10
_MOST_SETTINGS = 5000
_MOST_VALUE = 200

_NAME = r"[A-Za-z_][\w.\-/]{1,80}"
_DOTTED = re.compile(rf"^[\s>|]*({_NAME}) ?\.{{3,}} ?(\S.{{0,{_MOST_VALUE}}}?)\s*$")
_KEYED = re.compile(rf"""^[\s{{]*["']({_NAME})["']\s*:\s*([^\s{{\[][^{{\[]{{0,{_MOST_VALUE}}}?),?\s*$""")
_NO_NAME = r"(?!(?:error|warning|info|note|hint|debug|fatal|usage):)"
_PLAIN = re.compile(rf"^\s*{_NO_NAME}([a-z_][\w.\-/]{{1,80}}):\s+([^\s:{{\[][^:{{\[]{{0,80}}?)\s*$")
_ENVIRONMENT = re.compile(rf"^\s*(?:export\s+|declare -x\s+)?([A-Z][A-Z0-9_]{{2,60}})=(\S.{{0,{_MOST_VALUE}}}?)\s*$")
_NAMESPACE = re.compile(r"\b\w*(?:Namespace|Arguments|Config|Args)\(")
_ITEM = re.compile(
    rf"""\b({_NAME})=("[^"]{{0,{_MOST_VALUE}}}"|'[^']{{0,{_MOST_VALUE}}}'|[^\s,()]{{1,{_MOST_VALUE}}})(?=[,)]|$)"""
)
_COMMAND = re.compile(r"\b(?:python3?|torchrun|srun|deepspeed|accelerate launch|mpirun)\b.{0,400}?\s--")
_FLAG = re.compile(rf"(?:^|\s)--({_NAME})(?:[= ](?!-)([^\s]{{1,{_MOST_VALUE}}}))?")
_PRODUCT = (
    r"torch|pytorch|torchvision|transformers|deepspeed|megatron[\w-]*|nemo|accelerate|lightning|jax|jaxlib|tensorflow|flash[-_]attn|"
    r"transformer[-_]engine|apex|xformers|triton|nccl|rccl|cuda|cudnn|cublas|driver|python|rocm|numpy|vllm|datasets|tokenizers|peft|"
    r"trl|ray|slurm|ofed|ucx|openmpi|nvidia[-_]smi"
)
_VERSION = r"v?(\d+(?:\.\d+){1,3}[\w.+\-]{0,40})"
_VERSIONS = (
    re.compile(
        rf"\b({_PRODUCT})(?:[ _-]?version)?(?:\s*(?:==|[:=]|\bis\b)\s*|\s+version\s+|\s+version\s*[:=]\s*)['\"(]*{_VERSION}",
        re.I,
    ),
    re.compile(rf"\b({_PRODUCT}) +\(?{_VERSION}\)?(?=[\s,;)|]|$)", re.I),
)
_OF_THE_RUN = re.compile(
    r"(?:^|[_.\-/])(?:pid|ppid|port|time|date|timestamp|elapsed|eta|host|hostname|node|nodename|nodelist|ip|addr|address|rank|"
    r"local_rank|jobid|job_id|run_id|uuid|guid|master_addr|master_port|id)$",
    re.IGNORECASE,
)
"""what differs between any two runs"""


class Settings:
    """What one run says of itself."""

    def __init__(self) -> None:
        self._versions: dict[str, dict[str, None]] = {}
        self._settings: dict[str, dict[str, None]] = {}

    def read(self, lines: Iterable[bytes]) -> None:
        """Lines of the beginning of one source."""
        for raw in lines:
            line = clean(raw[:_LONGEST])
            text = line[body_start(line) :].decode("utf-8", "replace")
            for name, value in versions_in(text):
                self._versions.setdefault(name, {})[value] = None
            if len(self._settings) < _MOST_SETTINGS:
                for name, value in settings_in(text):
                    self._settings.setdefault(name, {})[value] = None

    @property
    def versions(self) -> dict[str, str]:
        """Of nodes that have others, all."""
        return {name: ", ".join(sorted(values)) for name, values in sorted(self._versions.items())}

    @property
    def settings(self) -> dict[str, str]:
        """Those that have one value in all of the run: what differs from rank to rank is no setting of the run."""
        return {name: next(iter(values)) for name, values in sorted(self._settings.items()) if len(values) == 1}


def versions_in(text: str) -> Iterator[tuple[str, str]]:
    for pattern in _VERSIONS:
        for found in pattern.finditer(text[:2000]):
            yield found[1].lower().replace("_", "-").replace("pytorch", "torch"), found[2].rstrip(".-")


def settings_in(text: str) -> Iterator[tuple[str, str]]:
    """(name, value) of the settings that a line tells."""
    for name, value in _pairs(text):
        if not _OF_THE_RUN.search(name) and value:
            yield name, value


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    for pattern in (_DOTTED, _KEYED, _ENVIRONMENT, _PLAIN):
        if (found := pattern.match(text)) is not None:
            yield _named(found[1]), _value(found[2])
            return
    if _NAMESPACE.search(text) is not None:
        yield from ((_named(found[1]), _value(found[2])) for found in _ITEM.finditer(text))
    elif _COMMAND.search(text) is not None:
        yield from ((_named(found[1]), _value(found[2] or "true")) for found in _FLAG.finditer(text))


def _named(name: str) -> str:
    """``--micro-batch-size`` and ``micro_batch_size`` are one setting."""
    return name if name.isupper() else name.replace("-", "_")


def _value(value: str) -> str:
    return value.strip().rstrip(",").strip("\"'")
