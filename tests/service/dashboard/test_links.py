"""Links to other tools: filled with what is known, escaped, and left out where something is not known."""

from __future__ import annotations

from service.dashboard.links import of_job, of_node

TEMPLATES = (
    "Grafana=https://grafana/d/x?var-node={node}&from={from_ms}&to={to_ms} "
    "Scheduler=https://slurm/jobs/{job} W&B=https://wandb.ai/runs/{label:wandb}"
)
JOB = {"name": "a/b c", "user": None, "cluster": None, "labels": {"gpus": "8"}}
ATTEMPT = {"number": 2, "started_at": 10.0, "ended_at": None}


def test_a_job_has_the_links_whose_values_are_known() -> None:
    assert of_job(TEMPLATES, JOB, ATTEMPT, 20.0) == [("Scheduler", "https://slurm/jobs/a%2Fb%20c")]
    named = {**JOB, "labels": {"wandb": "x&y"}}
    assert ("W&B", "https://wandb.ai/runs/x%26y") in of_job(TEMPLATES, named, ATTEMPT, 20.0)


def test_a_node_has_the_links_about_nodes() -> None:
    assert of_node(TEMPLATES, "gpu-7", 1.5, 2.0) == [("Grafana", "https://grafana/d/x?var-node=gpu-7&from=1500&to=2000")]
