"""Turn a run into files that ship: ONNX, model card, int8."""
