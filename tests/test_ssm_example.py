"""The example runs from the checkout, without the recordings."""

import json
import os
import subprocess
import sys
from pathlib import Path

from headcount.papers.ssm.pictures import bits_picture

ROOT = Path(__file__).parents[1]


def test_speech_filter_example_prints_and_draws(tmp_path):
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "speech_filter.py", "--out", tmp_path],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert "order 64" in done.stdout and "second-order sections" in done.stdout
    rows = json.loads((tmp_path / "speech_filter.json").read_text())
    drawn = bits_picture(rows["panels"], rows["title"]).standalone()
    assert (tmp_path / "speech_filter.svg").read_text() == drawn
