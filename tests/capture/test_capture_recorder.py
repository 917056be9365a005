"""The recorder: formulas, edges, what is kept, the batch symbol, folding."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from precision_time.capture.recorder import record
from precision_time.errors import CaptureError
from precision_time.workload.graph import OpClass, graph_from_json, graph_to_json


def capture(model, *shapes, batch=101, **options):
    inputs = tuple(torch.empty(*shape, device="meta") for shape in shapes)
    return record(model, inputs, name="model", batch=batch, **options)


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.up, self.down = (
            nn.LayerNorm(width),
            nn.Linear(width, 4 * width),
            nn.Linear(4 * width, width),
        )

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


def test_linear_counts_by_hand():
    graph = capture(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)), (101, 8))
    first, relu, second = graph.nodes
    assert (first.m, first.n, first.k, first.count) == (1, 16, 8, 1)
    assert (first.in_elems, first.out_elems, first.weight_elems, first.param_elems) == (8, 16, 144, 144)
    assert (first.input_grad, first.weight_grad, second.input_grad) == (False, True, True)
    assert [node.inputs for node in graph.nodes] == [(-1,), (0,), (1,)]
    # the input of the first layer, and the output of the activation, which is the input of the second
    assert [first.saved_elems, relu.saved_elems, second.saved_elems] == [8, 16, 0]
    assert graph.params == 144 + 68
    assert graph.forward_flops == 2 * (8 * 16 + 16 * 4)
    assert graph.input_bytes_per_sample == 32


@pytest.mark.parametrize(
    ("layer", "shape", "op_class", "macs"),
    [
        (nn.Conv2d(8, 16, 3, padding=1), (101, 8, 10, 10), OpClass.CONV, 100 * 16 * 8 * 9),
        (nn.Conv2d(8, 16, 3, stride=2), (101, 8, 11, 11), OpClass.CONV, 25 * 16 * 8 * 9),
        (nn.Conv2d(8, 16, 3, groups=2), (101, 8, 10, 10), OpClass.GROUPED_CONV, 64 * 16 * 4 * 9),
        (nn.Conv2d(8, 8, 3, groups=8), (101, 8, 10, 10), OpClass.DEPTHWISE_CONV, 64 * 8 * 9),
        (nn.Conv1d(8, 16, 5), (101, 8, 20), OpClass.CONV, 16 * 16 * 8 * 5),
        (nn.Conv3d(2, 4, 2), (101, 2, 5, 5, 5), OpClass.CONV, 64 * 4 * 2 * 8),
        (nn.ConvTranspose2d(8, 16, 2, stride=2), (101, 8, 10, 10), OpClass.CONV, 100 * 8 * 16 * 4),
    ],
)
def test_convolutions_are_implicit_gemms(layer, shape, op_class, macs):
    (node,) = capture(layer, shape).nodes
    assert node.op_class is op_class
    assert node.flops == 2 * macs
    assert node.param_elems == sum(p.numel() for p in layer.parameters())
    assert not node.batch_in_count


def test_attention_stays_one_operator():
    def attend(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, dropout_p=0.1, is_causal=True)

    (node,) = capture(attend, (101, 4, 10, 16), (101, 4, 12, 16), (101, 4, 12, 16)).nodes
    assert node.op_class is OpClass.ATTENTION
    assert (node.m, node.n, node.k, node.count) == (10, 12, 16, 4)
    assert node.batch_in_count and node.causal
    assert node.flops == 4 * 10 * 12 * 16 * 4


def test_attention_layer_uses_the_fused_operator():
    layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
    graph = capture(layer, (101, 8, 64))
    assert [n.op_class for n in graph.nodes].count(OpClass.ATTENTION) == 1
    assert not any(n.op_class is OpClass.BMM for n in graph.nodes)
    assert (
        graph.params == sum(n.param_elems for n in graph.nodes) == sum(p.numel() for p in layer.parameters())
    )
    linear = 8 * (64 * 192 + 64 * 64 + 2 * 64 * 128)
    assert graph.forward_flops == 2 * linear + 4 * 8 * 8 * 64


def test_weights_asked_for_means_attention_written_out():
    layer = nn.MultiheadAttention(64, 4, batch_first=True)
    graph = record(lambda x: layer(x, x, x), (torch.empty(101, 8, 64, device="meta"),), name="written out")
    assert [n.op_class for n in graph.nodes].count(OpClass.BMM) == 2


@pytest.mark.parametrize(("kind", "gates"), [(nn.LSTM, 4), (nn.GRU, 3), (nn.RNN, 1)])
def test_recurrent_layers(kind, gates):
    layer = kind(8, 16, num_layers=2, bidirectional=True)
    graph = capture(layer, (5, 101, 8))
    cells = [n for n in graph.nodes if n.op_class is OpClass.RNN]
    assert len(cells) == 4
    assert sum(n.repeat for n in cells) == 4
    assert [n.sequential_steps for n in cells] == [5] * 4
    assert [(n.n, n.k) for n in cells] == [(gates * 16, 24)] * 2 + [(gates * 16, 48)] * 2
    assert (
        graph.params == sum(n.param_elems for n in graph.nodes) == sum(p.numel() for p in layer.parameters())
    )


def test_batch_is_a_symbol():
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(72, 5)
    )
    graphs = [graph_to_json(capture(model, (batch, 3, 8, 8), batch=batch)) for batch in (101, 103)]
    assert graphs[0] == graphs[1]


def test_sizes_that_happen_to_be_the_batch_do_not_grow_with_it():
    (conv, norm) = capture(nn.Sequential(nn.Conv2d(3, 101, 1), nn.BatchNorm2d(101)), (101, 3, 8, 8)).nodes
    assert conv.out_elems == norm.out_elems == 101 * 64
    assert norm.weight_elems == 202


def test_fixed_values_expanded_over_the_batch_grow_with_it():
    class Tokens(nn.Module):
        def __init__(self):
            super().__init__()
            self.token = nn.Parameter(torch.zeros(1, 1, 8))

        def forward(self, x):
            return torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.token.repeat(
                x.shape[0], 1, 1
            )

    cat, repeat, add = capture(Tokens(), (101, 4, 8)).nodes
    assert (cat.in_elems, cat.weight_elems, cat.out_elems, cat.param_elems) == (32, 8, 40, 8)
    assert (repeat.out_elems, repeat.scales_with_batch, repeat.param_elems) == (8, True, 0)
    assert add.inputs == (0, 1)


def test_work_on_weights_alone_is_fixed():
    class Standardized(nn.Conv2d):
        def forward(self, x):
            weight = (self.weight - self.weight.mean((1, 2, 3), keepdim=True)) / 3.0
            return F.conv2d(x, weight)

    graph = capture(Standardized(4, 8, 3, bias=False), (101, 4, 6, 6))
    *fixed, conv = graph.nodes
    assert not any(n.scales_with_batch for n in fixed)
    assert conv.scales_with_batch and conv.weight_grad and conv.param_elems == 0
    assert sum(n.param_elems for n in graph.nodes) == graph.params == 4 * 8 * 9


def test_shared_parameters_count_once():
    layer = nn.Linear(8, 8)
    graph = capture(nn.Sequential(layer, layer), (101, 8), fold=False)
    assert [n.param_elems for n in graph.nodes] == [72, 0]
    assert graph.params == 72 and graph.param_tensors == 2


def test_frozen_layers_need_no_gradient_and_keep_nothing():
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))
    model[0].requires_grad_(False)
    first, relu, last = capture(model, (101, 8)).nodes
    assert (first.weight_grad, first.input_grad, first.param_elems, first.saved_elems) == (False, False, 0, 0)
    assert relu.saved_elems == 0
    assert (last.weight_grad, last.input_grad, last.saved_elems) == (True, False, 8)


def test_views_are_free_and_copies_are_moves():
    graph = capture(lambda x: x.transpose(1, 2).reshape(101, -1).view(101, 4, 5), (101, 5, 4))
    (copy,) = graph.nodes
    assert copy.op_class is OpClass.MOVE and copy.out_elems == 20


def test_dropout_keeps_a_mask():
    (node,) = capture(lambda x: F.dropout(x * 1.0, 0.1), (101, 40)).nodes[1:]
    assert node.op == "native_dropout"
    (linear, dropout) = capture(nn.Sequential(nn.Linear(4, 40), nn.Dropout(0.1)), (101, 4)).nodes
    assert (linear.saved_elems, dropout.saved_elems) == (4, 20)


def test_loss_is_part_of_the_forward():
    class WithLoss(nn.Linear):
        def forward(self, x, target):
            return F.cross_entropy(super().forward(x), target)

    inputs = (torch.empty(101, 8, device="meta"), torch.empty(101, dtype=torch.long, device="meta"))
    graph = record(WithLoss(8, 10), inputs, name="loss")
    assert [n.op for n in graph.nodes] == ["addmm", "_log_softmax", "nll_loss_forward"]
    assert graph.nodes[1].saved_elems == 10


def test_unknown_operators_are_counted_not_refused():
    graph = capture(torch.linalg.inv, (101, 4, 4))
    assert sum(graph.unpriced.values()) == 1
    assert graph.nodes[0].op_class is OpClass.UNKNOWN
    assert graph.nodes[0].in_elems == 16


def test_values_of_constants_are_known():
    def looks(x):
        positions = torch.arange(6)[None].expand(2, -1)
        return x * 2.0 if (positions.diff() != 1).any() else x * 3.0 + 1.0

    assert [n.op for n in capture(looks, (101, 6)).nodes] == ["mul", "add"]


def test_values_of_inputs_are_not():
    with pytest.raises(CaptureError, match=r"_local_scalar_dense.*\.item\(\)") as caught:
        capture(lambda x: x * x.sum().item(), (101, 6))
    assert "To fix" in str(caught.value)


def test_inputs_without_the_batch_are_refused():
    with pytest.raises(CaptureError, match="multiple of the capture batch 101"):
        capture(nn.Linear(8, 8), (7, 8))


def test_the_users_module_is_left_alone():
    model = nn.Linear(8, 8)
    before = model.weight.detach().clone()
    capture(model, (101, 8))
    assert model.weight.device.type == "cpu"
    assert torch.equal(model.weight, before)


def test_folding_is_exact():
    model = nn.Sequential(nn.Linear(6, 16), *(Residual(16) for _ in range(7)), nn.Linear(16, 3))
    unfolded, folded = capture(model, (101, 5, 6), fold=False), capture(model, (101, 5, 6))
    assert len(folded.nodes) == 2 + 5
    assert {n.repeat for n in folded.nodes} == {1, 7}
    assert folded.forward_flops == unfolded.forward_flops
    assert folded.saved_elems == unfolded.saved_elems
    for column in ("param_elems", "param_tensors", "in_elems", "out_elems", "weight_elems"):
        totals = [sum(getattr(n, column) * n.repeat for n in g.nodes) for g in (unfolded, folded)]
        assert totals[0] == totals[1], column
    assert sum(n.repeat for n in folded.nodes) == len(unfolded.nodes)
    assert graph_from_json(graph_to_json(folded)).forward_flops == folded.forward_flops


def test_layers_that_differ_are_not_folded():
    model = nn.Sequential(Residual(16), nn.Linear(16, 8), Residual(8), nn.Linear(8, 3))
    graph = capture(model, (101, 5, 16))
    assert [n.repeat for n in graph.nodes] == [1] * 12
