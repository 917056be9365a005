"""Commands of the published predictors: data, from which the root makes its help."""

from __future__ import annotations

from typing import Any

from precision_time.plugins import Command


def _command(path: str, module: str, attribute: str, summary: str, **more: Any) -> Command:
    module = f"{__package__}.{module}"
    more = {"section": "Papers", **more}
    return Command(path=path, module=module, attribute=attribute, summary=summary, **more)


COMMANDS = (
    _command("schedule", "schedule", "schedule", "Plan a queue of jobs on one cluster.", section="Decide"),
    _command("precisions search", "precisions", "search", "Find which layers to train in which type."),
    _command(
        "papers report",
        "report",
        "report",
        "Score the predictor on runs it has not seen.",
        examples="REPORT_EXAMPLES",
    ),
    _command(
        "papers compare",
        "report",
        "compare_predictors",
        "Compare ours with the predictors of the papers.",
        examples="COMPARISON_EXAMPLES",
    ),
    _command("papers predictors", "predictors", "predictors", "List the predictors that are compared."),
    _command(
        "papers similar", "architectures", "architectures", "List the known architectures most like a model."
    ),
    _command(
        "papers train-ghn",
        "architectures",
        "train_ghn",
        "Train a graph hypernetwork (torch).",
        examples="TRAIN_EXAMPLES",
    ),
    _command(
        "papers predictddl predict",
        "predictddl",
        "predict",
        "Predict the training time of one model.",
        examples="PREDICT_EXAMPLES",
    ),
    _command(
        "papers predictddl servers",
        "predictddl",
        "servers",
        "How many servers of each kind finish by a deadline.",
        examples="SERVERS_EXAMPLES",
    ),
    _command(
        "papers predictddl batch",
        "predictddl",
        "batch",
        "Predict the training times of many requests.",
        examples="BATCH_EXAMPLES",
    ),
    _command(
        "papers predictddl train",
        "predictddl",
        "train",
        "Train predictors on the corpus and your own runs.",
        examples="TRAIN_EXAMPLES",
    ),
    _command(
        "papers predictddl registry",
        "predictddl",
        "list_registry",
        "List the trained predictors, or delete one of yours.",
        examples="REGISTRY_EXAMPLES",
    ),
    _command(
        "papers predictddl collect",
        "collect",
        "collect",
        "Collect what a cluster, or this machine, is made of.",
    ),
    _command(
        "papers campaign run", "campaign", "run", "Measure the trials that the store does not hold yet."
    ),
    _command("papers campaign show", "campaign", "show", "Show the results in a store."),
    _command("papers campaign export", "campaign", "export", "Write the results of a store to a CSV file."),
    _command(
        "papers performance learn",
        "performance",
        "performance_models",
        "Learn training times from measured points.",
        examples="MODELS_EXAMPLES",
    ),
    _command(
        "papers performance predict",
        "performance",
        "performance_predict",
        "Predict with a model of `papers performance learn`.",
        examples="PREDICT_EXAMPLES",
    ),
)
