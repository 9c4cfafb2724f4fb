"""The jobs of Snakemake as batch jobs of Headroom. Without network and without Snakemake."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from headroom._batch import MAX_STAGE_NAME, BatchJob, learned_size, name_of

MIB = 1 << 20


@dataclass(frozen=True)
class JobClass:
    """The properties that all jobs of one application share."""

    #: Name of the rule, or of the group.
    rule: str
    #: Memory without learned sizes. Bytes.
    memory: int
    #: Processors.
    cpus: int
    #: Longest run time. Seconds; ``None`` without ``runtime``.
    timeout: float | None
    queue: str | None
    #: Memory that no job exceeds. Bytes.
    cap: int | None


class ResourceError(ValueError):
    """A resource of a rule that is not usable."""


def _number(resources: Mapping[str, Any], name: str, rule: str) -> float | None:
    value = resources.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value <= 0:
        raise ResourceError(
            f"rule {rule}: resource {name} is {value!r}; write a number above 0, or leave it out"
        )
    return float(value)


def class_of(
    rule: str,
    threads: int,
    resources: Mapping[str, Any],
    *,
    default_mem_mb: int,
    overhead_mb: int,
    queue: str | None,
    cap_mb: int | None,
) -> JobClass:
    """The class of a job. Raises :class:`ResourceError`."""
    mem_mb = _number(resources, "mem_mb", rule) or default_mem_mb
    runtime = _number(resources, "runtime", rule)
    cap = _number(resources, "headroom_cap_mb", rule) or cap_mb
    return JobClass(
        rule=rule,
        memory=int(mem_mb + overhead_mb) * MIB,
        cpus=max(1, threads),
        timeout=None if runtime is None else runtime * 60,
        queue=resources.get("headroom_queue") or queue,
        cap=None if cap is None else int(cap + overhead_mb) * MIB,
    )


def first_size(job: JobClass, suggestions: Iterable[Mapping[str, Any]], user: str | None) -> int:
    """The first size of a job: that of its rule, or a larger one that its history suggests. Bytes.

    ``suggestions`` are rows of ``GET /v1/suggestions``. The size never exceeds the cap.
    """
    learned = learned_size(suggestions, stage_of(job.rule), user)
    size = max(job.memory, learned or 0)
    return max(job.memory, min(size, job.cap)) if job.cap else size


def stage_of(rule: str) -> str:
    """The stage of a rule, by which its sizes are learned."""
    return name_of(rule, MAX_STAGE_NAME)


def application_of(prefix: str, rule: str) -> str:
    """The name of the applications of a rule."""
    return name_of(f"{prefix}-{rule}")


class HeldJobs:
    """Jobs that are not submitted yet, by class. The class of the oldest job comes first."""

    def __init__(self) -> None:
        self._classes: dict[JobClass, list[Any]] = {}

    def __len__(self) -> int:
        return sum(len(jobs) for jobs in self._classes.values())

    def add(self, kind: JobClass, job: Any) -> None:
        """Adds a job."""
        self._classes.setdefault(kind, []).append(job)

    def take(self, most: int) -> tuple[JobClass, list[Any]] | None:
        """Removes up to ``most`` jobs of one class."""
        if not self._classes:
            return None
        kind, jobs = next(iter(self._classes.items()))
        taken, self._classes[kind] = jobs[:most], jobs[most:]
        if not self._classes[kind]:
            del self._classes[kind]
        return kind, taken

    def clear(self) -> list[Any]:
        """Removes all jobs."""
        jobs = [job for held in self._classes.values() for job in held]
        self._classes.clear()
        return jobs


def batch_job(
    kind: JobClass,
    *,
    name: str,
    memory: int,
    command: list[str],
    tasks: int | None,
    directory: str,
    env: Mapping[str, str],
    mode: str,
    grow: bool | None,
    priority: int,
) -> BatchJob:
    """The application of jobs of one class. A plain failure is left to ``retries`` of Snakemake."""
    return BatchJob(
        name=name,
        stage=stage_of(kind.rule),
        command=command,
        memory=memory,
        directory=directory,
        tasks=tasks,
        cpus=kind.cpus,
        env=env,
        timeout=kind.timeout,
        plain_attempts=1,
        cap=max(kind.cap, memory) if kind.cap else None,
        mode=mode,
        grow=grow,
        queue=kind.queue,
        priority=priority,
    )


def masters_that_fit(nodes: Iterable[Mapping[str, Any]], master: int = 72 * MIB) -> int:
    """Number of masters that fit in a quarter of the memory of the cluster, at least one.

    More masters could take the memory in which their own tasks have to run.
    """
    memory = sum(int((node.get("offers") or {}).get("memory") or 0) for node in nodes)
    return max(1, memory // 4 // master)
