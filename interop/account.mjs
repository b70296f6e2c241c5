// An authorization server that nobody here wrote (npm's oidc-provider), for
// TestAnAccountAtOIDCProvider: authorization code with PKCE, and refresh tokens that
// are good once and void the grant when one comes twice. Whoever comes is alice, and
// she agrees. It is given the client's redirect address and prints its own; it answers
// each line with what it has counted, after it was shown a spent refresh token if the
// line is "replay".
import { once } from "node:events";
import { createServer } from "node:http";
import { createInterface } from "node:readline";
import { Provider } from "oidc-provider";

console.info = console.warn; // notices are no answers
const count = { codes: 0, renewed: 0, refused: 0, voided: 0, served: 0 };
const client = { id: "gw", secret: "client-secret-canary" };
let first; // of the refresh tokens

const server = createServer();
server.listen(0, "127.0.0.1");
await once(server, "listening");
const issuer = `http://127.0.0.1:${server.address().port}`;
const provider = new Provider(issuer, {
  clients: [{ client_id: client.id, client_secret: client.secret, grant_types: ["authorization_code", "refresh_token"], response_types: ["code"], redirect_uris: [process.argv[2]] }],
  pkce: { required: () => true },
  rotateRefreshToken: true,
  issueRefreshToken: () => true,
  ttl: { AccessToken: () => (count.renewed < 2 ? 10 : 5), RefreshToken: 600, Grant: 600, Session: 600, Interaction: 600 },
  findAccount: (_ctx, id) => ({ accountId: id, claims: () => ({ sub: id }) }),
  interactions: { url: (_ctx, interaction) => `/interaction/${interaction.uid}` },
  features: { devInteractions: { enabled: false } },
});
provider.on("refresh_token.saved", (token) => (first ??= token.jti));
provider.on("grant.revoked", () => count.voided++);
provider.on("grant.error", () => count.refused++);
provider.on("grant.success", (ctx) => count[ctx.oidc.params.grant_type === "refresh_token" ? "renewed" : "codes"]++);

async function agree(req, res) {
  const { prompt, params, session } = await provider.interactionDetails(req, res);
  if (prompt.name === "login") return provider.interactionFinished(req, res, { login: { accountId: "alice" } });
  const grant = new provider.Grant({ accountId: session.accountId, clientId: params.client_id });
  grant.addOIDCScope(params.scope);
  return provider.interactionFinished(req, res, { consent: { grantId: await grant.save() } }, { mergeWithLastSubmission: true });
}

const handle = provider.callback();
server.on("request", (req, res) => {
  if (req.url.startsWith("/interaction/")) return agree(req, res);
  if (req.url === "/me") res.on("finish", () => (count.served += res.statusCode === 200 ? 1 : 0));
  return handle(req, res);
});
console.log(issuer);
for await (const line of createInterface({ input: process.stdin })) {
  if (line === "replay") {
    const headers = { authorization: `Basic ${btoa(`${client.id}:${client.secret}`)}` };
    await fetch(`${issuer}/token`, { method: "POST", headers, body: new URLSearchParams({ grant_type: "refresh_token", refresh_token: first }) });
  }
  console.log(JSON.stringify(count));
}
process.exit(0);
