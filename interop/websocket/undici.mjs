// npm's undici, whose WebSocket is that of browsers, as a client.
import { WebSocket } from "undici";
import { run, same } from "./session.mjs";

await run(async (url, key, i, plan) => {
  const c = new WebSocket(url, { protocols: ["x", "echo"], headers: { Authorization: `Bearer ${key}` } });
  c.binaryType = "arraybuffer";
  const heard = [];
  let wake = () => {};
  const tell = (x) => { heard.push(x); wake(); };
  c.onmessage = (e) => tell(typeof e.data === "string" ? e.data : Buffer.from(e.data));
  c.onclose = (e) => tell(`closed ${e.code} ${e.reason} ${e.wasClean}`);
  const next = async () => {
    while (heard.length === 0) await new Promise((yes) => (wake = yes));
    return heard.shift();
  };
  await new Promise((yes, no) => { c.onopen = yes; c.onerror = (e) => no(e.error ?? new Error("not opened")); });
  c.onerror = null;
  same("subprotocol", c.protocol, "echo");
  same("extensions", c.extensions, "");
  c.send(plan.text);
  same("text", await next(), plan.text);
  c.send(new Blob([plan.binary.subarray(0, 10), plan.binary.subarray(10)]));
  same("binary", await next(), plan.binary);
  c.send("fragments");
  same("a message in fragments", await next(), "abc");
  for (let k = 0; k < 5; k++) c.send(`pipelined ${k}`);
  for (let k = 0; k < 5; k++) same("pipelined", await next(), `pipelined ${k}`);
  if (plan.clientCloses) {
    c.close(plan.code, plan.reason);
    const [, code, , ...rest] = (await next()).split(" ");
    same("the code of our own close", Number(code), plan.code);
    same("it was clean", rest.at(-1) ?? "true", "true");
  } else {
    c.send(`close ${plan.code}`);
    same("the service's close", await next(), `closed ${plan.code} as you wish true`);
  }
});
