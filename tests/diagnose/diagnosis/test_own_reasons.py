"""What the taxonomy promises: a site's own reason works through diagnosis, decision and isolation."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from diagnose.decision.advice import advise
from diagnose.decision.policy_file import shipped_policy
from diagnose.decision.signals import accuses
from diagnose.errors import RuleError
from diagnose.knowledge import shipped
from diagnose.knowledge.taxonomy import read as read_taxonomy
from diagnose.knowledge.taxonomy import shipped_taxonomy
from tests.support.logs import RAISED, steps


@pytest.fixture
def own_rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A few of the shipped rules, with a reason of a site's own, which is a machine's."""
    folder = tmp_path / "rules"
    real = shipped.folder("rules")
    others = [path.name for path in real.glob("*/*.yaml") if path.name not in ("python.yaml", "megatron.yaml")]
    shutil.copytree(real, folder, ignore=shutil.ignore_patterns(*others))
    taxonomy = folder / "taxonomy.yaml"
    text = taxonomy.read_text().replace("infrastructure: [", "infrastructure: [cooling_error, ")
    text = text.replace("  machine: [", "  machine: [cooling_error, ")
    taxonomy.write_text(text)
    policy = folder / "policy.yaml"
    policy.write_text(
        policy.read_text().replace(
            "\nactions:\n", "\nactions:\n  cooling_error: {kind: isolate_and_restart, why: 'The node is too hot.'}\n"
        )
    )
    monkeypatch.setattr(shipped, "folder", lambda name: folder if name == "rules" else real.parent / name)
    shipped_taxonomy.cache_clear()
    shipped_policy.cache_clear()
    yield folder
    monkeypatch.undo()
    shipped_taxonomy.cache_clear()
    shipped_policy.cache_clear()


def test_a_sites_own_reason_works_through_diagnosis_decision_and_isolation(own_rules: Path) -> None:
    from diagnose.job import Job
    from diagnose.knowledge.rules import load
    from diagnose.matching.matcher import Matcher
    from diagnose.reading.sources import Source

    (own_rules / "failures" / "site.yaml").write_text(
        "layer: hardware\nprinted_by: the site's chillers\nreference: https://site.example/chillers\nrules:\n"
        "  - id: chiller\n    reason: cooling_error\n    severity: fatal\n    title: The chiller of a node failed\n"
        "    pattern: 'CHILLER: node (?P<node>[\\w-]+) over temperature'\n    mitigation: Call the site.\n"
        "    examples:\n      matches: ['CHILLER: node gpu-7 over temperature']\n      misses: ['CHILLER: all well']\n"
    )
    job = Job("job", [Source("log", None)], Matcher(load([own_rules])))
    job.feed(0, (steps(1, 30) + "CHILLER: node gpu-7 over temperature\n" + RAISED.format(what="KeyError: 'x'")).encode())
    job.close(0)
    report = job.report()
    assert (report.diagnosis.category, report.diagnosis.reason) == ("infrastructure", "cooling_error")
    assert (report.action.kind, report.action.nodes) == ("isolate_and_restart", ["gpu-7"])
    assert accuses("cooling_error")
    assert advise(job.finding(job.evidence()), shipped_policy()).nodes == ["gpu-7"]


def test_a_property_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    text = (shipped.folder("rules") / "taxonomy.yaml").read_text()
    path = tmp_path / "taxonomy.yaml"
    path.write_text(text.replace("properties:\n", "properties:\n  mahcine: [ecc_error]\n"))
    with pytest.raises(RuleError, match="mahcine"):
        read_taxonomy(path)
