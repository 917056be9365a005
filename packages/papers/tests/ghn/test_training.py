"""The hypernetwork in torch: the same vectors as in numpy, weights that fit, and a training that learns."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.func import functional_call

from precision_time.capture.fold import fold_repeats
from precision_time.capture.recorder import CAPTURE_BATCH, record
from precision_time.errors import ConfigError, NotFittedError
from precision_time_papers.ghn.architecture import architecture_of
from precision_time_papers.ghn.decoder import tiled
from precision_time_papers.ghn.fit import (
    card_of,
    score_splits,
    untrained_accuracies,
)
from precision_time_papers.ghn.images import load_images
from precision_time_papers.ghn.network import node_vectors as numpy_vectors
from precision_time_papers.ghn.sampled import draw_sampled, sampled
from precision_time_papers.ghn.sampler import ImageShape, build, draw_many, space, space_names
from precision_time_papers.ghn.torch_ghn import (
    accuracies,
    batch_of,
    fill,
    node_vectors,
    to_parameters,
    to_weights,
)
from precision_time_papers.ghn.training import TrainSettings, train
from precision_time_papers.ghn.weights import initial_weights, shipped_weights

SHAPE = ImageShape(channels=1, side=8, classes=10)
FEW = 3


@pytest.fixture(scope="module")
def networks():
    """A few networks of every space."""
    torch.set_num_threads(1)
    return {name: draw_sampled(5, name, FEW, SHAPE) for name in space_names()}


@pytest.fixture(scope="module")
def digits():
    return load_images("digits")


def test_torch_and_numpy_agree(networks) -> None:
    weights = initial_weights(3)
    some = [one for few in networks.values() for one in few[:2]]
    batch = batch_of([one.graph for one in some])
    vectors = node_vectors(to_parameters(weights), batch).detach().numpy()
    for network, rows in zip(some, batch.rows, strict=True):
        np.testing.assert_allclose(vectors[list(rows)], numpy_vectors(network.graph, weights), atol=1e-5)


def test_parameters_survive_the_way_to_torch_and_back() -> None:
    weights = initial_weights(3)
    assert to_weights(to_parameters(weights)).version == weights.version


def test_every_parameter_is_predicted_once_and_fits(networks) -> None:
    parameters = to_parameters(initial_weights(0))
    for few in networks.values():
        for network, weights in zip(few, fill(parameters, few), strict=True):
            expected = {name: tuple(p.shape) for name, p in network.module.named_parameters()}
            assert {name: tuple(w.shape) for name, w in weights.items()} == expected
            assert Counter(target.parameter for target in network.targets).most_common(1)[0][1] == 1
            answers = functional_call(network.module, weights, (torch.zeros(5, 1, 8, 8),))
            assert answers.shape == (5, 10)


def test_weights_are_normalised_by_their_fan_in(networks) -> None:
    wide = networks["wide"]
    spreads = []
    with torch.no_grad():
        filled = fill(to_parameters(initial_weights(0)), wide)
    for network, weights in zip(wide, filled, strict=True):
        for name, weight in weights.items():
            if weight.dim() == 4 and weight.shape[1] > 8 and not name.startswith("head"):
                spreads.append(float(weight.std() * weight[0].numel() ** 0.5))
        for target in network.targets:
            if target.role == "norm":
                assert 0 < float(weights[target.parameter].min()) < float(weights[target.parameter].max()) < 2
    assert 0.5 < np.median(spreads) < 4.0


def test_tiles_repeat_and_crop() -> None:
    made = torch.arange(6.0).view(2, 3)
    assert tiled(made, (1, 2)).tolist() == [[0.0, 1.0]]
    assert tiled(made, (3, 4)).tolist() == [[0, 1, 2, 0], [3, 4, 5, 3], [0, 1, 2, 0]]


def test_gradients_reach_every_parameter(networks) -> None:
    parameters = to_parameters(initial_weights(0))
    some = [*networks["train"], *networks["dense"], *draw_sampled(11, "train", 8, SHAPE)]
    loss = sum(
        functional_call(one.module, weights, (torch.randn(8, 1, 8, 8),)).square().mean()
        for one, weights in zip(some, fill(parameters, some), strict=True)
    )
    loss.backward()
    assert [name for name, tensor in parameters.items() if tensor.grad is None or not tensor.grad.any()] == []


def test_the_same_seed_draws_the_same_networks() -> None:
    assert draw_many(1, "train", 20) == draw_many(1, "train", 20)
    assert draw_many(1, "train", 20) != draw_many(2, "train", 20)
    with pytest.raises(ConfigError, match="norm-free"):
        space("narrow")


def test_spaces_differ_in_what_they_say() -> None:
    deep, usual = draw_many(0, "deep", 40), draw_many(0, "train", 40)
    assert min(len(plan.cells) for plan in deep if plan.kind != "rnn") > max(
        len(plan.cells) for plan in usual
    )
    assert min(plan.width for plan in draw_many(0, "wide", 40)) > max(plan.width for plan in usual)
    assert {plan.norm for plan in draw_many(0, "norm-free", 40)} == {"none"}
    assert "none" not in {plan.norm for plan in usual}


def test_held_out_networks_share_no_graph() -> None:
    first = draw_sampled(1, "train", 4, SHAPE)
    hashes = {one.graph.content_hash for one in first}
    again = draw_sampled(1, "train", 4, SHAPE, without=sorted(hashes))
    assert not hashes & {one.graph.content_hash for one in again}


def test_folding_repeats_loses_nothing_of_an_architecture() -> None:
    same = 0
    plans = [*draw_many(3, "deep", 4), *draw_many(3, "train", 6)]
    for plan in plans:
        with torch.device("meta"):
            module, example = build(plan, SHAPE), torch.empty(CAPTURE_BATCH, 1, 8, 8)
        unfolded = record(module, (example,), name="n", fold=False)
        one, other = architecture_of(unfolded), architecture_of(fold_repeats(unfolded))
        assert one.primitive_names == other.primitive_names
        same += one.content_hash == other.content_hash
    assert same >= 0.9 * len(plans)


def test_a_short_training_learns_and_can_go_on(digits, networks, tmp_path: Path) -> None:
    settings = TrainSettings(steps=6, meta_batch=2, image_batch=16, networks=4, validate_every=3)
    validation = networks["train"][:2]
    whole = train(settings, digits, validation)
    assert whole.state.done == 6
    assert [step for step, _ in whole.state.history] == [3, 6]
    checkpoint = tmp_path / "state.safetensors"
    seen = []

    class StopError(Exception):
        pass

    def stop_at_four(now) -> None:
        seen.append(now.step)
        if now.step == 4:
            raise StopError

    with pytest.raises(StopError):
        train(settings, digits, validation, checkpoint=checkpoint, progress=stop_at_four)
    again = train(
        settings, digits, validation, checkpoint=checkpoint, progress=lambda now: seen.append(now.step)
    )
    assert seen == [1, 2, 3, 4, 4, 5, 6]
    assert again.state.history == whole.state.history
    for name, array in whole.weights.arrays.items():
        np.testing.assert_allclose(again.weights.arrays[name], array, atol=1e-6)
    with pytest.raises(ConfigError, match="seed 0.*seed 1"):
        train(TrainSettings(steps=6, seed=1), digits, validation, checkpoint=checkpoint)
    checkpoint.write_bytes(checkpoint.read_bytes()[:200])
    with pytest.raises(NotFittedError, match="damaged"):
        train(settings, digits, validation, checkpoint=checkpoint)


def test_digits_take_the_shape_of_another_data_type(digits) -> None:
    enlarged = load_images("digits", side=32)
    assert (enlarged.shape.channels, enlarged.shape.side, enlarged.shape.classes) == (3, 32, 10)
    np.testing.assert_array_equal(enlarged.test[1], digits.test[1])
    pixels, small = enlarged.test[0], digits.test[0]
    assert (pixels[:, 0] == pixels[:, 2]).all()
    for image, own in zip(pixels[:20, 1, ::4, ::4], small[:20, 0], strict=True):
        assert np.corrcoef(image.ravel(), own.ravel())[0, 1] > 0.999
    with pytest.raises(ConfigError, match="8 to 256 pixels"):
        load_images("digits", side=4)


def test_training_on_one_network_lowers_its_loss(digits) -> None:
    losses = []
    settings = TrainSettings(steps=25, meta_batch=1, image_batch=64, networks=1, validate_every=25)
    train(
        settings, digits, draw_sampled(0, "train", 1, SHAPE), progress=lambda now: losses.append(now.accuracy)
    )
    assert losses[-1] > losses[0] + 0.05


@pytest.mark.parametrize("wrong", [{"minutes": 0.0}, {"steps": 0}])
def test_no_training_without_a_budget(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="To fix"):
        TrainSettings(**wrong)


def test_the_shipped_hypernetwork_beats_chance_on_networks_it_never_saw(digits) -> None:
    trained, untrained = to_parameters(shipped_weights()), to_parameters(initial_weights(0))
    held_out = draw_sampled(31_337, "train", 8, SHAPE)
    found = accuracies(trained, held_out, digits.test)
    assert found.mean() > 3.0 * digits.chance
    assert untrained_accuracies(held_out, SHAPE, digits.test, 0).mean() < 2.0 * digits.chance
    assert accuracies(untrained, held_out, digits.test).mean() < 2.0 * digits.chance


def test_scores_are_as_reported(digits, networks) -> None:
    parameters = to_parameters(initial_weights(0))
    splits = {"validation": networks["train"], "test": networks["train"][:3]}
    (score,) = score_splits(parameters, parameters, splits, digits, 0)
    assert (score.split, score.networks) == ("test", 3)
    assert score.predicted == pytest.approx(score.random_ghn)
    assert 0 <= score.predicted <= score.best <= 1


def test_the_shipped_card_says_how(digits) -> None:
    card = json.loads(shipped_weights().card)
    assert card["command"]
    assert card["steps"] > 0
    by_split = {score["split"]: score for score in card["scores"]}
    assert by_split["test"]["predicted"] > 3 * card["chance"]
    assert by_split["test"]["predicted"] > 2 * by_split["test"]["untrained"]


def test_a_card_is_json(digits, networks) -> None:
    result = train(TrainSettings(steps=1, meta_batch=1, networks=1), digits, networks["train"][:1])
    assert json.loads(card_of(result, digits, [], "x"))["steps"] == 1


def test_images_come_in_three_parts_without_overlap(digits) -> None:
    parts = [digits.train, digits.validation, digits.test]
    assert sum(len(labels) for _, labels in parts) == 1797
    seen = [image.tobytes() for images, _ in parts for image in images]
    assert len(set(seen)) >= 0.99 * len(seen)
    assert abs(float(digits.train[0].mean())) < 1e-3


def test_cifar_files_are_read_and_truncated_ones_refused(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for name in ("data_batch_1.bin", "test_batch.bin"):
        records = rng.integers(0, 256, (40, 3073), dtype=np.uint8)
        records[:, 0] = np.arange(40) % 2
        records.tofile(tmp_path / name)
    images = load_images(str(tmp_path))
    assert images.shape == ImageShape(channels=3, side=32, classes=2)
    assert (len(images.train[1]), len(images.validation[1]), len(images.test[1])) == (34, 6, 40)
    network = sampled(draw_many(0, "train", 1)[0], images.shape)
    assert accuracies(to_parameters(initial_weights(0, 2)), [network], images.test).shape == (1,)
    with (tmp_path / "test_batch.bin").open("ab") as file:
        file.write(b"x")
    with pytest.raises(ConfigError, match="truncated"):
        load_images(str(tmp_path))


def test_folders_of_images_are_read_and_wrong_ones_refused(tmp_path: Path) -> None:
    from PIL import Image

    rng = np.random.default_rng(0)
    for name in ("cats", "dogs"):
        (tmp_path / name).mkdir()
        for number in range(12):
            pixels = rng.integers(0, 256, (16, 16, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / name / f"{number}.png")
    images = load_images(str(tmp_path))
    assert images.shape == ImageShape(channels=3, side=32, classes=2)
    assert len(images.test[1]) == 6
    (tmp_path / "cats" / "0.png").write_bytes(b"broken")
    with pytest.raises(ConfigError, match=r"0\.png is not a readable image"):
        load_images(str(tmp_path))
    (tmp_path / "empty" / "class").mkdir(parents=True)
    with pytest.raises(ConfigError, match="no images"):
        load_images(str(tmp_path / "empty"))
    with pytest.raises(ConfigError, match="no folder"):
        load_images(str(tmp_path / "nowhere"))
