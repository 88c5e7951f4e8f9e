"""The built-in certifiers (exhaustive, interval, exact, onnx-vnnlib), found by entry point."""
