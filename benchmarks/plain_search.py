"""What a plain search finds of a log's numbers: names with a number behind them, wherever they stand. It measures series."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping

from diagnose.knowledge.metrics import shipped_metrics
from diagnose.matching.series import Series

FEWEST = 3
_ASKED = ("loss", "val_loss", "accuracy", "reward", "lr", "grad_norm", "perplexity")
_NUMBER = r"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|nan|inf)"
_NAMES = sorted((name for name, (quantity, _) in shipped_metrics().names.items() if quantity in _ASKED), key=len, reverse=True)
_PLAIN = re.compile(
    rf"(?i)(?<![a-z])((?:[a-z]+[/_. -]){{0,3}}(?:{'|'.join(name.replace('_', '[ _/-]?') for name in _NAMES)}))"
    rf"[\"']?(?:\s*[:=|]\s*|\s+is\s+|\s+)[\"'(\[]*({_NUMBER})(?![\w/])"
)
_ABOUT = re.compile(r"(?i)scale|weight|min|max|best|target|threshold|decay|warmup|base|init")


def searched(text: str) -> dict[str, list[float]]:
    """The values behind each name that has a number behind it three times or more."""
    found: dict[str, list[float]] = defaultdict(list)
    for name, value in _PLAIN.findall(text):
        if not _ABOUT.search(name):
            found[" ".join(name.lower().split())].append(float(value))
    return {name: values for name, values in found.items() if len(values) >= FEWEST}


def losses(found: Mapping[str, list[float]]) -> dict[str, list[float]]:
    """Those that are a loss, of training or not."""
    return {name: values for name, values in found.items() if "loss" in name or "entropy" in name}


def verdict(found: Mapping[str, list[float]], series: Mapping[str, Series]) -> str:
    """Whether a log's loss is in its series: ``-`` none is printed, ``missing``, ``other`` values, or ``right``."""
    printed = losses(found)
    if not printed:
        return "-"
    ours = [series[name] for name in ("loss", "val_loss") if name in series]
    if not ours:
        return "missing"
    ends = {(one.first, one.last, one.least) for one in ours}
    return "right" if any((values[0], values[-1], min(values)) in ends for values in printed.values()) else "other"
