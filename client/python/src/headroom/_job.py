"""Builds the job file, the submission and the stages of an executor's live job."""

from __future__ import annotations

import getpass
import json
import os
import sys
import uuid
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from headroom._http import RestClient
from headroom._pickling import stage_name
from headroom.errors import RequestRefused, SettingsError, format_bytes

__all__ = [
    "CallOptions",
    "ExecutorLayout",
    "JobSettings",
    "plan_layout",
    "stage_spec",
    "submit_job",
]

_MIB = 1 << 20
#: Memory of the container that the calls do not get: the executor.
EXECUTOR_RESERVE = 32 * _MIB
#: Memory of a fork server with the package alone.
FORK_SERVER_RESERVE = 32 * _MIB
#: Further memory of a fork server that imports modules of the user.
IMPORTS_RESERVE = 128 * _MIB
#: Memory of the application master.
MASTER_MEMORY = 192 * _MIB
#: Most calls that one container runs at once.
MAX_SLOTS = 8
#: Most containers of a job.
MAX_CONTAINERS = 10_000


@dataclass(frozen=True)
class CallOptions:
    """Options of one call, or of all calls."""

    #: First size of the call. Bytes; ``None`` for the executor's.
    memory: Optional[int] = None
    #: Slots that the call takes.
    slots: int = 1
    #: Longest run time of an attempt. Seconds.
    timeout: Optional[float] = None
    #: Calls of a higher priority start first.
    priority: int = 0
    #: False for a call that must not run twice.
    idempotent: bool = True
    #: Labels that displays show.
    tags: Tuple[Tuple[str, str], ...] = ()


@dataclass(frozen=True)
class JobSettings:
    """Settings of an executor that do not change."""

    name: str
    memory: int
    cpus: float
    workers: Optional[int]
    cap: Optional[int]
    queue: Optional[str]
    priority: int
    retries: int
    imports: Tuple[str, ...]
    warm: bool
    python: str
    env: Mapping[str, str]
    python_path: Tuple[str, ...]
    reserve: int
    sizes: str
    mode: str
    lease: float
    local: bool
    grow: bool
    #: Containers of escalated calls need next to no processor, because they only weigh less.
    weightless: bool = False
    #: Calls that a forked process runs, one after the other.
    calls_per_process: int = 1


@dataclass(frozen=True)
class ExecutorLayout:
    """Containers of a job: ``count`` containers with ``slots`` slots each."""

    slots: int
    count: int
    #: Memory of a container. Bytes.
    memory: int
    #: Processors of a container.
    cpus: float


def plan_layout(nodes: Sequence[Mapping[str, Any]], job: JobSettings) -> ExecutorLayout:
    """Chooses containers so that the calls fill the nodes, or number ``workers``.

    A container takes at most half of the largest node's memory, so that a larger one for an
    escalated call finds room.
    """
    ready = [node["offers"] for node in nodes if node.get("state") == "ready"]
    largest = max((int(offer["memory"]) for offer in ready), default=0)
    processors = max((float(offer["cpus"]) for offer in ready), default=0.0)
    fits = min(
        int((largest // 2 - job.reserve) // job.memory) if largest else MAX_SLOTS,
        int(processors / job.cpus) if processors else MAX_SLOTS,
        MAX_SLOTS,
        job.workers or MAX_SLOTS,
    )
    slots = max(1, fits)
    memory = slots * job.memory + job.reserve
    if job.workers is not None:
        count = -(-job.workers // slots)
    else:
        count = sum(
            min(int(offer["memory"]) // memory, int(float(offer["cpus"]) / (slots * job.cpus)))
            for offer in ready
        )
    cpus = slots * job.cpus
    if job.weightless:
        cpus = max(0.1, cpus - 0.2)
    return ExecutorLayout(slots, max(1, min(MAX_CONTAINERS, count)), memory, round(cpus, 3))


def job_file(job: JobSettings, layout: ExecutorLayout) -> str:
    """The job file, TOML."""
    retry = [f"max_attempts = {job.retries + 1}"]
    if job.cap is not None:
        retry.append(f"cap = {job.cap}")
    if job.weightless:
        retry.append("cpus = 0.1")
    lines = [
        "version = 1",
        f"name = {_toml(job.name)}",
        "live = true",
        f'lease = "{max(1, round(job.lease))}s"',
        f"mode = {_toml(job.mode)}",
        f"sizes = {_toml(job.sizes)}",
        f"priority = {job.priority}",
        *([f"queue = {_toml(job.queue)}"] if job.queue else []),
        "[profiles.worker]",
        f"memory = {layout.memory}",
        f"cpus = {layout.cpus:g}",
        "[executors.main]",
        'profile = "worker"',
        f"count = {layout.count}",
        f"slots = {layout.slots}",
        f"reserve = {job.reserve}",
        f'idle = "{max(1, round(job.lease))}s"',
        "[retry]",
        *retry,
    ]
    return "\n".join(lines) + "\n"


def _toml(text: str) -> str:
    """A basic string: TOML and JSON write it alike."""
    return json.dumps(text)


def stage_spec(
    job: JobSettings, function: str, stage_function: str, options: CallOptions
) -> Dict[str, Any]:
    """The keys of the stage of a function. ``stage_function`` is the argument with its pickle."""
    python = ["env", f"PYTHONPATH={os.pathsep.join(job.python_path)}"] if job.python_path else []
    python.append(job.python)
    word = _literal(stage_function)
    spec: Dict[str, Any] = {
        "kind": stage_name(function),
        "runtime": "python",
        "heap_exit_codes": [3],
        "executors": "main",
    }
    if job.warm:
        modules = ["cloudpickle", "headroom.call", *job.imports]
        imports = [word for module in modules for word in ("--import", module)]
        if job.calls_per_process > 1:
            imports += ["--calls", str(job.calls_per_process)]
        spec["fork_server"] = [*python, "-m", "headroom.fork_server", *imports]
        spec["command"] = ["headroom.call:main", word]
    else:
        spec["command"] = [*map(_literal, python), "-m", "headroom.call", word]
    if job.env:
        spec["env"] = {name: _literal(value) for name, value in job.env.items()}
    if options.timeout is not None:
        spec["timeout"] = f"{max(1, round(options.timeout * 1000))}ms"
    if options.slots > 1:
        spec["cpus_per_task"] = options.slots
    if not job.grow:
        spec["grow"] = False
    if not options.idempotent:
        spec["idempotent"] = "no"
    return spec


def _literal(text: str) -> str:
    """Braces are placeholders in commands of job files, so they are doubled."""
    return text.replace("{", "{{").replace("}", "}}")


def submit_job(rest: RestClient, job: JobSettings) -> Tuple[str, ExecutorLayout]:
    """Submits the live job; returns its id and its layout."""
    nodes: List[Dict[str, Any]] = rest.get("/v1/nodes")
    layout = plan_layout(nodes, job)
    _check_feasible(nodes, job)
    command = ["appmaster", "--job", "job.toml", "--mode", job.mode]
    if job.local:
        command += ["--base-dir", os.getcwd()]
    body: Dict[str, Any] = {
        "name": job.name,
        "queue": job.queue,
        "priority": job.priority,
        "master": {
            "kind": "managed",
            "resource": {"memory": MASTER_MEMORY, "cpus": 0},
            "launch": {"command": command, "files": {"job.toml": job_file(job, layout)}},
            "max_attempts": 4,
        },
        "idempotency_key": f"python-{uuid.uuid4().hex}",
    }
    settings = rest.settings
    if not (settings.token or settings.token_file or settings.cert):
        body["user"] = _user_name()
    try:
        answer = rest.post("/v1/apps", body)
    except RequestRefused as error:
        if error.status == 400 and "live" in error.detail:
            raise RequestRefused(
                f"this cluster's version has no live jobs, which headroom.Executor needs: {error}"
            ) from error
        raise
    return str(answer["app"]), layout


def _check_feasible(nodes: Sequence[Mapping[str, Any]], job: JobSettings) -> None:
    """Refuses a size that no node has; without nodes the job waits for one."""
    offers = [int(node["offers"]["memory"]) for node in nodes if node.get("offers")]
    needed = job.memory + job.reserve
    if offers and max(offers) < needed:
        raise SettingsError(
            f"a container for one call needs {format_bytes(needed)} (memory="
            f"{format_bytes(job.memory)} and {format_bytes(job.reserve)} for the executor), and "
            f"the largest node has {format_bytes(max(offers))}; lower memory="
        )


def _user_name() -> Optional[str]:
    try:
        return getpass.getuser()[:64]
    except (KeyError, OSError, ImportError):
        return None


def default_name() -> str:
    """The script's name, as a job name."""
    main = sys.modules.get("__main__")
    path = getattr(main, "__file__", None) or sys.argv[0] or "python"
    base = os.path.splitext(os.path.basename(path))[0]
    return stage_name("python" if base in ("", "-c", "-m", "__main__") else base)
