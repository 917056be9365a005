"""The page of a step, as a browser builds it."""

import shutil
import subprocess

import pytest

from precision_time.planning.layouts.api import find_layouts
from precision_time.timeline.pictures import write_picture
from precision_time.timeline.step import step_timeline

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@pytest.mark.skipif(BROWSER is None, reason="no browser is installed")
def test_a_browser_shows_stages_terms_and_memory(tmp_path):
    found = find_layouts(
        "gpt2", device="A100-SXM4-80GB", gpus=8, global_batch_size=64, fix=["pp=4", "schedule=1f1b"], top=1
    )
    page = tmp_path / "step.html"
    write_picture(step_timeline(found.jobs[0], found.ranked[0].prediction), page)
    shown = subprocess.run(
        [str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", page.as_uri()],
        capture_output=True, text=True, timeout=60, check=True,
    ).stdout  # fmt: skip
    for words in ("stage 3", "Where the time goes", "Memory per device", "<svg", "gemm"):
        assert words in shown
