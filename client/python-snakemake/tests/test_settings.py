"""The options of the plugin, as Snakemake reads them."""

import pytest
from snakemake.cli import get_argument_parser
from snakemake_interface_executor_plugins.registry import ExecutorPluginRegistry

from snakemake_executor_plugin_headroom import ExecutorSettings
from snakemake_executor_plugin_headroom.settings import DEFAULT_ENVIRONMENT


def parsed(*options: str) -> ExecutorSettings:
    plugin = ExecutorPluginRegistry().get_plugin("headroom")
    found = plugin.get_settings(get_argument_parser().parse_args(["--cores", "1", *options]))
    assert isinstance(found, ExecutorSettings)
    return found


def test_without_options_the_settings_are_the_defaults() -> None:
    assert parsed() == ExecutorSettings()
    assert parsed().env == list(DEFAULT_ENVIRONMENT)


def test_options_have_the_types_of_their_fields() -> None:
    found = parsed(
        *("--headroom-env", "PATH", "FLOW"),
        *("--headroom-cap-mb", "2000"),
        *("--headroom-mode", "fixed"),
        "--headroom-no-learn",
    )
    assert found.env == ["PATH", "FLOW"]
    assert found.cap_mb == 2000
    assert found.mode == "fixed"
    assert found.no_learn
    assert not found.no_growth


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(SystemExit):
        parsed("--headroom-mode", "guess")
