"""Commands of the example: data, so that help and completion load nothing."""

from __future__ import annotations

from precision_time.plugins import Command

COMMANDS = (
    Command(
        path="example hours",
        module="precision_time_example_plugin.hours",
        attribute="hours",
        summary="Print the hours of a run of one job.",
    ),
)
