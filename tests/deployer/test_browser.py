"""Deployed folders in headless Chromium: transformers.js over onnxruntime-web's WebAssembly.

It wants `npm install --ignore-scripts @huggingface/transformers` in the working directory.
"""

import functools
import http.server
import json
import threading
from pathlib import Path

import pytest
import torch

import torchferry as tf
from deployer_folders import save_family, save_wide_llama
from torchferry.deployer import deploy

PACKAGES = Path.cwd() / "node_modules"
SCRIPTS = PACKAGES / "@huggingface" / "transformers" / "dist"

transformers = pytest.importorskip("transformers")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (SCRIPTS / "transformers.min.js").is_file(),
        reason="npm install --ignore-scripts @huggingface/transformers",
    ),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),
]

PAGE = """<!doctype html><meta charset="utf-8">
<script type="module">
import { AutoModel, AutoModelForCausalLM, Tensor, env }
  from "/node_modules/@huggingface/transformers/dist/transformers.min.js";
env.allowRemoteModels = false;
env.allowLocalModels = true;
env.useBrowserCache = false;
env.localModelPath = "/models/";
env.backends.onnx.wasm.wasmPaths = "/node_modules/onnxruntime-web/dist/";
env.backends.onnx.wasm.numThreads = 1;
const long = rows => new Tensor("int64", BigInt64Array.from(rows.flat().map(BigInt)),
                                [rows.length, rows[0].length]);
const asked = ASKED;
async function run() {
  const inputs = Object.fromEntries(
    Object.entries(asked.inputs).map(([name, rows]) => [name, long(rows)]));
  const options = { dtype: asked.dtype, device: "wasm" };
  if (asked.steps) {
    const model = await AutoModelForCausalLM.from_pretrained("out", options);
    const tokens = await model.generate(
      { ...inputs, max_new_tokens: asked.steps, do_sample: false, eos_token_id: [] });
    return tokens.tolist().map(row => row.map(Number));
  }
  const outputs = await (await AutoModel.from_pretrained("out", options))(inputs);
  return outputs[asked.output].tolist();
}
globalThis.answer = run().then(value => ({ value }), error => ({ error: String(error) }));
</script>"""


@pytest.fixture
def in_browser(browser, tmp_path):
    """What a deployed folder gives in a page; the folder is served from this machine."""
    root = tmp_path / "served"
    (root / "models").mkdir(parents=True)
    (root / "node_modules").symlink_to(PACKAGES, target_is_directory=True)
    handler = functools.partial(Quiet, directory=str(root))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()

    def run(folder, **asked):
        link = root / "models" / "out"
        link.unlink(missing_ok=True)
        link.symlink_to(folder, target_is_directory=True)
        (root / "page.html").write_text(PAGE.replace("ASKED", json.dumps(asked)), "utf-8")
        url = f"http://127.0.0.1:{server.server_address[1]}/page.html"
        answer = browser.evaluate(url, "answer")
        assert "error" not in answer, answer["error"]
        return answer["value"]

    yield run
    server.shutdown()
    server.server_close()


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        """Nothing: tests print nothing."""


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_an_encoder_gives_what_pytorch_does(in_browser, tmp_path, precision):
    folder = save_family("bert", tmp_path / "model")
    model = transformers.AutoModel.from_pretrained(folder).eval()
    report = deploy(tmp_path / "model", tmp_path / "out", precisions=precision, budget=30)
    assert report.ok, report.problems
    ids = [[1, 5, 9, 7], [2, 6, 8, 4]]
    given = {name: torch.tensor(rows) for name, rows in {
        "input_ids": ids, "attention_mask": [[1] * 4] * 2, "token_type_ids": [[0] * 4] * 2,
    }.items()}  # fmt: skip
    with torch.no_grad():
        wanted = model(**given).last_hidden_state
    dtype = {"fp32": "fp32", "int8": "q8"}[precision]
    got = in_browser(
        tmp_path / "out", dtype=dtype, output="last_hidden_state",
        inputs={name: x.tolist() for name, x in given.items()},
    )  # fmt: skip
    cosine = torch.nn.functional.cosine_similarity(torch.tensor(got), wanted, dim=-1)
    assert cosine.min() > {"fp32": 0.999999, "int8": 0.98}[precision]


@pytest.mark.parametrize("precision", ["fp32", "int4"])
def test_a_decoder_generates_the_tokens_of_the_folder(in_browser, tmp_path, precision):
    """int4 has kernels of WebAssembly: the tokens are those of onnxruntime here."""
    folder = save_wide_llama(tmp_path / "model")
    report = deploy(
        tmp_path / "model", tmp_path / "out", precisions=precision, budget=30,
        calibrate=None if precision == "fp32" else "none",
    )  # fmt: skip
    assert report.ok, report.problems
    ids = torch.tensor([[1, 5, 9, 7, 11]])
    options = {"max_new_tokens": 8, "do_sample": False, "eos_token_id": None}
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    source = model if precision == "fp32" else tf.load(tmp_path / "out")
    wanted = source.generate(input_ids=ids, attention_mask=torch.ones_like(ids), **options)
    got = in_browser(
        tmp_path / "out", dtype={"fp32": "fp32", "int4": "q4"}[precision], steps=8,
        inputs={"input_ids": ids.tolist(), "attention_mask": [[1] * 5]},
    )  # fmt: skip
    assert got == wanted.tolist()
