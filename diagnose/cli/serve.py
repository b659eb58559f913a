"""``diagnose serve``: the REST service."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from diagnose.cli import imports

if TYPE_CHECKING:
    from service.configuration import Configuration
    from service.settings import Settings

GROUPS: dict[str, dict[str, str | None]] = {
    "where it listens": {
        "host": "ADDRESS",
        "port": "N",
        "tls_certificate": "FILE",
        "tls_key": "FILE",
        "root_path": "PATH",
        "allowed_hosts": "NAMES",
        "trusted_proxies": "NETWORKS",
        "sign_in": "FILE",
    },
    "what it stores": {
        "data": "DIR",
        "database": "URL",
        "redact": None,
        "raw_logs": "DIR",
        "keep_raw_days": "DAYS",
        "keep_lines_days": "DAYS",
        "keep_jobs_days": "DAYS",
    },
    "what it does about failures": {
        "policy": "FILE",
        "authority": "WORD",
        "executors": "FILE",
        "webhooks_to": "NETWORKS",
    },
    "learning, and asking a language model": {
        "learn": None,
        "llm": "URL",
        "model": "NAME",
        "agent_tokens_per_job": "N",
        "agent_tokens_per_hour": "N",
        "with_vllm": "MODEL",
        "vllm_flags": "FLAGS",
    },
    "other": {"identities": "FILE", "nvrx_root": "DIR", "nvrx_from": "NETWORKS", "log_level": "LEVEL"},
}
"""heading in the help -> setting with its own flag -> placeholder for its value; None for a switch"""
FLAGS = tuple(name for settings in GROUPS.values() for name in settings)
"""the other settings are set in the environment or in the file"""


def configure(parser: argparse.ArgumentParser) -> None:
    from service.settings import described

    parser.usage = "diagnose serve [options]"
    parser.epilog = (
        "Each option can also be set in the environment (--raw-logs as DIAGNOSE_SERVE_RAW_LOGS) or in the configuration file. "
        "docs/service.md describes these and all other settings."
    )
    parser.add_argument(
        "--config", metavar="FILE", type=Path, help="configuration file in YAML (default: $DIAGNOSE_SERVE_CONFIG)"
    )
    parser.add_argument(
        "--print-config",
        action="store_true",
        help="print all settings as a configuration file, say where each comes from, and exit",
    )
    for title, names in GROUPS.items():
        group = parser.add_argument_group(title)
        for name, metavar in names.items():
            flag, text = f"--{name.replace('_', '-')}", described(name).replace("%", "%%")
            if metavar is None:
                group.add_argument(flag, action="store_true", default=None, help=text)
            else:
                group.add_argument(flag, metavar=metavar, help=text)


def run(arguments: argparse.Namespace) -> int:
    configuration = configuration_of(arguments)
    configuration.check_files()
    if arguments.print_config:
        sys.stdout.write(configuration.text())
        return 0
    from service.opening import Opening

    with Opening(configuration.settings) as opening:
        with imports():
            from service.server import serve  # its imports take long: the port is open before

        serve(configuration.settings, opening)
    return 0


def configuration_of(arguments: argparse.Namespace) -> Configuration:
    """Flags over the environment over the file over the defaults."""
    from service.configuration import load

    return load({name: getattr(arguments, name, None) for name in FLAGS}, arguments.config)


def settings_of(arguments: argparse.Namespace) -> Settings:
    """The same, for commands that change a service's database."""
    return configuration_of(arguments).settings
