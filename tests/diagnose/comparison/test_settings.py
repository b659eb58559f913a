"""What lines tell of versions and settings, in the forms in which programs print them."""

from __future__ import annotations

import time

import pytest

from diagnose.comparison.settings import Settings, settings_in, versions_in


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("NCCL version 2.22.3+cuda12.6", {"nccl": "2.22.3+cuda12.6"}),
        (
            "| NVIDIA-SMI 535.129.03   Driver Version: 535.129.03   CUDA Version: 12.2     |",
            {"driver": "535.129.03", "cuda": "12.2", "nvidia-smi": "535.129.03"},
        ),
        ("Driver Version                            : 550.90.07", {"driver": "550.90.07"}),
        ("torch==2.4.1", {"torch": "2.4.1"}),
        ("PyTorch version: 2.3.0a0", {"torch": "2.3.0a0"}),
        ("flash_attn 2.5.8, apex is 0.1", {"flash-attn": "2.5.8", "apex": "0.1"}),
        ("step 12 loss 2.0", {}),
        ("torchvision are deprecated from version 0.22", {}),
        ("the driver waited 2.5 s", {}),
    ],
)
def test_versions(line: str, told: dict[str, str]) -> None:
    assert dict(versions_in(line)) == told


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("  micro_batch_size ................................ 4", {"micro_batch_size": "4"}),
        ("  zero_enabled ................. True", {"zero_enabled": "True"}),
        ("Namespace(lr=0.0003, name='a, b', epochs=3)", {"lr": "0.0003", "name": "a, b", "epochs": "3"}),
        ("TrainingArguments(output_dir=/x, fp16=True)", {"output_dir": "/x", "fp16": "True"}),
        ("python train.py --lr 3e-4 --fp16 --micro-batch-size=4", {"lr": "3e-4", "fp16": "true", "micro_batch_size": "4"}),
        ('  "hidden_size": 4096,', {"hidden_size": "4096"}),
        ("  hidden_act: gelu", {"hidden_act": "gelu"}),
        ("export NCCL_DEBUG=INFO", {"NCCL_DEBUG": "INFO"}),
        ("MASTER_PORT=29500", {}),
        ("  local_rank ...... 3", {}),
        ("Traceback (most recent call last):", {}),
        ("KeyError: 'x'", {}),
        ("error: gpu003", {}),
        ("step: 12, loss: 2.0", {}),
    ],
)
def test_settings(line: str, told: dict[str, str]) -> None:
    assert dict(settings_in(line)) == told


def test_what_differs_from_rank_to_rank_is_no_setting_of_the_run() -> None:
    told = Settings()
    told.read([b"[rank0]:   seed ..... 1", b"[rank1]:   seed ..... 2", b"[rank0]:   lr ..... 0.1", b"[rank1]:   lr ..... 0.1"])
    assert told.settings == {"lr": "0.1"}


@pytest.mark.parametrize(
    "piece", [b" ", b"a", b"--a ", b"a=", b"a=b,", b"python ", b"...", b"Namespace(", b'"a": ', b"torch 1."]
)
def test_a_hostile_line_takes_no_time(piece: bytes) -> None:
    began = time.thread_time()
    Settings().read([piece * (200_000 // len(piece))])
    assert time.thread_time() - began < 2
