"""The jobs of Snakemake as batch jobs, without a cluster."""

import tomllib

import pytest

from snakemake_executor_plugin_headroom.jobs import (
    MIB,
    HeldJobs,
    JobClass,
    ResourceError,
    application_of,
    batch_job,
    class_of,
    first_size,
    masters_that_fit,
    stage_of,
)


def a_class(rule: str = "align", mem_mb: object = 100, **more: object) -> JobClass:
    resources = {"mem_mb": mem_mb, **more}
    return class_of(
        rule, 2, resources, default_mem_mb=1000, overhead_mb=128, queue=None, cap_mb=None
    )


def test_resources_of_a_rule() -> None:
    kind = a_class(runtime=90, headroom_queue="root.genomes", headroom_cap_mb=4000)
    assert kind.memory == 228 * MIB
    assert kind.cpus == 2
    assert kind.timeout == 5400
    assert kind.queue == "root.genomes"
    assert kind.cap == 4128 * MIB


def test_a_rule_without_resources_gets_the_defaults() -> None:
    kind = a_class(mem_mb=None)
    assert kind.memory == 1128 * MIB
    assert kind.timeout is None
    assert kind.cap is None


@pytest.mark.parametrize("value", ["many", -1, 0, True])
def test_an_unusable_resource_names_rule_and_resource(value: object) -> None:
    with pytest.raises(ResourceError, match="rule align: resource mem_mb is"):
        a_class(mem_mb=value)


def test_jobs_of_one_class_are_taken_together_and_the_oldest_class_first() -> None:
    held = HeldJobs()
    small, large = a_class(), a_class(mem_mb=200)
    for job in ("a", "b", "c"):
        held.add(small, job)
    held.add(large, "d")
    held.add(small, "e")
    assert held.take(2) == (small, ["a", "b"])
    assert held.take(9) == (small, ["c", "e"])
    assert held.take(9) == (large, ["d"])
    held.add(large, "f")
    assert held.clear() == ["f"]
    assert held.take(1) is None


def test_the_job_file_of_an_array() -> None:
    kind = a_class(runtime=10, headroom_cap_mb=50)
    job = batch_job(
        kind,
        name="flow-align",
        memory=kind.memory,
        command=["sh", "/scripts/{index}.sh"],
        tasks=3,
        directory="/data",
        env={"PATH": "/bin", "odd name": 'a "quoted" value'},
        mode="headroom",
        grow=None,
        priority=7,
    )
    file = tomllib.loads(job.text())
    assert file["name"] == "flow-align"
    assert file["priority"] == 7
    assert file["profiles"]["task"] == {"memory": (228 + 32) * MIB, "cpus": 2}
    assert file["executors"]["main"] == {"profile": "task", "count": 3}
    (stage,) = file["stage"]
    assert stage["name"] == "align"
    assert stage["array"] == "0-2"
    assert stage["timeout"] == "600s"
    assert stage["env"] == {"PATH": "/bin", "odd name": 'a "quoted" value'}
    # A cap below the first size would refuse the job.
    assert file["retry"] == {"max_attempts": 1, "cap": 228 * MIB}


def test_a_learned_size_is_never_below_that_of_the_rule_nor_above_the_cap() -> None:
    def rows(mib: int) -> list[dict[str, object]]:
        return [
            {"kind": "align", "user": "ann", "stated": mib * MIB},
            {"kind": "align", "user": "bob", "stated": 9000 * MIB},
            {"kind": "sort", "user": "ann", "stated": 9000 * MIB},
            {"kind": "align", "user": "ann", "stated": None},
        ]

    assert first_size(a_class(), rows(640), "ann") == 640 * MIB
    assert first_size(a_class(), rows(40), "ann") == 228 * MIB
    assert first_size(a_class(headroom_cap_mb=300), rows(640), "ann") == 428 * MIB
    assert first_size(a_class(headroom_cap_mb=10), rows(640), "ann") == 228 * MIB


def test_names_are_valid_and_stay_distinct_when_they_are_shortened() -> None:
    assert application_of("my-flow", "align") == "my-flow-align"
    assert stage_of("group_a b") == "group_a-b"
    long = ["r" * 60 + "1", "r" * 60 + "2"]
    stages = {stage_of(rule) for rule in long}
    assert len(stages) == 2
    assert all(len(stage) <= 40 for stage in stages)


def test_masters_leave_three_quarters_of_the_memory_to_jobs() -> None:
    nodes = [{"offers": {"memory": 6 << 30}}, {"offers": {"memory": 2 << 30}}]
    assert masters_that_fit(nodes) == 28
    assert masters_that_fit([]) == 1
