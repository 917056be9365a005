"""The page's charts on one sheet, for whoever works on them: real answers and hostile ones. Not shipped.

Usage: python tools/chart_gallery.py                     # serves it on the loopback until Ctrl-C
       python tools/chart_gallery.py --shots FOLDER      # draws it light, dark and on a phone, by Chromium
"""

from __future__ import annotations

import argparse
import copy
import json
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal

import precision_time as pt
from precision_time.request.request import Request
from precision_time_server.drawing import step_drawing

PAGE = Path(__file__).parents[1] / "packages/server/src/precision_time_server/page"
_LONG = "a-precision-with-a-name-that-somebody-made-up-and-that-fits-in-no-column-of-any-phone"
_HTML = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Charts</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="stylesheet" href="/style.css"><link rel="stylesheet" href="/charts/charts.css">
<link rel="stylesheet" href="/gallery.css"></head>
<body class="gallery"><main id="all"></main><script type="module" src="/gallery.js"></script></body></html>"""
_CSS = """.gallery main { display: block; max-width: 860px; margin: 0 auto; padding: 12px; }
.gallery section { background: var(--surface); border: 1px solid var(--line); border-radius: 8px;
  padding: 14px; margin-bottom: 16px; }
.gallery h2 { font-size: 12px; color: var(--muted); margin: 0 0 6px; }"""
_JS = """import { html, render } from "/html.js";
import * as charts from "/charts/index.js";
window.chosen = [];
const cases = await (await fetch("/cases.json")).json();
const one = ({ title, chart, props }) => html`<section><h2>${title}</h2>
  <${charts[chart]} ...${props} onChoose=${(...given) => window.chosen.push(given[0])} /></section>`;
render(html`${cases.map(one)}`, document.getElementById("all"));"""


def cases() -> list[dict[str, Any]]:
    """All charts on real answers, then on what breaks charts."""
    image = pt.predict_time("resnet50", device="a100-80gb", gpus=8, batch=256, epochs=90, dataset="imagenet")
    text = Request.of(
        {
            "model": "llama-3.1-8b",
            "device": "h100-sxm5-80gb",
            "gpus": 64,
            "nodes": 8,
            "tp": 4,
            "pp": 4,
            "global_batch_size": 64,
            "precision": "bf16-mixed",
        }
    )
    answer = pt.predict_time(text)
    plain = Request.of({"model": "resnet50", "device": "a100-80gb", "gpus": 8, "batch_size": 256})
    compared = pt.compare_precisions(
        "llama-3.1-8b", device="h100-sxm5-80gb", gpus=8, batch=2, precisions="all"
    )
    precisions = compared.to_dict()["predictions"]
    swept = pt.sweep("resnet50", device="a100-80gb", gpus=[2**n for n in range(10)], batch=256).to_dict()
    scaled = swept["predictions"]
    two = pt.sweep(
        "gpt2", device=["v100-32gb", "h100-sxm5-80gb"], gpus=[1, 2, 4, 8, 16], batch=8, epochs=1, samples=1e6
    ).to_dict()["predictions"]
    plan = pt.plan(
        "resnet50",
        global_batch_size=2048,
        epochs=90,
        dataset="imagenet",
        deadline="24h",
        budget="150",
        workers=1,
    ).to_dict()
    one, parted = image.to_dict(), step_drawing(text.resolve(), answer)
    real = [
        ("Breakdown", {"prediction": one}),
        ("Breakdown", {"prediction": answer.to_dict()}),
        ("Precisions", {"predictions": precisions, "chosen": "bf16-mixed"}),
        ("Memory", {"prediction": one}),
        ("Memory", {"prediction": precisions[0]}),
        ("Scaling", {"predictions": scaled}),
        ("Scaling", {"predictions": two}),
        ("Pareto", {"plan": plan}),
        ("Timeline", {"timeline": step_drawing(plain.resolve(), pt.predict_time(plain))}),
        ("Timeline", {"timeline": parted}),
    ]
    found = [{"title": f"{chart}, real", "chart": chart, "props": props} for chart, props in real]
    return found + [
        {"title": f"{chart}, {title}", "chart": chart, "props": props}
        for title, chart, props in _hostile(one, precisions, scaled, plan, parted)
    ]


def _hostile(
    one: dict[str, Any],
    precisions: list[dict[str, Any]],
    scaled: list[dict[str, Any]],
    plan: dict[str, Any],
    step: dict[str, Any],
) -> Iterator[tuple[str, str, dict[str, Any]]]:
    def changed(given: dict[str, Any], **changes: Any) -> dict[str, Any]:
        return copy.deepcopy(given) | changes

    nothing = {"low_s": 0.0, "high_s": 0.0, "coverage": 0.9}
    yield (
        "all zero",
        "Breakdown",
        {
            "prediction": changed(
                one, terms=dict.fromkeys(one["terms"], 0.0), step_time_s=0.0, interval=nothing
            )
        },
    )
    yield (
        "a term nobody knows, a null, and a huge range",
        "Breakdown",
        {
            "prediction": changed(
                one,
                terms={"gemm_s": 5e4, "norm_s": 1e-9, "conv_s": None, f"{_LONG}_s": 4e3},
                step_time_s=5.4e4,
                interval=None,
            )
        },
    )
    yield "one", "Precisions", {"predictions": precisions[:1]}
    long = changed(precisions[1], precision=_LONG, request={"precision": _LONG}, interval=None)
    tiny = changed(precisions[2], step_time_s=1e-9, interval=nothing, memory_bytes_per_device=None, fits=None)
    yield (
        "a long name, a tiny time, missing values",
        "Precisions",
        {"predictions": [precisions[0], long, tiny]},
    )
    many = [changed(precisions[1], request={"precision": f"p{n}"}, step_time_s=1.0 + n) for n in range(300)]
    yield "300", "Precisions", {"predictions": many}
    yield (
        "no capacity, a term nobody knows",
        "Memory",
        {
            "prediction": changed(
                one,
                device_memory_bytes=None,
                fits=None,
                memory_terms={"something_new": 5e9, "activations": 0.0},
            )
        },
    )
    yield "one", "Scaling", {"predictions": scaled[:1]}
    wild = [
        changed(each, throughput=each["throughput"] * 10 ** (n % 7), interval=None)
        for n, each in enumerate(scaled)
    ]
    yield (
        "wild, without intervals, one without a time",
        "Scaling",
        {"predictions": [*wild, changed(scaled[0], gpus=2048, throughput=None, step_time_s=None)]},
    )
    yield "none", "Scaling", {"predictions": []}
    yield (
        "one, no limits",
        "Pareto",
        {"plan": plan | {"choices": plan["choices"][:1], "front": [], "limits": {}}},
    )
    front = [
        changed(
            plan["front"][n % len(plan["front"])],
            time_s=60.0 * 1.06**n,
            usd=9e4 / 1.05**n,
            region=str(n),
            device=f"{_LONG}-{n % 9}",
        )
        for n in range(200)
    ]
    yield "200", "Pareto", {"plan": plan | {"choices": [], "front": front}}
    yield (
        "no price",
        "Pareto",
        {"plan": plan | {"choices": [], "front": [changed(plan["front"][0], usd=None)]}},
    )
    empty: dict[str, Any] = {
        "segments": [],
        "stages": [],
        "memory": None,
        "seconds_by_kind": {},
        "step_time_s": 0.0,
        "pipeline_stages": 1,
    }
    yield "empty", "Timeline", {"timeline": step | empty}


class _Handler(SimpleHTTPRequestHandler):
    generated: dict[str, tuple[str, str]]

    def do_GET(self) -> None:
        path = self.path.split("?")[0]
        if path not in self.generated:
            return super().do_GET()
        kind, text = self.generated[path]
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: Any) -> None:
        """Nothing."""


@contextmanager
def served() -> Iterator[str]:
    """The gallery on a free port of the loopback; its address."""
    _Handler.generated = {
        "/": ("text/html", _HTML),
        "/gallery.css": ("text/css", _CSS),
        "/gallery.js": ("text/javascript", _JS),
        "/cases.json": ("application/json", json.dumps(cases())),
    }
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, directory=str(PAGE)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/"
    finally:
        server.shutdown()
        server.server_close()


def shots(address: str, folder: Path) -> None:
    """One picture of each chart, light, dark and on a phone."""
    from playwright.sync_api import sync_playwright

    folder.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        looks: tuple[tuple[str, int, Literal["light", "dark"]], ...]
        looks = (("light", 900, "light"), ("dark", 900, "dark"), ("phone", 375, "light"))
        for name, width, scheme in looks:
            page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
            page.on("console", lambda message: print(message.type, message.text))
            page.on("pageerror", lambda error: print("ERROR", error))
            page.goto(address)
            page.wait_for_selector("section:last-child")
            page.wait_for_timeout(300)
            page.screenshot(path=folder / f"{name}.png", full_page=True)
            page.close()
        browser.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shots", type=Path)
    arguments = parser.parse_args()
    with served() as address:
        if arguments.shots:
            shots(address, arguments.shots)
        else:
            print(address)
            threading.Event().wait()
