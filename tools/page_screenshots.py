"""Pictures of the page for docs/images, and what its first visit costs, by Chromium against a real service.

Usage: python tools/page_screenshots.py [--folder docs/images]
"""

from __future__ import annotations

import argparse
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlencode

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

IMAGES = Path(__file__).parents[1] / "docs" / "images"
MOST_BYTES = 150_000
_START_S = 60.0
_VISITS = 9
_PLAN_MS = 120_000
_QUALITY = 86
_JOB = {"model": "llama-3.1-8b", "device": "H100-SXM5-80GB", "gpus": 64, "nodes": 8, "tp": 4, "pp": 4,
        "global_batch_size": 256, "seq_len": 4096, "tokens": "10B", "optimizer": "adamw",
        "precision": "bf16-mixed,fp8-mixed,fp32", "chosen": "bf16-mixed"}  # fmt: skip
_IMAGES_JOB = {"model": "resnet50", "device": "A100-SXM4-80GB", "gpus": 8, "batch_size": 256, "epochs": 90,
               "precision": "bf16-mixed,fp16-mixed,tf32,fp32"}  # fmt: skip


@contextmanager
def service() -> Iterator[str]:
    """A service on a free port of the loopback; its address."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        store = f"sqlite:///{folder}/store.sqlite"
        command = [sys.executable, "-m", "precision_time", "serve", "--port", "0", "--store", store]
        with log.open("w") as out:
            process = subprocess.Popen(command, stdout=out, stderr=out, env=os.environ | {"NO_COLOR": "1"})
        try:
            until = time.monotonic() + _START_S
            while not (found := re.search(r"running on (http://\S+)", log.read_text())):
                if process.poll() is not None or time.monotonic() > until:
                    raise SystemExit(log.read_text())
                time.sleep(0.05)
            yield f"{found[1]}/"
        finally:
            process.terminate()
            process.wait(20)


def settled(page: Page) -> None:
    """Wait until nothing is under way."""
    page.wait_for_selector(".headline")
    page.wait_for_function("() => !document.querySelector('[aria-busy=true]')")
    page.wait_for_timeout(200)


def opened(browser: Browser, address: str, job: dict[str, Any], **context: Any) -> Page:
    """The page with a job."""
    page = browser.new_context(**{"viewport": {"width": 1200, "height": 1500}, **context}).new_page()
    page.goto(f"{address}#{urlencode(job)}")
    settled(page)
    return page


def keep(picture: bytes, path: Path) -> None:
    """Write a small file."""
    image = Image.open(io.BytesIO(picture)).convert("RGB")
    image.save(path, quality=_QUALITY, method=6)
    size = path.stat().st_size
    print(f"{path.name}: {image.width} x {image.height}, {size / 1000:.0f} kB")
    if size > MOST_BYTES:
        raise SystemExit(f"{path.name} has {size:,} bytes; at most {MOST_BYTES:,} are wanted.")


def pictures(browser: Browser, address: str, folder: Path) -> None:
    """All of them."""
    light = opened(browser, address, _JOB)
    keep(light.screenshot(), folder / "page-light.webp")
    light.get_by_role("button", name="Draw the step").click()
    light.wait_for_selector(".chart-timeline svg")
    light.mouse.move(0, 0)
    keep(
        light.locator("section.part", has=light.locator(".chart-timeline")).screenshot(),
        folder / "page-timeline.webp",
    )
    dark = opened(browser, address, _IMAGES_JOB, color_scheme="dark")
    keep(dark.screenshot(), folder / "page-dark.webp")
    dark.close()
    phone = opened(
        browser, address, _IMAGES_JOB, viewport={"width": 390, "height": 844}, device_scale_factor=2
    )
    shots = [phone.screenshot()]
    for chart in (".headline", ".chart-breakdown"):
        phone.evaluate("chart => document.querySelector(chart).scrollIntoView({ block: 'start' })", chart)
        phone.wait_for_timeout(100)
        shots.append(phone.screenshot())
    keep(beside([Image.open(io.BytesIO(shot)) for shot in shots]), folder / "page-phone.webp")
    other = {f"b.{name}": value for name, value in (_IMAGES_JOB | {"device": "H100-SXM5-80GB"}).items()}
    compared = opened(browser, address, {**_IMAGES_JOB, **other}, viewport={"width": 1360, "height": 1250})
    keep(compared.screenshot(), folder / "page-compare.webp")
    plan = opened(browser, address, {**_IMAGES_JOB, "deadline": "24h", "budget": "300"})
    plan.get_by_role("button", name="Plan", exact=True).click()
    plan.wait_for_selector(".chart-pareto svg", timeout=_PLAN_MS)
    plan.mouse.move(0, 0)
    keep(plan.locator("section.plan").screenshot(), folder / "page-plan.webp")


def beside(images: list[Image.Image]) -> bytes:
    """One picture of several, next to each other."""
    gap = 24
    whole = Image.new("RGB", (sum(each.width + gap for each in images) - gap, images[0].height), "white")
    at = 0
    for each in images:
        whole.paste(each, (at, 0))
        at += each.width + gap
    whole = whole.resize((whole.width // 2, whole.height // 2), Image.Resampling.LANCZOS)
    found = io.BytesIO()
    whole.save(found, "png")
    return found.getvalue()


def budget(browser: Browser, address: str) -> None:
    """What a first visit loads, and how long its answer takes, each in a fresh profile."""
    times_s, sizes = [], []
    for _ in range(_VISITS):
        page = browser.new_context().new_page()
        started = time.monotonic()
        page.goto(address)
        page.wait_for_selector(".headline")
        times_s.append(time.monotonic() - started)
        settled(page)
        loaded = page.evaluate(
            "() => ['navigation', 'resource'].flatMap(type => performance.getEntriesByType(type))"
            ".map(each => [each.name, each.transferSize])"
        )
        sizes.append(
            [sum(size for name, size in loaded if ("/v1/" in name) is data) for data in (False, True)]
        )
        page.context.close()
    print(f"first answer: median {median(times_s):.2f} s, slowest {max(times_s):.2f} s of {_VISITS} visits")
    print(f"transferred: page {sizes[0][0] / 1000:.1f} kB, answers {sizes[0][1] / 1000:.1f} kB")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, default=IMAGES)
    folder = parser.parse_args().folder
    with service() as address, sync_playwright() as play:
        browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        budget(browser, address)
        pictures(browser, address, folder)
        browser.close()
