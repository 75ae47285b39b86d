// Greedy tokens of a deployed decoder in transformers.js: a JSON file in, another out.
import { readFileSync, writeFileSync } from "node:fs";
import { AutoModelForCausalLM, Tensor, env } from "@huggingface/transformers";

const { place, dtype, steps, pad, batches } = JSON.parse(readFileSync(process.argv[1], "utf8"));
env.allowRemoteModels = false;
env.localModelPath = place;
const model = await AutoModelForCausalLM.from_pretrained("model", { dtype });

const asTensor = (rows) =>
  new Tensor("int64", BigInt64Array.from(rows.flat().map(BigInt)), [rows.length, rows[0].length]);
const tokens = [];
for (const { ids, mask } of batches) {
  const output = await model.generate({
    input_ids: asTensor(ids),
    attention_mask: asTensor(mask),
    max_new_tokens: steps,
    min_new_tokens: steps,
    do_sample: false,
    pad_token_id: pad,
  });
  tokens.push(output.tolist().map((row) => row.map(Number)));
}
writeFileSync(`${place}/answer.json`, JSON.stringify(tokens));
process.exit(0);
