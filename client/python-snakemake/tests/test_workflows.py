"""Snakemake's own tests of executor plugins, on a real cluster."""

import pytest
import snakemake.common.tests
from snakemake_interface_executor_plugins.settings import ExecutorSettingsBase

from snakemake_executor_plugin_headroom import ExecutorSettings


@pytest.mark.cluster
class TestWorkflows(snakemake.common.tests.TestWorkflowsLocalStorageBase):
    """A simple workflow and one with a group; the jobs of a rule are an array."""

    __test__ = True

    @pytest.fixture(autouse=True)
    def _cluster(self, cluster: str) -> None:
        self.address = cluster

    def get_executor(self) -> str:
        return "headroom"

    def get_executor_settings(self) -> ExecutorSettingsBase | None:
        return ExecutorSettings(address=self.address, default_mem_mb=100)


@pytest.mark.cluster
class TestWorkflowsOneByOne(TestWorkflows):
    """The same with an application for each job."""

    def get_executor_settings(self) -> ExecutorSettingsBase | None:
        return ExecutorSettings(address=self.address, default_mem_mb=100, array_size=1)
