"""The pool of processes: answers of the plain `map`, lost workers, and interrupted runs."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from precision_time import executor
from precision_time.errors import ConfigError, LayoutError, PrecisionTimeError
from precision_time.executor import OneCopy, in_chunks, process_map


def square(number: int) -> int:
    return number * number


def refuse(number: int) -> int:
    raise LayoutError(f"tp={number} is invalid. To fix: tp=4.")


def die_once(task: tuple[int, str]) -> int:
    number, mark = task
    if number == 3 and not os.path.exists(mark):
        Path(mark).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return 10 * number


def die(number: int) -> int:
    if number == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


@pytest.mark.parametrize("workers", [1, 2, None])
def test_answers_are_those_of_map(workers: int | None) -> None:
    with process_map(workers) as map_fn:
        assert list(map_fn(square, range(50))) == [square(number) for number in range(50)]
        assert list(map_fn(square, [])) == []


def test_chunks_hold_every_item_once() -> None:
    assert [item for chunk in in_chunks(list(range(10)), 4) for item in chunk] == list(range(10))


def test_no_more_processes_are_started_than_a_machine_can_hold() -> None:
    with pytest.raises(ConfigError, match="workers=100000.*To fix"), process_map(100_000):
        pass


def test_errors_arrive_as_they_were_raised() -> None:
    with process_map(2) as map_fn, pytest.raises(LayoutError, match=r"^tp=0 is invalid. To fix: tp=4.$"):
        list(map_fn(refuse, range(3)))


def test_chunks_of_a_lost_worker_are_computed_again(tmp_path: Path) -> None:
    mark = str(tmp_path / "tried")
    with process_map(2) as map_fn:
        answers = list(map_fn(die_once, [(number, mark) for number in range(8)]))
        assert answers == [10 * number for number in range(8)]
        assert list(map_fn(square, range(4))) == [0, 1, 4, 9]
    assert Path(mark).exists()


def test_workers_that_are_lost_again_and_again_are_one_line() -> None:
    says = r"^One of 2 processes was .* lack of memory,? 4 times in a row, .* To fix: fewer processes"
    with process_map(2) as map_fn, pytest.raises(PrecisionTimeError, match=says):
        list(map_fn(die, range(4)))
    with process_map(2) as map_fn, pytest.raises(PrecisionTimeError, match="ended with code 7 4 times"):
        list(map_fn(os._exit, [7, 7]))


def test_workers_that_cannot_be_prepared_are_one_error_that_names_the_cause(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "threadpoolctl", None)  # as if it were not installed
    says = r"^Processes cannot start: .*threadpoolctl.* To fix: .*--workers 1"
    with pytest.raises(PrecisionTimeError, match=says), process_map(2) as map_fn:
        list(map_fn(square, range(8)))
    assert capfd.readouterr() == ("", "")


def test_no_more_chunks_are_taken_than_may_be_in_flight() -> None:
    taken: list[int] = []

    def chunks() -> Iterator[int]:
        for number in range(40):
            taken.append(number)
            yield number

    with process_map(2) as map_fn:
        for done, answer in enumerate(map_fn(square, chunks())):
            assert answer == done**2
            assert len(taken) <= done + 8
    assert len(taken) == 40


def test_workers_end_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "long.py"
    script.write_text(
        textwrap.dedent(
            """
            import os, time
            from precision_time.executor import process_map

            def tell(number):
                os.write(1, f"{os.getpid()}\\n".encode())  # at once: two processes write
                time.sleep(60)

            if __name__ == "__main__":
                with process_map(2) as map_fn:
                    list(map_fn(tell, range(2)))
            """
        ),
        encoding="utf-8",
    )
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert int(process.stdout.readline()) != int(process.stdout.readline())
        process.kill()
        process.communicate(timeout=60)  # which ends when the last process that could write has ended


def test_an_interrupted_run_ends_at_once_without_a_word_of_its_workers(tmp_path: Path) -> None:
    script = tmp_path / "long.py"
    script.write_text(
        textwrap.dedent(
            """
            import os, signal, sys, time
            from precision_time.executor import process_map

            signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it

            def slow(number):
                os.write(1, b"started\\n")  # at once: two processes write
                time.sleep(300)

            if __name__ == "__main__":
                try:
                    with process_map(2) as map_fn:
                        list(map_fn(slow, range(12)))
                except KeyboardInterrupt:
                    sys.exit(130)
            """
        ),
        encoding="utf-8",
    )
    process = subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )
    assert process.stdout is not None
    assert [process.stdout.readline() for _ in range(2)] == [b"started\n"] * 2
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (130, b"")


def test_an_interrupt_while_processes_start_is_not_lost() -> None:
    script = """
        import os, signal, sys, time
        from precision_time.executor import process_map

        def interrupt():  # in a hook of the fork, where Python only says that it was raised
            os.kill(os.getpid(), signal.SIGINT)

        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.register_at_fork(before=interrupt, after_in_child=interrupt)
        try:
            with process_map(2) as map_fn:
                list(map_fn(abs, range(12)))
        except KeyboardInterrupt:
            sys.exit(130)
        """
    code = [sys.executable, "-c", textwrap.dedent(script)]
    found = subprocess.run(code, capture_output=True, timeout=120, check=False)
    assert (found.returncode, found.stdout, found.stderr) == (130, b"", b"")


def test_a_copy_from_another_process_is_replaced_by_the_first_one() -> None:
    one = OneCopy(["a value"])
    copy = pickle.loads(pickle.dumps(one))
    assert one.here() is one.value
    assert copy.value is not one.value
    assert copy.here() is one.value
    assert OneCopy(one.value) != one


def test_only_the_last_copies_are_kept() -> None:
    for index in range(50):
        OneCopy(index).here()
    assert executor._first_copy.cache_info().currsize <= 8
