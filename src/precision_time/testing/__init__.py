"""Public conformance suites: what every implementation of a contract must satisfy, one file per contract.

A suite is a class of test methods. A plugin's tests subclass it and say what is under test, either with
`pytest.mark.parametrize` on the class or with a fixture of the name of the methods' argument:

    from precision_time.testing.schedules import ScheduleSuite

    @pytest.mark.parametrize("schedule", [MySchedule()])
    class TestMySchedule(ScheduleSuite):
        pass

Nothing here imports pytest: it is needed only to run the tests.
For readable failures call `pytest.register_assert_rewrite("precision_time.testing")` in the conftest.py. The
tests of this project run every suite over everything that is registered (`tests/contract/`).
"""
