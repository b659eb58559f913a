"""The files for containers, as far as they can be read without an engine for containers."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from service.learning.vllm import FLAGS
from tests.conftest import ROOT

COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]


def test_vllm_has_the_flags_of_the_documents() -> None:
    command = SERVICES["vllm"]["command"]
    assert [flag for flag in command if not flag.startswith(("--model=", "--tensor-parallel-size="))] == list(FLAGS)


def test_the_model_is_started_when_it_is_asked_for_only() -> None:
    assert {name for name, service in SERVICES.items() if "profiles" not in service} == {"diagnose", "postgres"}
    assert SERVICES["vllm"]["profiles"] == ["gpu"]
    assert "vllm" not in SERVICES["diagnose"]["depends_on"]


@pytest.mark.parametrize("name", SERVICES)
def test_a_port_is_open_on_this_machine_only(name: str) -> None:
    assert all(port.startswith("127.0.0.1:") for port in SERVICES[name].get("ports", []))


def test_no_password_has_a_default() -> None:
    text = (ROOT / "docker-compose.yml").read_text()
    secrets = re.findall(r"\$\{(\w*(?:PASSWORD|TOKEN|KEY|SECRET)\w*)(.*?)\}", text)
    assert {name for name, _ in secrets} == {"POSTGRES_PASSWORD", "HF_TOKEN"}
    assert {default for _, default in secrets} == {":?choose one", ":-"}


def test_every_volume_is_declared_and_used() -> None:
    used = {volume.split(":")[0] for service in SERVICES.values() for volume in service.get("volumes", [])}
    assert used == set(COMPOSE["volumes"])


def test_the_image_runs_as_nobody_in_particular_and_copies_no_secrets() -> None:
    text = (ROOT / "Dockerfile").read_text()
    last = text.rpartition("\nFROM ")[2]
    assert re.search(r"^USER 10001$", last, re.MULTILINE)
    assert "COPY . ." not in last
    assert {".git", ".venv"} <= set((ROOT / ".dockerignore").read_text().split())
