"""One folder that onnxruntime, genai, optimum and transformers.js load, proven in them.

Read `layout` (runtimes, precisions, files), `options` and `deploy` (the walk), `build` (graphs in
floating point and in few bits), `huggingface`, `genai` and `card` (the other files), `reference`,
`runtimes` and `proof` (what runs where, how near to PyTorch); `decoder`, `seq2seq` and
`vision` are what `load` gives; `parts`, `merge`, `vision` and `assemble` make the graphs of models
in parts.
"""

from torchferry.deployer.deploy import deploy
from torchferry.deployer.load import load

__all__ = ["deploy", "load"]
