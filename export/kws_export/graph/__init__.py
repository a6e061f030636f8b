"""Turn networks into ONNX graphs, and back."""
