"""The schema as Python: `from caffe.proto import caffe_pb2`.

caffe_pb2.py and .pyi are generated from proto/caffe.proto by scripts/proto and committed, so that
installing needs no compiler. Everything else about messages is caffe.proto_text (prototxt files) and
caffe.wire (weights and solver states).
"""
