"""Settings: what is refused and how it is said, which of flag, variable and file counts, and what --print-config prints."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from annotated_types import Ge, Le
from pydantic import ValidationError
from pydantic.fields import FieldInfo

from diagnose.cli import serve
from diagnose.errors import DiagnoseError
from diagnose.quantities import DAYS, SECONDS, allowed, unit_of
from service import configuration
from service.settings import Settings
from tests.conftest import ROOT

FIELDS = Settings.model_fields
RANGED = {name: field for name, field in FIELDS.items() if any(isinstance(one, Ge | Le) for one in field.metadata)}
NOT_NUMBERS = ("nan", "inf", "-inf", "", " ", "ten", "1 2", "0x10", "1parsec", "--")


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith(("DIAGNOSE_SERVE", "DIAGNOSE_EXECUTORS")):
            monkeypatch.delenv(name)


def written(folder: Path, text: str) -> Path:
    path = folder / "site.yaml"
    path.write_text(text)
    return path


def settings(**flags: Any) -> Settings:
    return configuration.load(flags).settings


def bounds(field: FieldInfo) -> tuple[float, float]:
    least = next(one.ge for one in field.metadata if isinstance(one, Ge))
    most = next(one.le for one in field.metadata if isinstance(one, Le))
    return least, most  # type: ignore[return-value]


# --- ranges ----------------------------------------------------------------------------------------------------------------


def test_every_number_has_a_range() -> None:
    numbers = {name for name, field in FIELDS.items() if "int" in str(field.annotation) or "float" in str(field.annotation)}
    assert numbers == set(RANGED)


#: settings that another one must not be smaller than, and so cannot be tried at their edges alone
PARTNERS: dict[str, dict[str, Any]] = {
    "queue_job": {"queue_all": 1 << 40},
    "queue_all": {"queue_job": 64 << 10},
    "unstored_job": {"unstored_all": 1 << 40},
    "unstored_all": {"unstored_job": 64 << 10},
    "segment": {"journal_limit": 1 << 60},
    "journal_limit": {"segment": 4096},
}


@pytest.mark.parametrize("name", RANGED)
def test_the_edges_of_a_range_are_in_it_and_what_is_beyond_is_not(name: str) -> None:
    least, most = bounds(FIELDS[name])
    others = PARTNERS.get(name, {})
    for edge in (least, most):
        assert getattr(settings(**{name: repr(edge)}, **others), name) == edge
    step = 1 if isinstance(Settings.model_construct().__dict__.get(name), int) else 1e-9
    for beyond in (least - max(step, abs(least) * 1e-9), most + max(step, most * 1e-9)):
        with pytest.raises(DiagnoseError, match=name) as caught:
            settings(**{name: repr(beyond)}, **others)
        assert caught.value.where == f"--{name.replace('_', '-')}"
        assert caught.value.remedy == f"give {allowed(FIELDS[name])}"


def type_of(name: str) -> tuple[Any, ...]:
    """What reads a setting, without its bounds."""
    field = FIELDS[name]
    return field.annotation, *(one for one in field.metadata if not isinstance(one, Ge | Le))


@pytest.mark.parametrize("name", RANGED)
def test_what_is_no_number_is_refused(name: str) -> None:
    """All texts by one setting of each type, which is what reads them; one by each other."""
    first = next(one for one in RANGED if type_of(one) == type_of(name))
    texts = [text for text in NOT_NUMBERS if text]
    for text in texts if name == first else texts[:1]:
        with pytest.raises(DiagnoseError, match=name):
            settings(**{name: text})


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("hang_s", "900", 900),
        ("hang_s", "15m", 900),
        ("hang_s", "1.5 h", 5400),
        ("raw_wait_s", "500ms", 0.5),
        ("keep_raw_days", "14", 14),
        ("keep_raw_days", "12h", 0.5),
        ("queue_job", "64MiB", 64 << 20),
        ("queue_job", "1000000", 1_000_000),
        ("queue_job", "1.5MB", 1_500_000),
        ("journal_limit", "16GiB", 16 << 30),
    ],
)
def test_units(name: str, text: str, value: float) -> None:
    assert getattr(settings(**{name: text}), name) == value


@pytest.mark.parametrize("unit", [SECONDS, DAYS])
@pytest.mark.parametrize("value", [0, 1, 59, 60, 61, 3600, 86400, 90000, 0.5, 0.1, 1 / 86400, 36500, 1e-3])
def test_what_is_shown_is_read_as_the_same(unit: Any, value: float) -> None:
    assert unit.read(unit.show(value)) == value


# --- what is refused, and how it is said -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("keep_jobs_days", "-1", "--keep-jobs-days: keep_jobs_days cannot be '-1'; give a number of days from 1s to 36500d"),
        ("scanners", "0", "--scanners: scanners cannot be '0'; give a whole number from 1 to 256"),
        ("scanners", "2.5", "scanners cannot be '2.5'; give a whole number"),
        ("port", "65536", "port cannot be '65536'; give a whole number from 0 to 65,535"),
        ("learn", "perhaps", "learn cannot be 'perhaps'; give true or false"),
        ("log_level", "loud", "give debug, info, warning or error"),
        ("webhooks_to", "10.0.0.1/8", "give networks"),
        ("nvrx_from", "here", "give networks"),
        ("host", "two words", "give an address"),
        ("root_path", "/ends/with/", "give a path like /diagnose"),
        ("database", "mysql://here", "give postgresql://USER@HOST/NAME or sqlite:///PATH"),
        ("llm", "localhost:8000", "give an address like http"),
        ("policy", "a\x00b", "give a path"),
        ("queue_job", "1GiB", "queue_job is larger than queue_all"),
        ("tls_key", "/tmp/key", "tls_key is set and tls_certificate is not"),
    ],
)
def test_what_is_refused_is_one_sentence(name: str, text: str, said: str) -> None:
    with pytest.raises(DiagnoseError) as caught:
        settings(**{name: text})
    assert said in str(caught.value)
    assert caught.value.where == f"--{name.replace('_', '-')}"


@pytest.mark.parametrize(
    ("name", "text"), [("database", "mysql://u:hunter2@h/x"), ("llm", "ftp://u:hunter2@h"), ("database", "hunter2")]
)
def test_a_refusal_does_not_repeat_a_secret(name: str, text: str) -> None:
    with pytest.raises(DiagnoseError) as caught:
        settings(**{name: text})
    assert "hunter2" not in str(caught.value)
    assert "hunter2" not in repr(Settings(database="postgresql://u:hunter2@h/x"))


@pytest.mark.parametrize(
    ("variable", "said"),
    [
        ("DIAGNOSE_SERVE_SCANERS", "did you mean DIAGNOSE_SERVE_SCANNERS?"),
        ("diagnose_serve_prot", "did you mean DIAGNOSE_SERVE_PORT?"),
        ("DIAGNOSE_SERVE_KEEP_JOB_DAYS", "did you mean DIAGNOSE_SERVE_KEEP_JOBS_DAYS?"),
        ("DIAGNOSE_SERVE_XYZZY", "--print-config shows"),
    ],
)
def test_a_variable_that_nobody_knows_is_refused(monkeypatch: pytest.MonkeyPatch, variable: str, said: str) -> None:
    monkeypatch.setenv(variable, "1")
    with pytest.raises(DiagnoseError) as caught:
        settings()
    assert variable in str(caught.value)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("port: 1\nkeep-job-days: 3\n", 2, "there is no setting 'keep-job-days'; did you mean keep_jobs_days?"),
        ("port: 1\n\nscanners: 0\n", 3, "scanners cannot be '0'; give a whole number from 1 to 256"),
        ("webhooks_to: [10.0.0.0/8]\n", 1, "webhooks_to takes one value; give networks"),
        ("port: 1\nport: 2\n", 2, "the key 'port' is there twice"),
        ("port: 1\n- x\n", 2, "not valid YAML"),
        ("- port\n", None, "is not a mapping of settings"),
        ("tls_key: /k\n", 1, "tls_key is set and tls_certificate is not"),
        ("queue_all: 1MiB\n", 1, "queue_job is larger than queue_all"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_with_its_line(tmp_path: Path, text: str, line: int | None, said: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(DiagnoseError) as caught:
        configuration.load({}, path)
    assert said in str(caught.value)
    assert caught.value.where == (f"{path}:{line}" if line else str(path))


@pytest.mark.parametrize("content", [None, b"\xff\xfe"])
def test_a_file_that_cannot_be_read(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "site.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DiagnoseError, match="cannot be read"):
        configuration.load({}, path)


@pytest.mark.parametrize("name", ["policy", "executors", "sign_in", "identities"])
def test_a_file_that_a_setting_names_must_be_there(tmp_path: Path, name: str) -> None:
    found = configuration.load({name: str(tmp_path / "gone")})
    with pytest.raises(DiagnoseError, match=f"--{name.replace('_', '-')}: {name}: no such file"):
        found.check_files()


# --- precedence ------------------------------------------------------------------------------------------------------------


def test_flags_over_environment_over_file_over_defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, "port: 1\nscanners: 1\nhang_s: 1m\n")
    monkeypatch.setenv("DIAGNOSE_SERVE_PORT", "2")
    monkeypatch.setenv("DIAGNOSE_SERVE_SCANNERS", "2")
    found = configuration.load({"port": "3", "host": None}, path)
    assert (found.settings.port, found.settings.scanners, found.settings.hang_s) == (3, 2, 60)
    assert found.settings.host == "127.0.0.1"
    assert found.places == {"port": "--port", "scanners": "DIAGNOSE_SERVE_SCANNERS", "hang_s": f"{path}:3"}


def test_a_wrong_value_that_another_one_covers_does_no_harm(tmp_path: Path) -> None:
    assert configuration.load({"port": "3"}, written(tmp_path, "port: no\n")).settings.port == 3


def test_an_empty_variable_is_not_set_and_the_names_case_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DIAGNOSE_SERVE_LLM", "")
    monkeypatch.setenv("DIAGNOSE_SERVE_PORT", "")
    monkeypatch.setenv("Diagnose_Serve_Scanners", "3")
    found = settings()
    assert (found.llm, found.port, found.scanners) == (None, 8321, 3)


def test_a_variable_may_name_the_file_and_a_flag_goes_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DIAGNOSE_SERVE_CONFIG", str(written(tmp_path, "port: 1\n")))
    other = tmp_path / "other.yaml"
    other.write_text("port: 2\n")
    assert settings().port == 1
    assert configuration.load({}, other).settings.port == 2


def test_executors_are_named_by_the_runners_variable_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DIAGNOSE_EXECUTORS", "/x.yaml")
    assert settings().executors == Path("/x.yaml")
    monkeypatch.setenv("DIAGNOSE_SERVE_EXECUTORS", "/y.yaml")
    assert settings().executors == Path("/y.yaml")


def test_settings_made_in_the_program_do_not_read_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DIAGNOSE_SERVE_PORT", "1")
    assert Settings().port == 8321
    with pytest.raises(ValidationError):
        Settings(prot=1)  # type: ignore[call-arg]


def test_each_flag_is_a_setting() -> None:
    import argparse

    parser = argparse.ArgumentParser()
    serve.configure(parser)
    flags = {action.dest for action in parser._actions} - {"help", "config", "print_config"}
    assert flags == set(serve.FLAGS)
    assert flags <= set(FIELDS)


# --- --print-config ----------------------------------------------------------------------------------------------------------


def test_what_is_printed_is_taken_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, "scanners: 3\nkeep_jobs_days: 0.3\nraw_logs: '~/logs: # raw'\nwebhook_retry_s: 0.25\n")
    monkeypatch.setenv("DIAGNOSE_SERVE_VLLM_FLAGS", "--dtype=half --chat-template 'a \"b\"\t{x}'")
    first = configuration.load({"learn": True, "database": "postgresql://diagnose@db/logs"}, path)
    (tmp_path / "again.yaml").write_text(first.text())
    monkeypatch.delenv("DIAGNOSE_SERVE_VLLM_FLAGS")
    again = configuration.load({}, tmp_path / "again.yaml")
    assert again.settings.model_dump() == first.settings.model_dump()


def test_each_line_says_where_it_comes_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, "# ours\nscanners: 3\n")
    monkeypatch.setenv("DIAGNOSE_SERVE_HANG_S", "20m")
    lines = configuration.load({"port": "0"}, path).text().splitlines()
    found = {line.split(":")[0]: line.rpartition("  # ")[2] for line in lines}
    assert list(found) == list(FIELDS)
    assert (found["port"], found["hang_s"], found["scanners"]) == ("--port", "DIAGNOSE_SERVE_HANG_S", f"{path}:2")
    assert found["silence_s"] == "default"
    assert any(line.startswith("hang_s: 20m ") for line in lines)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("database", "postgresql://diagnose:hunter2@db/logs"),
        ("database", "postgresql://diagnose@db/logs?sslmode=require&password=hunter2"),
        ("llm", "https://ann:hunter2@gpu-1/v1"),
        ("llm", "https://hunter2@gpu-1/v1"),
        ("vllm_flags", "--dtype=half 'hunter2"),
        ("vllm_flags", "--api-key hunter2"),
        ("vllm_flags", "--hf-token=hunter2"),
    ],
)
def test_secrets_are_never_printed(tmp_path: Path, name: str, value: str) -> None:
    text = configuration.load({name: value}).text()
    assert "hunter2" not in text
    assert f"# {name}: it has a secret in it, which is not shown" in text
    (tmp_path / "again.yaml").write_text(text)
    assert getattr(configuration.load({name: value}, tmp_path / "again.yaml").settings, name) == value


def test_flags_without_a_secret_are_printed() -> None:
    assert "--max-num-batched-tokens=8192" in configuration.load({"vllm_flags": "--max-num-batched-tokens=8192"}).text()


# --- the command -------------------------------------------------------------------------------------------------------------


def diagnose(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "diagnose", *words],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        timeout=60,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "environment"),
    [
        (["--keep-jobs-days", "-1"], {}),
        ([], {"DIAGNOSE_SERVE_SCANNERS": "0"}),
        ([], {"DIAGNOSE_SERVE_SCANERS": "2"}),
        (["--policy", "BROKEN"], {}),
    ],
)
def test_nothing_is_bound_or_opened_when_a_setting_is_refused(
    tmp_path: Path, words: list[str], environment: dict[str, str]
) -> None:
    (tmp_path / "broken.yaml").write_text("mode: perhaps\n")
    words = [str(tmp_path / "broken.yaml") if word == "BROKEN" else word for word in words]
    with socket.socket() as taken:  # a service that came as far as to listen would complain of this port
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = diagnose("serve", "--data", str(tmp_path / "data"), "--port", port, *words, **environment)
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert "listen" not in done.stderr
    assert not (tmp_path / "data").exists()


def test_print_config_opens_nothing(tmp_path: Path) -> None:
    done = diagnose("serve", "--data", str(tmp_path / "data"), "--print-config")
    assert done.returncode == 0
    assert done.stdout.splitlines()[0].split() == ["data:", f'"{tmp_path}/data"', "#", "--data"]
    assert not (tmp_path / "data").exists()


def test_what_replays_a_log_does_not_wait_for_the_settings_of_a_service() -> None:
    code = "import sys, diagnose.cli.replay; sys.exit('pydantic_settings' in sys.modules or 'service' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(ROOT)}).returncode == 0


# --- the document ------------------------------------------------------------------------------------------------------------


def row(name: str, field: FieldInfo) -> str:
    """A setting as docs/service.md has it."""
    unit, default = unit_of(field), field.default
    if name in ("data", "scanners"):
        shown = {"data": "`~/.local/share/diagnose/service`", "scanners": "one per processor, at most 4"}[name]
    elif default is None or default == "":
        shown = ""
    else:
        shown = f"`{unit.show(default) if unit else str(default).lower() if isinstance(default, bool) else default}`"
    flag = f"`--{name.replace('_', '-')}`" if name in serve.FLAGS else ""
    return f"| `{name}` | {flag} | {shown} | {allowed(field)} | {field.description} |"


def test_the_table_of_settings_is_that_of_the_model() -> None:
    page = (ROOT / "docs" / "service.md").read_text()
    begin = page.index("| name | flag | default | allowed | what |")
    table = page[begin:].partition("\n\n")[0].splitlines()[2:]
    assert table == [row(name, field) for name, field in FIELDS.items()]
