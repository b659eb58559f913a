"""Strangers at a port with TLS who do not shake hands, and a certificate that is renewed. Against a real service."""

from __future__ import annotations

import contextlib
import os
import shutil
import ssl
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.service.intake.test_streams import EXPORT, free_ports, stranger, token
from tests.service.test_certificates import certificate
from tests.support.live import until
from tests.support.servers import Server

pytestmark = [
    pytest.mark.server,
    pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificates"),
]
PORTS = "https", "syslog", "grpc"


@dataclass
class Site:
    server: Server
    folder: Path
    shipper: str
    syslog: int
    grpc: int

    def port(self, name: str) -> int:
        return {"https": self.server.port, "syslog": self.syslog, "grpc": self.grpc}[name]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("handshakes")
    certificate(folder)
    data = folder / "data"
    shipper, (syslog, grpc) = token(data, "shipper", "--role", "ingest"), free_ports(2)
    admin = token(data, "admin", "--role", "admin")
    words = {
        "TLS_CERTIFICATE": str(folder / "cert.pem"), "TLS_KEY": str(folder / "key.pem"), "HEAD_S": "4",
        "MOST_STRANGERS": "40", "MOST_STRANGERS_ADDRESS": "30", "SYSLOG_PORT": str(syslog), "GRPC_PORT": str(grpc),
    }  # fmt: skip
    with Server(data, **{f"DIAGNOSE_SERVE_{name}": value for name, value in words.items()}) as server:
        server.client = httpx.Client(
            base_url=server.url, timeout=60, verify=False, headers={"Authorization": f"Bearer {admin}"}
        )
        yield Site(server, folder, shipper, syslog, grpc)


def files(server: Server) -> int:
    return len(os.listdir(f"/proc/{server.pid}/fd"))


@pytest.mark.parametrize("name", PORTS)
def test_who_does_not_shake_hands_is_a_stranger_too(site: Site, name: str) -> None:
    """They were counted when they had: 6,000 who said nothing stayed for a minute, and took as much memory as they liked."""
    before = files(site.server)
    held = [stranger(site.port(name), f"127.0.0.{2 + number % 5}") for number in range(400)]
    time.sleep(0.5)
    assert files(site.server) - before <= 4 * 40 + 10
    assert site.server.client.get("/healthz").status_code == 200
    time.sleep(2)
    late = [stranger(site.port(name), "127.0.0.2") for _ in range(100)]
    assert until(lambda: files(site.server) - before <= 40 + 10), "the oldest made room"
    assert until(lambda: files(site.server) - before <= 5), "and the others are closed in time"
    for one in (*held, *late):
        one.close()


def test_strangers_on_the_port_of_grpc_do_not_keep_out_who_shows_a_token(site: Site) -> None:
    """gRPC itself bounds the number of connections in no way that tells strangers from senders."""
    import grpc

    trust = grpc.ssl_channel_credentials((site.folder / "cert.pem").read_bytes())
    known = (("authorization", f"Bearer {site.shipper}"),)
    named = [("grpc.ssl_target_name_override", "localhost")]
    with grpc.secure_channel(f"127.0.0.1:{site.grpc}", trust, options=named) as early:
        early.unary_unary(EXPORT)(b"", metadata=known, timeout=20)
        context = ssl._create_unverified_context()
        context.set_alpn_protocols(["h2"])
        held = []
        for number in range(120):
            with contextlib.suppress(OSError):
                plain = stranger(site.grpc, f"127.0.0.{2 + number % 5}")
                held.append(context.wrap_socket(plain))
        own = [("grpc.use_local_subchannel_pool", 1)]
        with grpc.secure_channel(f"127.0.0.1:{site.grpc}", trust, options=[*named, *own]) as late:
            late.unary_unary(EXPORT)(b"", metadata=known, timeout=20, wait_for_ready=True)
        time.sleep(5)
        ended = 0
        for one in held:
            one.settimeout(5)
            with contextlib.suppress(ConnectionError, ssl.SSLError):
                while one.recv(65536):
                    pass
            ended += 1
            one.close()
        assert ended == len(held), "each was cut off"
        early.unary_unary(EXPORT)(b"", metadata=known, timeout=1)
    assert "Traceback" not in site.server.log


def test_each_port_shows_a_certificate_that_was_renewed(site: Site) -> None:
    def shown(name: str) -> list[str]:
        return ssl.get_server_certificate(("127.0.0.1", site.port(name))).split()

    held = (site.folder / "cert.pem").read_text().split()
    assert {name: shown(name) for name in PORTS} == dict.fromkeys(PORTS, held)
    certificate(site.folder)
    renewed = (site.folder / "cert.pem").read_text().split()
    assert renewed != held
    for name in PORTS:
        until(lambda name=name: shown(name) == renewed)  # type: ignore[misc]
