"""Old formats: every recorded case of the original's upgrade tools, then each branch on its own.

Expectations: tests/golden/proto (recorded), the schema itself for completeness of the tables, and
hand-written results for what no recording covers.
"""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path

import pytest
from google.protobuf import text_format

from caffe import upgrade_proto, upgrade_v0
from caffe.errors import ProtoError
from caffe.proto import caffe_pb2 as pb
from caffe.upgrade_proto import (
    complete_snapshot_prefix,
    net_needs_upgrade,
    read_net_upgraded,
    read_solver_upgraded,
    solver_needs_upgrade,
    upgrade_net,
    upgrade_solver,
    upgrade_solver_type,
)

PROTO = Path(__file__).parent / "golden" / "proto"
CODES = json.loads((PROTO / "returncodes.json").read_text())
NETS = sorted(case for case, codes in CODES.items() if "binary_rc" in codes)
SOLVERS = sorted(set(CODES) - set(NETS))
MODELS = sorted(path.name.split(".")[0] for path in PROTO.glob("model_*.upgraded.caffemodel"))


def net(text: str) -> pb.NetParameter:
    return text_format.Parse(text, pb.NetParameter())


def solver(text: str) -> pb.SolverParameter:
    return text_format.Parse(text, pb.SolverParameter())


def upgraded(text: str) -> pb.NetParameter:
    param = net(text)
    assert upgrade_net(param)
    return param


def v0(type: str, fields: str = "", wiring: str = 'bottom: "data" top: "y"') -> pb.NetParameter:
    """One V0 layer that reads an input without shape, upgraded."""
    return upgraded(f'input: "data" layers {{ layer {{ name: "n" type: "{type}" {fields} }} {wiring} }}')


def recorded_log(case: str, tool: str) -> list[tuple[str, str]]:
    """(severity, message) that the original's upgrade_proto.cpp logged for this case."""
    section = (PROTO / f"{case}.log").read_text().split("$ ")
    text = next(part for part in section if part.startswith(tool))
    return re.findall(r"^([IWE])\d{4} .*? upgrade_proto\.cpp:\d+\] (.*)$", text, re.MULTILINE)


def own_log(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(record.levelname[0], record.getMessage()) for record in caplog.records]


# ---------------------------------------------------------------- recorded cases


@pytest.mark.parametrize("case", NETS)
def test_net_text(case: str, caplog: pytest.LogCaptureFixture) -> None:
    name = f"{case}.in.prototxt"
    param = net((PROTO / name).read_text())
    expected = PROTO / f"{case}.out.prototxt"
    if CODES[case]["text_rc"]:
        with pytest.raises(ProtoError, match=re.escape(name)):
            upgrade_net(param, name)
        return
    log = recorded_log(case, "upgrade_net_proto_text")
    assert net_needs_upgrade(param) == bool(log)
    with caplog.at_level(logging.INFO, "caffe"):
        assert upgrade_net(param, name)
    assert param == net(expected.read_text())
    left_behind = [line for line in own_log(caplog) if "left behind" in line[1]]
    assert [line for line in own_log(caplog) if line not in left_behind] == log
    assert bool(left_behind) == (case == "v0_phase_none")  # the one with an include beside a V0 layer


@pytest.mark.parametrize("case", NETS)
def test_net_binary(case: str) -> None:
    param = pb.NetParameter.FromString((PROTO / f"{case}.in.bin").read_bytes())
    if CODES[case]["binary_rc"]:
        with pytest.raises(ProtoError):
            upgrade_net(param)
        return
    upgrade_net(param)
    assert param == pb.NetParameter.FromString((PROTO / f"{case}.out.bin").read_bytes())


@pytest.mark.parametrize("case", MODELS)
def test_weights_file(case: str) -> None:
    param = pb.NetParameter.FromString((PROTO / f"{case}.caffemodel").read_bytes())
    assert upgrade_net(param)
    assert param == pb.NetParameter.FromString((PROTO / f"{case}.upgraded.caffemodel").read_bytes())


@pytest.mark.parametrize("case", SOLVERS)
def test_solver(case: str, caplog: pytest.LogCaptureFixture) -> None:
    name = f"{case}.in.prototxt"
    param = solver((PROTO / name).read_text())
    if CODES[case]["text_rc"]:
        with pytest.raises(ProtoError, match="solver_type field .* cannot be both specified"):
            upgrade_solver_type(param, name)
        return
    log = recorded_log(case, "upgrade_solver_proto_text")
    assert solver_needs_upgrade(param) == bool(log)
    with caplog.at_level(logging.INFO, "caffe"):
        assert upgrade_solver_type(param, name) == bool(log)
    assert own_log(caplog) == log
    assert param == solver((PROTO / f"{case}.out.prototxt").read_text())


def test_recorded_cases_are_all_there() -> None:
    assert (len(NETS), len(SOLVERS), len(MODELS)) == (21, 10, 7)


# ---------------------------------------------------------------- the tables against the schema


def test_every_v1_type_has_a_name() -> None:
    assert set(upgrade_proto._V1_TYPES) == set(pb.V1LayerParameter.LayerType.keys())


def test_every_v1_field_has_a_place() -> None:
    current = pb.LayerParameter.DESCRIPTOR.fields_by_name
    old, new = pb.V1LayerParameter(), pb.LayerParameter()
    for field in pb.V1LayerParameter.DESCRIPTOR.fields:
        if field.name == "layer" or field.name == "type" or field.name in upgrade_proto._V1_PARAM_SPEC:
            continue
        assert field.name in current
        assert current[field.name].message_type == field.message_type
        assert type(getattr(old, field.name)) is type(getattr(new, field.name))


def test_every_v0_field_is_known() -> None:
    known = {
        *upgrade_v0._PLAIN_FIELDS,
        *upgrade_v0._FIELDS,
        *upgrade_v0._TRANSFORM_FIELDS,
        *upgrade_v0._UNUSED_FIELDS,
        *("type", "hdf5_output_param"),
    }
    assert known == set(pb.V0LayerParameter.DESCRIPTOR.fields_by_name)


def test_every_v1_layer_is_upgraded_with_all_that_it_holds() -> None:
    """Fill every field of a V1 layer; all of it must be found again under the current names."""
    fields = pb.V1LayerParameter.DESCRIPTOR.fields
    params = [f.name for f in fields if f.message_type and f.name.endswith("_param") and f.name != "layer"]
    text = " ".join(f"{name} {{ }}" for name in params)
    layer = upgraded(
        f'layers {{ name: "n" bottom: "a" bottom: "b" top: "c" type: RELU {text} loss_weight: [2, 3] '
        'include { phase: TEST } exclude { stage: "s" } param: "w" blobs_lr: 4 blobs_lr: 5 weight_decay: 6 '
        "blob_share_mode: PERMISSIVE blobs { data: 7 } blobs { num: 1 diff: 8 } }"
    ).layer[0]
    assert layer == text_format.Parse(
        f'name: "n" bottom: "a" bottom: "b" top: "c" type: "ReLU" {text} loss_weight: 2 loss_weight: 3 '
        'include { phase: TEST } exclude { stage: "s" } '
        'param { name: "w" lr_mult: 4 decay_mult: 6 share_mode: PERMISSIVE } param { lr_mult: 5 } '
        "blobs { data: 7 } blobs { num: 1 diff: 8 }",
        pb.LayerParameter(),
    )


# ---------------------------------------------------------------- V0


@pytest.mark.parametrize(
    ("type", "fields", "current_type", "expected"),
    [
        ("conv", "pad: 1 kernelsize: 3 stride: 2 group: 4", "Convolution",
         "convolution_param { pad: 1 kernel_size: 3 stride: 2 group: 4 }"),
        ("conv", "weight_filler { } biasterm: false", "Convolution",
         "convolution_param { weight_filler { } bias_term: false }"),
        ("pool", "pad: 1 kernelsize: 3 stride: 2 pool: STOCHASTIC", "Pooling",
         "pooling_param { pad: 1 kernel_size: 3 stride: 2 pool: STOCHASTIC }"),
        ("data", 'source: "db" scale: 2 mirror: false', "Data",
         'data_param { source: "db" } transform_param { scale: 2 mirror: false }'),
        ("relu", "scale: 2 cropsize: 3", "ReLU", "transform_param { scale: 2 crop_size: 3 }"),
        ("hdf5_output", 'hdf5_output_param { file_name: "f" }', "HDF5Output",
         'hdf5_output_param { file_name: "f" }'),
        ("hdf5_output", "hdf5_output_param { }", "HDF5Output", "hdf5_output_param { }"),
        ("hdf5_data", 'source: "s" batchsize: 2', "HDF5Data",
         'hdf5_data_param { source: "s" batch_size: 2 }'),
        ("im2col", "", "Im2col", ""),
        ("relu", "new_num: 1 new_channels: 2", "ReLU", ""),
        ("relu", "blobs { data: 1 } blobs_lr: 0 weight_decay: 2", "ReLU",
         "blobs { data: 1 } param { lr_mult: 0 decay_mult: 2 }"),
    ],
)  # fmt: skip
def test_v0_layer(type: str, fields: str, current_type: str, expected: str) -> None:
    layer = v0(type, fields).layer[0]
    assert layer == text_format.Parse(
        f'name: "n" type: "{current_type}" bottom: "data" top: "y" {expected}', pb.LayerParameter()
    )


@pytest.mark.parametrize(
    ("type", "fields"),
    [
        ("relu", "num_output: 3"),
        ("pool", "group: 2"),
        ("innerproduct", "kernelsize: 1"),
        ("hdf5_data", "rand_skip: 1"),
        ("relu", 'hdf5_output_param { file_name: "f" }'),
        ("data", "shuffle_images: true"),
    ],
)
def test_v0_field_of_another_type_is_left_behind_and_reported(
    type: str, fields: str, caplog: pytest.LogCaptureFixture
) -> None:
    param = net(
        f'input: "data" layers {{ layer {{ name: "n" type: "{type}" {fields} }} bottom: "data" top: "y" }}'
    )
    with caplog.at_level(logging.ERROR, "caffe"):
        assert upgrade_net(param) is False
    field = re.split(r"[: ]", fields)[0]
    assert own_log(caplog)[0] == ("E", f"Unknown parameter {field} for layer type {type}")
    assert "continuing anyway" in own_log(caplog)[1][1]
    assert param == v0(type)  # all the rest is there


def test_v0_unknown_type_names_the_closest() -> None:
    with pytest.raises(ProtoError, match=r"old.prototxt: Unknown layer name: convv \(layer 'n'\).*'conv'"):
        upgrade_net(net('layers { layer { name: "n" type: "convv" } top: "y" }'), "old.prototxt")


def test_v0_layer_without_type_or_name_stays_so() -> None:
    assert upgraded('layers { layer { } top: "y" }') == net('layer { top: "y" }')


def test_v0_net_keeps_name_inputs_and_force_backward_only(caplog: pytest.LogCaptureFixture) -> None:
    param = upgraded(
        'name: "n" input: "a" input_dim: [1, 2, 3, 4] input_shape { dim: 9 } force_backward: true '
        'debug_info: true state { level: 1 } layer { name: "lost" } '
        'layers { layer { name: "r" type: "relu" } bottom: "a" top: "b" loss_weight: 1 }'
    )
    assert param == net(
        'name: "n" force_backward: true '
        'layer { name: "input" type: "Input" top: "a" input_param { shape { dim: [1, 2, 3, 4] } } } '
        'layer { name: "r" type: "ReLU" bottom: "a" top: "b" }'
    )
    for word in ("input_shape", "state", "debug_info", "layer", "loss_weight"):
        assert any(f"'{word}'" in message and "left behind" in message for _, message in own_log(caplog))


PADDED = 'layers { layer { name: "p" type: "padding" pad: 2 } bottom: "data" top: "pd" } '


def padded(layers: str, padding: str = PADDED) -> pb.NetParameter:
    return upgraded(f'input: "data" input: "more" {padding} {layers}')


def test_padding_goes_to_every_reader_and_overrules_its_pad() -> None:
    param = padded(
        'layers { layer { name: "c" type: "conv" pad: 1 } bottom: "pd" top: "c" } '
        'layers { layer { name: "q" type: "pool" } bottom: "pd" top: "q" }'
    )
    assert param == net(
        'layer { name: "c" type: "Convolution" bottom: "data" top: "c" convolution_param { pad: 2 } } '
        'layer { name: "q" type: "Pooling" bottom: "data" top: "q" pooling_param { pad: 2 } }'
    )


def test_padding_without_reader_or_with_default_pad() -> None:
    assert padded("") == pb.NetParameter()
    param = padded(
        'layers { layer { name: "c" type: "conv" } bottom: "pd" top: "c" }',
        'layers { layer { type: "padding" } bottom: "data" top: "pd" } ',
    )
    assert param.layer[0].convolution_param.pad == [0]


def test_padded_blob_that_a_later_layer_makes_anew_is_no_padding() -> None:
    param = padded(
        'layers { layer { name: "r" type: "relu" } bottom: "data" top: "pd" } '
        'layers { layer { name: "c" type: "conv" } bottom: "pd" top: "c" }'
    )
    assert param.layer[1].bottom == ["pd"]
    assert not param.layer[1].HasField("convolution_param")


@pytest.mark.parametrize(
    ("padding", "reader", "message"),
    [
        (PADDED, 'layer { name: "r" type: "relu" } bottom: "pd"',
         r"Padding layer input to non-convolutional / non-pooling layer type relu \(padding layer 'p' bef"),
        (PADDED, 'layer { name: "p2" type: "padding" } bottom: "pd"', "non-pooling layer type padding"),
        (PADDED, 'layer { name: "c" type: "conv" } bottom: "pd" bottom: "data"',
         "Conv Layer takes a single blob as input"),
        ('layers { layer { type: "padding" } bottom: "data" bottom: "more" top: "pd" }',
         'layer { name: "c" type: "conv" } bottom: "pd"', "Padding Layer takes a single blob as input"),
        ('layers { layer { type: "padding" } bottom: "data" top: "pd" top: "x" }',
         'layer { name: "c" type: "conv" } bottom: "pd"', "Padding Layer produces a single blob as output"),
        (PADDED, 'layer { name: "c" type: "conv" } bottom: "dat"',
         r"Unknown blob input dat to layer 1 \('c', bottom 0\).*did you mean 'data'"),
    ],
)  # fmt: skip
def test_padding_refused(padding: str, reader: str, message: str) -> None:
    with pytest.raises(ProtoError, match=message):
        padded(f'layers {{ {reader} top: "y" }}', padding)


# ---------------------------------------------------------------- data transformation, V1


@pytest.mark.parametrize(
    ("type", "param"),
    [("DATA", "data_param"), ("IMAGE_DATA", "image_data_param"), ("WINDOW_DATA", "window_data_param")],
)
@pytest.mark.parametrize("field", ["scale: 2", 'mean_file: "m"', "crop_size: 3", "mirror: true"])
def test_transformation_fields_move(type: str, param: str, field: str) -> None:
    text = 'layers {{ type: {} {} {{ source: "s" {} }} transform_param {{ mean_value: 1 {} }} }}'
    old = upgraded(text.format(type, param, field, ""))
    assert old == upgraded(text.format(type, param, "", field))
    assert getattr(old.layer[0], param).source == "s"


def test_transformation_fields_of_another_type_stay() -> None:
    """A RELU with a data_param: nobody reads it, and the original does not touch it."""
    param = upgraded("layers { type: RELU data_param { scale: 2 } }")
    assert param == net('layer { type: "ReLU" data_param { scale: 2 } }')


def test_one_old_data_layer_gives_all_of_them_both_messages() -> None:
    old = "layers { type: DATA data_param { scale: 2 } } layers { type: IMAGE_DATA }"
    assert upgraded(old) == net(
        'layer { type: "Data" data_param { } transform_param { scale: 2 } } '
        'layer { type: "ImageData" image_data_param { } transform_param { } }'
    )
    assert upgraded("layers { type: IMAGE_DATA }") == net('layer { type: "ImageData" }')


def test_more_share_modes_than_names() -> None:
    param = upgraded(
        'layers { param: "w" blob_share_mode: STRICT blob_share_mode: PERMISSIVE weight_decay: 0 }'
    )
    assert param == net(
        'layer { param { name: "w" share_mode: STRICT decay_mult: 0 } param { share_mode: PERMISSIVE } }'
    )


def test_both_layer_fields_are_refused() -> None:
    with pytest.raises(ProtoError, match="f.prototxt: Refusing to upgrade inconsistent NetParameter input"):
        upgrade_net(net("layers { type: RELU } layer { }"), "f.prototxt")


# ---------------------------------------------------------------- inputs


def test_inputs_come_first_and_shapes_win_over_dims() -> None:
    param = upgraded(
        'layer { name: "l" } input: "a" input_dim: 7 input_shape { } input: "b" input_shape { dim: 0 }'
    )
    assert param == net(
        'layer { name: "input" type: "Input" top: "a" top: "b" input_param { shape { } shape { dim: 0 } } } '
        'layer { name: "l" }'
    )


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ("input_shape { dim: 1 }", r"input_shape once per input: 2 inputs \(a, b\) need 2, have 1"),
        ("input_dim: [1, 2, 3, 4, 5]", r"input_dim four times per input: 2 inputs \(a, b\) need 8, have 5"),
    ],
)
def test_too_few_shapes_are_refused(shapes: str, message: str) -> None:
    with pytest.raises(ProtoError, match=message):
        upgrade_net(net(f'input: "a" input: "b" {shapes}'))


@pytest.mark.parametrize(
    "shapes", ["input_shape { dim: 1 } input_shape { dim: 2 }", "input_dim: [1, 1, 1, 1, 2]"]
)
def test_shapes_beyond_the_inputs_are_ignored_with_a_warning(
    shapes: str, caplog: pytest.LogCaptureFixture
) -> None:
    param = upgraded(f'input: "a" {shapes}')
    assert [set(shape.dim) for shape in param.layer[0].input_param.shape] == [{1}]
    assert any("the rest is ignored" in message for _, message in own_log(caplog))


def test_shapes_without_inputs_are_no_old_format() -> None:
    param = net("input_dim: 1 input_shape { dim: 2 }")
    before = param.SerializeToString()
    assert not net_needs_upgrade(param)
    assert upgrade_net(param)
    assert param.SerializeToString() == before


# ---------------------------------------------------------------- batch norm


def test_batch_norm_specs_of_an_upgraded_net() -> None:
    """Only three specs on a BatchNorm mean the old way; other counts and types are the user's own."""
    specs = "param { lr_mult: 1 } param { } param { decay_mult: 2 }"
    frozen = "param { lr_mult: 0 decay_mult: 0 } " * 3
    assert upgraded(f'layer {{ type: "BatchNorm" {specs} }}') == net(
        f'layer {{ type: "BatchNorm" {frozen} }}'
    )
    for same in (f'layer {{ type: "Scale" {specs} }}', 'layer { type: "BatchNorm" param { } param { } }'):
        assert upgraded(same) == net(same)


# ---------------------------------------------------------------- solvers


def test_snapshot_prefix_is_made_of_the_file_name(caplog: pytest.LogCaptureFixture) -> None:
    """As recorded in solvers/logs/train_no_snapshot_prefix.log."""
    log = (PROTO.parent / "solvers" / "logs" / "train_no_snapshot_prefix.log").read_text()
    param = solver("base_lr: 1")
    with caplog.at_level(logging.INFO, "caffe"):
        assert upgrade_solver(param, "logs/no_prefix.prototxt")
    assert param.snapshot_prefix == "logs/no_prefix"
    assert caplog.messages == ["snapshot_prefix was not specified and is set to logs/no_prefix"]
    assert caplog.messages[0] in log


@pytest.mark.parametrize(
    ("path", "prefix"),
    [("solver", "solver"), ("./s.prototxt", "./s"), ("a.b/solver", "a.b/solver"), ("a/s.v2.txt", "a/s.v2")],
)
def test_snapshot_prefix_stem(path: str, prefix: str) -> None:
    for text in ("", 'snapshot_prefix: ""'):
        param = solver(text)
        assert complete_snapshot_prefix(param, path)
        assert param.snapshot_prefix == prefix


def test_snapshot_prefix_directory(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for prefix in (str(tmp_path), f"{tmp_path}/"):
        param = solver(f'snapshot_prefix: "{prefix}"')
        with caplog.at_level(logging.INFO, "caffe"):
            assert upgrade_solver(param, Path("models/lenet/solver.prototxt"))
        assert param.snapshot_prefix == f"{tmp_path}/solver"
        assert caplog.messages[-1] == f"snapshot_prefix was a directory and is replaced to {tmp_path}/solver"


def test_snapshot_prefix_kept(tmp_path: Path) -> None:
    param = solver(f'snapshot_prefix: "{tmp_path}/lenet"')
    assert not upgrade_solver(param, "solver.prototxt")
    assert param.snapshot_prefix == f"{tmp_path}/lenet"
    bare = pb.SolverParameter()
    assert not upgrade_solver(bare)
    assert not bare.HasField("snapshot_prefix")


@pytest.mark.parametrize("type", list(upgrade_proto._SOLVER_TYPES.items()))
def test_solver_types(type: tuple[str, str]) -> None:
    param = solver(f'solver_type: {type[0]} snapshot_prefix: "p"')
    assert upgrade_solver(param, "solver.prototxt")
    assert param == solver(f'type: "{type[1]}" snapshot_prefix: "p"')


def test_every_solver_type_has_a_name() -> None:
    assert set(upgrade_proto._SOLVER_TYPES) == set(pb.SolverParameter.SolverType.keys())


# ---------------------------------------------------------------- files


def test_read_net_upgraded() -> None:
    expected = net((PROTO / "v0_small.out.prototxt").read_text())
    assert read_net_upgraded(PROTO / "v0_small.in.prototxt") == expected
    assert read_net_upgraded(str(PROTO / "v0_small.in.prototxt")) == expected


def test_read_solver_upgraded() -> None:
    path = PROTO / "solver_adam.in.prototxt"
    expected = solver((PROTO / "solver_adam.out.prototxt").read_text())
    expected.snapshot_prefix = str(PROTO / "solver_adam.in")
    assert read_solver_upgraded(path) == expected


def test_refusals_name_the_file() -> None:
    with pytest.raises(ProtoError, match=re.escape(str(PROTO / "v1_and_v2.in.prototxt"))):
        read_net_upgraded(PROTO / "v1_and_v2.in.prototxt")
    with pytest.raises(ProtoError, match=re.escape(str(PROTO / "solver_both.in.prototxt"))):
        read_solver_upgraded(PROTO / "solver_both.in.prototxt")
