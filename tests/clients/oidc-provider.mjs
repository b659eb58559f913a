// A real OpenID provider, where anybody signs in with any password. Arguments: the redirect address, a table of name -> groups.
// It prints the address by which it goes.
import { createServer } from 'node:http'
import { Provider } from 'oidc-provider'

const [back, table] = process.argv.slice(2)
const groups = JSON.parse(table)
const server = createServer()
server.listen(0, '127.0.0.1', () => {
  const issuer = `http://127.0.0.1:${server.address().port}`
  const provider = new Provider(issuer, {
    clients: [{ client_id: 'diagnose', client_secret: 'a+secret/with:signs', redirect_uris: [back], grant_types: ['authorization_code'] }],
    claims: { openid: ['sub'], email: ['email', 'email_verified'], groups: ['groups'] },
    scopes: ['openid', 'email', 'groups'],
    pkce: { required: () => true },
    cookies: { keys: ['only for tests'] },
    async findAccount (_, id) {
      return { accountId: id, claims: async () => ({ sub: id, email: `${id}@example.org`, email_verified: true, groups: groups[id] ?? [] }) }
    }
  })
  server.on('request', provider.callback())
  console.log(issuer)
})
