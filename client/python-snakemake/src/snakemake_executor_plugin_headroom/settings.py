"""The settings of the plugin. Each field is an option ``--headroom-NAME`` of Snakemake."""

from dataclasses import dataclass, field

from snakemake_interface_executor_plugins.settings import CommonSettings, ExecutorSettingsBase

#: Memory for the Snakemake that runs in each job, in addition to ``mem_mb``. MiB; it uses 66 to 71.
DEFAULT_OVERHEAD_MB = 128

#: Size of a job whose rule has no ``mem_mb``. MiB.
DEFAULT_MEM_MB = 1000

#: Variables that jobs get from the environment of Snakemake, if they are set there.
DEFAULT_ENVIRONMENT = ("PATH", "PYTHONPATH", "VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV")

#: Modes of a job file that start with the size of the rule.
MODES = ("headroom", "pinterest", "uber", "databricks", "fixed")

common_settings = CommonSettings(
    non_local_exec=True,
    implies_no_shared_fs=False,
    job_deploy_sources=False,
    pass_default_storage_provider_args=True,
    pass_default_resources_args=True,
    pass_envvar_declarations_to_cmd=True,
    auto_deploy_default_storage_provider=False,
    init_seconds_before_status_checks=0,
)


@dataclass
class ExecutorSettings(ExecutorSettingsBase):  # type: ignore[misc]
    """Settings of the executor."""

    address: str | None = field(
        default=None,
        metadata={
            "help": "Address of the resource manager: http://HOST:PORT, https://HOST:PORT or "
            "unix:PATH; of several, all addresses with commas between them. Found as rmctl finds "
            "it if left out: HEADROOM_ADDR, the context, the socket of this host.",
            "type": str,
        },
    )
    context: str | None = field(
        default=None,
        metadata={
            "help": "Context of rmctl, which has the address and the credentials of a cluster.",
            "type": str,
        },
    )
    queue: str | None = field(
        default=None,
        metadata={
            "help": "Queue of the jobs. A rule overrides it with the resource headroom_queue.",
            "type": str,
        },
    )
    priority: int = field(
        default=0,
        metadata={"help": "Priority of the jobs in their queue, -1000 to 1000.", "type": int},
    )
    name: str | None = field(
        default=None,
        metadata={
            "help": "First part of the names of applications, NAME-RULE. Applications of one name "
            "share the sizes that were learned. The name of the working directory if left out.",
            "type": str,
        },
    )
    mode: str = field(
        default="headroom",
        metadata={
            "help": "Reaction to a job that needs more memory than its size. With fixed, the job "
            "fails.",
            "type": str,
            "choices": list(MODES),
        },
    )
    no_learn: bool = field(
        default=False,
        metadata={
            "help": "Start each job with the size of its rule, also if earlier jobs of the rule "
            "needed more.",
        },
    )
    no_growth: bool = field(
        default=False,
        metadata={
            "help": "Kill a job at its limit and run it again with more memory, instead of giving "
            "it more memory while it runs.",
        },
    )
    cap_mb: int | None = field(
        default=None,
        metadata={
            "help": "Memory that no job exceeds. MiB; the largest container of the cluster if left "
            "out. A rule overrides it with the resource headroom_cap_mb.",
            "type": int,
        },
    )
    default_mem_mb: int = field(
        default=DEFAULT_MEM_MB,
        metadata={"help": "Size of a job whose rule has no mem_mb. MiB.", "type": int},
    )
    overhead_mb: int = field(
        default=DEFAULT_OVERHEAD_MB,
        metadata={
            "help": "Memory for the Snakemake that runs in each job, in addition to mem_mb. MiB.",
            "type": int,
        },
    )
    array_size: int = field(
        default=500,
        metadata={
            "help": "Largest number of jobs of one rule and size that are submitted as one "
            "application. 1 submits an application for each job.",
            "type": int,
        },
    )
    max_applications: int | None = field(
        default=None,
        metadata={
            "help": "Largest number of applications at once; further jobs wait in Snakemake. Each "
            "application has a master of 72 MiB. As many as fit in a quarter of the memory of the "
            "cluster if left out.",
            "type": int,
        },
    )
    env: list[str] = field(
        default_factory=lambda: list(DEFAULT_ENVIRONMENT),
        metadata={
            "help": "Names of environment variables that jobs get from the environment of "
            "Snakemake.",
            "nargs": "+",
        },
    )
