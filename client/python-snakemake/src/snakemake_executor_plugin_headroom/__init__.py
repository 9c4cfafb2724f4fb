"""Snakemake executor plugin for Headroom.

Select it with ``snakemake --executor headroom --jobs N``.
"""

from snakemake_executor_plugin_headroom.executor import Executor
from snakemake_executor_plugin_headroom.settings import ExecutorSettings, common_settings

__all__ = ["Executor", "ExecutorSettings", "common_settings"]
