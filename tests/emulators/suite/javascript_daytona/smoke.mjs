// Drives the Daytona emulator with the vendor's JavaScript SDK. DAYTONA_API_URL and DAYTONA_API_KEY
// say where it is. The last line on stdout is JSON: what each step saw.
import { Daytona } from '@daytona/sdk'

const daytona = new Daytona()
const seen = {}

const volume = await daytona.volume.create('js-volume')
for (;;) {
  const state = (await daytona.volume.get('js-volume')).state
  if (state === 'ready') break
  await new Promise((done) => setTimeout(done, 20))
}
const sandbox = await daytona.create({
  labels: { by: 'js' },
  envVars: { GIVEN: 'yes' },
  volumes: [{ volumeId: volume.id, mountPath: '/data' }],
})
seen.sandbox = sandbox.id
seen.volume = volume.id

const { process: run, fs, git } = sandbox
const failed = await run.executeCommand('pwd; echo $GIVEN $A; echo problem >&2; exit 3', '/tmp', { A: 'b' })
seen.exec = [failed.exitCode, failed.result]
seen.code = (await run.codeRun('print(6 * 7)')).result
seen.timeout = await run.executeCommand('sleep 60', undefined, undefined, 1).catch((error) => error.name)

await run.createSession('work')
await run.executeSessionCommand('work', { command: 'export KEPT=7; cd /data' })
seen.session = (await run.executeSessionCommand('work', { command: 'echo $KEPT > kept; pwd' })).stdout
const command = await run.executeSessionCommand('work', {
  command: 'for i in 1 2 3; do echo out$i; echo err$i >&2; sleep 0.05; done; (exit 4)',
  runAsync: true,
})
const streams = { stdout: '', stderr: '' }
await run.getSessionCommandLogs(
  'work',
  command.cmdId,
  (chunk) => (streams.stdout += chunk),
  (chunk) => (streams.stderr += chunk),
)
seen.streams = streams
seen.exitCode = (await run.getSessionCommand('work', command.cmdId)).exitCode
await run.deleteSession('work')
seen.gone = await run.getSession('work').catch((error) => error.name)

await fs.uploadFiles([
  { source: Buffer.from('one'), destination: 'up/one' },
  { source: Buffer.from('zwei'), destination: 'up/ü "2"' },
])
seen.files = (await fs.listFiles('up')).map((file) => file.name)
seen.downloads = (await fs.downloadFiles([{ source: 'up/one' }, { source: 'up/ü "2"' }, { source: 'up/none' }])).map(
  (file) => (file.error ? 'error' : file.result.toString()),
)
seen.found = (await fs.findFiles('up', 'wei')).map((match) => [match.file, match.line])
seen.missing = await fs.downloadFile('up/none').catch((error) => error.name)

await git.init('repo')
await fs.uploadFile(Buffer.from('x'), 'repo/file')
await git.add('repo', ['file'])
seen.commit = (await git.commit('repo', 'first', 'Ada', 'ada@example.org')).sha
seen.branch = (await git.status('repo')).currentBranch

const interpreter = sandbox.codeInterpreter
await interpreter.runCode('x = 10')
seen.interpreter = (await interpreter.runCode('print(x)')).stdout
seen.interpreterError = (await interpreter.runCode('1 / 0')).error.name

let shown = ''
const terminal = await run.createPty({
  id: 'terminal',
  cols: 70,
  rows: 20,
  envs: { WORD: 'hello' },
  onData: (data) => (shown += new TextDecoder().decode(data)),
})
await terminal.waitForConnection()
await terminal.sendInput('stty size; echo $WORD; exit 5\n')
seen.terminal = [(await terminal.wait()).exitCode, shown.includes('20 70\r\nhello\r\n')]

await sandbox.delete()
console.log(JSON.stringify(seen))
process.exit(0)
