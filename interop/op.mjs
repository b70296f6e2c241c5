// An OpenID Connect provider that nobody here wrote (npm's oidc-provider), for
// TestOIDCProvider. It prints its address; each line that it reads has it sign with
// a new key and publish that key alone, and is answered
// by how often keys were fetched so far.
import { once } from "node:events";
import { createServer } from "node:http";
import { createInterface } from "node:readline";
import { exportJWK, generateKeyPair } from "jose";
import { Provider } from "oidc-provider";

const algs = ["RS256", "ES256", "EdDSA", "PS256"];
console.info = console.warn; // notices are no answers
let generation = 0;
let fetches = 0; // of keys

async function provider(issuer) {
  const alg = algs[generation % algs.length];
  const { privateKey } = await generateKeyPair(alg, { extractable: true });
  const key = { ...(await exportJWK(privateKey)), alg, use: "sig", kid: `${alg}-${generation++}` };
  const made = new Provider(issuer, {
    clients: [{ client_id: "agent", client_secret: "a secret of the test's", grant_types: ["client_credentials"], redirect_uris: [], response_types: [], id_token_signed_response_alg: alg }],
    jwks: { keys: [key] },
    ttl: { ClientCredentials: 600 },
    features: {
      devInteractions: { enabled: false },
      clientCredentials: { enabled: true },
      resourceIndicators: {
        enabled: true,
        getResourceServerInfo: (_ctx, resource) => ({ scope: "github:read", audience: resource, accessTokenFormat: "jwt", jwt: { sign: { alg } } }),
      },
    },
  });
  return made.callback();
}

const server = createServer();
server.listen(0, "127.0.0.1");
await once(server, "listening");
const issuer = `http://127.0.0.1:${server.address().port}`;
let handle = await provider(issuer);
server.on("request", (req, res) => {
  fetches += req.url === "/jwks" ? 1 : 0;
  handle(req, res);
});
console.log(issuer);
for await (const _ of createInterface({ input: process.stdin })) {
  handle = await provider(issuer);
  console.log(fetches);
}
process.exit(0);
