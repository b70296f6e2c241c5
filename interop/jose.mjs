// Signs, narrows or verifies delegations with jose, as the first argument says: a line of
// JSON in, a line of JSON out.
import { createInterface } from 'node:readline'
import { compactVerify, decodeProtectedHeader, importJWK, SignJWT } from 'jose'
import { narrow } from './narrow.mjs'

const imported = ({ d, ...jwk }) => importJWK(jwk, 'EdDSA')

const commands = {
  sign: async ({ header, claims, jwk }) => await new SignJWT(claims).setProtectedHeader(header).sign(await importJWK(jwk, 'EdDSA')),
  narrow: async ({ chain, agent, jwk, now }) => await narrow(chain, agent, { publicKey: await imported(jwk), privateKey: await importJWK(jwk, 'EdDSA') }, now),
  verify: async ({ token, jwk }) => {
    try {
      await compactVerify(token, await imported(jwk), { algorithms: ['EdDSA'] })
      return decodeProtectedHeader(token).typ === 'agent-delegation+jwt'
    } catch {
      return false
    }
  }
}

const run = commands[process.argv[2]]
for await (const line of createInterface({ input: process.stdin })) {
  console.log(JSON.stringify(await run(JSON.parse(line))))
}
