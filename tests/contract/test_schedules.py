"""Every pipeline schedule of the package satisfies the suite."""

import pytest

from precision_time.parallel.layout import PipelineSchedule
from precision_time.testing.schedules import ScheduleSuite, unregistered_schedules


@pytest.mark.parametrize("schedule", PipelineSchedule)
class TestSchedules(ScheduleSuite):
    pass


def test_every_schedule_file_is_registered() -> None:
    assert unregistered_schedules() == set()
