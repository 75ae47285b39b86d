// Outputs of a deployed encoder in transformers.js: a JSON file in, another out.
import { readFileSync, writeFileSync } from "node:fs";
import { AutoModel, Tensor, env } from "@huggingface/transformers";

const { place, dtype, sets } = JSON.parse(readFileSync(process.argv[1], "utf8"));
env.allowRemoteModels = false;
env.localModelPath = place;
const model = await AutoModel.from_pretrained("model", { dtype });

const asTensor = ({ type, dims, data }) =>
  type === "int64"
    ? new Tensor("int64", BigInt64Array.from(data.map(BigInt)), dims)
    : new Tensor("float32", Float32Array.from(data), dims);
const results = [];
for (const set of sets) {
  const feeds = Object.fromEntries(Object.entries(set).map(([name, x]) => [name, asTensor(x)]));
  const outputs = await model(feeds);
  const plain = {};
  for (const [name, x] of Object.entries(outputs)) {
    plain[name] = { dims: x.dims, data: Array.from(x.to("float32").data) };
  }
  results.push(plain);
}
writeFileSync(`${place}/answer.json`, JSON.stringify(results));
process.exit(0);
