"""What must not leave the process does not, and what is evidence stays. The secrets here are made up, and put together at
run time, so that no scanner of repositories takes them for real ones."""

# ruff: noqa: E501  # lines of logs are as long as they are
from __future__ import annotations

import time
from collections import Counter

import pytest
import regex
from hypothesis import example, given
from hypothesis import strategies as st

from diagnose.knowledge.rules import Rule, load
from diagnose.redaction.text import KINDS, Redactor, clear, redact
from diagnose.verification.rules import body_of, captures_of

MIXED = "aB3dE5gH7jK9mN1pQ2sT4vW6xY8z"
LONG = "Zk3vQ9xL2mB7nT5cR8wY1pF4hJ6dS0gAuE+iO/kM3zXqV7bN2tC5rW8yP1fH4jD6"
HEX = "3f9a1c07be52d8416e0fa97b35c2d48e61f0ab93"
PEM = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj"


def secrets() -> list[tuple[str, str, str]]:
    """(text, what must be gone, kind)"""
    known = [
        "hf_" + MIXED, "sk-" + MIXED, "sk-proj-" + MIXED, "sk-ant-api03-" + MIXED, "ghp_" + MIXED, "gho_" + MIXED,
        "github_pat_" + MIXED, "glpat-" + MIXED[:20], "xoxb-1234567890-" + MIXED, "xapp-1-" + MIXED, "AKIA" + "IOSFODNN7EXAMPLE",
        "ASIA" + "IOSFODNN7EXAMPLE", "AIza" + MIXED + "abcdefg", "ya29." + MIXED, "GOCSPX-" + MIXED, "nvapi-" + MIXED,
        "LTAI" + MIXED[:20], "pypi-" + MIXED, "npm_" + MIXED, "wandb_v1_" + MIXED, "gsk_" + MIXED, "dckr_pat_" + MIXED,
        "abc8Q~" + MIXED + "abcdef", "12345678:AA" + MIXED + "abc-def", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0." + MIXED,
        "eyJhcGlfYWRkcmVzcyI6Imh0dHBzOi8vYSJ9", LONG, "SG." + MIXED + "." + MIXED, "tskey-auth-" + MIXED,
    ]  # fmt: skip
    found = [(f"login with {value} done", value, "token") for value in known]
    found += [(f"x\\n{value}", value, "token") for value in known[:3]]  # a string that was printed as a literal
    behind = [
        ("HF_TOKEN={}", "abc"), ("export HF_TOKEN='{}'", "abc def"), ('declare -x WANDB_API_KEY="{}"', HEX), ("WANDB_API_KEY={}", HEX),
        ("wandb login {}", HEX), ("wandb: API key {} saved", HEX), ("machine api.wandb.ai login user password {}", HEX),
        ("aws_secret_access_key = {}", "wJalr/K7MDENG+bPxR"), ("AWS_SESSION_TOKEN={}", "IQoJb3JpZ2lu//x=="),
        ("'api_key': '{}'", "k1"), ('"api_key":"{}"', "k1"), ('{{\\"token\\": \\"{}\\"}}', "abc12345"), ("Namespace(hf_token='{}', lr=1)", "q"),
        ("token={}", MIXED), ("token={}", "abc12345"), ("token: {}", MIXED), ("key={}", MIXED), ("secret: {}", "s3"), ("client-secret={}", "q"),
        ("password: {}", "hunter2"), ("password={}", "a<b"), ("passwd={}", "12345"), ("Password = '{}'", "correct horse"),
        ("DB_PASS={}", "q"), ("PGPASSWORD={}", "q"), ("redis_password: {}", "zu"), ("access_token={}", "q"),
        ("API key: {}", "foo"), ("--hf-token {} --lr 1", "abc"), ("--api-key={}", "z"), ("['--password', '{}']", "zz9"),
        ("--token {}", "abc12345"), ("Authorization: Bearer {}", "abc.def"), ("authorization: Basic {}", "dXNlcjpwYXNz"),
        ("'Authorization': 'Bearer {}'", "abc"), ("Authorization: token {}", "zz"), ("with Bearer {}", "abc123def"),
        ("X-Api-Key: {}", "zz"), ("https://alice:{}@host/x", "q"), ("redis://:{}@10.0.0.1:6379", "q"), ("http://user:{}@proxy:3128", "a:b@c"),
        ("https://{}@host.com/x", MIXED), ("https://h/x?token={}&a=1", "zz99zz99"), ("https://h/x?a=1&sig={}", "ab%2Fcd12"),
        ("https://h/x?X-Amz-Signature={}", HEX), ("https://h/x?key={}", MIXED), ("AccountKey={};EndpointSuffix=x", "abcd=="),
        ("curl -u bob:{} https://h", "pw1"), ("Set-Cookie: {}", "session=a1; Path=/"), ("https://h/bot/v2/hook/{}", "9f1c2b3a-77de-4a01"),
        ("- name: HF_TOKEN\n  value: {}\n", "abc"), ("password=<token>{}", "rest"), ("password: {}", "%79mAT3a"),
        ("password={}", "%correct_horse"), ("password: {}", "%secret"), ("token={}", "%PASSWORDx%y9"), ("password={}", "%(correct!horse"),
        ("password={}", "%hunter2%"), ("passwd: {}", "%%hunter2"), ("password='{}'", "%{correct}horse9"),
        ("https://api.telegram.org/bot{}/sendMessage", "515375836:AA28p_e9TsYgWiwkV-g_mpOcv4yxNTWDRvX"), ("\\npassword={}", "x1"), ("private_key: '{}'", "zz"),
    ]  # fmt: skip
    found += [(text.format(value), value, "token") for text, value in behind]
    for head in ("RSA ", "OPENSSH ", "EC ", ""):
        block = f"-----BEGIN {head}PRIVATE KEY-----\n{PEM}\nab+/c0==\n-----END {head}PRIVATE KEY-----"
        found += [(f"key:\n{block}\nafter", PEM, "private_key"), (block.replace("\n", "\\n"), PEM, "private_key")]
    ranked = "".join(
        f"[rank0]: {line}\n" for line in ("-----BEGIN PRIVATE KEY-----", PEM, "ab+/c0==", "-----END PRIVATE KEY-----")
    )
    found += [
        (ranked, PEM, "private_key"),
        (ranked, "ab+/c0", "private_key"),
        (f"-----BEGIN PRIVATE KEY-----\n{PEM}\n", PEM, "private_key"),
    ]
    found += [
        (f"mail to <{name}>, now", name, "email")
        for name in ("a@b.co", "first.last+tag@mail.example.com", "x_1@sub-d.example.org")
    ]
    found += [
        ("/home/alice/run.py", "alice", "user"), ("/Users/alice/x", "alice", "user"), ("/data/home/alice", "alice", "user"),
        ("/home2/alice/x", "alice", "user"), ("C:\\Users\\alice\\x", "alice", "user"), ("C:\\\\Users\\\\alice\\\\x", "alice", "user"),
        ("/gpfs/users/alice/x", "alice", "user"), ("hdfs:///user/alice/x", "alice", "user"), ("%2Fhome%2Falice%2Fx", "alice", "user"),
        ("/home/alice@corp.com/x", "alice", "user"), ("USER=alice", "alice", "user"), ("'LOGNAME': 'alice'", "alice", "user"),
        ("UserId=alice(1001)", "alice", "user"), ("alice@gpu-17.cluster.local: $", "alice", "user"), ("in /home/alice.", "alice", "user"),
        ("PATH=/home/a.lice/bin:/usr/bin", "a.lice", "user"), ("/home/ålice/x", "ålice", "user"), ("logged in as: alice", "alice", "user"),
    ]  # fmt: skip
    return found


@pytest.mark.parametrize(("text", "secret", "kind"), secrets())
def test_a_secret_is_gone_and_counted(text: str, secret: str, kind: str) -> None:
    result = redact(text)
    assert secret not in result.text
    assert result.counts == Counter({kind: 1})
    assert f"<{kind}" in result.text


@pytest.mark.parametrize(
    "name",
    ["SECRET_KEY_BASE", "secret.key.base", "access_key_id", "DB_PASS", "user-pass", "auth_tokens", "password1", "password_2",
     "my-api-key-2", "myApiKey", "x" * 200 + "_password"],
)  # fmt: skip
def test_these_names_stand_before_a_secret(name: str) -> None:
    assert redact(f"{name}=ab12cd34").text == f"{name}=<token>"


@pytest.mark.parametrize(
    "name",
    [
        "key_base",
        "id",
        "key_id",
        "tests_pass",
        "pass",
        "2",
        "cache_key",
        "eos_token",
        "num_tokens",
        "key",
        "lr",
        "password_file",
    ],
)
def test_these_names_do_not(name: str) -> None:
    assert redact(f"{name}=ab12cd34").text == f"{name}=ab12cd34"


@pytest.mark.parametrize(
    ("value", "secret"),
    [
        ("abcdefg1", True),
        ("abcde12", False),  # too short for a name that does not say it surely
        ("abcdefgh", False),
        ("12345678", False),
        ("2024-01-02T03:04:05", False),
        ("/models/a/b1", False),
        ("0x7ffd5e8c3a90", False),
        ("'two words 1'", False),
    ],
)
def test_after_token_letters_with_digits_are_a_secret(value: str, secret: bool) -> None:
    assert (redact(f"token={value}").text == "token=<token>") is secret


@pytest.mark.parametrize(
    ("value", "secret"),
    [
        ("a1b2c3d4e5f6", True),
        ("a1bcdefghijk", False),  # once a letter and a digit are neighbours: twice
        ("abc1def2ghij", True),
        ("ABcdEFghIJklMNop", True),  # the case changes often
        ("ABcdefghijklmnop", False),
        ("train-2026-final", False),
    ],
)
def test_after_key_only_what_looks_random_is_a_secret(value: str, secret: bool) -> None:
    assert (redact(f"key={value}").text == "key=<token>") is secret


def test_a_long_word_is_a_secret_if_it_is_base64_and_not_if_it_is_a_path_or_a_name() -> None:
    base64 = "aB3dE5gH7jK9mN1pQ2sT4vW6xY8zA1bC3dE5fG7hI9"
    assert redact(f"got {base64}== back").text == "got <token> back"
    for plain in (
        "/Data/Runs2/Exp1/Ab1/Cd2/Ef3/Gh4/Ij5/Kl6/Mn7/Op8",
        "MixedPrecisionDistributedDataParallelTrainer2WithHooks",
        "abcdefghij0123456789abcdefghij0123456789abcdefghij",
    ):
        assert redact(f"got {plain} back").text == f"got {plain} back"


def test_a_value_below_its_name_is_found_over_blank_lines_and_the_rest_stays() -> None:
    lines = ["step 1", "- name: HF_TOKEN", "", "  value: abc", "step 2", "  value: 3", "password=hunter2", "value: 4"]
    told = Redactor().lines(lines)
    assert told == ["step 1", "- name: HF_TOKEN", "", "  value: <token>", *lines[4:6], "password=<token>", "value: 4"]
    assert Redactor().lines(["value: 4"]) == ["value: 4"]


def test_lines_of_a_key_with_prefixes_stay_lines() -> None:
    key = ["-----BEGIN PRIVATE KEY-----", PEM, PEM, "ab+/c0==", "-----END PRIVATE KEY-----"]
    lines = ["before", *(f"[rank0]: {line}" for line in key), "after ab+/c0=="]
    told = Redactor().lines(lines)
    assert told == ["before", lines[1], *["[rank0]: <private_key>"] * 3, lines[5], "after ab+/c0=="]
    assert len(Redactor().lines(["before", *key, "after"])) == 7


def test_a_login_in_code_is_no_secret() -> None:
    for text in ("curl -u ci:db_password https://h", "curl -u ci:12345 https://h", "curl -u ci:$PW https://h"):
        assert redact(text).text == text
    assert redact("curl -u ci:hunter https://h").text == "curl -u ci:<token> https://h"


def test_people_of_the_system_and_files_are_no_people() -> None:
    for text in ("root@gpu-1.local", "/home/root/x", "USER=root", "/users/parser.py", "/user/1000/x", "/home/2.1/x"):
        assert redact(text).text == text
    assert redact("Mail bob@corp.com...").text == "Mail <email>..."
    assert redact("in /home/bob...").text == "in /home/<user1>..."


def test_the_short_and_the_full_name_of_a_host_are_one_and_addresses_are_whole() -> None:
    told = Redactor(hosts=True).redact("gpu-17.cluster.local gpu-17 10.0.0.1 10.0.0.2 10.0.0.1 999.1.1.1").text
    assert told == "<host3> <host3> <host1> <host2> <host1> 999.1.1.1"


EVIDENCE = [
    "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
    "NVRM: GPU at PCI:0000:3b:00: GPU-8f3c2a10-77de-4a01-9b1c-0123456789ab",
    "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-8f3c2a10-77de-4a01-9b1c-0123456789ab)",
    "key=GPU-8f3c2a10-77de-4a01-9b1c-0123456789ab token=MIG-8f3c2a10-77de-4a01-9b1c-0123456789ab token=GPU-8f3c2a10-77de",
    "[rank12]: RuntimeError: The size of tensor a (4096) must match the size of tensor b (5120) at dim 2, torch.Size([8, 4096, 5120])",
    "OSError: [Errno 122] Disk quota exceeded: '/lustre/ckpt/iter_0001200/mp_rank_00_model_states.pt'",
    "PyTorch 2.5.1+cu124 git " + HEX + ", NCCL 2.21.5+cuda12.4, commit hash: " + HEX[:12],
    "sha256:" + HEX + HEX[:24],
    "*** Process received signal *** Signal: 11, Failing at address: 0x7ffd5e8c3a90, key=0x7ffd5e8c3a90",
    "frame #3: <unknown function> + 0xd3e95 (0x7f1c2a1d3e95 in /opt/conda/lib/libstdc++.so.6)",
    "frame #1: _ZN2at6native18elementwise_kernelILi128ELi4EZNS0_22gpu_kernel_impl_nocastIZZZNS0_15add_kernelEvENKUlvE_clEvEUlT_E_EEvRS3_",
    "step 120 | tokens: 4194304 | token/s: 18213.2 | consumed tokens: 123456789 | tokens_per_gpu=3084.8 | per_token_loss: 3.1525",
    "eos_token='<|im_end|>', pad_token=<pad>, pad_token_id: 151643, bos_token: <s>, image_token='<image>', num_tokens: 4278624",
    "tokenizer: /models/llama/tokenizer.model, tokenizer_class=LlamaTokenizerFast, max_tokens=4096, token_type_ids, --max-tokens 2048",
    "use_auth_token=None, token=True, hf_token: null, password='', api_key=*****, secret=${SECRET}, token: 12.5ms, token=3.1e+05",
    "KeyError: 'model.layers.0.self_attn.q_proj.weight' key: model.layers.31.mlp.down_proj.weight (key=layers.0.attn)",
    "cache key: " + HEX + HEX,
    "password: %s, token=%(token)s, secret: %5.2f, password=%PASSWORD%, passwd: %%, password: %PASSWORD",
    "password: %d, secret=%lu, password='%(password)s', passwd=%db_password%, token=%{token}, secret: %%s, password: %s:%s",
    "    client = Client(api_key=os.environ['API_KEY'], token=get_token(), password=self.password)",
    "    def login(token: Optional[str] = None, password: str = '') -> None:",
    "Invalid credentials: password authentication failed; Password: required; invalid API key: missing",
    "AttributeError: 'Trainer' object has no attribute 'use_auth_token'",
    "tokens = tokenizer(text)['input_ids']; key = (layer, head); secret_santa: 3; private_key_file=/etc/ssl/key.pem",
    "free@GLIBC_2.2.5 cudaMalloc@@libcudart.so.12 cudaMalloc@libcudart.so.12 nvcr.io/nvidia/pytorch@sha256:" + HEX,
    "NCCL WARN NET/IB : Got completion from peer 10.3.0.17<41234> with status=12 opcode=0 len=0 vendor err 129 (Recv) localGid fe80::1",
    "srun: error: gpu-17: task 3: Exited with exit code 137; slurmstepd: error: *** JOB 4711 ON gpu-[01-03,07] CANCELLED AT 2026-01-02T03:04:05 ***",
    "connect to gpu-18.cluster.local:29500 MASTER_ADDR=gpu-11 http://10.0.0.1:8000/v1 root@gpu-17.cluster.local",
    "/run/user/1000/x /home /home/ /home/*/x /home/$USER/x /site-packages/click/user/parser.py /root/x /opt/homebrew",
    "ssh_key=/etc/ssh/id_rsa --key-file /etc/key.pem task-runner-abcdefghijklmnop12 disk-abcdefghijklmnop12 mask-12345678901234567890",
    "PWD=/opt/train OLDPWD=/opt shape=(8, 128) dtype=torch.bfloat16 lr=3.0e-4 session: train-2026 auth: failed signature: (Tensor a)",
    "[default7]:ncclUniqueId 0x3a7bffd2c1 commId 0x9f3a rank 7 nranks 64 cudaDev 7 nvmlDev 7 busId cb000 version 2024-01-02T03:04:05",
    "The bearer authentication failed and Bearer tokens are required; basic training configuration",
]  # fmt: skip


@pytest.mark.parametrize("line", EVIDENCE)
def test_evidence_stays(line: str) -> None:
    result = redact(line)
    assert result.text == line
    assert not result.counts


@pytest.mark.slow
def test_each_failure_rule_still_knows_its_redacted_examples() -> None:
    """One test for all: their examples take as long to read as the modules of this package."""
    examples = [(rule, example.line) for rule in load(examples=True) if rule.family == "failures" for example in rule.matches]
    assert len(examples) > 1000
    changed = [f"{rule.id}: {line}" for rule, line in examples if not _still_known(rule, line)]
    assert not changed, "\n".join(changed)


def _still_known(rule: Rule, line: str) -> bool:
    redacted = body_of(redact(line).text)
    before, after = ({**captures_of(rule, body), "path": ""} for body in (body_of(line), redacted))
    return after == before and (len(before) > 1 or regex.search(rule.pattern.encode(), redacted) is not None)


def test_one_name_is_one_placeholder_within_a_job() -> None:
    redactor = Redactor()
    first = redactor.redact("/home/alice/a and /home/bob/b").text
    second = redactor.redact("C:\\Users\\bob\\x then USER=alice").text
    assert first == "/home/<user1>/a and /home/<user2>/b"
    assert second == "C:\\Users\\<user2>\\x then USER=<user1>"
    assert redactor.counts == Counter(user=4)
    assert redact("/home/bob/b").text == "/home/<user1>/b", "another job does not know them"


def test_the_counts_are_by_kind() -> None:
    result = redact(
        f"token={MIXED} a@b.com hf_{MIXED} /home/alice/x\n-----BEGIN PRIVATE KEY-----\n{PEM}\n-----END PRIVATE KEY-----"
    )
    assert result.counts == Counter(token=2, email=1, user=1, private_key=1)
    assert set(result.counts) <= set(KINDS)


def test_hosts_are_replaced_when_asked() -> None:
    line = "gpu-17: connect 10.0.0.1:2950 to gpu-18.cluster.local via http://u:p@s3.corp.com:80/b node3 fe80::1 MASTER_ADDR=n1-2 lima"
    assert "gpu-17" in redact(line).text
    redactor = Redactor(hosts=True, names=["lima"])
    text = redactor.redact(line).text
    for name in ("gpu-17", "10.0.0.1", "gpu-18", "s3", "node3", "fe80", "n1-2", "lima"):
        assert name not in text
    assert (
        redactor.redact("gpu-17 again, gpu-18 too").text
        == " again, ".join((text.split(":")[0], text.split(" to ")[1].split(" ")[0])) + " too"
    ), "the short and the full name are one host"
    assert "host" in redactor.counts


def test_what_stands_around_a_host_stays() -> None:
    text = "via http://s3.corp.com. Then MASTER_ADDR=n1-2- and gpu-17."
    assert Redactor(hosts=True).redact(text).text == "via http://<host1>. Then MASTER_ADDR=<host2>- and <host3>."


def test_evidence_without_hosts_stays_when_hosts_are_replaced() -> None:
    kept = "Xid (PCI:0000:3b:00): 79 at 12:34:56 0000:3b:00.0 torch.utils.data torch.distributed.run gpu0 rank3 127.0.0.1 localhost 2.19.3"
    assert redact(kept, hosts=True).text == kept


def test_a_key_without_an_end_does_not_hide_the_log_behind_it() -> None:
    text = f"-----BEGIN PRIVATE KEY-----\n{PEM}\nstep 100 loss 2.5\nRuntimeError: CUDA error\n"
    assert redact(text).text == "-----BEGIN PRIVATE KEY-----\n<private_key>\nstep 100 loss 2.5\nRuntimeError: CUDA error\n"


# --- Whatever comes ---------------------------------------------------------------------------------------------------------

_pieces = [
    "token", "password", "secret", "api_key", "key", "pwd", "HF_TOKEN", "--token", "-u ", "Bearer ", "Authorization: ", "name: ", "value: ",
    "=", ":", ": ", " = ", "'", '"', "\\", "\\n", "\n", "\r", " ", ",", ";", "&", "?", "/", "@", ".", "<", ">", "-", "_", "(", ")", "[", "]",
    "hf_", "sk-", "AKIA", "eyJ", "ghp_", "://", "https://", "a:b@", "user@host.com", ".local", "/home/", "/Users/", "\\Users\\", "USER=", "%2F",
    "a", "b1", "alice", "x9", "0", "79", MIXED, LONG, HEX, PEM, "-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----", "Cookie: ", "a=b",
    "<token>", "<user1>", "<user>", "<email>", "<private_key>", "<host2>", "<tok", "10.0.0.1", "::1", "fe80::1", "gpu-17", "node3", "h.com",
    "Xid 79", "0x7f", "GPU-8f3c", "é", "\udc80", "\u202e", "/hook/", "?sig=", "wandb ", "host=", "n1", ".",
]  # fmt: skip
# Found by repeating pieces: each pass took one only.
CHAINS = [
    "wandb login password ?sig=/hook/://",
    'bearer ahttps://Apwd=token=\\\\\\"',
    LONG + "A/=",
    "\\" + HEX + " ",
    "<user>" + HEX,
    "1.1.1.11." + HEX + "?sig=",
    "token=" + HEX + "/hook/a",
]

_texts = st.lists(st.sampled_from(_pieces), max_size=14).map("".join) | st.text(max_size=40)


@given(_texts, st.booleans())
@example('-u a:a@b.token=\\\\\\"<user1>', False)
@example("secret:/home/a", False)
@example("://a:pwd=x@b", True)
def test_what_was_redacted_is_left_alone_by_a_second_run(text: str, hosts: bool) -> None:
    redactor = Redactor(hosts=hosts, names=["n1x", "alice"] if hosts else [])
    once = redactor.redact(text)
    again = redactor.redact(once.text)
    assert again.text == once.text
    assert not again.counts
    assert redact(once.text, hosts=hosts).text == once.text, "also by one that knows nothing"


@pytest.mark.parametrize("piece", CHAINS)
def test_a_chain_of_secrets_is_gone_at_once(piece: str) -> None:
    for text in (piece * 50, "password=aa " + piece * 50):
        once = redact(text)
        assert redact(once.text).text == once.text


@given(_texts, st.booleans(), st.integers(1, 40))
def test_the_text_stays_short(text: str, hosts: bool, times: int) -> None:
    text *= times
    assert len(redact(text, hosts=hosts).text) <= 2 * len(text) + 100


def test_many_short_names_stay_short() -> None:
    text = "".join(f"/home/{chr(0x4E00 + n)}" for n in range(3000))
    assert len(redact(text).text) <= 2 * len(text) + 100
    text = " ".join(f"n{n}" for n in range(10, 3000))
    assert len(Redactor(hosts=True, names=text.split()).redact(text).text) <= 2 * len(text) + 100


HOSTILE = [
    "a", "a.", "a-", "a_", "A", "0", " ", "\t", "=", ":", "://", "://a:", "@", "a@", "a@b.", "a@b.c", ".a", "/", "/home/", "/home/a", "\\", '"', "'",
    "token=", "token='", "key=", "key=aB1", "key=aB1=", 'token="', "token=\\'", "token=\\\\\\\"", "token=\"'", "token ", "--token ", "--a ", "api_key: ", "password=a", "pwd=a;",
    "eyJ", "eyJa.", "hf_", "sk-", "sk-a-", "xox", "AKIA", "ghp_a", "name: a", "name: a value: ", "?a=", "&token=", "Bearer ", "bearer a",
    "-u a:", "-u ", "wandb ", "wandb login password ", "secret 0", "-----BEGIN PRIVATE KEY-----", "-----BEGIN PRIVATE KEY-----\n", "-----BEGIN ",
    "-----BEGIN PRIVATE KEY-----\n-", "-----BEGIN PRIVATE KEY----- -----END", "-----END PRIVATE KEY-----", "Cookie: ", "cookie:a", "/hook/", "/hook/a",
    "<token>", "<user1>", "USER=a", "logged in as ", "1.", "1.1.1.1", "1:", "::", "a-gpu-", "gpu-1-", "host=", "node", "n1-", "a.com", "com.", "8Q~",
    "aB3", "aB3+/", "12345678:AA", "%2F", "\n", "token:\n", "é", "\U000e0041",
]  # fmt: skip


def seconds(piece: str, length: int) -> float:
    text = (piece * (length // len(piece) + 1))[:length]
    redactor = Redactor(hosts=True, names=["gpu-17", "aaa"])
    began = time.thread_time()
    redactor.redact(text)
    redactor.redact("token=" + text + "@x")
    return time.thread_time() - began


@pytest.mark.slow
@pytest.mark.parametrize("piece", HOSTILE)
def test_the_time_is_linear(piece: str) -> None:
    """Five times the characters of one kind: about five times as long; a pattern that reads them again and again, 25 times."""
    for again in (1, 1, 3):  # an interrupt makes one measurement longer, and not all
        large, small = (min(seconds(piece, length) for _ in range(again)) for length in (10_000, 2_000))
        if large <= 15 * max(small, 0.002):
            return
    raise AssertionError(f"{large:.3f} s, and {small:.3f} s for a fifth of it")


def test_only_lines_with_nothing_to_hide_are_clear_each_with_the_others_in_sight() -> None:
    key = ["-----BEGIN PRIVATE KEY-----", PEM, "-----END PRIVATE KEY-----"]
    lines = ["step 1 loss 2.0", "password=hunter2", *key, "mail to a@b.co", "step 2 loss 1.9"]
    assert clear(lines) == ["step 1 loss 2.0", key[0], key[2], "step 2 loss 1.9"]
    assert clear([]) == []
