// Sends lines with winston-loki: protobuf in a snappy block. Arguments: URL, number of lines.
const { createLogger, format } = require('winston')
const LokiTransport = require('winston-loki')

const [url, count] = process.argv.slice(2)
const transport = new LokiTransport({
  host: url,
  json: false,
  interval: 1,
  labels: { job: 'winston', filename: 'rank0.log', rank: '0' },
  format: format.printf((info) => info.message),
  onConnectionError: (error) => { console.error(String(error)); process.exitCode = 1 }
})
const logger = createLogger({ transports: [transport] })
for (let i = 0; i < Number(count); i++) logger.info(`step ${i} loss 2.5`)
transport.flush().then(() => process.exit(), (error) => { console.error(String(error)); process.exit(1) })
