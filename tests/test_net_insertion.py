"""Rules and implicit splits: names against recorded nets of the original, each branch by hand."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import numpy as np
import pytest
from google.protobuf import text_format

from caffe.errors import NetError
from caffe.net_insertion import duplicate_top_error, filter_net, insert_splits
from caffe.proto import caffe_pb2 as pb

GOLDEN = Path(__file__).parent / "golden"
RECORDS = sorted((GOLDEN / "nets").glob("*/record*.npz"))


def net(text: str) -> pb.NetParameter:
    return text_format.Parse(text, pb.NetParameter())


def state(text: str) -> pb.NetState:
    return text_format.Parse(text, pb.NetState())


def names(param: pb.NetParameter) -> list[str]:
    return [layer.name for layer in param.layer]


# ---------------------------------------------------------------- recorded nets


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_layers_types_and_blobs_of_recorded_nets(path: Path) -> None:
    meta = json.loads(str(np.load(path)["meta"]))
    param = net((path.parent / "net.prototxt").read_text())
    where = pb.NetState(phase=meta["phase"], level=meta["level"], stage=meta["stages"])
    result = insert_splits(filter_net(param, where))
    assert names(result) == meta["info"]["layers"]
    assert [layer.type for layer in result.layer] == meta["info"]["types"]
    blobs = dict.fromkeys(top for layer in result.layer for top in layer.top)
    assert list(blobs) == meta["info"]["blobs"]


def test_recorded_names_of_the_python_interface() -> None:
    recorded = json.loads((GOLDEN / "api" / "api.json").read_text())["scenarios"]["names"]
    layers = [
        pb.LayerParameter(
            name=name,
            bottom=[blob.split("_pool_0_split")[0] for blob in recorded["bottoms"][name]],
            top=recorded["tops"][name],
        )
        for name, type in recorded["layer_dict"]
        if type != "Split"
    ]
    result = insert_splits(pb.NetParameter(layer=layers))
    assert names(result) == recorded["layer_names"]
    assert {layer.name: list(layer.bottom) for layer in result.layer} == recorded["bottoms"]
    assert {layer.name: list(layer.top) for layer in result.layer} == recorded["tops"]


def test_log_of_a_recorded_run(caplog: pytest.LogCaptureFixture) -> None:
    log = (GOLDEN / "solvers" / "logs" / "train_basic.log").read_text()
    param = net((GOLDEN / "solvers" / "net.prototxt").read_text())
    with caplog.at_level(logging.INFO, "caffe"):
        filter_net(param, state("phase: TRAIN"))
        filter_net(param, state("phase: TEST"))
    recorded = [line.split("] ")[1] for line in log.splitlines() if "The NetState" in line]
    assert caplog.messages == recorded


# ---------------------------------------------------------------- rules


@pytest.mark.parametrize(
    ("rule", "where", "met"),
    [
        ("", "phase: TRAIN level: 3", True),
        ("phase: TRAIN", "phase: TRAIN", True),
        ("phase: TRAIN", "phase: TEST", False),
        ("phase: TEST", "", True),  # the schema's default phase
        ("min_level: 1", "level: 1", True),
        ("min_level: 1", "level: 0", False),
        ("min_level: -1", "", True),
        ("min_level: 0", "level: -1", False),
        ("max_level: 1", "level: 1", True),
        ("max_level: 1", "level: 2", False),
        ("min_level: 1 max_level: 2", "level: 2", True),
        ("min_level: 1 max_level: 2", "level: 3", False),
        ('stage: "a"', 'stage: "a" stage: "b"', True),
        ('stage: "a" stage: "b"', 'stage: "b" stage: "a"', True),
        ('stage: "a" stage: "b"', 'stage: "a"', False),
        ('stage: "a"', "", False),
        ('not_stage: "a"', "", True),
        ('not_stage: "a"', 'stage: "b"', True),
        ('not_stage: "a" not_stage: "b"', 'stage: "b"', False),
        ('stage: "a" not_stage: "b"', 'stage: "a" stage: "b"', False),
        ('phase: TRAIN stage: "a"', 'phase: TRAIN stage: "a"', True),
        ('phase: TRAIN stage: "a"', 'phase: TEST stage: "a"', False),
    ],
)
def test_rule(rule: str, where: str, met: bool) -> None:
    for kind, stays in (("include", met), ("exclude", not met)):
        param = net(f'layer {{ name: "n" {kind} {{ {rule} }} }} state {{ {where} }}')
        assert names(filter_net(param)) == (["n"] if stays else [])


def test_one_met_rule_of_several_decides() -> None:
    for kind, kept in (("include", ["n"]), ("exclude", [])):
        param = net(f'layer {{ name: "n" {kind} {{ phase: TRAIN }} {kind} {{ min_level: 1 }} }}')
        assert names(filter_net(param, state("phase: TEST level: 1"))) == kept
        assert names(filter_net(param, state("phase: TRAIN"))) == kept
        assert names(filter_net(param, state("phase: TEST"))) == ([] if kept else ["n"])


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("phase: TRAIN", "phase (1) differed from the phase (0) specified by a rule in layer n"),
        ("min_level: 2", "level (1) is below the min_level (2) specified by a rule in layer n"),
        ("max_level: 0", "level (1) is above the max_level (0) specified by a rule in layer n"),
        ('stage: "s" stage: "b"', "did not contain stage 'b' specified by a rule in layer n"),
        ('not_stage: "a" not_stage: "s"', "contained a not_stage 's' specified by a rule in layer n"),
    ],
)
def test_rule_log(rule: str, message: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "caffe"):
        filter_net(
            net(f'layer {{ name: "n" include {{ {rule} }} }}'), state('phase: TEST level: 1 stage: "s"')
        )
    assert caplog.messages == [f"The NetState {message}"]


def test_both_kinds_of_rules_are_refused() -> None:
    param = net('layer { name: "n" include { phase: TRAIN } exclude { phase: TEST } }')
    with pytest.raises(NetError, match="layer 'n': Specify either include rules or exclude rules; not both"):
        filter_net(param)


def test_filtering_copies_all_else_and_leaves_its_input_alone() -> None:
    text = 'name: "net" debug_info: true state { level: 1 } layer { name: "n" blobs { data: 1 } include { } }'
    param = net(text)
    assert filter_net(param) == net(text)
    assert filter_net(param, state('stage: "s"')).state == state('stage: "s"')
    assert param == net(text)


# ---------------------------------------------------------------- splits


def test_top_with_one_use_or_none_is_not_split() -> None:
    param = net(
        'layer { name: "d" top: "a" top: "unused" } layer { name: "e" bottom: "a" top: "b" loss_weight: 2 } '
    )
    assert insert_splits(param) == param


def test_names_order_and_top_index() -> None:
    result = insert_splits(
        net(
            'name: "net" layer { name: "d" top: "x" top: "y" } layer { name: "p" bottom: "y" top: "p" } '
            'layer { name: "q" bottom: "y" bottom: "y" bottom: "x" }'
        )
    )
    assert result == net(
        'name: "net" layer { name: "d" top: "x" top: "y" } '
        'layer { name: "y_d_1_split" type: "Split" bottom: "y" '
        'top: "y_d_1_split_0" top: "y_d_1_split_1" top: "y_d_1_split_2" } '
        'layer { name: "p" bottom: "y_d_1_split_0" top: "p" } '
        'layer { name: "q" bottom: "y_d_1_split_1" bottom: "y_d_1_split_2" bottom: "x" }'
    )


def test_both_tops_of_a_layer_are_split_in_order() -> None:
    result = insert_splits(
        net('layer { name: "d" top: "x" top: "y" } layer { name: "p" bottom: ["y", "x", "x", "y"] }')
    )
    assert names(result) == ["d", "x_d_0_split", "y_d_1_split", "p"]
    assert result.layer[3].bottom == ["y_d_1_split_0", "x_d_0_split_0", "x_d_0_split_1", "y_d_1_split_1"]


def test_chain_in_place_splits_behind_its_last_layer() -> None:
    result = insert_splits(
        net(
            'layer { name: "c" top: "x" } layer { name: "bn" bottom: "x" top: "x" } '
            'layer { name: "r" bottom: "x" top: "x" } layer { name: "p" bottom: "x" top: "p" } '
            'layer { name: "q" bottom: "x" top: "q" }'
        )
    )
    assert names(result) == ["c", "bn", "r", "x_r_0_split", "p", "q"]
    assert [list(layer.bottom) for layer in result.layer[1:3]] == [["x"], ["x"]]
    assert [list(layer.bottom) for layer in result.layer[4:]] == [["x_r_0_split_0"], ["x_r_0_split_1"]]


def test_reader_before_the_layer_in_place() -> None:
    """The layer in place no longer reads what it writes: the net will refuse the second maker of x."""
    result = insert_splits(
        net(
            'layer { name: "c" top: "x" } layer { name: "p" bottom: "x" top: "p" } '
            'layer { name: "r" bottom: "x" top: "x" } layer { name: "q" bottom: "x" }'
        )
    )
    assert names(result) == ["c", "x_c_0_split", "p", "r", "q"]
    assert (result.layer[3].bottom, result.layer[3].top) == (["x_c_0_split_1"], ["x"])
    assert result.layer[4].bottom == ["x"]


def test_loss_weight_moves_to_the_first_split_top() -> None:
    result = insert_splits(
        net(
            'layer { name: "l" type: "EuclideanLoss" top: "e" loss_weight: 0.5 } '
            'layer { name: "p" bottom: "e" top: "p" loss_weight: 0.25 } layer { name: "q" bottom: "e" }'
        )
    )
    assert result == net(
        'layer { name: "l" type: "EuclideanLoss" top: "e" loss_weight: 0 } '
        'layer { name: "e_l_0_split" type: "Split" bottom: "e" '
        'top: ["e_l_0_split_0", "e_l_0_split_1", "e_l_0_split_2"] loss_weight: [0.5, 0, 0] } '
        'layer { name: "p" bottom: "e_l_0_split_1" top: "p" loss_weight: 0.25 } '
        'layer { name: "q" bottom: "e_l_0_split_2" }'
    )


def test_loss_weight_of_one_top_leaves_those_of_the_others() -> None:
    result = insert_splits(
        net(
            'layer { name: "l" top: ["a", "b", "c"] loss_weight: [1, 2, 0] } '
            'layer { name: "p" bottom: ["b", "c"] }'
        )
    )
    assert result.layer[0].loss_weight == [1, 0, 0]
    assert (result.layer[1].name, result.layer[1].loss_weight) == ("b_l_1_split", [2, 0])
    assert result.layer[2].bottom == ["b_l_1_split_1", "c"]


def test_zero_loss_weight_is_no_use() -> None:
    param = net('layer { name: "l" top: "a" loss_weight: 0 } layer { name: "p" bottom: "a" }')
    assert insert_splits(param) == param


def test_more_loss_weights_than_tops_are_left_to_the_layer() -> None:
    """The layer itself refuses the count, as recorded in rejects/loss_weight_count."""
    param = net('layer { name: "l" top: "a" loss_weight: 0 loss_weight: 3 }')
    assert insert_splits(param) == param


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_split_again_nothing_changes(path: Path) -> None:
    meta = json.loads(str(np.load(path)["meta"]))
    param = net((path.parent / "net.prototxt").read_text())
    where = pb.NetState(phase=meta["phase"], level=meta["level"], stage=meta["stages"])
    param = filter_net(param, where)
    before = param.SerializeToString(deterministic=True)
    once = insert_splits(param)
    assert param.SerializeToString(deterministic=True) == before
    assert insert_splits(once) == once


def test_own_split_layer_is_kept() -> None:
    param = net(
        'layer { name: "d" top: "x" } layer { name: "s" type: "Split" bottom: "x" top: "x0" top: "x1" } '
        'layer { name: "p" bottom: "x0" } layer { name: "q" bottom: "x1" }'
    )
    assert insert_splits(param) == param


# ---------------------------------------------------------------- refusals


def refusal(text: str) -> str:
    with pytest.raises(NetError) as caught:
        insert_splits(net(text))
    return str(caught.value)


def test_unknown_bottom_in_the_original_words() -> None:
    recorded = json.loads((GOLDEN / "rejects" / "rejects.json").read_text())["unknown_bottom"]["message"][0]
    text = refusal((GOLDEN / "rejects" / "unknown_bottom.prototxt").read_text())
    assert text.startswith(recorded.split("] ")[1])
    assert text.endswith("Blobs known above this layer: b0.")


def test_unknown_bottom_names_the_closest() -> None:
    text = refusal('layer { name: "d" top: "conv1" } layer { name: "r" bottom: "conv1" bottom: "Conv_1" }')
    assert "Unknown bottom blob 'Conv_1' (layer 'r', bottom index 1); did you mean 'conv1'?" in text


@pytest.mark.parametrize("type", ["Accuracy", "SoftmaxWithLoss", "Silence"])
def test_unknown_label_in_a_deploy_net(type: str) -> None:
    text = refusal(f'layer {{ name: "d" top: "data" }} layer {{ name: "n" type: "{type}" bottom: "label" }}')
    assert "remove layer 'n', or keep it for training with include { phase: TRAIN }" in text


def test_bottom_that_a_layer_below_makes() -> None:
    text = refusal('layer { name: "r" bottom: "x" } layer { name: "d" top: "x" }')
    assert "layer 'd' makes it, but stands below: move 'd' above 'r'" in text
    assert text.endswith("Blobs known above this layer: none.")


def test_own_top_is_no_bottom() -> None:
    assert "Unknown bottom blob 'x' (layer 'r', bottom index 0)" in refusal(
        'layer { name: "r" bottom: "x" top: "x" }'
    )


def test_long_nets_list_the_nearest_blobs_only() -> None:
    layers = " ".join(f'layer {{ name: "l{i}" top: "blob{i:02}" }}' for i in range(25))
    text = refusal(f'{layers} layer {{ name: "r" bottom: "zzz" }}')
    assert "5 more, then blob05, blob06," in text
    assert "blob04" not in text


def test_duplicate_top() -> None:
    recorded = json.loads((GOLDEN / "rejects" / "rejects.json").read_text())["duplicate_top"]["message"][0]
    error = duplicate_top_error("t0", "first", "second")
    assert isinstance(error, NetError)
    assert str(error).startswith(recorded.split("] ")[1])
    assert "'first' and 'second'" in str(error)
    assert "include { phase: TRAIN }" in str(error)
