// Greedy tokens of a deployed model in transformers.js: a JSON file in, another out.
import { readFileSync, writeFileSync } from "node:fs";
import {
  AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoModelForSpeechSeq2Seq, Tensor, env,
} from "@huggingface/transformers";

const { place, dtype, steps, pad, kind, batches } =
  JSON.parse(readFileSync(process.argv[1], "utf8"));
env.allowRemoteModels = false;
env.localModelPath = place;
const classes = { decoder: AutoModelForCausalLM, seq2seq: AutoModelForSeq2SeqLM,
                  speech: AutoModelForSpeechSeq2Seq };
const model = await classes[kind].from_pretrained("model", { dtype });

const asValue = (x) =>
  typeof x === "string"
    ? x
    : x.type === "int64"
      ? new Tensor("int64", BigInt64Array.from(x.data.map(BigInt)), x.dims)
      : new Tensor("float32", Float32Array.from(x.data), x.dims);
const tokens = [];
for (const batch of batches) {
  const inputs = Object.fromEntries(Object.entries(batch).map(([name, x]) => [name, asValue(x)]));
  const output = await model.generate({
    ...inputs,
    max_new_tokens: steps,
    min_new_tokens: steps,
    do_sample: false,
    pad_token_id: pad,
  });
  tokens.push(output.tolist().map((row) => row.map(Number)));
}
writeFileSync(`${place}/answer.json`, JSON.stringify(tokens));
process.exit(0);
