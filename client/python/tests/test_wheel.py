"""The wheels of the packages in a new environment, without the source tree."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

CLIENTS = pathlib.Path(__file__).resolve().parent.parent.parent
PACKAGES = ("python", "python-snakemake")

pytestmark = pytest.mark.cluster

CHECKS = """
import doctest, importlib, importlib.metadata, pathlib, pkgutil, sys
import headroom, snakemake_executor_plugin_headroom as plugin
for module in (headroom, plugin):
    assert pathlib.Path(module.__file__).is_relative_to(sys.prefix), module.__file__
    assert (pathlib.Path(module.__file__).parent / "py.typed").exists()
tried = 0
for found in pkgutil.iter_modules(headroom.__path__, "headroom."):
    if found.name not in ("headroom.__main__", "headroom._submitit_task"):
        result = doctest.testmod(importlib.import_module(found.name))
        assert result.failed == 0, found.name
        tried += result.attempted
assert tried > 10, tried
names = {entry.name for entry in importlib.metadata.entry_points(group="submitit")}
assert {"executor", "job_environment"} <= names, names
assert importlib.metadata.version("headroom") == headroom.__version__
from snakemake_interface_executor_plugins.registry import ExecutorPluginRegistry
assert ExecutorPluginRegistry().get_plugin("headroom").settings_cls is not None
print("checked", tried)
"""


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, f"{command}: {done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The interpreter of an environment with the wheels. Other packages are those of the tests."""
    folder = tmp_path_factory.mktemp("wheels")
    pip = ["-m", "pip", "--disable-pip-version-check"]
    for package in PACKAGES:
        source = str(CLIENTS / package)
        offline = ["--no-deps", "--no-build-isolation", "--no-index"]
        run(sys.executable, *pip, "wheel", *offline, "-w", str(folder), source)
    run(sys.executable, "-m", "venv", "--without-pip", str(folder / "venv"))
    python = str(folder / "venv" / "bin" / "python")
    (site,) = (folder / "venv").glob("lib/python*/site-packages")
    wheels = [str(wheel) for wheel in folder.glob("*.whl")]
    assert len(wheels) == len(PACKAGES), wheels
    run(sys.executable, *pip, "--python", python, "install", "--no-index", "--no-deps", *wheels)
    # Its own .pth files are not read, so the editable installations stay outside.
    (site / "tools.pth").write_text(
        "".join(f"{path}\n" for path in sys.path if path.endswith("site-packages"))
    )
    return python


def clean_environment():
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def test_doctests_and_entry_points(installed, tmp_path):
    out = run(installed, "-c", CHECKS, cwd=tmp_path, env=clean_environment())
    assert out.startswith("checked ")


def test_the_demonstration(installed, tmp_path, real_cluster):
    command = [installed, "-m", "headroom", "demo", "--addr", real_cluster, "--calls", "6"]
    out = run(*command, cwd=tmp_path, env=clean_environment(), timeout=240)
    assert "equal to those of this process" in out
