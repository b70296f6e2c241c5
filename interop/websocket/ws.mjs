// npm's ws as a client, and as a service where the first argument is "serve".
import { once } from "node:events";
import WebSocket, { WebSocketServer } from "ws";
import { run, same } from "./session.mjs";

if (process.argv[2] === "serve") {
  const server = new WebSocketServer({ port: 0, host: "127.0.0.1", maxPayload: 4 << 20, handleProtocols: (offered) => (offered.has("echo") ? "echo" : false) });
  await once(server, "listening");
  server.on("connection", (c) => {
    c.on("error", () => {});
    c.on("message", (data, binary) => {
      const said = binary ? "" : data.toString();
      if (said.startsWith("close ")) return c.close(Number(said.slice(6)), "as you wish");
      if (said === "fragments") return ["a", "b", "c"].forEach((x) => c.send(x, { fin: x === "c" }));
      c.send(data, { binary });
    });
  });
  console.log(`http://127.0.0.1:${server.address().port}`);
} else {
  await run(async (url, key, i, plan) => {
    const c = new WebSocket(url, ["x", "echo"], { headers: { Authorization: `Bearer ${key}` }, perMessageDeflate: i % 3 === 0 });
    const heard = [];
    let wake = () => {};
    const tell = (x) => { heard.push(x); wake(); };
    c.on("message", (data, binary) => tell(binary ? data : data.toString()));
    c.on("pong", (data) => tell(`pong ${data}`));
    c.on("close", (code, reason) => tell(`closed ${code} ${reason}`));
    c.on("error", (e) => tell(`error ${e.message}`));
    const next = async () => {
      while (heard.length === 0) await new Promise((yes) => (wake = yes));
      return heard.shift();
    };
    await once(c, "open");
    same("subprotocol", c.protocol, "echo");
    same("extensions", c.extensions, "");
    c.send(plan.text);
    same("text", await next(), plan.text);
    c.send(plan.binary);
    same("binary", await next(), plan.binary);
    for (const [part, fin] of [["fra", false], ["", false], ["g🙂", false]]) c.send(part, { fin });
    c.ping("between");
    c.send("ments", { fin: true });
    const two = [await next(), await next()].sort();
    same("fragments and a ping between", two.join(), "frag🙂ments,pong between");
    c.send("fragments");
    same("a message in fragments", await next(), "abc");
    for (let k = 0; k < 5; k++) c.send(`pipelined ${k}`);
    for (let k = 0; k < 5; k++) same("pipelined", await next(), `pipelined ${k}`);
    if (plan.clientCloses) {
      c.close(plan.code, plan.reason);
      const [, code] = (await next()).split(" ");
      same("the code of our own close", Number(code), plan.code);
    } else {
      c.send(`close ${plan.code}`);
      same("the service's close", await next(), `closed ${plan.code} as you wish`);
    }
  });
}
