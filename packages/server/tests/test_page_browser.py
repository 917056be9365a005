"""The page in a real browser, against a real service: every control, what it shows, and to whom."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from axe_playwright_python import sync_playwright as axe
from playwright import sync_api as playwright

from precision_time import compare_precisions, predict_time
from precision_time.cli.request_options import requests_in_words
from precision_time.errors import PrecisionTimeError
from precision_time.predict.api import predict
from precision_time.request.files import read_requests
from precision_time_server.routes.page import form_fields

CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no browser is installed")

MOST_BYTES, MOST_S = 300_000, 2.0
EXAMPLE = {"model": "resnet50", "device": "A100-SXM4-80GB", "gpus": 8, "batch_size": 256, "epochs": 90}
EXAMPLE_PRECISIONS = ["bf16-mixed", "fp16-mixed", "tf32", "fp32"]
ASKED = re.compile(r"/v1/(predictions|comparisons)$")

JOBS: Mapping[str, Mapping[str, Any]] = json.loads(
    Path(__file__).with_name("page_jobs.json").read_text(encoding="utf-8")
)
CONFIG = {
    "model_type": "llama", "hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8,
    "intermediate_size": 2048, "vocab_size": 32000, "num_key_value_heads": 8, "max_position_embeddings": 1024,
}  # fmt: skip


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of `precision-time serve` on a free port."""
    folder = tmp_path_factory.mktemp("service")
    log = folder / "log"
    store = f"sqlite:///{folder / 's.sqlite'}"
    command = [sys.executable, "-m", "precision_time", "serve", "--port", "0", "--store", store]
    with log.open("w") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, env=os.environ | {"NO_COLOR": "1"})
    try:
        until = time.monotonic() + 60
        while not (found := re.search(r"running on (http://127\.0\.0\.1:\d+)", log.read_text())):
            assert process.poll() is None and time.monotonic() < until, log.read_text()
            time.sleep(0.05)
        yield f"{found[1]}/"
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)
    assert "Traceback" not in log.read_text(), log.read_text()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """One browser for all tests."""
    with playwright.sync_playwright() as play:
        found = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


class Visit:
    """A page in a fresh profile, and what it logged and asked for."""

    def __init__(self, browser: Any, service: str, **context: Any) -> None:
        self.context = browser.new_context(
            **{"viewport": {"width": 1280, "height": 900}, "reduced_motion": "reduce", **context}
        )
        self.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=service.rstrip("/"))
        self.page = self.context.new_page()
        self.page.set_default_timeout(30_000)
        self.service = service
        self.errors: list[str] = []
        self.asked: list[str] = []
        self.answers: list[Any] = []
        self.page.on(
            "console",
            lambda message: (
                message.type in ("error", "warning")
                and self.errors.append(f"{message.text} {message.location.get('url', '')}")
            ),
        )
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on(
            "response", lambda response: ASKED.search(response.url) and self.answers.append(response)
        )

    def open(self, **state: Any) -> Any:
        """Go to the page with a job in the address, and wait for its answer."""
        self.page.goto(f"{self.service}#{urlencode(state)}" if state else self.service)
        self.settle()
        return self.page

    def settle(self) -> None:
        """Wait until nothing is under way."""
        self.page.wait_for_selector(".answer")
        self.page.wait_for_function("() => !document.querySelector('[aria-busy=true]')")

    def answer(self) -> Any:
        """What the service answered last, with what it was asked as `asked`."""
        last = self.answers[-1]
        return {**last.json(), "asked": last.request.post_data_json}

    def close(self, *, expected: str = r"(?!)") -> None:
        """Fail for what was logged, apart from what a test expects, and for what was asked of others."""
        self.context.close()
        unexpected = [text for text in self.errors if not re.search(expected, text)]
        assert not unexpected, unexpected
        assert all(url.startswith((self.service, "data:")) for url in self.asked), self.asked


@pytest.fixture
def visit(browser: Any, service: str) -> Iterator[Callable[..., Visit]]:
    """Opens visits; all are checked when the test ends. `expected` is what may be logged."""
    open_: list[tuple[Visit, str]] = []

    def new(*, expected: str = r"(?!)", **context: Any) -> Visit:
        open_.append((Visit(browser, service, **context), expected))
        return open_[-1][0]

    yield new
    for one, expected in open_:
        one.close(expected=expected)


REFUSED = r"status of 422"


def assert_accessible(page: Any) -> None:
    """No violation of any rule of axe-core."""
    found = axe.Axe().run(page)
    said = [
        (each["id"], each["help"], [node["html"][:200] for node in each["nodes"][:3]])
        for each in found.response["violations"]
    ]
    assert not said, said


def seconds(text: str) -> float:
    """Of `206 ms`, `1 h 5 min`."""
    units = {"d": 86400.0, "h": 3600.0, "min": 60.0, "s": 1.0, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}
    parts = re.findall(r"([\d.,]+) (d|h|min|s|ms|µs|ns)\b", text)
    assert parts, text
    return sum(float(number.replace(",", "")) * units[unit] for number, unit in parts)


def headline_s(page: Any, number: int = 0) -> float:
    return seconds(page.locator(".headline .step strong").nth(number).inner_text())


def same(shown_s: float, expected_s: float) -> bool:
    """Equal, as far as three digits say it."""
    return abs(shown_s / expected_s - 1.0) < 0.006


def fill(page: Any, name: str, value: Any, letter: str = "A") -> None:
    """Use the control of one field as a person does."""
    if name in ("epochs", "steps", "tokens"):
        page.get_by_label("Unit of the length").select_option(name)
        return page.locator(f"#{letter}-length").fill(str(value))
    if name == "precision":
        for box in page.locator(".chip input").all():
            if box.is_checked():
                box.uncheck(force=True)
        page.locator(f"#{letter}-precision").fill(value)
        return page.locator(f"#{letter}-precision").press("Enter")
    control = page.locator(f"#{letter}-{name}")
    if not control.is_visible():
        control.locator("xpath=ancestor::details[1]/summary").click()
    if control.evaluate("node => node.tagName") == "SELECT":
        return control.select_option(value=str(value).lower() if isinstance(value, bool) else value)
    text = (
        ", ".join(f"{key}={size}" for key, size in value.items()) if isinstance(value, dict) else str(value)
    )
    return control.fill(text)


# What it says at first -------------------------------------------------------------------------------------


def test_the_first_answer_is_fast_small_and_the_librarys(visit: Callable[..., Visit]) -> None:
    times_s = []
    for _ in range(3):  # the best of three: others use this machine too
        one = visit()
        started = time.monotonic()
        one.page.goto(one.service)
        one.page.wait_for_selector(".headline")
        times_s.append(time.monotonic() - started)
        if times_s[-1] < MOST_S:
            break
    one.settle()
    loaded = one.page.evaluate(
        "() => [...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')]"
        ".map(each => [each.name, each.transferSize])"
    )
    files = sum(size for name, size in loaded if "/v1/" not in name)
    busy = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))  # 1 on a machine that does nothing else
    assert min(times_s) < MOST_S * busy
    assert 10_000 < files < MOST_BYTES
    found = compare_precisions(**EXAMPLE, precisions=EXAMPLE_PRECISIONS)
    by_name = {each.precision: each for each in found}
    best = min(found, key=lambda each: each.step_time_s)
    assert same(headline_s(one.page), best.step_time_s)
    assert seconds(one.page.locator(".lead dd").first.inner_text()) == pytest.approx(
        best.total_time_s, abs=60.0
    )
    labels = [
        each.get_attribute("aria-label") for each in one.page.locator(".chart-precisions [data-mark]").all()
    ]
    assert {label.split(":")[0]: label for label in labels}.keys() == by_name.keys()
    assert all(
        same(seconds(label.split(",")[0]), by_name[label.split(":")[0]].step_time_s) for label in labels
    )
    terms = one.page.locator(".chart-breakdown [data-mark]").all()
    assert len(terms) == sum(value > 0.0 for value in best.terms.values())
    shown = sum(seconds(each.get_attribute("aria-label").split(",")[0]) for each in terms)
    assert same(shown, best.step_time_s)
    assert_accessible(one.page)


def test_charts_show_the_numbers_of_the_library_as_tables_too(visit: Callable[..., Visit]) -> None:
    one = visit()
    page = one.open(**EXAMPLE, precision="fp32")
    expected = predict_time(**EXAMPLE, precision="fp32")

    def rows(chart: str) -> list[list[str]]:
        page.locator(f".chart-{chart} summary").click()
        page.wait_for_selector(f".chart-{chart} tbody tr")
        return [
            row.locator("th, td").all_inner_texts() for row in page.locator(f".chart-{chart} tbody tr").all()
        ]

    terms = {row[0]: float(row[2]) for row in rows("breakdown")}
    assert sorted(terms.values()) == sorted(value for value in expected.terms.values() if value > 0.0)
    held = [float(row[1]) for row in rows("memory")]
    assert sum(held) == pytest.approx(expected.memory_bytes_per_device, abs=20)
    scaled = {int(row[0].replace(",", "")): row for row in rows("scaling")}
    again = predict_time(**{**EXAMPLE, "gpus": 64, "epochs": None}, precision="fp32")
    assert same(seconds(scaled[64][1]), again.step_time_s)
    page.get_by_role("button", name="Step time").click()
    marks = [each.get_attribute("aria-label") for each in page.locator(".chart-scaling [data-mark]").all()]
    of_64 = next(label for label in marks if label.startswith("64 devices"))
    assert same(seconds(of_64.split("step time ")[1].split(",")[0]), again.step_time_s)
    assert_accessible(page)


# Controls --------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_every_control_reaches_the_answer(visit: Callable[..., Visit]) -> None:
    used = {name for job in JOBS.values() for name in job}
    assert {field["name"] for field in form_fields()} <= used, "a control that no job uses"
    one = visit(expected=REFUSED)  # half-filled forms may be refused while they are filled
    page = one.page
    for title, job in JOBS.items():
        page.goto("about:blank")
        one.open(model=job["model"])
        for name, value in job.items():
            if name != "model":
                fill(page, name, value)
        page.wait_for_timeout(350)  # longer than the page waits while one types
        one.settle()
        answer = one.answer()
        assert answer["asked"] == job, title
        expected = predict_time(**job)
        assert answer["step_time_s"] == pytest.approx(expected.step_time_s, rel=1e-9), title
        assert same(headline_s(page), expected.step_time_s), title


def test_a_model_by_name_with_suggestions_or_by_a_pasted_configuration(visit: Callable[..., Visit]) -> None:
    one = visit(expected=REFUSED)
    page = one.open(**EXAMPLE, precision="fp32")
    page.locator("#A-model").fill("")
    page.locator("#A-model").press_sequentially("resnet10")
    page.locator("[role=option]").first.wait_for()
    offered = page.locator("[role=option] span").all_inner_texts()
    assert "resnet101" in offered
    page.locator("[role=option]", has_text="resnet101").first.click()
    one.settle()
    assert page.locator("#A-model").input_value() == "resnet101"
    # The batch and the epochs were those of the other model, which nobody typed.
    asked = {"model": "resnet101", "device": EXAMPLE["device"], "gpus": EXAMPLE["gpus"], "precision": "fp32"}
    assert same(headline_s(page), predict_time(**asked).step_time_s)
    assert page.locator("#A-batch_size").input_value() == page.locator("#A-length").input_value() == ""
    page.get_by_role("radio", name="Config").check()
    page.locator("#A-config").fill(json.dumps(CONFIG))
    page.wait_for_timeout(350)
    one.settle()
    assert one.answer()["asked"]["model"] == CONFIG
    assert one.answer()["step_time_s"] > 0 and same(headline_s(page), one.answer()["step_time_s"])
    assert_accessible(page)
    page.locator("#A-config").fill('{"model_type": ')
    page.wait_for_timeout(350)
    assert page.locator("#A-config").get_attribute("aria-invalid") == "true"
    page.get_by_role("radio", name="File").check()
    assert page.locator("#A-file").is_visible()
    assert_accessible(page)


def test_a_recipe_that_is_chosen_or_dropped_fills_the_form(visit: Callable[..., Visit]) -> None:
    recipe = "base_model: gpt2\nmicro_batch_size: 2\nsequence_len: 512\nfoo: 1\n"
    one = visit()
    page = one.open(**EXAMPLE)
    page.locator("form.job > details.folded > summary").first.click()
    page.locator("#A-recipe").set_input_files(
        {"name": "a.yml", "mimeType": "text/yaml", "buffer": recipe.encode()}
    )
    page.get_by_text("Not understood: line 4: foo=1").wait_for()
    one.settle()
    assert page.locator("#A-model").input_value() == "gpt2"
    assert page.locator("#A-device").input_value() == EXAMPLE["device"]
    asked = one.answer()["asked"]
    assert (asked["seq_len"], asked["batch_size"], asked["stack"]) == (512, 2, "axolotl")
    assert_accessible(page)
    page.evaluate(
        """text => {
            const dataTransfer = new DataTransfer();
            dataTransfer.items.add(new File([text], "b.yml"));
            const dropped = new DragEvent("drop", { dataTransfer, bubbles: true, cancelable: true });
            document.querySelector("form.job").dispatchEvent(dropped);
        }""",
        recipe.replace("micro_batch_size: 2", "micro_batch_size: 8"),
    )
    page.wait_for_function("() => document.querySelector('#A-batch_size').value === '8'")


def test_precisions_are_chosen_by_chips_and_by_bars(visit: Callable[..., Visit]) -> None:
    one = visit()
    page = one.open(**EXAMPLE, precision="bf16-mixed,fp32")
    page.locator(".chart-precisions [data-mark]", has=page.locator("text=fp32")).click()
    assert same(headline_s(page), predict_time(**EXAMPLE, precision="fp32").step_time_s)
    one.settle()
    page.get_by_label("tf32").check(force=True)
    one.settle()
    assert one.answer()["asked"]["precisions"] == ["bf16-mixed", "fp32", "tf32"]
    assert page.locator(".chart-precisions [data-mark]").count() == 3
    page.get_by_label("all", exact=True).check(force=True)
    one.settle()
    expected = compare_precisions(**EXAMPLE, precisions="all")
    assert page.locator(".chart-precisions [data-mark]").count() == len(expected)
    assert page.locator(".skipped li").count() == len(expected.skipped)


def test_why_timeline_plan_and_what_they_change(visit: Callable[..., Visit]) -> None:
    one = visit()
    page = one.open(**EXAMPLE, precision="bf16-mixed")
    page.get_by_text("Why, and what was assumed").click()
    page.wait_for_selector("text=What would change the answer most")
    page.get_by_role("button", name="Draw the step").click()
    page.wait_for_selector(".chart-timeline svg")
    segments = [
        each.get_attribute("aria-label") for each in page.locator(".chart-timeline [data-mark]").all()
    ]
    compute = [
        seconds(label.split(", ")[-1].split(" from ")[0])
        for label in segments
        if label.startswith(("compute", "exposed"))
    ]
    assert same(sum(compute), predict_time(**EXAMPLE, precision="bf16-mixed").step_time_s)
    page.get_by_label("Deadline").fill("24h")
    page.get_by_label("Budget").fill("1000")
    with page.expect_response(re.compile("/v1/plans$"), timeout=60_000) as planned:
        page.get_by_role("button", name="Plan", exact=True).click()
    found = planned.value.json()
    page.wait_for_selector(".chart-pareto svg")
    assert found["limits"]["deadline_s"] == 86400.0 and found["limits"]["budget_usd"] == 1000.0
    cheapest = next(each["candidate"] for each in found["choices"] if each["aim"] == "cheapest")
    assert f"${cheapest['usd']:,.2f}" in page.locator(".choice", has_text="Cheapest").inner_text()
    again = predict_time(**cheapest["request"])
    assert again.step_time_s == pytest.approx(cheapest["step_time_s"], rel=1e-6)
    marks = page.locator(".chart-pareto [data-mark]")
    assert marks.count() >= len([each for each in found["front"] if each["usd"]])
    assert_accessible(page)
    page.locator(".choice", has_text="Cheapest").get_by_role("button").click()
    one.settle()
    assert page.locator("#A-device").input_value() == cheapest["device"]
    assert same(headline_s(page), cheapest["step_time_s"])


# Taking it away --------------------------------------------------------------------------------------------


def test_the_address_restores_everything(visit: Callable[..., Visit]) -> None:
    first = visit()
    page = first.open(**EXAMPLE, precision="bf16-mixed,fp32")
    fill(page, "optimizer", "adamw")
    page.locator(".chart-precisions [data-mark]").last.click()
    page.wait_for_timeout(500)
    first.settle()
    page.get_by_role("button", name="Copy link").click()
    link = page.evaluate("navigator.clipboard.readText()")
    assert link == page.url
    other = visit()
    other.page.goto(link)
    other.settle()
    assert other.answer()["asked"] == first.answer()["asked"]
    assert other.page.locator(".headline").inner_text() == page.locator(".headline").inner_text()
    hostile = visit(expected=REFUSED)
    hostile.open(model='<img src=x onerror="document.title=1">', nonsense="1", batch_size="64")
    assert "nonsense" in hostile.page.locator(".ask .remark").inner_text()
    assert hostile.page.locator("img").count() == 0 and hostile.page.title() != "1"


def test_what_is_copied_answers_the_same(visit: Callable[..., Visit], tmp_path: Path) -> None:
    one = visit()
    page = one.open(**EXAMPLE, precision="bf16-mixed,fp32", optimizer="adamw")
    expected = [
        each.step_time_s
        for each in compare_precisions(**EXAMPLE, optimizer="adamw", precisions=["bf16-mixed", "fp32"])
    ]

    def copied(name: str) -> str:
        page.locator(".copy").get_by_role("radio", name=name).check()
        page.locator(".copy").get_by_role("button", name="Copy", exact=True).click()
        page.wait_for_selector(f"text={name} copied.")
        text: str = page.evaluate("navigator.clipboard.readText()")
        assert text == page.locator(".copy pre").inner_text()
        return text

    words = shlex.split(copied("Command line"))
    assert words[:2] == ["precision-time", "predict"]
    assert [predict(each).step_time_s for each in requests_in_words(words[2:])] == pytest.approx(expected)
    answers: list[Any] = []
    exec(copied("Python"), {"print": answers.append})
    assert [each.step_time_s for each in answers[0]] == pytest.approx(expected)
    (tmp_path / "job.yaml").write_text(copied("Job file"))
    assert [predict(each).step_time_s for each in read_requests(tmp_path / "job.yaml")] == pytest.approx(
        expected
    )
    call = shlex.split(copied("curl").replace("\\\n", ""))
    assert json.loads(call[call.index("-d") + 1]) == one.answer()["asked"]


# Two jobs --------------------------------------------------------------------------------------------------


def test_two_jobs_side_by_side(visit: Callable[..., Visit]) -> None:
    one = visit()
    page = one.open(**EXAMPLE, precision="bf16-mixed")
    page.get_by_role("button", name="Compare with another").click()
    one.settle()
    fill(page, "device", "H100-SXM5-80GB", "B")
    page.wait_for_timeout(350)
    one.settle()
    devices = ("A100-SXM4-80GB", "H100-SXM5-80GB")
    expected = [
        predict_time(**{**EXAMPLE, "device": device}, precision="bf16-mixed").step_time_s
        for device in devices
    ]
    assert all(same(headline_s(page, at), step) for at, step in enumerate(expected))
    asks = page.locator(".comparison tbody tr").all_inner_texts()
    assert any("A100-SXM4-80GB" in row and "H100-SXM5-80GB" in row for row in asks), asks
    assert_accessible(page)
    page.wait_for_timeout(300)
    url = page.url
    assert "b.device=H100" in url
    page.reload()
    one.settle()
    assert all(same(headline_s(page, at), step) for at, step in enumerate(expected))
    page.get_by_role("button", name=re.compile("Remove job A")).click()
    one.settle()
    assert page.locator(".headline").count() == 1 and same(headline_s(page), expected[1])


# What goes wrong -------------------------------------------------------------------------------------------


WRONG = {"model": "resnet51", "batch_size": "-3", "device": "H1000", "tp": "3", "epochs": "-1"}


def test_a_problem_stands_at_its_field_in_the_librarys_words(visit: Callable[..., Visit]) -> None:
    one = visit(expected=REFUSED)
    page = one.open(**EXAMPLE, precision="fp32")
    for field, value in WRONG.items():
        fill(page, field, value)
        page.wait_for_timeout(350)
        one.settle()
        given = value if isinstance(EXAMPLE.get(field), str) else float(value)
        with pytest.raises(PrecisionTimeError) as error:
            predict_time(**{**EXAMPLE, "precision": "fp32", field: given})
        control = page.locator("#A-length" if field == "epochs" else f"#A-{field}")
        assert control.get_attribute("aria-invalid") == "true", field
        described = [page.locator(f"#{each}") for each in control.get_attribute("aria-describedby").split()]
        said = " ".join(each.inner_text() for each in described if each.count())
        rule = str(error.value).split(".")[0].replace(".0", "")[:40]
        assert rule in said, (field, rule, said)
        assert page.locator(".headline").count() == 0, "no answer to another question stands beside it"
        if field == "model":
            assert_accessible(page)
        fill(page, field, EXAMPLE.get(field, ""))
    page.wait_for_timeout(350)
    one.settle()
    assert same(headline_s(page), predict_time(**EXAMPLE, precision="fp32").step_time_s)
    assert page.locator("[aria-invalid=true]").count() == 0


def test_an_answer_that_is_late_or_old_is_never_taken_for_the_new_one(visit: Callable[..., Visit]) -> None:
    one = visit()
    page = one.open(**EXAMPLE, precision="fp32")
    held: list[Any] = []
    page.route(ASKED, lambda route: held.append(route))  # noqa: PLW0108 (playwright marks its handlers)
    fill(page, "batch_size", 128)
    page.wait_for_timeout(400)
    assert page.locator(".answer.stale[aria-busy=true]").count() == 1, (
        "marked as old while the new one is awaited"
    )
    fill(page, "batch_size", 64)
    page.wait_for_timeout(400)
    assert len(held) == 2
    held[1].continue_()
    one.settle()
    with suppress(playwright.Error):
        held[0].continue_()  # long given up
    page.wait_for_timeout(300)
    assert same(headline_s(page), predict_time(**{**EXAMPLE, "batch_size": 64}, precision="fp32").step_time_s)
    assert "batch 64 per device" in page.locator(".what").inner_text()


def test_a_service_that_is_away_broken_or_guarded(visit: Callable[..., Visit]) -> None:
    one = visit(expected="Failed to load resource")
    page = one.open(**EXAMPLE, precision="fp32")
    page.route(ASKED, lambda route: route.abort())
    fill(page, "batch_size", 128)
    page.wait_for_selector("text=The service cannot be reached")
    assert page.locator(".headline").count() == 0
    assert_accessible(page)
    page.unroute(ASKED)
    page.route(ASKED, lambda route: route.fulfill(status=500, body="<html>gateway</html>"))
    page.get_by_role("button", name="Try again").click()
    page.wait_for_selector("text=status 500")
    page.unroute(ASKED)
    refusal = {"title": "Unauthorized", "status": 401, "detail": "A bearer token is asked for."}

    def guard(route: Any) -> None:
        if route.request.headers.get("authorization") == "Bearer secret":
            return route.continue_()
        return route.fulfill(status=401, content_type="application/problem+json", body=json.dumps(refusal))

    page.route(ASKED, guard)
    page.get_by_role("button", name="Try again").click()
    page.get_by_role("textbox", name="Token", exact=True).fill("secret")
    page.get_by_role("textbox", name="Token", exact=True).press("Tab")
    page.wait_for_selector(".headline")
    assert same(
        headline_s(page), predict_time(**{**EXAMPLE, "batch_size": 128}, precision="fp32").step_time_s
    )
    assert "secret" not in page.url


# For everyone ----------------------------------------------------------------------------------------------


def luminance(page: Any) -> float:
    color = page.evaluate("getComputedStyle(document.body).backgroundColor")
    red, green, blue = (int(part) for part in re.findall(r"\d+", color)[:3])
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_themes_follow_the_system_or_the_choice(visit: Callable[..., Visit]) -> None:
    one = visit(color_scheme="dark")
    page = one.open(**EXAMPLE, precision="bf16-mixed,fp32")
    assert luminance(page) < 60
    assert_accessible(page)
    page.get_by_role("radio", name="Light").check()
    assert luminance(page) > 200
    page.reload()
    one.settle()
    assert luminance(page) > 200, "kept"
    page.get_by_role("radio", name="Dark").check()
    page.emulate_media(color_scheme="light")
    assert luminance(page) < 60
    page.get_by_role("radio", name="System").check()
    assert luminance(page) > 200


def test_a_phone_needs_no_sideways_scrolling(visit: Callable[..., Visit]) -> None:
    one = visit(viewport={"width": 360, "height": 740}, has_touch=True, is_mobile=True, color_scheme="dark")
    page = one.open(**EXAMPLE, precision="bf16-mixed,fp16-mixed,fp32")
    wide = "() => document.documentElement.scrollWidth - innerWidth"
    assert page.evaluate(wide) <= 0
    assert page.locator(".peek").is_visible() and "The run" in page.locator(".peek").inner_text()
    page.locator(".peek").tap()
    assert page.evaluate("() => scrollY") > 300
    page.locator(".chart-precisions [data-mark]").last.tap()
    assert same(headline_s(page), predict_time(**EXAMPLE, precision="fp32").step_time_s)
    one.settle()
    page.get_by_role("button", name="Draw the step").tap()
    page.wait_for_selector(".chart-timeline svg")
    page.set_viewport_size({"width": 320, "height": 640})
    page.wait_for_timeout(200)
    assert page.evaluate(wide) <= 0
    assert_accessible(page)


FOCUSED_BAR = """() =>
    document.activeElement.closest('.chart-precisions [data-mark]')?.getAttribute('aria-label') ?? ''"""
FOCUSED_PLACE = """() => {
    const node = document.activeElement;
    return node.closest('figure')?.className ?? node.textContent.trim();
}"""
HAS_RING = """() => {
    const node = document.activeElement;
    if (node === document.body) return true;
    const ring = node.querySelector(':scope > .chart-ring');
    if (ring) return getComputedStyle(ring).stroke !== 'none';
    const near = [node, node.nextElementSibling, node.parentElement].filter(Boolean);
    const lines = near.map((each) => getComputedStyle(each));
    return lines.some((style) => style.outlineStyle !== 'none') || lines[0].boxShadow !== 'none';
}"""


def test_the_keyboard_alone_reaches_and_shows_everything(visit: Callable[..., Visit]) -> None:
    one = visit(expected=REFUSED)  # of what stands there while one types
    page = one.open(**EXAMPLE, precision="bf16-mixed,fp32")
    press = page.keyboard.press
    focused = "() => document.activeElement.id"
    press("Tab")
    assert "Skip" in page.evaluate("() => document.activeElement.textContent")
    for _ in range(30):
        press("Tab")
        if page.evaluate(focused) == "A-model":
            break
    assert page.evaluate(focused) == "A-model"
    press("Control+a")
    page.keyboard.type("resnet10")
    page.locator("[role=option]").first.wait_for()
    while page.locator("[role=option][aria-selected=true] span").all_inner_texts() != ["resnet101"]:
        press("ArrowDown")
    press("Enter")
    one.settle()
    assert same(
        headline_s(page),
        predict_time(**{**EXAMPLE, "model": "resnet101"}, precision="bf16-mixed").step_time_s,
    )
    marked = FOCUSED_BAR
    stops = 0
    while not page.evaluate(marked):
        press("Tab")
        stops += 1
        assert stops < 60, "the bars are not reached"
    assert page.evaluate(marked).startswith("bf16-mixed")
    assert "bf16-mixed" in page.locator(".chart-tip").inner_text(), "the tip is there for the focus too"
    press("ArrowDown")
    assert page.evaluate(marked).startswith("fp32")
    press("Enter")
    assert same(
        headline_s(page), predict_time(**{**EXAMPLE, "model": "resnet101"}, precision="fp32").step_time_s
    )
    press("Escape")
    assert page.locator(".chart-tip").count() == 0
    one.settle()
    reached = set()
    for _ in range(40):
        press("Tab")
        name = page.evaluate(FOCUSED_PLACE)
        assert page.evaluate(HAS_RING), f"no focus to be seen: {name}"
        reached.add(name)
    assert {
        "chart chart-breakdown",
        "chart chart-memory",
        "chart chart-scaling",
        "Draw the step",
        "Plan",
        "Copy",
    } <= reached
