"""Every complete Python block of the README and of the guide runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
from fake_cluster import SOURCES

HERE = os.path.dirname(os.path.abspath(__file__))
PAGES = {
    "README.md": os.path.join(HERE, "..", "README.md"),
    "python.md": os.path.join(HERE, "..", "..", "..", "docs", "guides", "python.md"),
}


def blocks():
    for page, path in PAGES.items():
        if not os.path.exists(path):
            continue  # an installed source distribution has no guide
        with open(path, encoding="utf-8") as file:
            found = re.findall(r"```python\n(.*?)```", file.read(), re.DOTALL)
        for number, block in enumerate(found):
            if "__main__" in block:
                yield pytest.param(block, id=f"{page}-{number}")


@pytest.mark.parametrize("block", list(blocks()))
def test_a_block_runs(block, fake, tmp_path):
    if "joblib" in block:
        pytest.importorskip("joblib")
    path = tmp_path / "recipe.py"
    path.write_text(block.replace("range(1000), [2] * 1000", "range(50), [2] * 50"))
    done = subprocess.run(
        [sys.executable, str(path)],
        env={**os.environ, "PYTHONPATH": SOURCES, "HEADROOM_ADDR": fake.address},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout
