"""Commands are read as the jobs that they start: counts, fields, and what cannot be known."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from precision_time.errors import ConfigError, PrecisionTimeError
from precision_time.launch.api import launch_config
from precision_time.request.request import Request
from precision_time_integrations.commands.expand import is_known
from precision_time_integrations.commands.read import ReadCommand, read_command
from precision_time_integrations.commands.shell import read_shell

_H100: dict[str, Any] = {"device": "H100-SXM5-80GB", "gpus": 64, "nodes": 8}
_HOSTS = "one slots=8\n# two slots=8\nthree slots=8\n"
_DEEPSPEED = """{
  "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2, "bf16": {"enabled": true},
  "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}
}"""
_AUTO = """{
  "train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 3}, "bf16": {"enabled": "auto"}
}"""
_ACCELERATE = """
distributed_type: FSDP
num_machines: 2
num_processes: 16
mixed_precision: bf16
fsdp_config: {fsdp_sharding_strategy: SHARD_GRAD_OP}
"""
_LIGHTNING = """
trainer: {devices: 4, num_nodes: 2, precision: bf16-mixed, strategy: ddp, max_epochs: 10}
data: {class_path: x.Y, init_args: {batch_size: 32}}
"""
_TORCHTITAN = """
[model]
name = "llama3"
flavor = "8B"
[training]
local_batch_size = 2
seq_len = 8192
steps = 1000
[parallelism]
data_parallel_shard_degree = -1
tensor_parallel_degree = 2
[activation_checkpoint]
mode = "selective"
"""
_FILES = {
    "hosts": _HOSTS, "ds.json": _DEEPSPEED, "auto.json": _AUTO, "a.yaml": _ACCELERATE, "l.yaml": _LIGHTNING,
    "t.toml": _TORCHTITAN,
}  # fmt: skip

_COMMANDS = yaml.safe_load((Path(__file__).parent / "commands.yaml").read_text(encoding="utf-8"))


def read(text: str, **options: Any) -> ReadCommand:
    return read_command(text, files=_FILES.get, **options)


@pytest.mark.parametrize("case", _COMMANDS, ids=lambda case: case["text"][:25])
def test_a_command_is_read(case: dict[str, Any]) -> None:
    found = read(case["text"], gpus_per_node=8)
    assert (found.launcher, found.nodes, found.gpus) == (case["launcher"], case["nodes"], case["gpus"])
    assert case["fields"].items() <= found.fields.items()
    assert found.unread == ()
    assert Request.of({"model": "resnet50", **found.fields}).gpus == case["gpus"]


@pytest.mark.parametrize("launcher", ["megatron", "nemo", "torchtitan", "accelerate", "deepspeed"])
def test_what_a_launcher_is_started_with_is_read_back(launcher: str) -> None:
    jobs: list[dict[str, Any]] = [
        {"model": "llama3-8b", "zero_stage": 3, "batch_size": 2},
        {
            "model": "llama3-70b",
            "tp": 8,
            "pp": 4,
            "vpp": 5,
            "zero_stage": 1,
            "batch_size": 1,
            "num_microbatches": 8,
        },
        {"model": "llama3-8b", "zero_stage": 3, "batch_size": 2, "recompute": "full"},
        {"model": "bert-large", "zero_stage": 0, "batch_size": 8},
    ]
    compared = 0
    for job in jobs:
        request = Request.of({**_H100, **job})
        try:
            config = launch_config(request, launcher=launcher)
        except PrecisionTimeError:
            continue
        if launcher == "deepspeed" and "recompute" in job:
            continue  # said by the model, not by the file
        started = next((line for line in config.text.splitlines() if "Start: " in line), "")
        text = started.partition("Start: ")[2].strip('",') or config.text
        found = read_command(text, files={config.file: config.text}.get)
        assert (found.gpus, found.nodes) == (64, 8)
        fields = {name: value for name, value in found.fields.items() if name != "sizes"}
        same = Request.of({**job, "device": _H100["device"], **fields, "model": job["model"]})
        assert same.resolve().layout == request.resolve().layout, text
        compared += 1
    assert compared >= 2


@pytest.mark.parametrize("model", ["llama3-8b", "gpt2", "qwen2-7b", "mixtral-8x7b"])
def test_sizes_among_the_arguments_are_the_model(model: str) -> None:
    request = Request.of({**_H100, "model": model, "tp": 2, "zero_stage": 1, "batch_size": 1})
    found = read_command(launch_config(request, launcher="megatron").text)
    mine = Request.of({"device": _H100["device"], **found.fields}).resolve().workload
    theirs = request.resolve().workload
    assert found.fields["model"] != model
    assert mine.graph.params == theirs.graph.params


_SCRIPT = r"""#!/bin/bash
set -euo pipefail
export NNODES=$SLURM_NNODES GPUS=4
WORLD=$(($NNODES * GPUS))
MASTER=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
if [ "$1" = long ]; then EPOCHS=90; else EPOCHS=3; fi
ARGS=(
  --model resnet50   # a comment, with a 'quote
  --name "a b"
  --batch-size ${BATCH:-64}
)
OPTS="--opt sgd"
OPTS+=" --world $WORLD"
cat > ds.json <<EOF
{"train_micro_batch_size_per_gpu": $GPUS, "zero_optimization": {"stage": 1}}
EOF
srun --nodes=$NNODES bash -c "torchrun --nnodes=$NNODES --nproc_per_node $GPUS --master_addr $MASTER \
    train.py ${ARGS[*]} $OPTS --epochs $EPOCHS --deepspeed_config ds.json" 2>&1 | tee log.txt
"""


def test_constants_of_a_script_are_substituted_and_the_rest_is_listed() -> None:
    found = read_command(_SCRIPT, environment={"SLURM_NNODES": "2"})
    assert (found.launcher, found.nodes, found.gpus) == ("srun torchrun", 2, 8)
    expected = {"model": "resnet50", "batch_size": 64, "zero_stage": 1, "optimizer": "sgd"}
    assert expected.items() <= found.fields.items()
    assert found.arguments[found.arguments.index("--world") + 1] == "8"
    assert "epochs" not in found.fields  # it depends on a condition
    assert any("epochs=$EPOCHS" in each for each in found.unread)
    assert read_command(_SCRIPT, environment={"SLURM_NNODES": "2", "BATCH": "16"}).fields["batch_size"] == 16
    # Where the environment is not known, a default may not be the value.
    unsure = read_command(_SCRIPT, scheduler={"SLURM_NNODES": "2"})
    assert any("BATCH is taken as 64" in each for each in unsure.notes)
    assert not any("BATCH" in each for each in found.notes)


def test_nothing_is_run(tmp_path: Any) -> None:
    mark = tmp_path / "mark"
    text = (
        f"X=$(touch {mark}) `touch {mark}`; eval touch {mark}; python -c \"open('{mark}','w')\" --epochs $X"
    )
    read_command(text)
    assert not mark.exists()


def test_a_statement_wins_over_what_is_read() -> None:
    stated = "#PRECISION_TIME model=bert-large epochs=3 mtbf=1000h\n"
    text = f"#!/bin/bash\n{stated}python train.py --model gpt2 --bs 4\n"
    found = read_command(text)
    assert (found.fields["model"], found.fields["batch_size"], found.fields["epochs"]) == ("bert-large", 4, 3)
    assert found.run_options == {"mtbf": "1000h"}
    # Even where nothing else of the text can be read.
    broken = read_command(text + "echo 'no end\n")
    assert broken.fields["model"] == "bert-large"
    assert any("quote" in each for each in broken.unread)
    assert read_command(["./run"], environment={"PRECISION_TIME_JOB": '{"model": "gpt2"}'}).fields == {
        "model": "gpt2"
    }
    with pytest.raises(ConfigError, match="Did you mean batch_size"):
        read_command("#PRECISION_TIME model=gpt2 batchsize=4\n")


def test_words_of_a_container_are_a_command() -> None:
    words = ["/bin/bash", "-c", "torchrun --nproc_per_node=$GPUS train.py --epochs $1", "name", "5"]
    found = read_command(["env", "A=1", *words], environment={"GPUS": "4"})
    assert (found.launcher, found.gpus, found.script) == ("torchrun", 4, "train.py")
    assert found.fields["epochs"] == 5
    assert read_command(["torchrun", "--nproc-per-node", "2", "a b.py", "--name", "$X"]).arguments == (
        "--name",
        "$X",
    )


def test_which_of_several_commands_trains() -> None:
    one = read_command("python prepare.py\ntorchrun --nproc-per-node 2 fit.py --epochs 3\n")
    assert one.script == "fit.py"
    assert any("line 1 runs too" in each for each in one.unread)
    assert read_command("python prepare.py\npython train.py --epochs 3\n").script == "train.py"
    for text in ("python a.py\npython b.py\n", "for i in 1 2; do python train.py; done\n", "echo hi\n"):
        found = read_command(text)
        assert found.script == ""
        assert found.unread


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("python train.py --name 'x", "quote"),
        ('echo "$(foo', "bracket"),
        ("\x7fELF\0\0\0", "binary"),
        ("x" * 10_000_000, "1,000,000"),
        ("#PRECISION_TIME model\n", "NAME=VALUE"),
    ],
)
def test_what_is_no_script_is_refused_at_once(text: str, rule: str) -> None:
    started_s = time.process_time()
    with pytest.raises(ConfigError, match=rule) as caught:
        read_command(text)
    assert time.process_time() - started_s < 2.0
    assert "To fix" in str(caught.value)


_PARTS = st.sampled_from(
    [
        "torchrun ", "srun ", "accelerate launch ", "deepspeed ", "python ", "bash -c ", "-N", "2 ",
        "train.py ", "--nproc-per-node ", "--epochs ", "$X ", "${X:-3} ", "$(a) ", "'", '"', "\\\n", "\n",
        "; ", "if ", "then ", "fi ", "(", ")", "{ ", "} ", "<<EOF\n", "EOF\n", "A=( ", "A+=",
        "for i in 1; do ", "done ", "case x in ", "esac ", "# ", "$((", "))", "=", "|", "&", "-m ", "é",
        "--micro-batch-size ", "--num-layers ", "0 ", "-1 ", "--hidden-size ", "1e400 ",
        "#PRECISION_TIME model=gpt2\n",
    ]
)  # fmt: skip


@given(st.lists(_PARTS, max_size=25).map("".join), st.booleans())
def test_any_text_is_read_or_refused(text: str, known: bool) -> None:
    try:
        found = read_command(text, environment={} if known else None, files=_FILES.get)
    except ConfigError:
        return
    assert "\0" not in repr(found.fields)
    assert not any("\0" in each for each in (*found.unread, *found.notes, *found.arguments))


def test_variables_do_not_grow_without_end() -> None:
    text = "A=aaaaaaaaaaaaaaaaaaaa\n" + "A=$A$A\n" * 60 + "python train.py $A\n"
    started_s = time.process_time()
    read_command(text)
    assert time.process_time() - started_s < 2.0
    assert read_shell("X=$((9**9**9**9))\necho $X").commands[0].words[0] == "echo"
    assert read_shell("echo ${X:-'}}").commands[0].words == ("echo", "}")


def test_defaults_in_defaults_are_read_as_deep_as_anybody_writes_them() -> None:
    def script(depth: int) -> str:
        return f"A={'${x:-' * depth}7{'}' * depth}\npython train.py --model resnet50 --epochs $A\n"

    assert read_command(script(50)).fields["epochs"] == 7
    for depth in (51, 300, 5000):
        found = read_command(script(depth))
        assert found.fields["model"] == "resnet50"
        assert "epochs" not in found.fields
        assert any("epochs" in each for each in found.unread)
        assert max(map(len, found.unread)) < 400


_LONG = "a" * 30_000


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("#SBATCH --comment=" + "a" * 65_536, "65,536"),
        ("\n" * 10 + "A=" + "$x" * 40_000, "Line 11 .* 80,002 characters"),
        ("env " + "a=1 \\\n" * 5000 + "python train.py", "5,003 words"),
        (f"A={_LONG}\n" + "B=$A\n" * 40, "1,000,000 characters"),
        (f"A=({'1 ' * 20_000})\n" + "B=$((A))\n" * 100, "1,000,000 characters"),
        (f"A=({'1 ' * 4000})\n" + 'echo "${A[@]}" "${A[@]}"', "8,001 words"),
        ("A=()\n" + "A+=(xxx)\n" * 2000, "1,000,000 characters"),
    ],
)
def test_what_would_take_long_is_refused_by_its_size(text: str, rule: str) -> None:
    with pytest.raises(ConfigError, match=rule) as caught:
        read_command(text)
    assert "To fix" in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        f"A='echo {_LONG}'\n" + 'bash -c "$A"\n' * 50,
        "cat >f.sh <<EOF\n" + "echo a\n" * 8000 + "EOF\n" + "bash f.sh\n" * 50,
        "".join(f"a{n}=1\n" for n in range(2000)) + "bash -c ls\n" * 1000,
    ],
)
def test_shells_in_a_script_share_what_it_may_take(text: str) -> None:
    try:
        said = "".join(read_command(text).unread)
    except ConfigError as error:
        said = str(error)
    assert "1,000,000 characters" in said


def test_a_value_longer_than_any_is_known_to_a_run_only() -> None:
    script = read_shell(f"A={_LONG}\nB=$A$A\nC=x\necho $B ${{A}} $C\n")
    assert [is_known(word) for word in script.commands[0].words] == [True, False, True, True]
    short = "x=ab\necho " + "$x\\\n" * 20_000 + "\n"
    assert read_shell(short).commands[0].words == ("echo", "ab" * 20_000)


def test_lines_of_errors_are_counted_in_long_words() -> None:
    with pytest.raises(ConfigError, match="in line 4 "):
        read_command("echo a\necho ${a}\\\n${b}\\\n${c\n")


def test_blocks_are_left_as_they_were_entered() -> None:
    text = "if a; then\n for i in 1; do\n b\n done\n c\nfi\nd\nf() {\n e\n}\ng\n(h)\ni\n"
    inside = {each.words[0]: each.inside for each in read_shell(text).commands}
    expected = {"a": "if", "b": "loop", "c": "if", "d": "", "e": "function", "g": "", "h": "", "i": ""}
    assert {name: inside[name] for name in expected} == expected
