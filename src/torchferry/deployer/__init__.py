"""One folder that onnxruntime, genai, optimum and transformers.js load, proven in them.

Read `layout` (runtimes, precisions, files), `deploy` (the walk), `build` (graphs in floating
point and in few bits), `huggingface`, `genai` and `card` (the other files), `reference`,
`runtimes` and `proof` (what runs where, how near to PyTorch); `decoder` and `seq2seq` are what
`load` gives; `parts`, `merge` and `assemble` make the graphs of encoder-decoders.
"""

from torchferry.deployer.deploy import deploy
from torchferry.deployer.load import load

__all__ = ["deploy", "load"]
