"""From a run to the files that ship: ONNX, model card, int8."""
