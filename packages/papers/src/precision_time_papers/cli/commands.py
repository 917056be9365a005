"""Commands of the published predictors: data, from which the root makes its help."""

from __future__ import annotations

from precision_time.plugins import Command

COMMANDS = (
    Command(
        path="schedule",
        module=f"{__package__}.schedule",
        attribute="schedule",
        summary="Plan a queue of jobs on one cluster.",
        after="layout",
    ),
    Command(
        path="precisions search",
        module=f"{__package__}.precisions",
        attribute="search",
        summary="Find which layers to train in which type.",
    ),
    Command(
        path="report",
        module=f"{__package__}.report",
        attribute="report",
        summary="Score the predictor on runs it has not seen.",
        examples="REPORT_EXAMPLES",
        after="evaluate",
    ),
    Command(
        path="measure-risk",
        module=f"{__package__}.measure_risk",
        attribute="measure_risk",
        summary="Measure the loss that low precision costs.",
        after="measure",
    ),
    Command(
        path="predictors",
        module=f"{__package__}.predictors",
        attribute="predictors",
        summary="List the predictors that are compared.",
        after="stacks",
    ),
    Command(
        path="architectures",
        module=f"{__package__}.architectures",
        attribute="architectures",
        summary="List the known architectures most like a model.",
        after="env",
    ),
    Command(
        path="train-ghn",
        module=f"{__package__}.architectures",
        attribute="train_ghn",
        summary="Train a graph hypernetwork (torch).",
        examples="TRAIN_EXAMPLES",
        after="architectures",
    ),
    Command(
        path="compare-predictors",
        module=f"{__package__}.report",
        attribute="compare_predictors",
        summary="Compare ours with the predictors of the papers.",
        examples="COMPARISON_EXAMPLES",
        after="train-ghn",
    ),
    Command(
        path="predictddl",
        module=f"{__package__}.predictddl",
        attribute="app",
        summary="Predict architectures never seen (PredictDDL).",
        after="compare-predictors",
    ),
    Command(
        path="campaign",
        module=f"{__package__}.campaign",
        attribute="app",
        summary="Profile training jobs on a Ray cluster.",
        after="predictddl",
    ),
    Command(
        path="performance-models",
        module=f"{__package__}.performance",
        attribute="performance_models",
        summary="Learn training times from measured points.",
        examples="MODELS_EXAMPLES",
        after="campaign",
    ),
    Command(
        path="performance-predict",
        module=f"{__package__}.performance",
        attribute="performance_predict",
        summary="Predict with a model of `performance-models`.",
        examples="PREDICT_EXAMPLES",
        after="performance-models",
    ),
    Command(
        path="collect",
        module=f"{__package__}.collect",
        attribute="collect",
        summary="Report this machine (cores, memory, devices, load) to a service.",
        after="kubernetes",
    ),
)
