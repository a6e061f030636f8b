"""Networks to ONNX graphs, and back."""
