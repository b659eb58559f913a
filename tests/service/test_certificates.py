"""A certificate that is renewed while the service runs."""

from __future__ import annotations

import shutil
import ssl
import subprocess
import urllib.request
from pathlib import Path

import pytest

from tests.support.live import until
from tests.support.servers import Server

pytestmark = [
    pytest.mark.server,
    pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificates"),
]


def certificate(folder: Path) -> None:
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-days", "2"]
    subprocess.run(
        [*words, "-keyout", str(folder / "key.pem"), "-out", str(folder / "new.pem")], check=True, capture_output=True
    )
    (folder / "new.pem").replace(folder / "cert.pem")


def test_a_certificate_that_was_renewed_is_used_without_a_restart(tmp_path: Path) -> None:
    certificate(tmp_path)
    words = ["--tls-certificate", str(tmp_path / "cert.pem"), "--tls-key", str(tmp_path / "key.pem")]
    with Server(tmp_path / "data", *words) as running:
        shown = ssl.get_server_certificate(("127.0.0.1", running.port))
        assert shown.split() == (tmp_path / "cert.pem").read_text().split()
        certificate(tmp_path)
        renewed = (tmp_path / "cert.pem").read_text().split()
        until(lambda: ssl.get_server_certificate(("127.0.0.1", running.port)).split() == renewed)
        with urllib.request.urlopen(f"{running.url}/healthz", context=ssl._create_unverified_context()) as answer:
            assert answer.headers["strict-transport-security"]
