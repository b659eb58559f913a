"""``diagnose replay --why``: the hypotheses that were weighed, each with the signals that decided."""

from __future__ import annotations

from collections.abc import Sequence

from diagnose.diagnosis.finding import Finding
from diagnose.diagnosis.hypotheses import Hypothesis
from diagnose.diagnosis.signals import BY_NAME
from diagnose.diagnosis.weights import shipped_weights
from diagnose.reading.sources import Source
from diagnose.rendering.characters import printable
from diagnose.rendering.terminal import Style, shortened

_SHOWN = 5


def why(finding: Finding, sources: Sequence[Source], style: Style, most: int = _SHOWN) -> str:
    """The likeliest hypotheses as text, the answer first."""
    shown = [one for one in finding.weighed[:most] if one.probability >= 0.001 or one is finding.weighed[0]]
    parts = [style.bold("Why"), *(_hypothesis(one, sources, style) for one in shown)]
    more = len(finding.weighed) - len(shown)
    if more > 0:
        parts.append(style.dim(f"  and {more:,} less likely"))
    return "\n\n".join(parts)


def _hypothesis(one: Hypothesis, sources: Sequence[Source], style: Style) -> str:
    head = f"  {one.probability:6.1%}  {one.reason}"
    if one.kind == "healthy":
        lines = [f"{style.bold(head)}  (nothing failed)"]
    else:
        where = f"{sources[one.event.source].name}:{one.event.line}"
        lines = [
            f"{style.bold(head)}  {printable(where)}",
            f"          {shortened(printable(one.event.body), style.width - 10)}",
        ]
    weights = shipped_weights().of
    others = {relation.name: relation.other for relation in one.relations}
    for name, value in sorted(one.signals.items(), key=lambda row: -abs(weights[row[0]] * row[1])):
        by = f" (line {others[name].event.line:,})" if name in others else ""
        lines.append(f"          {weights[name] * value:+6.1f}  {name}: {BY_NAME[name].says}{by}")
    return "\n".join(lines)
