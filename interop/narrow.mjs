import { createHash, randomUUID } from 'node:crypto'
import { SignJWT, decodeJwt, exportJWK } from 'jose'

// narrow hands the last link of chain on to agent for ten minutes, signed with the
// key pair that it names in cnf. A claim that is left as it was grants what it did.
export async function narrow (chain, agent, { publicKey, privateKey }, now = Math.floor(Date.now() / 1000)) {
  chain = chain.trim() // a file ends with a line end
  const parent = chain.split(',').at(-1).trim()
  const { cnf, ...claims } = decodeJwt(parent) // without cnf: the new agent may not hand it on
  const { kty, crv, x } = await exportJWK(publicKey)
  const link = await new SignJWT({
    ...claims,
    act: { sub: `agent:${agent}` },
    par: createHash('sha256').update(parent).digest('base64url'),
    jti: randomUUID(),
    iat: now,
    exp: Math.min(claims.exp, now + 600),
    del_depth: claims.del_depth - 1
  }).setProtectedHeader({ typ: 'agent-delegation+jwt', alg: 'EdDSA', jwk: { kty, crv, x } }).sign(privateKey)
  return `${chain},${link}`
}
