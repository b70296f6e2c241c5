// Goes to an HTTPS server through the gateway as a proxy, by Node's own HTTP and TLS
// clients: node tunnel.mjs https://HOST:PORT/ (https_proxy and NODE_EXTRA_CA_CERTS in the
// environment). Prints the answer to a POST of a mebibyte.
import http from 'node:http'
import https from 'node:https'

const target = new URL(process.argv[2])
const proxy = new URL(process.env.https_proxy)
const credentials = Buffer.from(`${proxy.username}:${proxy.password}`).toString('base64')
const asked = http.request({
  host: proxy.hostname, port: proxy.port, method: 'CONNECT', path: target.host,
  headers: { host: target.host, 'proxy-authorization': `Basic ${credentials}` },
})
asked.on('error', fail)
asked.on('response', (answer) => fail(`no tunnel: ${answer.statusCode}`))
asked.on('connect', (answer, socket, head) => {
  if (answer.statusCode !== 200 || head.length > 0) fail(`no tunnel: ${answer.statusCode}`)
  const request = https.request(target, { method: 'POST', socket, agent: false }, async (response) => {
    let text = ''
    for await (const piece of response) text += piece
    console.log(text)
  })
  request.on('error', fail)
  request.end('x'.repeat(1 << 20))
})
asked.end()

function fail(why) {
  console.error(String(why))
  process.exit(1)
}
