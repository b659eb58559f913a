"""deploy/monitoring: alerts fire for their faults, each has a page, and whatever is asked of Prometheus is a metric of ours."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import Counter, Histogram
from prometheus_client.metrics import MetricWrapperBase

from service.telemetry import Telemetry
from tests.conftest import ROOT

MONITORING = ROOT / "deploy" / "monitoring"
RUNBOOKS = ROOT / "docs" / "runbooks"
ALERTS: list[dict[str, Any]] = yaml.safe_load((MONITORING / "alerts.yaml").read_text())["groups"][0]["rules"]
DASHBOARD: dict[str, Any] = json.loads((MONITORING / "dashboard.json").read_text())
NOT_OURS = {"up", "process_cpu_seconds_total", "process_resident_memory_bytes"}
_ASKED = re.compile(r"\b((?:diagnose|process)_\w+|up)\b(?:\{([^}]*)\})?")
_BY = re.compile(r"\bby \(([\w, ]+)\)")
_LABEL = re.compile(r"(\w+)(?:=~|!=|=)")
needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is not installed: apt install prometheus"
)


def metrics() -> dict[str, set[str]]:
    """Name of each series -> its labels."""
    found: dict[str, set[str]] = {}
    for one in vars(Telemetry()).values():
        if isinstance(one, MetricWrapperBase):
            labels = set(one._labelnames)
            if isinstance(one, Histogram):
                found |= {f"{one._name}_bucket": labels | {"le"}, f"{one._name}_sum": labels, f"{one._name}_count": labels}
            else:
                found[one._name + ("_total" if isinstance(one, Counter) else "")] = labels
    return found


def expressions() -> Iterator[str]:
    for alert in ALERTS:
        yield alert["expr"]
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            yield target["expr"]


@pytest.mark.parametrize("expression", sorted(set(expressions())))
def test_what_is_asked_is_there_with_its_labels(expression: str) -> None:
    known = metrics()
    asked = _ASKED.findall(expression)
    assert asked
    for name, labels in asked:
        assert name in known or name in NOT_OURS, name
        if name in known:
            assert set(_LABEL.findall(labels)) <= known[name]
            for group in _BY.findall(expression):
                assert {word.strip() for word in group.split(",")} <= known[name]


def test_each_alert_has_a_page_and_each_page_an_alert() -> None:
    names = [alert["alert"] for alert in ALERTS]
    assert len(names) == len(set(names))
    assert {path.stem for path in RUNBOOKS.glob("*.md")} - {"README"} == set(names)
    for alert in ALERTS:
        page = (RUNBOOKS / f"{alert['alert']}.md").read_text()
        assert alert["annotations"]["summary"] in page
        assert alert["annotations"]["runbook_url"].endswith(f"/runbooks/{alert['alert']}.html")
        assert f"[{alert['alert']}]({alert['alert']}.md)" in (RUNBOOKS / "README.md").read_text()


def test_each_alert_is_tested_to_fire_and_to_be_silent() -> None:
    tests = yaml.safe_load((MONITORING / "alerts_test.yaml").read_text())["tests"]
    tried = [(one["alertname"], bool(one["exp_alerts"])) for test in tests for one in test["alert_rule_test"]]
    assert sorted(tried) == sorted((alert["alert"], fires) for alert in ALERTS for fires in (True, False))


def test_panels_have_numbers_of_their_own_and_do_not_overlap() -> None:
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken = [
        (x, y)
        for at in (panel["gridPos"] for panel in panels)
        for x in range(at["x"], at["x"] + at["w"])
        for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(taken) == len(set(taken))
    assert max(x for x, _ in taken) < 24


@pytest.mark.slow
@needs_promtool
@pytest.mark.parametrize(
    "words",
    [
        ("check", "rules", "alerts.yaml"),
        ("test", "rules", "alerts_test.yaml"),
        ("check", "config", "--syntax-only", "scrape.yaml"),
    ],
)
def test_promtool_agrees(words: tuple[str, ...]) -> None:
    done = subprocess.run(["promtool", *words], cwd=MONITORING, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
def test_promtool_can_read_what_the_dashboard_asks(tmp_path: Path) -> None:
    rules = [{"record": f"panel:{number}", "expr": one} for number, one in enumerate(sorted(set(expressions())))]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    done = subprocess.run(
        ["promtool", "check", "rules", "rules.yaml"], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
