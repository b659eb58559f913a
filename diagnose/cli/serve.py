"""``diagnose serve``: the REST service."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from service.configuration import Configuration
    from service.settings import Settings

FLAGS = (
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
    "log_level",
)
"""settings that have a flag of their own; the others stand in the environment or the file"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", metavar="DIR", help="where journal and database lie (~/.local/share/diagnose/service)")
    parser.add_argument("--config", metavar="FILE", type=Path, help="settings as YAML: docs/service.md (DIAGNOSE_SERVE_CONFIG)")
    parser.add_argument(
        "--print-config", action="store_true", help="print the settings as such a file, and where each comes from"
    )
    parser.add_argument("--database", metavar="URL", help="postgresql://USER@HOST/NAME instead of SQLite in the data folder")
    parser.add_argument("--host", default=None, help="address to listen on (127.0.0.1); others need a token first")
    parser.add_argument("--port", default=None, help="port to listen on (8321); 0: any free one")
    parser.add_argument("--tls-certificate", metavar="FILE", help="serve HTTPS with this certificate")
    parser.add_argument("--tls-key", metavar="FILE", help="its private key")
    parser.add_argument("--root-path", metavar="PREFIX", help="the path under which a proxy shows the service")
    parser.add_argument("--policy", metavar="FILE", help="what is done about failures, on whose word: docs/policy.md")
    parser.add_argument(
        "--executors",
        metavar="FILE",
        help="who carries approved actions out: docs/executors.md (DIAGNOSE_EXECUTORS)",
    )
    parser.add_argument("--identities", metavar="FILE", help="which labels name job, source, rank and node here")
    parser.add_argument("--nvrx-root", metavar="DIR", help="answer the NVIDIA resiliency extension, for logs below this folder")
    parser.add_argument("--nvrx-from", metavar="NETWORKS", help="who needs no token for that (127.0.0.0/8,::1/128)")
    parser.add_argument("--webhooks-to", metavar="NETWORKS", help="private networks that webhooks may reach: 10.20.0.0/16")
    parser.add_argument("--redact", action="store_true", default=None, help="take secrets out of what is stored")
    parser.add_argument(
        "--raw-logs", metavar="DIR", help="keep raw logs below this folder: docs/service.md (default: they are not)"
    )
    parser.add_argument("--keep-raw-days", metavar="N", help="delete raw logs so long after their attempt's end")
    parser.add_argument("--keep-lines-days", metavar="N", help="likewise compressed logs")
    parser.add_argument("--keep-jobs-days", metavar="N", help="delete jobs of which nothing was heard for so long")
    parser.add_argument("--with-vllm", metavar="MODEL", help="start vLLM with this model beside the service, and watch it")
    parser.add_argument(
        "--vllm-flags", metavar="FLAGS", help="more flags for it: --vllm-flags='--max-model-len=8192 --dtype=half'"
    )
    parser.add_argument("--learn", action="store_true", default=None, help="learn filter rules from live jobs")
    parser.add_argument("--llm", metavar="URL", help="ask this endpoint about failures that rules explain weakly")
    parser.add_argument("--model", metavar="NAME", help="one of its models (default: the first)")
    parser.add_argument("--agent-tokens-per-hour", metavar="N", help="what asking may cost (4,000,000)")
    parser.add_argument("--agent-tokens-per-job", metavar="N", help="of one job (200,000)")
    parser.add_argument(
        "--log-level", metavar="LEVEL", help="how much its own log tells: debug, info (default), warning, error"
    )


def run(arguments: argparse.Namespace) -> int:
    configuration = configuration_of(arguments)
    configuration.check_files()
    if arguments.print_config:
        sys.stdout.write(configuration.text())
        return 0
    from service.server import serve

    serve(configuration.settings)
    return 0


def configuration_of(arguments: argparse.Namespace) -> Configuration:
    """Flags over the environment over the file over the defaults."""
    from service.configuration import load

    return load({name: getattr(arguments, name, None) for name in FLAGS}, arguments.config)


def settings_of(arguments: argparse.Namespace) -> Settings:
    """The same, for commands that change a service's database."""
    return configuration_of(arguments).settings
