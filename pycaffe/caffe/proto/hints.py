"""What to tell a person whose prototxt has a name that the schema lacks.

Most such files were written for a fork of Caffe, are of an older format than the block they stand in,
or miss a brace. The tables below are knowledge about the world, not about the schema: field names that
well-known forks added, and who added them.
"""

from __future__ import annotations

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor

from ..errors import closest

_SSD = "SSD (weiliu89/caffe)"
_RCNN = "Faster R-CNN's Caffe (rbgirshick/caffe-fast-rcnn)"
_DEEPLAB = "DeepLab's Caffe"
_SEGNET = "SegNet's Caffe (alexgkendall/caffe-segnet)"
_ACTION = "yjxiong/caffe"
_INTEL = "Intel Caffe"
_NVIDIA = "NVIDIA Caffe"

# Owner -> the names that it added to LayerParameter.
_LAYER_FIELDS = {
    _SSD: "annotated_data_param multibox_loss_param permute_param prior_box_param detection_output_param"
    " detection_evaluate_param norm_param",
    "SSD or yjxiong/caffe": "video_data_param",
    _RCNN: "roi_pooling_param smooth_l1_loss_param",
    "R-FCN's Caffe": "psroi_pooling_param box_annotator_ohem_param",
    "a fork with more detection layers": "proposal_param roi_align_param deformable_convolution_param",
    "a fork with its own batch normalisation (SegNet, PSPNet, DeepLab or yjxiong/caffe)": "bn_param",
    _SEGNET: "upsample_param dense_image_data_param",
    f"{_DEEPLAB} or PSPNet's": "interp_param",
    _DEEPLAB: "image_seg_data_param seg_accuracy_param softmaxloss_param mat_read_param mat_write_param"
    " unpooling_param dense_crf_param domain_transform_param adaptive_bias_channel_param uniq_label_param",
    _INTEL: "engine multinode mn_activation_param mn_grad_compress_param split_param",
    f"{_INTEL} or Ristretto": "quantization_param",
    _NVIDIA: "forward_type backward_type forward_math backward_math detectnet_groundtruth_param"
    " detectnet_augmentation_param",
    _ACTION: "batch_reduction_param",
    "ENet's Caffe": "spatial_dropout_param",
    "FlowNet's Caffe (lmb-freiburg)": "correlation_param l1_loss_param flow_warp_param resample_param"
    " downsample_param augmentation_param coeff_schedule_param writer_param reader_param mean_param"
    " lpq_loss_param accum_param black_augmentation_param reshape_every_iter",
    "a YOLO fork (such as eric612's)": "region_loss_param region_param reorg_param eval_detection_param"
    " yolo_detection_output_param yolov3_detection_output_param yolov3_param yolo_v2_loss_param"
    " yolo_v3_loss_param",
    "OpenPose's Caffe": "cpm_transform_param nms_param imresize_param",
    "a ShuffleNet fork": "shuffle_channel_param",
    "SphereFace's Caffe": "margin_inner_product_param",
    "a fork for face recognition": "center_loss_param triplet_loss_param large_margin_inner_product_param",
    "a fork for reading text (CTC)": "ctc_loss_param ctc_decoder_param transpose_param reverse_param",
    "a fork with an LSTM from before Caffe's own, which takes recurrent_param": "lstm_param",
    "a fork with spatial transformers": "st_param st_loss_param",
    "a fork for domain adaptation (ddtm/caffe)": "gradient_scaler_param",
    "PixelNet's Caffe": "rand_cat_conv_param",
    "a fork with ReLU6 or focal loss": "relu6_param focal_loss_param",
}

# Message -> the same.
_OTHER_FIELDS = {
    "PoolingParameter": {"a fork for human pose (pulkitag/ief)": "round_below"},
    "ConvolutionParameter": {
        "DeepLab version 1's Caffe; today it is called dilation": "hole hole_h hole_w",
        _INTEL: "relu negative_slope fusion_type conv_algorithm",
        _NVIDIA: "cudnn_convolution_algo_seeker conv_algos_override cudnn_math_override",
    },
    "BatchNormParameter": {
        _NVIDIA: "scale_bias scale_filler bias_filler",
        _INTEL: "use_weight_bias engine",
    },
    "DropoutParameter": {_RCNN: "scale_train", _SEGNET: "sample_weights_test"},
    "LossParameter": {_SEGNET: "weight_by_label_freqs class_weighting"},
    "TransformationParameter": {
        _SSD: "resize_param noise_param distort_param expand_param emit_constraint crop_h crop_w",
        _INTEL: "random_resize_param random_aspect_ratio_param",
        _NVIDIA: "img_rand_resize_lower img_rand_resize_upper rand_resize_ratio_lower rand_resize_ratio_upper"
        " use_gpu_transform",
        _DEEPLAB: "crop_height crop_width scale_factors",
        _ACTION: "fix_crop more_fix_crop multi_scale max_distort scale_ratios is_flow stack_flow",
    },
    "DataParameter": {
        _INTEL: "shuffle",
        _NVIDIA: "threads parser_threads cache",
        "a fork for domain adaptation (ddtm/caffe)": "cursor",
        "a YOLO fork": "side",
    },
    "ImageDataParameter": {_DEEPLAB: "label_type"},
    "SolverParameter": {
        _SSD: "eval_type ap_version show_per_class_result plateau_winsize",
        _INTEL: "disabled_update engine",
        _NVIDIA: "global_grad_scale min_lr rampup_interval rampup_lr local_lr_auto local_gw_ratio larc"
        " store_blobs_in_old_format",
    },
    "NetParameter": {
        _INTEL: "compile_net_state engine bn_stats_batch_size",
        _NVIDIA: "default_forward_type default_backward_type default_forward_math default_backward_math"
        " default_conv_algos_override global_grad_scale reduce_buckets",
    },
}

_ENGINES = {
    "MKL2017": _INTEL,
    "MKLDNN": _INTEL,
    "MKL": _INTEL,
    "SPATIAL": "OpenCL Caffe",
    "INTEL_SPATIAL": "OpenCL Caffe",
    "LIBDNN": "OpenCL Caffe",
    "BINARY": "a fork for binary networks",
    "NNPACK": "Facebook's or another fork with NNPACK",
}


def _owners() -> dict[tuple[str, str], str]:
    tables = _OTHER_FIELDS | {"LayerParameter": _LAYER_FIELDS, "V1LayerParameter": _LAYER_FIELDS}
    return {
        (message, name): owner
        for message, owners in tables.items()
        for owner, names in owners.items()
        for name in names.split()
    }


_OWNER = _owners()


def unknown_field(name: str, path: list[Descriptor]) -> str:
    """Help with a field that path[-1] lacks. path: the types of the open blocks, outermost first."""
    here = path[-1]
    fork = _OWNER.get((here.name, name))
    if fork:
        layer = here.name in ("LayerParameter", "V1LayerParameter")
        other = ", or write its layer in Python with param_str (docs/migrate.md)" if layer else ""
        return (
            f"'{name}' was added by {fork}. Caffe has no such field: take it out if the net can do "
            f"without{other}."
        )
    if name == "ceil_mode":
        return (
            "Some forks have 'ceil_mode' in pooling_param, where it is understood; it does not belong here."
        )
    return (
        _other_file(name, path)
        or _outside(name, path)
        or _older_format(name, here)
        or _inside(name, here)
        or closest(name, here.fields_by_name).removeprefix("; did").replace(" you", "Did you", 1)
        or f"{here.name} has: {', '.join(here.fields_by_name)}."
    )


def _other_file(name: str, path: list[Descriptor]) -> str:
    """A solver given as a net, or the other way round."""
    if len(path) > 1:
        return ""
    messages = path[0].file.message_types_by_name
    if path[0].name == "NetParameter" and name in messages["SolverParameter"].fields_by_name:
        return (
            f"'{name}' belongs to a solver: this looks like a solver's file where a net's is wanted. "
            "Solvers go to `caffe train -solver` or caffe.get_solver; the net is the file that they name."
        )
    if path[0].name == "SolverParameter" and name in messages["NetParameter"].fields_by_name:
        return (
            f"'{name}' belongs to a net: this looks like a net's file where a solver's is wanted. "
            'A solver names its net with net: "train_val.prototxt".'
        )
    return ""


def _older_format(name: str, here: Descriptor) -> str:
    """A field of the formats before `layer { }`, within it."""
    if here.name != "LayerParameter":
        return ""
    messages = here.file.message_types_by_name
    if name in ("blobs_lr", "weight_decay"):
        now = {"blobs_lr": "lr_mult", "weight_decay": "decay_mult"}[name]
        return f"'{name}' is of the old format, layers {{ }}; in layer {{ }} write param {{ {now}: ... }}."
    if name in messages["V1LayerParameter"].fields_by_name:
        return f"'{name}' is of the old format, layers {{ }}, and not of layer {{ }}."
    if name in messages["V0LayerParameter"].fields_by_name and not _inside(name, here):
        return f"'{name}' is of the oldest format, layers {{ layer {{ }} }}, and not of layer {{ }}."
    return ""


def _inside(name: str, here: Descriptor) -> str:
    """A field that stands one level too high: num_output beside convolution_param."""
    owners = [f.name for f in here.fields if f.message_type and name in f.message_type.fields_by_name]
    if not owners or len(owners) > 12:
        return ""
    return f"'{name}' is a field inside of {', '.join(owners)}."


def _outside(name: str, path: list[Descriptor]) -> str:
    """A field of a block further out: most likely a brace is missing."""
    for outer in reversed(path[:-1]):
        if name in outer.fields_by_name:
            return f"'{name}' is a field of {outer.name}: is a closing brace missing before it?"
    return ""


def unknown_enum_value(enum: EnumDescriptor, written: str) -> str:
    """Help with a name or number that the enum lacks."""
    if enum.name == "Engine" and written in _ENGINES:
        return (
            f"'{written}' is an engine of {_ENGINES[written]}. Take the line out: the fastest engine that is "
            "there is chosen anyway."
        )
    return f"{enum.name} is one of {', '.join(enum.values_by_name)}{closest(written, enum.values_by_name)}"


def no_enum_value(enum: EnumDescriptor, written: str) -> str:
    """Help where a value of the enum is wanted and something stands that is no name, most likely a string."""
    if enum.name == "LayerType":
        return (
            "Within the old layers { } a type is a bare word in capitals, such as CONVOLUTION; "
            'with layer { } it is a string, such as "Convolution". This file mixes the two.'
        )
    quotes = ", without quotes" if written[:1] in ("'", '"') else ""
    return f"{enum.name} is one of {', '.join(enum.values_by_name)}{quotes}."


def no_string(field: FieldDescriptor, written: str) -> str:
    """Help with a string field whose value is a bare word."""
    here = field.containing_type
    if field.name == "type" and here is not None and here.name == "LayerParameter":
        old = here.file.message_types_by_name["V1LayerParameter"].enum_types_by_name["LayerType"]
        if written in old.values_by_name:
            return (
                'Within layer { } a type is a string, such as "Convolution"; a bare word in capitals is of '
                "the old format, layers { }. This file mixes the two."
            )
    return f'Put it in quotes: {field.name}: "{written}"'
