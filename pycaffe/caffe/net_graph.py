"""The graph that drawings of nets show: layers and blobs, and what is written on them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from . import net_summary
from .net import Net
from .net_insertion import filter_net
from .net_summary import LayerSummary, amount_text, shape_text
from .proto import caffe_pb2
from .upgrade_proto import upgrade_net

_COLOURS = {
    "Convolution": "#FF5050",
    "Deconvolution": "#FF5050",
    "Pooling": "#FF9900",
    "InnerProduct": "#CC33FF",
}
_OTHER, _IN_PLACE, _BLOB = "#6495ED", "#90EE90", "#E0E0E0"


@dataclass
class Node:
    lines: list[str]
    colour: str
    blob: bool = False


@dataclass
class Graph:
    """Nodes by an id, sources before targets, and edges with their labels."""

    name: str
    nodes: dict[str, Node] = field(default_factory=dict)
    edges: dict[tuple[str, str], str] = field(default_factory=dict)


def net_graph(caffe_net: Any, phase: int | None, label_edges: bool, display_lrm: bool) -> Graph:
    """Layers and blobs. A layer in place stands between its blob and the readers after it. Splits that a net
    puts in by itself are left out."""
    summaries: dict[str, LayerSummary] = {}
    if isinstance(caffe_net, Net):
        summaries = {row.name: row for row in net_summary.summarize(caffe_net)}
        param = caffe_net.param
    elif isinstance(caffe_net, caffe_pb2.NetParameter):
        param = _definition(caffe_net, phase)
    else:
        raise TypeError(
            f"a Net or a NetParameter is drawn, not {type(caffe_net).__name__}; caffe.Net reads a file"
        )
    graph = Graph(param.name or "Net")
    holds: dict[str, str] = {}  # blob -> the node that gives its values now
    for layer in param.layer:
        if layer.type == "Split" and layer.name.endswith("_split"):
            holds.update((top, holds[layer.bottom[0]]) for top in layer.top if layer.bottom[0] in holds)
            continue
        _add_layer(graph, holds, layer, summaries.get(layer.name), label_edges, display_lrm)
    return graph


def _add_layer(
    graph: Graph,
    holds: dict[str, str],
    layer: caffe_pb2.LayerParameter,
    summary: LayerSummary | None,
    label_edges: bool,
    display_lrm: bool,
) -> None:
    in_place = [top for top in layer.top if top in layer.bottom]
    node = _unused(graph, f"{layer.name}_{layer.type}")
    lines = _label_lines(layer, display_lrm) + (_amounts(summary) if summary else [])
    every = bool(layer.top) and len(in_place) == len(layer.top)
    graph.nodes[node] = Node(lines, _IN_PLACE if every else choose_color_by_layertype(layer.type))
    for bottom in layer.bottom:
        if bottom not in holds:  # a piece of a net
            _add_blob(graph, holds, bottom, "")
        graph.edges[holds[bottom], node] = ""
    label = get_edge_label(layer).strip('"') if label_edges else ""
    for k, top in enumerate(layer.top):
        if top in in_place:
            holds[top] = node
        else:
            source = _add_blob(graph, holds, top, shape_text(summary.top_shapes[k]) if summary else "")
            graph.edges[node, source] = label


def _add_blob(graph: Graph, holds: dict[str, str], name: str, shape: str) -> str:
    node = holds[name] = _unused(graph, f"{name}_blob")
    graph.nodes[node] = Node([name, shape] if shape else [name], _BLOB, blob=True)
    return node


def _unused(graph: Graph, name: str) -> str:
    """A net without its phases may have several layers and tops of a name."""
    while name in graph.nodes:
        name += "'"
    return name


def _amounts(summary: LayerSummary) -> list[str]:
    lines = []
    if summary.parameters:
        lines.append(f"{amount_text(summary.parameters)} parameters")
    if summary.multiply_adds:
        lines.append(f"{amount_text(summary.multiply_adds)} multiply-adds")
    return lines


def _definition(param: caffe_pb2.NetParameter, phase: int | None) -> caffe_pb2.NetParameter:
    """In the current format; of one phase, if one is given."""
    current = caffe_pb2.NetParameter()
    current.CopyFrom(param)
    upgrade_net(current, "NetParameter")
    if phase is None:
        return current
    current.state.phase = phase  # type: ignore[assignment]
    return filter_net(current)


# -- what is written on them ------------------------------------------------------------------------------


def get_pooling_types_dict() -> dict[int, str]:
    """{0: "MAX", 1: "AVE", 2: "STOCHASTIC"}"""
    values = caffe_pb2.PoolingParameter.DESCRIPTOR.enum_types_by_name["PoolMethod"].values
    return {value.number: value.name for value in values}


def get_edge_label(layer: caffe_pb2.LayerParameter) -> str:
    """How much a layer gives: its batch, its number of outputs, or '""'."""
    if layer.type == "Data":
        return f"Batch {layer.data_param.batch_size}"
    if layer.type in ("Convolution", "Deconvolution"):
        return str(layer.convolution_param.num_output)
    if layer.type == "InnerProduct":
        return str(layer.inner_product_param.num_output)
    return '""'


def get_layer_lr_mult(layer: caffe_pb2.LayerParameter) -> float:
    """The lr_mult of a layer's weights, 1 where nothing is said."""
    return layer.param[0].lr_mult if layer.param else 1.0


def get_layer_label(layer: caffe_pb2.LayerParameter, rankdir: str, display_lrm: bool = False) -> str:
    """Name and type, and what moves windows says of them; in one line for drawings from top to bottom."""
    separator = " " if rankdir in ("TB", "BT") else "\n"
    return separator.join(_label_lines(layer, display_lrm))


def _label_lines(layer: caffe_pb2.LayerParameter, display_lrm: bool) -> list[str]:
    lines = [layer.name, f"({layer.type})"]
    if layer.type in ("Convolution", "Deconvolution", "Im2col"):
        param = layer.convolution_param
        lines += [
            f"kernel size: {_sides(param.kernel_size, param.kernel_h, param.kernel_w, 1)}",
            f"stride: {_sides(param.stride, param.stride_h, param.stride_w, 1)}",
            f"pad: {_sides(param.pad, param.pad_h, param.pad_w, 0)}",
        ]
        if any(dilation != 1 for dilation in param.dilation):
            lines.append(f"dilation: {_sides(param.dilation, 0, 0, 1)}")
        if param.group != 1:
            lines.append(f"group: {param.group}")
    elif layer.type == "Pooling":
        param = layer.pooling_param
        lines[1] = f"({get_pooling_types_dict()[param.pool]} Pooling)"
        if param.global_pooling:
            lines.append("global")
        else:
            lines += [
                f"kernel size: {_sides([param.kernel_size], param.kernel_h, param.kernel_w, 1)}",
                f"stride: {_sides([param.stride], param.stride_h, param.stride_w, 1)}",
                f"pad: {_sides([param.pad], param.pad_h, param.pad_w, 0)}",
            ]
    if display_lrm and (layer.param or layer.type in _COLOURS) and layer.type != "Pooling":
        lines.append(f"lr mult: {get_layer_lr_mult(layer):g}")
    return lines


def _sides(values: Any, height: int, width: int, default: int) -> str:
    sides = [height, width] if height or width else [*values] or [default]
    return "x".join(map(str, sides)) if len(set(sides)) > 1 else str(sides[0])


def choose_color_by_layertype(layertype: str) -> str:
    """The colour of a type's box, as #RRGGBB."""
    return _COLOURS.get(layertype, _OTHER)
