// A program as its users write them with OpenAI's and Anthropic's official SDKs for
// JavaScript, for TestOfficialSDKs: where the API is, and the key, it has from the
// environment, as the SDKs read it, and nothing is set besides. Each line that it reads is
// a call to make, and is answered with one: what the SDK made of it.
import { createInterface } from "node:readline";

const name = process.argv[2]; // openai, openai-node20, anthropic
const { default: SDK } = await import(name === "anthropic" ? "@anthropic-ai/sdk" : name);
const client = new SDK();
const prompt = (size) => "hi".padStart(size ?? 0);

async function openai({ model, stream, size }, into) {
  const asked = { model, stream, messages: [{ role: "user", content: prompt(size) }] };
  const got = await client.chat.completions.create(asked);
  if (!stream) into.text = got.choices[0].message.content;
  else for await (const chunk of got) into.text += chunk.choices[0]?.delta?.content ?? "";
}

async function anthropic({ model, stream, size }, into) {
  const asked = { model, stream, max_tokens: 16, messages: [{ role: "user", content: prompt(size) }] };
  const got = await client.messages.create(asked);
  if (!stream) into.text = got.content[0].text;
  else for await (const event of got) if (event.type === "content_block_delta") into.text += event.delta.text;
}

const ask = name === "anthropic" ? anthropic : openai;
for await (const line of createInterface({ input: process.stdin })) {
  const outcome = { text: "" };
  try {
    await ask(JSON.parse(line), outcome);
  } catch (e) {
    const classes = Object.keys(SDK).filter((k) => typeof SDK[k] === "function" && e.constructor === SDK[k]);
    outcome.error = {
      class: classes[0] ?? e.constructor.name, status: e.status, type: e.type ?? undefined, code: e.code ?? undefined,
      message: e.apiMessage ?? e.error?.message ?? undefined, request_id: e.requestID ?? undefined, says: String(e.message),
    };
  }
  console.log(JSON.stringify(outcome));
}
