"""``diagnose serve``: the REST service."""

from __future__ import annotations

import argparse
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from diagnose.errors import DiagnoseError

if TYPE_CHECKING:
    from service.settings import Settings


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--data", metavar="DIR", type=Path, help="where journal and database lie (~/.local/share/diagnose/service)"
    )
    parser.add_argument("--database", metavar="URL", help="postgresql://USER@HOST/NAME instead of SQLite in the data folder")
    parser.add_argument("--host", default=None, help="address to listen on (127.0.0.1); others need a token first")
    parser.add_argument("--port", type=int, default=None, help="port to listen on (8321); 0: any free one")
    parser.add_argument("--tls-certificate", metavar="FILE", type=Path, help="serve HTTPS with this certificate")
    parser.add_argument("--tls-key", metavar="FILE", type=Path, help="its private key")
    parser.add_argument("--root-path", metavar="PREFIX", help="the path under which a proxy shows the service")
    parser.add_argument(
        "--policy", metavar="FILE", type=Path, help="what is done about failures, on whose word: docs/policy.md"
    )
    parser.add_argument(
        "--executors",
        metavar="FILE",
        type=Path,
        help="who carries approved actions out: docs/executors.md (DIAGNOSE_EXECUTORS)",
    )
    parser.add_argument("--identities", metavar="FILE", type=Path, help="which labels name job, source, rank and node here")
    parser.add_argument(
        "--nvrx-root", metavar="DIR", type=Path, help="answer the NVIDIA resiliency extension, for logs below this folder"
    )
    parser.add_argument("--nvrx-from", metavar="NETWORKS", help="who needs no token for that (127.0.0.0/8,::1/128)")
    parser.add_argument("--webhooks-to", metavar="NETWORKS", help="private networks that webhooks may reach: 10.20.0.0/16")
    parser.add_argument("--redact", action="store_true", default=None, help="take secrets out of what is stored")
    parser.add_argument(
        "--raw-logs", metavar="DIR", type=Path, help="keep raw logs below this folder: docs/service.md (default: they are not)"
    )
    parser.add_argument("--keep-raw-days", metavar="N", type=float, help="delete raw logs so long after their attempt's end")
    parser.add_argument("--keep-lines-days", metavar="N", type=float, help="likewise compressed logs")
    parser.add_argument("--keep-jobs-days", metavar="N", type=float, help="delete jobs of which nothing was heard for so long")
    parser.add_argument("--with-vllm", metavar="MODEL", help="start vLLM with this model beside the service, and watch it")
    parser.add_argument(
        "--vllm-flags", metavar="FLAGS", help="more flags for it: --vllm-flags='--max-model-len=8192 --dtype=half'"
    )
    parser.add_argument("--learn", action="store_true", default=None, help="learn filter rules from live jobs")
    parser.add_argument("--llm", metavar="URL", help="ask this endpoint about failures that rules explain weakly")
    parser.add_argument("--model", metavar="NAME", help="one of its models (default: the first)")
    parser.add_argument("--agent-tokens-per-hour", metavar="N", type=int, help="what asking may cost (4,000,000)")
    parser.add_argument("--agent-tokens-per-job", metavar="N", type=int, help="of one job (200,000)")
    parser.add_argument("--log-level", default="info", choices=["debug", "info", "warning", "error"], help="how much it tells")


def run(arguments: argparse.Namespace) -> int:
    from service.server import serve

    serve(settings_of(arguments), log_level=arguments.log_level)
    return 0


def settings_of(arguments: argparse.Namespace) -> Settings:
    """Options over the environment over the defaults."""
    from service.settings import Settings

    settings = Settings().with_environment(os.environ)
    given = {
        name: value
        for name in (
            "data",
            "database",
            "host",
            "port",
            "tls_certificate",
            "tls_key",
            "root_path",
            "policy",
            "executors",
            "identities",
            "nvrx_root",
            "nvrx_from",
            "webhooks_to",
            "redact",
            "raw_logs",
            "keep_raw_days",
            "keep_lines_days",
            "keep_jobs_days",
            "with_vllm",
            "vllm_flags",
            "learn",
            "llm",
            "model",
            "agent_tokens_per_hour",
            "agent_tokens_per_job",
        )
        if (value := getattr(arguments, name, None)) is not None
    }
    settings = replace(settings, **given)
    if (settings.tls_certificate is None) != (settings.tls_key is None):
        raise DiagnoseError("a certificate and its key belong together", remedy="give --tls-certificate and --tls-key")
    for file in (settings.tls_certificate, settings.tls_key):
        if file is not None and not file.is_file():
            raise DiagnoseError("no such file", where=str(file), remedy="check the path")
    if not 0 <= settings.port < 65536:
        raise DiagnoseError(f"{settings.port} is not a port", remedy="give one from 1 to 65535, or 0 for any")
    return settings
