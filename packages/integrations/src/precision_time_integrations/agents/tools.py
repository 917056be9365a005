"""The tools: what each takes and answers, and the call behind it. Nothing of the protocol is known here."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from precision_time.errors import ConfigError, shown
from precision_time.explain.precision import EXPLAINED_FIELDS, explain
from precision_time.hardware.catalog import get_device, known_devices
from precision_time.io import packaged_toml
from precision_time.planning.decision.api import PLANNED_FIELDS, RUN_FIELDS, plan
from precision_time.planning.layouts.api import SEARCHED_FIELDS, find_layouts
from precision_time.planning.run.api import predict_run
from precision_time.planning.run.schema import RunOptions
from precision_time.precision.catalog import is_policy_file
from precision_time.predict.changes import sensitivity, what_matters
from precision_time.predict.compare import answer_all
from precision_time.predict.headline import Headline
from precision_time.request.request import Request
from precision_time.request.schema import RequestFields
from precision_time.schemas.answers import answer_schema
from precision_time.schemas.job_files import job_file_schema
from precision_time.workload.resolve import check_named_in_data

from ..recipes.sent import SENT, read_sent

REFUSED: Mapping[str, str] = {
    "calibration": "give anchors, steps that were measured",
    "custom": "describe the hardware in a file and ask on the command line",
    "predictor": "the shipped predictor answers",
    **dict.fromkeys(
        ("trust", "inputs", "forward", "loss", "example_inputs", "cluster"),
        "ask in Python or on the command line",
    ),
}
"""Fields that name files or code, and what stands in their place here."""
_MODELS = ("model", "reference", "teacher")
_FIELDS = (
    *("model", "device", "gpus", "nodes", "precision", "batch_size", "global_batch_size", "seq_len"),
    *(
        "image_size",
        "dataset",
        "samples",
        "epochs",
        "steps",
        "tokens",
        "adapter",
        "method",
        "optimizer",
        "stack",
    ),
    *("compiler", "tp", "pp", "cp", "ep", "zero_stage", "num_microbatches", "recompute", "sizes"),
)
"""Fields that a tool names one by one; every other one of a job goes into `fields`."""


def words() -> Mapping[str, Any]:
    """What agents read of the server and its tools."""
    return packaged_toml(__package__, "data/tools.toml")


_OF_A_PLAN = ("choices", "miss", "unpriced", "assumptions", "warnings")
_MOST_LAYOUTS = 200_000
_MOST_JOBS = 20_000
"""Bounds of one call: a search or a plan beyond them is refused with what to narrow."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class AgentTool:
    """One tool."""

    name: str
    takes: Mapping[str, Any]
    """JSON schema of the arguments."""
    gives: Mapping[str, Any]
    """JSON schema of the answer."""
    call: Callable[[Mapping[str, Any]], dict[str, Any]]
    """Arguments to answer; raises errors of the package."""

    @property
    def title(self) -> str:
        """In a few words."""
        return str(words()[self.name]["title"])

    @property
    def description(self) -> str:
        """When to call it, and what to make of the answer."""
        return str(words()[self.name]["description"])


def _job(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a job, those under `fields` among them; none names a file or code.

    Raises:
        ConfigError: If one does, or stands in both places.
    """
    further = _stated(arguments.get("fields"))
    said = {name: value for name, value in arguments.items() if name != "fields" and value is not None}
    twice = said.keys() & further.keys()
    if twice:
        raise ConfigError(f"{min(twice)} is given twice, once under fields. To fix: give one of them.")
    return _checked({**said, **further})


def _stated(fields: Any) -> Mapping[str, Any]:
    """What `fields` holds.

    Raises:
        ConfigError: If it is no object, or a field in it names a file or code.
    """
    if fields is not None and not isinstance(fields, Mapping):
        raise ConfigError(f"fields={shown(fields)} is no object. To fix: name and value of each field.")
    return _checked(dict(fields or {}))


def _checked(found: dict[str, Any]) -> dict[str, Any]:
    """Fields of which none names a file or code.

    Raises:
        ConfigError: If one does.
    """
    for name, value in found.items():
        own = RequestFields.own_name(name)
        if own in REFUSED:
            raise ConfigError(
                f"{name}={shown(value)} names a file or code, which no tool takes. To fix: leave it out; "
                f"{REFUSED[own]}."
            )
        if own in _MODELS:
            check_named_in_data(value)
    if is_policy_file(found.get("precision")):
        raise ConfigError(
            f"precision={shown(found['precision'])} is a file, which no tool takes. To fix: give the policy "
            "itself, as an object."
        )
    return found


def _predict(arguments: Mapping[str, Any]) -> dict[str, Any]:
    fields = _job(arguments)
    of_run = {name: fields.pop(name) for name in [*fields] if name in RunOptions.model_fields}
    if of_run:
        run = predict_run(Request.of(fields), **of_run)
        return {**_said(run.headline), "run_terms_s": dict(run.terms)}
    answered = answer_all([Request.of(fields)], strict=True).predictions[0]
    return {
        **_said(Headline.of(answered)),
        "terms_s": dict(answered.terms),
        "nearest_measurements": [
            {
                **{name: getattr(each, name) for name in ("model", "device", "gpus", "precision", "stack")},
                **{
                    name: getattr(each, name) for name in ("measured_step_time_s", "similarity", "source_ref")
                },
            }
            for each in answered.nearest_measurements
        ],
    }


def _said(headline: Headline) -> dict[str, Any]:
    found = headline.to_dict()
    return {"answer": headline.in_words(), **found}


def _plan(arguments: Mapping[str, Any]) -> dict[str, Any]:
    found = plan(**_job(arguments), max_jobs=_MOST_JOBS, workers=1)
    said = found.to_dict()
    return {"answer": found.in_one_line(), **{name: said[name] for name in _OF_A_PLAN}}


def _layout(arguments: Mapping[str, Any]) -> dict[str, Any]:
    given = dict(arguments)
    top, fix = given.pop("top", None) or 5, given.pop("fix", None) or []
    found = find_layouts(
        **_job(given), top=top, fix=[fix] if isinstance(fix, str) else fix, max_layouts=_MOST_LAYOUTS
    )
    ranked = [each.to_dict() for each in found.ranked]
    return {
        "answer": found.in_one_line(),
        "layouts": [
            {
                "name": each["name"],
                "layout": each["layout"],
                **{
                    name: each["prediction"][name]
                    for name in (
                        "step_time_s",
                        "throughput",
                        "throughput_unit",
                        "mfu",
                        "memory_bytes_per_device",
                    )
                },
            }
            for each in ranked
        ],
        "assumptions": list(found.assumptions),
        "warnings": list(found.warnings),
    }


def _explain(arguments: Mapping[str, Any]) -> dict[str, Any]:
    given = dict(arguments)
    what = given.pop("what", None) or "assumptions"
    fields = _job(given)
    if what == "precision":
        known = {"model", *EXPLAINED_FIELDS}
        beyond = [name for name in fields if RequestFields.own_name(name) not in known]
        if beyond:
            raise ConfigError(
                f"{beyond[0]} does not change what a precision does. To fix: leave it out, or what=numbers."
            )
        return {
            "answer": f"What {fields.get('precision', 'the precision')} changes.",
            **explain(**fields).to_dict(),
        }
    if what == "numbers":
        rows = sensitivity(**fields)
        return {"answer": "What moves the time most, first.", "sensitivity": [row.to_dict() for row in rows]}
    request = Request.of(fields)
    answered = answer_all([request], strict=True).predictions[0]
    matters = what_matters(answered, request=request)
    return {
        "answer": answered.in_one_line(),
        "assumptions": list(answered.assumptions),
        "what_matters": [dataclasses.asdict(each) for each in matters],
    }


def _devices(arguments: Mapping[str, Any]) -> dict[str, Any]:
    if arguments.get("name"):
        device = get_device(str(arguments["name"]))
        return {"answer": f"{device.name}, {device.arch}", "devices": [_device(device)]}
    search = str(arguments.get("search") or "").lower()
    found = [device for device in known_devices() if search in device.name.lower()]
    return {
        "answer": f"{len(found)} devices",
        "devices": [
            {"name": each.name, "arch": each.arch, "memory_bytes": each.memory_bytes} for each in found
        ],
    }


def _device(device: Any) -> dict[str, Any]:
    plain: dict[str, Any] = dataclasses.asdict(device)
    return plain


def _read_recipe(arguments: Mapping[str, Any]) -> dict[str, Any]:
    found = read_sent(arguments, given=_stated(arguments.get("fields")))
    job, said = found.pop("job"), found["recipe"]
    question = {name: job.pop(name) for name in _FIELDS if name in job}
    answer = (
        f"Read as {found['project']}: {len(said['read'])} keys, {len(said['assumed'])} values assumed, "
        f"{len(said['not_understood'])} not understood."
    )
    if found["missing"]:
        answer += f" Not said: {', '.join(found['missing'])}."
    return {"answer": answer, "question": question | ({"fields": job} if job else {}), **found}


def _object(properties: Mapping[str, Any], required: tuple[str, ...] = ()) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(required),
        "additionalProperties": False,
    }


def _job_schema(only: Mapping[str, Any] | frozenset[str] | tuple[str, ...], **further: Any) -> dict[str, Any]:
    """The arguments of a tool that takes a job."""
    whole = job_file_schema(run=RunOptions.model_fields, queue={})
    known: dict[str, Any] = whole["$defs"]["Job"]["properties"]
    allowed = {"model", *only}
    named = {name: _one_of(known[name]) for name in _FIELDS if name in allowed}
    named["fields"] = {
        "type": "object",
        "description": "Any other field of a job by name, such as lora_rank or offload; `precision-time list "
        "fields` lists them.",
    }
    parts = {name: part for name, part in whole["$defs"].items() if name != "Job"}
    return {**_object({**named, **further}, ("model",)), "$defs": parts}


def _one_of(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A field without the list of values that a table of jobs takes: a tool asks for one job."""
    kinds = [each for each in schema.get("anyOf", ()) if each.get("type") != "array"]
    return {**schema, "anyOf": kinds} if kinds else dict(schema)


def _answer(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"answer": {"type": "string"}, **properties},
        "required": ["answer"],
    }


_LISTED = {"type": "array", "items": {"type": "object"}}
_TEXTS = {"type": "array", "items": {"type": "string"}}
_TEXT = {"type": "string"}


def tools() -> tuple[AgentTool, ...]:
    """All tools, in the order in which a question is asked."""
    brief: dict[str, Any] = answer_schema("brief")["properties"]["predictions"]["items"]
    every = tuple(RequestFields.model_fields)
    forms = [form["properties"] for form in brief["oneOf"]]
    predicted: dict[str, Any] = {name: {} for form in forms for name in form}
    return (
        AgentTool(
            name="predict",
            takes=_job_schema(every),
            gives=_answer(**predicted),
            call=_predict,
        ),
        AgentTool(
            name="plan",
            takes=_job_schema(
                (*PLANNED_FIELDS, *RUN_FIELDS),
                deadline={**_TEXT, "description": "A duration (24h, 3d) or a date."},
                budget={**_TEXT, "description": "Most money, in US dollars."},
                devices={
                    "anyOf": [_TEXT, _TEXTS],
                    "description": "Types that compete. Default: commonly rented ones.",
                },
                gpus={"anyOf": [{"type": "integer"}, {"type": "array", "items": {"type": "integer"}}]},
                max_gpus={"type": "integer", "minimum": 1},
                clouds={"anyOf": [_TEXT, _TEXTS]},
                market={**_TEXT, "description": "on-demand, spot or reserved."},
            ),
            gives=_answer(choices=_LISTED, assumptions=_TEXTS, warnings=_TEXTS),
            call=_plan,
        ),
        AgentTool(
            name="layout",
            takes=_job_schema(
                SEARCHED_FIELDS,
                top={"type": "integer", "minimum": 1, "maximum": 20},
                fix={"anyOf": [_TEXT, _TEXTS], "description": 'Given fields, as "tp=8" or "zero_stage=1,3".'},
            ),
            gives=_answer(layouts=_LISTED, assumptions=_TEXTS, warnings=_TEXTS),
            call=_layout,
        ),
        AgentTool(
            name="explain",
            takes=_job_schema(every, what={"enum": ["assumptions", "numbers", "precision"]}),
            gives=_answer(),
            call=_explain,
        ),
        AgentTool(
            name="read_recipe",
            takes=SENT,
            gives=_answer(
                project=_TEXT,
                report=_TEXTS,
                missing=_TEXTS,
                question={"type": "object"},
                recipe={"type": "object"},
            ),
            call=_read_recipe,
        ),
        AgentTool(
            name="devices",
            takes=_object({"name": _TEXT, "search": _TEXT}),
            gives=_answer(devices=_LISTED),
            call=_devices,
        ),
    )
