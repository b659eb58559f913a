"""``diagnose nodes check``: which node is bad; ``diagnose nodes manifest``: where to run it on Kubernetes."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import importlib.util
import json
import os
import sys
import time
from pathlib import Path
from typing import Any, Final

from diagnose.cli import action, printable
from diagnose.cli.options.destination import add_service, destination
from diagnose.errors import DiagnoseError
from diagnose.nodecheck.accuse import SLOW_FACTOR, Trial, Verdict
from diagnose.nodecheck.launchers import LAUNCHERS, from_template, hostfile, node_list
from diagnose.nodecheck.rounds import Settings, check
from diagnose.rendering.terminal import Style, table
from diagnose.shipping.destination import Away, Destination

SCHEMA: Final = "diagnose.nodecheck/1"


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    parser.description = (
        "Find bad nodes: pairs of nodes run a matrix product and an all-gather together, each node with several partners."
    )
    _check_options(action(actions, "check", "test the nodes against each other"))
    _manifest_options(action(actions, "manifest", "print Kubernetes Jobs that reserve the nodes for a check"))


def _check_options(parser: argparse.ArgumentParser) -> None:
    parser.usage = "diagnose nodes check [--nodes LIST | --hostfile FILE] [options]"
    parser.epilog = (
        "Exit status: 0 if all nodes are good, 1 if some are faulty or slow, 2 if the check could not run, "
        "3 if it cannot be told which node is bad."
    )
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object per test when it ends, and one for the verdict at the end"
    )
    _names(parser)
    start = parser.add_argument_group("starting the tests on the nodes")
    start.add_argument(
        "--launcher",
        choices=(*LAUNCHERS, "command"),
        default="local",
        help="how a test is started on a node: on this machine, by srun, by ssh, or by --command (default: local)",
    )
    start.add_argument(
        "--command",
        dest="template",
        metavar="WORDS",
        help="with --launcher command: for example 'kubectl exec job/check-{node} -- {probe}'",
    )
    start.add_argument("--python", metavar="PATH", help="Python interpreter on the nodes (default: the path of this one)")
    start.add_argument("--port", type=int, metavar="N", default=29400, help="first port to use (default: 29400)")
    test = parser.add_argument_group("the tests")
    test.add_argument(
        "--timeout", type=_positive, metavar="SECONDS", default=60.0, help="longest time for one test (default: 60)"
    )
    test.add_argument("--rounds", type=int, metavar="N", default=8, help="maximum number of rounds (default: 8)")
    test.add_argument(
        "--slow",
        type=_positive,
        metavar="FACTOR",
        default=SLOW_FACTOR,
        help="a node that takes more than FACTOR times the median is slow (default: 1.5)",
    )
    test.add_argument("--per-node", type=int, metavar="N", default=0, help="processes per node (default: one per GPU)")
    test.add_argument(
        "--backend",
        choices=("auto", "nccl", "gloo"),
        default="auto",
        help="backend of torch.distributed (default: auto, which is nccl on GPUs and gloo otherwise)",
    )
    test.add_argument(
        "--matrix", type=int, metavar="ROWS", default=0, help="rows of the matrices (default: 4096 on a GPU, 512 otherwise)"
    )
    test.add_argument(
        "--mib",
        type=int,
        metavar="N",
        default=0,
        help="MiB that each process sends in an all-gather (default: 64 on a GPU, 4 otherwise)",
    )
    add_service(
        parser,
        "telling a service the result",
        "address of the service that stores the verdict (default: it is not stored); the token needs the role operate",
    )


def _manifest_options(parser: argparse.ArgumentParser) -> None:
    _names(parser)
    job = parser.add_argument_group("the Jobs")
    job.add_argument("--image", metavar="IMAGE", required=True, help="container image that has diagnose and torch")
    job.add_argument("--gpus", type=int, default=8, metavar="N", help="GPUs per node (default: 8)")
    job.add_argument("--namespace", metavar="NAME", default="default", help="namespace of the Jobs (default: default)")
    job.add_argument(
        "--minutes", type=_positive, metavar="N", default=30.0, help="minutes after which the Jobs end (default: 30)"
    )


def _names(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("the nodes")
    group.add_argument(
        "--nodes",
        metavar="LIST",
        help="names, ranges such as gpu-[01-16], or name=address, separated by commas (default: the nodes of this Slurm job)",
    )
    group.add_argument(
        "--hostfile", metavar="FILE", type=Path, help="file with one node per line, with its address if the name is not enough"
    )


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 86400:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number between 0 and 86400")
    return value


def run(arguments: argparse.Namespace) -> int:
    found = _nodes(arguments)
    if arguments.action == "manifest":
        import yaml

        print(yaml.safe_dump_all([_job(name, arguments) for name, _ in found], sort_keys=False), end="")
        return 0
    return _check(found, arguments)


def _nodes(arguments: argparse.Namespace) -> list[tuple[str, str | None]]:
    if arguments.hostfile is not None:
        try:
            return hostfile(arguments.hostfile.read_text("utf-8"), str(arguments.hostfile))
        except (OSError, UnicodeDecodeError) as error:
            raise DiagnoseError(
                f"cannot be read: {error}", where=str(arguments.hostfile), remedy="check the path, and give a text file"
            ) from None
    listed = arguments.nodes or os.environ.get("SLURM_JOB_NODELIST")
    if not listed:
        raise DiagnoseError("the nodes are missing", where="diagnose nodes", remedy="give --nodes a,b,c or --hostfile FILE")
    return node_list(listed)


def _check(found: list[tuple[str, str | None]], arguments: argparse.Namespace) -> int:
    if (arguments.launcher == "command") != (arguments.template is not None):
        raise DiagnoseError(
            "--launcher command and --command belong together", where="diagnose nodes check", remedy="give both or neither"
        )
    addresses = {name: address for name, address in found if address is not None}
    if arguments.launcher == "local":
        if importlib.util.find_spec("torch") is None:
            raise DiagnoseError("the probe needs torch", where=sys.executable, remedy="pip install 'diagnose-train[check]'")
        addresses = {name: "127.0.0.1" for name, _ in found}
    settings = Settings(
        launch=from_template(arguments.template) if arguments.template is not None else LAUNCHERS[arguments.launcher],
        python=arguments.python or sys.executable,
        addresses=addresses,
        timeout_s=arguments.timeout,
        port=arguments.port,
        per_node=arguments.per_node,
        backend=arguments.backend,
        matrix=arguments.matrix,
        mib=arguments.mib,
        most=arguments.rounds,
        factor=max(1.0, arguments.slow),
    )
    service = destination(arguments) if arguments.to else None
    verdict, rounds = asyncio.run(check([name for name, _ in found], settings, _json if arguments.json else _line))
    told = {"schema": SCHEMA, "kind": "verdict", "rounds": len(rounds), **dataclasses.asdict(verdict)}
    print(json.dumps(told) if arguments.json else _text(verdict, Style(sys.stdout)), flush=True)
    if service is not None:
        _tell(service, {**told, "time": time.time()})
    return 1 if verdict.faulty or verdict.slow else 3 if verdict.suspects else 0


def _tell(service: Destination, verdict: dict[str, Any]) -> None:
    """Send the verdict to the service. It is already on the terminal, so only a few seconds are spent on retries."""
    text = {node: words.encode("utf-8", "replace").decode() for node, words in verdict["why"].items()}
    verdict = {**verdict, "why": text}  # a broken node may have printed bytes that are not text
    for pause_s in (1.0, 4.0, None):
        try:
            service.node_check(verdict)
            return
        except Away as error:
            if pause_s is None:
                raise DiagnoseError(
                    f"the check was not stored: {error.what}",
                    where=error.where,
                    remedy=error.remedy or "POST the last line of --json to /v1/nodes/checks when the service is back",
                ) from None
            time.sleep(pause_s)


def _json(number: int, trial: Trial) -> None:
    print(json.dumps({"schema": SCHEMA, "kind": "test", "round": number, **dataclasses.asdict(trial)}), flush=True)


def _line(number: int, trial: Trial) -> None:
    """Progress, for a person: not part of the result."""
    said = "; ".join(f"{node}: {what}" for node, what in trial.seen.items())
    sys.stderr.write(
        f"round {number}  {', '.join(trial.members)}  {'passed' if trial.passed else printable(f'failed  {said}')}\n"
    )
    sys.stderr.flush()


def _text(verdict: Verdict, style: Style) -> str:
    kinds = {"faulty": style.red, "slow": style.yellow, "suspects": style.yellow}
    rows = [
        (paint(node), {"suspects": "suspect"}.get(kind, kind), printable(verdict.why[node]))
        for kind, paint in kinds.items()
        for node in getattr(verdict, kind)
    ]
    good = f"{len(verdict.good)} of {len(verdict.good) + len(rows)} nodes are good."
    links = [
        f"{' and '.join(link)} failed or were slow together, and passed with others: look at the way between."
        for link in verdict.links
    ]
    return "\n".join([*([table(rows, style), ""] if rows else []), style.bold(good), *links, *verdict.notes])


def _job(node: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """A Job that sleeps on its node until the check is over; ``kubectl exec`` starts probes in it."""
    seconds = int(arguments.minutes * 60)
    labels = {"app": "diagnose-nodecheck"}
    container = {
        "name": "check",
        "image": arguments.image,
        "command": ["sleep", str(seconds)],
        "resources": {"limits": {"nvidia.com/gpu": arguments.gpus}} if arguments.gpus else {},
        "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],  # noqa: S108  # NCCL's shared memory; the default is 64 MiB
    }
    pod = {
        "nodeName": node,  # past the scheduler: a cordoned node is tested too
        "tolerations": [{"operator": "Exists"}],
        "hostNetwork": True,  # the training jobs' interfaces, and the node's name as its address
        "restartPolicy": "Never",
        "containers": [container],
        "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}],
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": f"nodecheck-{node.lower()}", "namespace": arguments.namespace, "labels": labels},
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": seconds,
            "ttlSecondsAfterFinished": 600,
            "template": {"metadata": {"labels": {**labels}}, "spec": pod},
        },
    }
