"""``diagnose mcp``: tools with which other agents ask about logs and about a service (Model Context Protocol)."""

from __future__ import annotations

import argparse
import ipaddress
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from diagnose.cli.options.destination import add_service, token
from diagnose.errors import DiagnoseError, needs

if TYPE_CHECKING:
    from diagnose.mcp.cluster import Cluster


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "Without --listen it speaks on standard input and output, as an agent that starts it expects. "
        "docs/mcp.md has settings for agents."
    )
    parser.add_argument(
        "--logs",
        metavar="DIR",
        type=Path,
        action="append",
        help="folder below which log files may be read, not with --listen; may be repeated (default: the current folder)",
    )
    parser.add_argument("--redact-hosts", action="store_true", help="take out names and addresses of machines too")
    parser.add_argument(
        "--listen",
        metavar="ADDRESS:PORT",
        help="answer over HTTP at /mcp instead; each request needs a token of the service, and sees what that token may see",
    )
    parser.add_argument(
        "--allowed-hosts",
        metavar="NAMES",
        default="",
        help="with --listen: further names by which it is reached, separated by commas",
    )
    add_service(parser, what="address of the service to ask about jobs, failures and nodes (default: $DIAGNOSE_URL)")


def run(arguments: argparse.Namespace) -> int:
    needs("diagnose.mcp")
    try:
        import mcp.server.mcpserver  # noqa: F401
    except ImportError:
        raise DiagnoseError(
            "this needs the package mcp, version 2 or later", remedy="pip install 'diagnose-train[mcp]'"
        ) from None
    from diagnose.mcp.cluster import Cluster
    from diagnose.mcp.logs import Logs
    from diagnose.mcp.server import server

    url = arguments.to or os.environ.get("DIAGNOSE_URL")
    own = token(arguments)
    if arguments.listen is None:
        logs = Logs(arguments.logs or [Path.cwd()])
        cluster = Cluster(url, own, ca=arguments.ca) if url else None
        server(logs, cluster, hosts=arguments.redact_hosts).run("stdio")
        return 0
    if not url:
        raise DiagnoseError("over HTTP it takes the tokens of a service", remedy="give its address with --to URL")
    if arguments.logs:
        raise DiagnoseError("files of this machine are not read over HTTP", remedy="leave out --logs, or --listen")
    _listen(arguments, Cluster(url, None, ca=arguments.ca))
    return 0


def _listen(arguments: argparse.Namespace, cluster: Cluster) -> None:
    import uvicorn

    from diagnose.mcp.server import http, server

    host, port = _address(arguments.listen)
    here = host == "localhost" or (_is_address(host) and ipaddress.ip_address(host).is_loopback)
    if not here:
        _check_closed(cluster)
    names = ["localhost", "127.0.0.1", "[::1]", f"[{host}]" if ":" in host else host, *arguments.allowed_hosts.split(",")]
    made = server(None, cluster, hosts=arguments.redact_hosts)
    app = http(made, cluster, [name.strip() for name in names if name.strip()], anybody=here)
    sys.stderr.write(f"diagnose mcp: http://{arguments.listen}/mcp, for who has a token of {cluster.url}\n")
    uvicorn.run(app, host=host, port=port, log_level="warning", lifespan="on")


def _check_closed(cluster: Cluster) -> None:
    """Refuse to let other machines ask a service that takes everybody on its own machine for an administrator."""
    from diagnose.mcp.cluster import Refused

    try:
        cluster.get("jobs", token="", query={"limit": 1})
    except Refused as error:
        if error.status == 401:
            return
        raise
    raise DiagnoseError(
        "other machines could ask, and the service has no token yet",
        where=cluster.url,
        remedy="create one first: diagnose tokens create NAME --role viewer",
    )


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    host = host.strip("[]") or "127.0.0.1"
    if not (port.isdecimal() and 0 < int(port) < 65536):
        raise DiagnoseError("not ADDRESS:PORT", where=text, remedy="give it as 127.0.0.1:8322")
    return host, int(port)


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
