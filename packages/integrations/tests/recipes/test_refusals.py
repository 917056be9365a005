"""Bad input: bounded, named, never guessed in silence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from precision_time.errors import ConfigError
from precision_time.request.recipes import kind_of
from precision_time_integrations.recipes.documents import MOST_BYTES, read_document
from precision_time_integrations.recipes.files import read_recipe, read_text
from precision_time_integrations.recipes.sources import read_source

_TWO = """
from trl import SFTTrainer, SFTConfig
first = SFTTrainer("gpt2", args=SFTConfig(max_steps=1))
second = SFTTrainer("gpt2", args=SFTConfig(max_steps=2))
"""


_BOMB = "base_model: &a [x, x]\n" + "".join(
    f"k{n}: &k{n} [{', '.join([f'*k{n - 1}' if n else '*a'] * 9)}]\n" for n in range(9)
)


def no_files(_: str) -> None:
    return None


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.yml", _BOMB, "stands for more"),
        ("a.yml", "base_model: x\n" + "".join(f"{' ' * n}a{n}:\n" for n in range(200)), "nested"),
        ("a.yml", "base_model: [\n", "not a valid .yml file"),
        ("a.yml", "- base_model: x\n", "holds no mapping"),
        ("a.json", '{"a": {"a": ' * 3000, "not a valid .json file"),
        ("a.toml", "a = \n", "not a valid .toml file"),
        ("a.yml", "x" * (MOST_BYTES + 1), "longer than"),
        ("a.yml", "".join(f"k{n}: 1\n" for n in range(30_000)), "more than 20,000 values"),
    ],
    ids=["bomb", "deep", "broken", "list", "deep-json", "broken-toml", "long", "wide"],
)  # fmt: skip
def test_documents_are_bounded(name: str, text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        read_document(name, text)


def test_what_only_a_run_knows_is_told_and_not_defaulted() -> None:
    text = "model_name_or_path: gpt2\nper_device_train_batch_size: ${BATCH}\nnum_train_epochs: $(nproc)\n"
    recipe = read_text(text, "hf-trainer", no_files, name="a.yaml")
    assert not {"batch_size", "num_train_epochs"} & recipe.fields.keys()
    assert any("line 2: per_device_train_batch_size=${BATCH}: a variable that only a run knows" in each
               for each in recipe.unread)  # fmt: skip
    assert any(each.startswith("line 3: num_train_epochs=$(nproc)") for each in recipe.unread)


def test_what_a_file_is_based_on_is_read_below_it_and_told_where_it_is_missing() -> None:
    text = "base_config: base.yml\nmodel_name: llama2-7b\nper_device_batch_size: 4\nmax_target_length: 512\n"
    files = {"base.yml": "per_device_batch_size: 12\nremat_policy: full\n"}
    recipe = read_text(text, "maxtext", files.get, name="a.yml")
    assert (recipe.fields["batch_size"], recipe.fields["recompute"]) == (4, "full")
    assert not recipe.unread
    alone = read_text(text, "maxtext", no_files, name="a.yml")
    assert any("line 1: base_config=base.yml: the file base.yml that it is based on is not there" in each
               for each in alone.unread)  # fmt: skip


def test_files_that_are_based_on_one_another_end() -> None:
    files = {
        "a.yml": "base_config: b.yml\nsteps: 3\n",
        "b.yml": "base_config: a.yml\nmodel_name: llama2-7b\n",
    }
    recipe = read_text(files["a.yml"], "maxtext", files.get, name="a.yml")
    assert (recipe.fields["model"], recipe.fields["steps"]) == ("llama2-7b", 3)
    assert any("more than 4 files that are based on one another" in each for each in recipe.unread)


def test_variables_of_a_shell_are_told_and_not_defaulted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BS", "64")
    text = (
        "llamafactory-cli train --model_name_or_path gpt2 --stage sft --cutoff_len ${LEN:-512}"
        " --per_device_train_batch_size $BS --num_train_epochs $(nproc)\n"
    )
    recipe = read_text(text, "command", no_files, name="run.sh")
    assert not {"batch_size", "epochs"} & recipe.fields.keys()
    assert recipe.fields["seq_len"] == 512
    told = [f"line 1: {name}: known only when it runs" for name in (
        "per_device_train_batch_size=$BS", "num_train_epochs=$(nproc)"
    )]  # fmt: skip
    assert all(any(each.startswith(words) for each in recipe.unread) for words in told), recipe.unread
    assert any(each.startswith("LEN is taken as 512") for each in recipe.assumed)


def test_two_trainers_in_one_script_are_refused_with_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "two.py"
    path.write_text(_TWO)
    with pytest.raises(ConfigError, match=r"makes 2 trainers \(lines 3, 4\)"):
        read_recipe(str(path), kind_of(str(path)))


def test_two_commands_in_one_script_are_refused_with_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "two.sh"
    path.write_text("llamafactory-cli train a.yaml\nswift sft --model gpt2\n")
    with pytest.raises(ConfigError, match=r"lines 1, 2 each start a script"):
        read_recipe(str(path), kind_of(str(path)))


def test_a_script_is_read_and_never_run(tmp_path: Path) -> None:
    path, trace = tmp_path / "train.py", tmp_path / "ran"
    path.write_text(f"open({str(trace)!r}, 'w')\nfrom trl import SFTTrainer, SFTConfig\n"
                    "SFTTrainer('gpt2', args=SFTConfig(max_steps=1))\n")  # fmt: skip
    assert read_recipe(str(path), kind_of(str(path))).fields["steps"] == 1
    assert not trace.exists()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("def f(:\n", "not valid Python"),
        ("(" * 5000, "not valid Python"),
        ("print(1)\n", "names a file alone"),
    ],
)
def test_scripts_that_say_nothing_are_refused(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        read_text(text, "python", no_files, name="a.py")


def test_names_that_change_are_not_known() -> None:
    source = read_source("a.py", "a = 1\na = 2\nSFTConfig(max_steps=a, b=2**999, c=1/0, d=-3)\n")
    (call,) = [each for each in source.calls if each.name == "SFTConfig"]
    assert "assigned more than once" in call.values["max_steps"].unknown
    assert call.values["b"].unknown and call.values["c"].unknown and call.values["d"].value == -3


@pytest.mark.parametrize(
    "words", ["axolotl preprocess a.yml", "llamafactory-cli export a.yaml", "tune ls", "swift infer"]
)
def test_commands_that_train_nothing_are_refused(words: str) -> None:
    with pytest.raises(ConfigError, match="cannot be read: no line starts a training script"):
        read_recipe(words, "command")


def test_a_method_that_is_not_modeled_is_told() -> None:
    recipe: Any = read_text(
        "base_model: gpt2\nrl: kto\nsequence_len: 512\n", "axolotl", no_files, name="a.yml"
    )
    assert "method" not in recipe.fields
    assert any("line 2: rl=kto: this method is not modeled" in text for text in recipe.unread)
