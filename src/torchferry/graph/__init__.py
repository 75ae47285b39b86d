"""What onnx_ir lacks; nothing here loads torch."""
