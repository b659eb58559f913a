"""Are secrets taken out, and is everything else left alone? ``python -m benchmarks.redaction``.

Secrets of more than forty kinds, each made up by chance in the form in which its issuer documents it, stand in the dresses that
logs give them: an exported variable, a printed configuration, a command line, a header, an address, a traceback. Harmless lines
look as much like them as lines of training logs do: hashes, ids of GPUs, addresses in memory, shapes, counts of tokens. Both
are made from a seed, so that no secret lies in this repository. Printed are the share of each that came out right, what did
not, and the speed beside the limit (the gate's scan alone) and beside two ways without a gate. ``--peer`` asks detect-secrets
(``pip install detect-secrets``) the same.
"""

# ruff: noqa: E501  # lines of logs are as long as they are
from __future__ import annotations

import argparse
import base64
import json
import random
import re
import statistics
import string
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.mixed.log import Log
from diagnose.redaction.gate import gate
from diagnose.redaction.stream import conceal
from diagnose.redaction.text import Redactor, redact

SEED, PER_KIND, HARMLESS = 7, 8, 10_000
_HEX, _LOWER = "0123456789abcdef", string.ascii_lowercase + string.digits
_MIXED = string.ascii_letters + string.digits
_URL = _MIXED + "-_"

Make = Callable[[random.Random], str]


class Kind(NamedTuple):
    """A kind of secret: how it is made, and in which lines it is met. ``{}`` is where it stands."""

    name: str
    make: Make
    dresses: Sequence[str]


def _run(letters: str, length: int, before: str = "", after: str = "") -> Make:
    return lambda chance: before + "".join(chance.choices(letters, k=length)) + after


def _jwt(chance: random.Random) -> str:
    parts = (json.dumps({"alg": "HS256", "typ": "JWT"}), json.dumps({"sub": chance.random(), "exp": chance.randrange(10**9)}))
    head, body = (base64.urlsafe_b64encode(part.encode()).decode().rstrip("=") for part in parts)
    return f"{head}.{body}.{_run(_URL, 43)(chance)}"


def _password(chance: random.Random) -> str:
    return "".join(chance.choices(_MIXED + "!%^*+.", k=chance.randrange(7, 16))) + chance.choice("aZ7")


def _base64(length: int) -> Make:
    return lambda chance: base64.b64encode(chance.randbytes(length)).decode()


def _discord(chance: random.Random) -> str:
    return f"M{_run(_URL, 23)(chance)}.{_run(_URL, 6)(chance)}.{_run(_URL, 38)(chance)}"


def _uuid(chance: random.Random) -> str:
    return "-".join(_run(_HEX, length)(chance) for length in (8, 4, 4, 4, 12))


# Where a secret is met whatever its kind: <NAME> is the name of its variable.
_NAMED = (
    "export <NAME>={}",
    "+ export <NAME>='{}'",
    'declare -x <NAME>="{}"',
    "<NAME>={} python train.py --lr 1e-4",
    "[2026-01-02 03:04:05,123] [INFO] [config.py:88] <name>: {}",
    "Namespace(batch_size=8, <name>='{}', lr=0.0001)",
    '{{"model": "llama", "<name>": "{}", "seed": 42}}',
    "    '<name>': '{}',",
    "  <name> ............................ {}",
    "python train.py --<flag> {} --epochs 3",
    "docker run -e <NAME>={} image:latest",
    "[rank0]: ValueError: cannot use <name>={} here",
)
# Where one is met that is known by its looks.
_BARE = (
    "Logging in with {} ...",
    "DEBUG:urllib3.connectionpool:https://api.example.com:443 GET /v1/models?auth={} 200",
    "> Authorization: Bearer {}",
    "fatal: unable to access 'https://oauth2:{}@git.example.com/a/b.git/': 403",
    'requests.exceptions.HTTPError: 401 Client Error, headers={{"authorization": "Bearer {}"}}',
)


def _of(name: str, make: Make, variable: str, *more: str, bare: bool = True) -> Kind:
    named = [
        dress.replace("<NAME>", variable)
        .replace("<name>", variable.lower())
        .replace("<flag>", variable.lower().replace("_", "-"))
        for dress in _NAMED
    ]
    return Kind(name, make, (*more, *named, *(_BARE if bare else ())))


KINDS = (
    _of("Hugging Face token", _run(_MIXED, 34, "hf_"), "HF_TOKEN", "huggingface-cli login --token {}"),
    _of("Weights & Biases key", _run(_HEX, 40), "WANDB_API_KEY", "wandb login {}", "  password {}", bare=False),
    _of("OpenAI key", _run(_MIXED, 48, "sk-proj-"), "OPENAI_API_KEY", "Incorrect API key provided: {}."),
    _of("Anthropic key", _run(_URL, 93, "sk-ant-api03-", "AA"), "ANTHROPIC_API_KEY"),
    _of("AWS access key id", _run(string.ascii_uppercase + "234567", 16, "AKIA"), "AWS_ACCESS_KEY_ID"),
    _of("AWS secret key", _run(_MIXED + "+/", 40), "AWS_SECRET_ACCESS_KEY", "aws_secret_access_key = {}", bare=False),
    _of("AWS session token", _base64(180), "AWS_SESSION_TOKEN", bare=False),
    _of("Google API key", _run(_URL, 35, "AIza"), "GOOGLE_API_KEY"),
    _of("Google access token", _run(_URL, 60, "ya29."), "GOOGLE_OAUTH_ACCESS_TOKEN"),
    _of("Azure client secret", lambda c: f"{_run(_MIXED, 3)(c)}8Q~{_run(_URL, 34)(c)}", "AZURE_CLIENT_SECRET"),
    _of("Azure storage key", _base64(64), "AZURE_STORAGE_KEY", "DefaultEndpointsProtocol=https;AccountName=a;AccountKey={}"),
    Kind("Azure SAS", _base64(32), ("https://a.blob.core.windows.net/c/ckpt.pt?sv=2024-01-01&se=2026-01-01&sig={}",)),
    Kind("S3 signed address", _run(_HEX, 64), ("GET https://b.s3.amazonaws.com/k?X-Amz-Expires=3600&X-Amz-Signature={}",)),
    _of("GitHub token", _run(_MIXED, 36, "ghp_"), "GITHUB_TOKEN"),
    _of("GitHub fine-grained token", _run(_MIXED + "_", 82, "github_pat_"), "GH_TOKEN"),
    _of("GitLab token", _run(_URL, 20, "glpat-"), "GITLAB_TOKEN"),
    _of("NVIDIA NGC key", _run(_URL, 64, "nvapi-"), "NGC_API_KEY"),
    _of("Slack bot token", lambda c: f"xoxb-{_run('123456789', 12)(c)}-{_run(_MIXED, 24)(c)}", "SLACK_BOT_TOKEN"),
    Kind("Slack webhook", lambda c: f"T{_run(_LOWER, 9)(c).upper()}/B{_run(_LOWER, 9)(c).upper()}/{_run(_MIXED, 24)(c)}",
         ("POST https://hooks.slack.com/services/{} 200", "SLACK_WEBHOOK=https://hooks.slack.com/services/{}")),
    _of("Discord bot token", _discord, "DISCORD_TOKEN"),
    Kind("Telegram bot token", lambda c: f"{_run('123456789', 9)(c)}:AA{_run(_URL, 33)(c)}",
         ("https://api.telegram.org/bot{}/sendMessage", "TELEGRAM_TOKEN={}", "bot started with {}")),
    _of("Stripe key", _run(_MIXED, 24, "sk_live_"), "STRIPE_SECRET_KEY"),
    _of("Twilio key", _run(_HEX, 32, "SK"), "TWILIO_API_KEY"),
    _of("SendGrid key", lambda c: f"SG.{_run(_URL, 22)(c)}.{_run(_URL, 43)(c)}", "SENDGRID_API_KEY"),
    _of("npm token", _run(_MIXED, 36, "npm_"), "NPM_TOKEN", "//registry.npmjs.org/:_authToken={}"),
    _of("PyPI token", _run(_URL, 90, "pypi-AgEIcHlwaS5vcmc"), "TWINE_PASSWORD"),
    _of("Docker Hub token", _run(_URL, 27, "dckr_pat_"), "DOCKER_TOKEN"),
    _of("DigitalOcean token", _run(_HEX, 64, "dop_v1_"), "DIGITALOCEAN_ACCESS_TOKEN"),
    _of("Vault token", _run(_URL, 95, "hvs."), "VAULT_TOKEN"),
    _of("Tailscale key", lambda c: f"tskey-auth-{_run(_MIXED, 12)(c)}-{_run(_MIXED, 30)(c)}", "TS_AUTHKEY", bare=True),
    _of("Databricks token", _run(_HEX, 32, "dapi"), "DATABRICKS_TOKEN"),
    _of("Groq key", _run(_MIXED, 52, "gsk_"), "GROQ_API_KEY"),
    _of("Replicate token", _run(_MIXED, 37, "r8_"), "REPLICATE_API_TOKEN"),
    _of("Perplexity key", _run(_MIXED, 48, "pplx-"), "PERPLEXITY_API_KEY"),
    _of("Grafana token", lambda c: f"glsa_{_run(_MIXED, 32)(c)}_{_run(_HEX, 8)(c)}", "GRAFANA_TOKEN"),
    _of("Sentry token", _run(_HEX, 64, "sntryu_"), "SENTRY_AUTH_TOKEN"),
    _of("LangSmith key", lambda c: f"lsv2_pt_{_run(_HEX, 32)(c)}_{_run(_HEX, 10)(c)}", "LANGSMITH_API_KEY"),
    _of("Comet key", _run(_MIXED, 25), "COMET_API_KEY", bare=False),
    _of("Neptune token", lambda c: base64.b64encode(json.dumps({"api_address": "https://a", "k": c.random()}).encode()).decode(),
        "NEPTUNE_API_TOKEN"),
    _of("Kaggle key", _run(_HEX, 32), "KAGGLE_KEY", '{{"username":"a","key":"{}"}}', bare=False),
    _of("SwanLab key", _run(_MIXED, 21), "SWANLAB_API_KEY", bare=False),
    _of("Alibaba key id", _run(_MIXED, 20, "LTAI"), "ALIBABA_CLOUD_ACCESS_KEY_ID"),
    _of("Tencent key id", _run(_MIXED, 32, "AKID"), "TENCENTCLOUD_SECRET_ID", bare=True),
    _of("JSON Web Token", _jwt, "SLURM_JWT", "Cookie: session={}; path=/"),
    Kind("password in an address", _password,
         ("postgresql://diagnose:{}@db.internal:5432/jobs", "redis://:{}@10.0.0.7:6379/0", "mongodb+srv://app:{}@cluster0.mongodb.net",
          "http://svc:{}@proxy.corp:3128")),
    Kind("password", _password,
         ("password: {}", "DB_PASSWORD={}", "mysql --user=root --password={}", "'passwd': '{}'", "sshpass -p x --password '{}' ssh gpu-1",
          "curl -u alice:{} https://artifacts.corp/x")),
    Kind("basic sign-in", lambda c: base64.b64encode(f"alice:{_password(c)}{_password(c)}".encode()).decode(),
         ("Authorization: Basic {}", "'Authorization': 'Basic {}'", '"auth": "{}"')),
    Kind("cookie", _run(_MIXED, 32), ("Set-Cookie: sessionid={}; HttpOnly", "Cookie: _gitlab_session={}")),
    Kind("private key", _base64(48),
         ("-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----", "-----BEGIN OPENSSH PRIVATE KEY-----\n{}\n-----END OPENSSH PRIVATE KEY-----",
          "-----BEGIN RSA PRIVATE KEY-----\\n{}\\n-----END RSA PRIVATE KEY-----")),
)  # fmt: skip


def secrets(seed: int = SEED, per_kind: int = PER_KIND) -> Iterator[tuple[str, str, str]]:
    """(kind, text, the secret in it), ``per_kind`` of each kind in dresses that were drawn by lot."""
    chance = random.Random(seed)
    for kind in KINDS:
        dresses = chance.sample(kind.dresses, min(per_kind, len(kind.dresses)))
        for number in range(per_kind):
            secret = kind.make(chance)
            yield kind.name, dresses[number % len(dresses)].format(secret), secret


def harmless(count: int = HARMLESS, seed: int = SEED) -> Iterator[str]:
    """Lines that look like secrets to who has seen no training log."""
    chance = random.Random(seed)

    def hexes(length: int) -> str:
        return _run(_HEX, length)(chance)

    def number() -> str:
        return f"{chance.uniform(0, 9):.{chance.randrange(2, 9)}f}"

    names = ("attn.q_proj", "mlp.down_proj", "input_layernorm", "self_attn.rotary_emb", "embed_tokens", "lm_head")
    makes: tuple[Callable[[], str], ...] = (
        lambda: f"commit {hexes(40)}",
        lambda: f"Digest: sha256:{hexes(64)}",
        lambda: f"nvcr.io/nvidia/pytorch@sha256:{hexes(64)}",
        lambda: f"GPU {chance.randrange(8)}: NVIDIA H100 80GB HBM3 (UUID: GPU-{_uuid(chance)})",
        lambda: f"NVRM: Xid (PCI:0000:{hexes(2)}:00): {chance.randrange(120)}, pid={chance.randrange(99999)}, name=python",
        lambda: f"frame #{chance.randrange(30)}: c10::Error::Error() + 0x{hexes(3)} (0x7f{hexes(10)} in libc10.so)",
        lambda: f"ncclCommInitRank comm 0x55{hexes(10)} rank {chance.randrange(64)} nranks 64 commId 0x{hexes(16)} - Init START",
        lambda: f"step {chance.randrange(10**6)} | loss: {number()} | tokens: {chance.randrange(10**10)} | tokens/s: {number()}",
        lambda: f"num_tokens: {chance.randrange(10**9)} max_tokens=4096 pad_token_id: {chance.randrange(99999)} eos_token='</s>'",
        lambda: f"KeyError: 'model.layers.{chance.randrange(80)}.{chance.choice(names)}.weight'",
        lambda: f"size mismatch for layers.{chance.randrange(80)}.{chance.choice(names)}.weight: copying a param with shape "
        f"torch.Size([{chance.randrange(9999)}, {chance.randrange(9999)}])",
        lambda: f"Loading cached processed dataset at /data/cache/json/default-{hexes(16)}/0.0.0/{hexes(40)}/cache-{hexes(16)}.arrow",
        lambda: f"Using cache directory: /var/cache/vllm/torch_compile_cache/{hexes(10)}/rank_0_0/backbone",
        lambda: f"wandb: Run data is saved locally in ./wandb/run-20260102_030405-{_run(_LOWER, 8)(chance)}",
        lambda: f"wandb: View run at https://wandb.ai/team/project/runs/{_run(_LOWER, 8)(chance)}",
        lambda: f"socket bound to 10.0.{chance.randrange(255)}.{chance.randrange(255)}:{chance.randrange(65535)}",
        lambda: f"mlx5_{chance.randrange(8)}: port GUID 0x{hexes(16)} LID {chance.randrange(9999)} fe80::{hexes(4)}:{hexes(4)}",
        lambda: f"_ZN2at6native{chance.randrange(99)}elementwise_kernelILi128ELi4EZNS0_22gpu_kernel_impl_nocast{hexes(8)}",
        lambda: f"iter {chance.randrange(10**5)} key_padding_mask={chance.choice(('None', 'True'))} cache_key: {hexes(32)}",
        lambda: f"use_auth_token=None, hub_token=None, token=True, api_key=*****, seed={chance.randrange(10**6)}",
        lambda: f"job {chance.randrange(10**7)} pod train-{hexes(10)}-{_run(_LOWER, 5)(chance)} on ip-10-0-{chance.randrange(255)}-7",
        lambda: f"snapshot {_uuid(chance)} stored in {number()} s",
        lambda: f"pip: Downloading torch-2.5.1+cu124-cp311-cp311-linux_x86_64.whl ({number()} MB) sha256={hexes(64)}",
        lambda: f"ETag: \"{hexes(32)}\" x-request-id: {_uuid(chance)}",
        lambda: f"reward/mean: {number()} kl: {number()} session: train-{chance.randrange(9999)} signature: (Tensor x, int dim) -> Tensor",
        lambda: f"tokenizer special tokens: <|im_start|> <|im_end|> <|reserved_{chance.randrange(250)}|> vocab 151643",
        lambda: f"Compiling kernel fused_moe_kernel_{hexes(12)} autotune key=({chance.randrange(4096)}, {chance.randrange(4096)}, 'bf16')",
        lambda: f"checkpoint iter_{chance.randrange(10**6):07d}/mp_rank_{chance.randrange(8):02d}_{chance.randrange(8):03d}/distrib_optim.pt "
        f"crc32 {hexes(8)} md5 {hexes(32)}",
        lambda: f"\"key\": \"{chance.choice(('train_loss', 'eval_accuracy', 'weights_initialization', 'block_start'))}\", \"value\": {number()}",
        lambda: f"dmesg: pcieport 0000:{hexes(2)}:01.1: AER: Corrected error received: id={hexes(4)}",
    )  # fmt: skip
    for number_ in range(count):
        yield makes[number_ % len(makes)]()


class Speed(NamedTuple):
    """MB per second of processor time, of the same lines in the same minute."""

    conceal: float
    scan: float
    """the gate's scan alone, which is the limit: Hyperscan is asked once for each line"""
    search: float
    """Python's ``re``, which looks for the beginnings of names alone and takes nothing out"""
    ungated: float
    """each line looked at by ``text``"""


_NAMES = re.compile(rb"(?i)pass|secret|token|key|auth|credential|cookie|bearer|://|[A-Za-z0-9+/_-]{40}")
_ROUNDS = 3


def _speed(data: bytes) -> Speed:
    """The median of some rounds. Each way takes its turn in each round, so that other work on the machine slows all of them."""
    conceal(data[:1000])
    lines = data.split(b"\n")
    few = data[: len(data) // 20]
    texts = few.decode("utf-8", "replace").split("\n")
    ways: dict[str, tuple[int, Callable[[], object]]] = {
        "conceal": (len(data), lambda: conceal(data)),
        "scan": (len(data), lambda: gate().hits(lines)),
        "search": (len(data), lambda: [_NAMES.search(line) for line in lines]),
        "ungated": (len(few), lambda: [Redactor()._redact(text) for text in texts]),
    }
    took: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(_ROUNDS):
        for name, (size, work) in ways.items():
            began = time.process_time()
            work()
            took[name].append(size / 1e6 / (time.process_time() - began))
    return Speed(**{name: statistics.median(speeds) for name, speeds in took.items()})


def _peer(texts: Sequence[str]) -> int:
    """In how many texts detect-secrets finds a secret, with the plugins and filters that it is shipped with."""
    from detect_secrets.core.secrets_collection import SecretsCollection
    from detect_secrets.settings import default_settings

    with tempfile.TemporaryDirectory() as folder, default_settings():
        path = Path(folder) / "a.log"
        path.write_text("\n".join(text.replace("\n", "\\n") for text in texts), "utf-8")
        found = SecretsCollection()
        found.scan_file(str(path))
        return len({secret.line_number for _, secret in found})


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.redaction", description=__doc__.split("\n\n")[0])
    parser.add_argument("--seed", type=int, default=SEED, help="another seed makes other secrets and other lines")
    parser.add_argument("--mb", type=int, default=20, help="of the mixed log, for the speed")
    parser.add_argument("--peer", action="store_true", help="ask detect-secrets the same")
    parser.add_argument("--show", action="store_true", help="print what came out wrong (the secrets are made up)")
    chosen = parser.parse_args(arguments)
    hidden = list(secrets(chosen.seed))
    plain = list(harmless(seed=chosen.seed))
    left = [(kind, text) for kind, text, secret in hidden if secret in redact(text).text]
    changed = [line for line in plain if redact(line).text != line]
    say = sys.stdout.write
    say(
        f"secrets of {len(KINDS)} kinds: {len(hidden) - len(left)} of {len(hidden)} taken out ({1 - len(left) / len(hidden):.1%})\n"
    )
    say(f"harmless lines changed: {len(changed)} of {len(plain):,} ({len(changed) / len(plain):.2%})\n")
    if chosen.show:
        say("".join(f"  left     {kind}: {text}\n" for kind, text in left))
        say("".join(f"  changed  {line}\n        -> {redact(line).text}\n" for line in changed))
    if chosen.peer:
        found, alarms = _peer([text for _, text, _ in hidden]), _peer(plain)
        say(f"detect-secrets: {found / len(hidden):.1%} of the secrets, {alarms / len(plain):.2%} of the harmless lines\n")
    speed = _speed(b"".join(Log().blocks(chosen.mb * 1_000_000)))
    say(f"mixed log: {speed.conceal:.0f} MB/s of processor time\n")
    say(f"  {speed.conceal / speed.scan:.2f} times the limit, which is the scan by Hyperscan alone ({speed.scan:.0f} MB/s)\n")
    say(
        f"  {speed.conceal / speed.search:.1f} times one search by Python's re for names of secrets ({speed.search:.1f} MB/s)\n"
    )
    say(f"  {speed.conceal / speed.ungated:.0f} times a close look at all lines ({speed.ungated:.1f} MB/s)\n")
    return 1 if len(left) > 0.02 * len(hidden) or len(changed) > 0.001 * len(plain) else 0


if __name__ == "__main__":
    sys.exit(main())
