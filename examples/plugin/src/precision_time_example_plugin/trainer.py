"""A trainer adapter: its description, which imports nothing of the trainer."""

from __future__ import annotations

from precision_time_integrations.online.trainers import TrainerAdapter

TRAINER = TrainerAdapter(
    name="example-loop",
    trainer="the loop of the example",
    package="precision_time_example_plugin",
    module="precision_time_example_plugin.loop",
    attribute="watched",
)
