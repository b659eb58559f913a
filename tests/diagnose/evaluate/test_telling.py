"""What the service is told of an evaluation. The service is made up: it is away when the test says so."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from diagnose.evaluate.telling import tell
from diagnose.shipping.destination import Away


@dataclass
class Service:
    away_after: int = 100
    told: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)

    def scores(self, job: str, report: Mapping[str, object]) -> None:
        self._take("scores", job, report)

    def evaluated(self, job: str, report: Mapping[str, object]) -> None:
        self._take("evaluated", job, report)

    def _take(self, what: str, job: str, report: Mapping[str, object]) -> None:
        if len(self.told) >= self.away_after:
            raise Away("the service does not answer", where="http://x")
        self.told.append((what, job, dict(report)))


def scores(folder: Path, step: int | None = 100, at: float = 50.0) -> Path:
    folder.mkdir(exist_ok=True)
    one = {"samples": 10, "scores": {"acc": 0.5, "ppl": 9.0}, "noise": {"acc": 0.1}, "lower": ["ppl"]}
    spent = {"took_s": 10.0, "loading_s": 1.0, "inference_s": 8.0, "metric_s": 2.0, "failed_s": 0.0, "waiting_s": 1.0}
    found = {
        "checkpoint": "/ckpt/step-100", "step": step, "datasets": {"a": one}, "missing": {"b": None},
        "at": at, "expected_s": 9.0, "spent": spent,
    }  # fmt: skip
    (folder / "scores.json").write_text(json.dumps(found))
    return folder


def test_each_score_is_told_with_its_noise_and_direction_and_then_the_cost(tmp_path: Path) -> None:
    service = Service()
    assert tell(scores(tmp_path), service, "llama") is None

    path = {"step": 100, "path": "/ckpt/step-100", "time": 50.0}
    cost = {"expected_s": 9.0, "took_s": 10.0, "loading_s": 1.0, "inference_s": 8.0, "metric_s": 2.0, "failed_s": 0.0}
    assert service.told == [
        ("scores", "llama", {**path, "data_set": "a", "metric": "acc", "score": 0.5, "noise": 0.1, "direction": "higher"}),
        ("scores", "llama", {**path, "data_set": "a", "metric": "ppl", "score": 9.0, "noise": None, "direction": "lower"}),
        ("evaluated", "llama", {**path, **cost, "waiting_s": 1.0, "data_sets": 1, "missing": 1}),
    ]


def test_nothing_is_told_twice_unless_it_changed(tmp_path: Path) -> None:
    service = Service()
    for _ in range(2):
        tell(scores(tmp_path), service, "llama")
    assert len(service.told) == 3
    tell(scores(tmp_path, at=60.0), service, "llama")
    assert len(service.told) == 6
    tell(tmp_path, service, "another job")
    assert len(service.told) == 9


def test_what_a_service_did_not_take_is_told_later(tmp_path: Path) -> None:
    service = Service(away_after=1)
    assert "does not answer" in (tell(scores(tmp_path), service, "llama") or "")
    service.away_after = 100
    assert tell(tmp_path, service, "llama") is None
    assert [what for what, _, _ in service.told] == ["scores", "scores", "scores", "evaluated"], "the last report counts"


def test_a_checkpoint_without_a_step_is_not_told(tmp_path: Path) -> None:
    service = Service()
    assert "has no step" in (tell(scores(tmp_path, step=None), service, "llama") or "")
    assert service.told == []


def test_what_cannot_be_read_is_not_told(tmp_path: Path) -> None:
    (tmp_path / "scores.json").write_text("[")
    assert tell(tmp_path, Service(), "llama") is None
    assert tell(tmp_path / "nothing", Service(), "llama") is None
