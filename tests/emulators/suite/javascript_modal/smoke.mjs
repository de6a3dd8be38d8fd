// Drives the Modal emulator with Modal's own JavaScript SDK, so that the emulator is not merely
// what our provider expects. Reads MODAL_* from the environment, runs every step, and prints one
// JSON line: what each step saw, for the test to compare with what the emulator knows.

import assert from "node:assert/strict";
import { ModalClient, NotFoundError, RemoteError } from "modal";

const modal = new ModalClient();
const seen = {};

async function step(name, run) {
  const began = Date.now();
  try {
    seen[name] = (await run()) ?? true;
  } catch (error) {
    throw new Error(`step ${name} failed: ${error.stack ?? error}`);
  }
  process.stderr.write(`${name} ${Date.now() - began} ms\n`);
}

async function idsOf(sandboxes) {
  const ids = [];
  for await (const sandbox of sandboxes) ids.push(sandbox.sandboxId);
  return ids;
}

let app, image, cpu;

await step("app", async () => {
  app = await modal.apps.fromName("js-smoke", { createIfMissing: true });
  await assert.rejects(modal.apps.fromName("nowhere"), NotFoundError);
  return app.appId;
});

await step("image", async () => {
  image = modal.images
    .fromRegistry("debian:stable-slim")
    .dockerfileCommands(["RUN echo layered > /etc/layer"]);
  await image.build(app);
  return image.imageId;
});

await step("failing image", async () => {
  const broken = modal.images
    .fromRegistry("debian:stable-slim")
    .dockerfileCommands(["RUN echo going down; exit 9"]);
  await assert.rejects(broken.build(app));
});

await step("create", async () => {
  cpu = await modal.sandboxes.create(app, image, {
    name: "first",
    tags: { team: "js" },
    command: ["cat"],
    timeoutMs: 120_000,
  });
  return cpu.sandboxId;
});

await step("exec", async () => {
  const run = await cpu.exec(["sh", "-c", "cat /etc/layer; echo oops >&2; exit 7"]);
  const [out, err, code] = [await run.stdout.readText(), await run.stderr.readText(), await run.wait()];
  assert.deepEqual([out, err, code], ["layered\n", "oops\n", 7]);
});

await step("exec stdin", async () => {
  const run = await cpu.exec(["sh", "-c", "read line; echo got $line $WORD"], {
    env: { WORD: "indeed" },
    workdir: "/tmp",
  });
  await run.stdin.writeText("hello\n");
  await run.closeStdin();
  assert.equal(await run.stdout.readText(), "got hello indeed\n");
  assert.equal(await run.wait(), 0);
});

await step("tags", async () => {
  assert.deepEqual(await cpu.getTags(), { team: "js" });
  await cpu.setTags({ team: "js", round: "2" });
  assert.deepEqual(await cpu.getTags(), { team: "js", round: "2" });
});

await step("find", async () => {
  assert.equal((await modal.sandboxes.fromId(cpu.sandboxId)).sandboxId, cpu.sandboxId);
  assert.equal((await modal.sandboxes.fromName("js-smoke", "first")).sandboxId, cpu.sandboxId);
  assert.deepEqual(await idsOf(modal.sandboxes.list({ appId: app.appId })), [cpu.sandboxId]);
  assert.deepEqual(await idsOf(modal.sandboxes.list({ appId: app.appId, tags: { round: "3" } })), []);
  await assert.rejects(modal.sandboxes.fromName("js-smoke", "second"), NotFoundError);
});

await step("filesystem", async () => {
  await cpu.filesystem.writeText("grüße\n", "/tmp/note.txt");
  assert.equal(await cpu.filesystem.readText("/tmp/note.txt"), "grüße\n");
});

await step("stdin and stdout", async () => {
  assert.equal(await cpu.poll(), null);
  await cpu.stdin.writeText("through cat\n");
  await cpu.stdin.close();
  assert.equal(await cpu.wait(), 0);
  assert.equal(await cpu.stdout.readText(), "through cat\n");
  assert.equal(await cpu.poll(), 0);
});

await step("terminate", async () => {
  const sleeper = await modal.sandboxes.create(app, image, { command: ["sleep", "100"] });
  assert.equal(await sleeper.terminate({ wait: true }), 137);
  assert.deepEqual(await idsOf(modal.sandboxes.list({ appId: app.appId })), []);
  return sleeper.sandboxId;
});

await step("gpu", async () => {
  const sandbox = await modal.sandboxes.create(app, image, {
    gpu: "A100:2",
    command: ["sh", "-c", "echo on a gpu; exit 3"],
  });
  assert.equal(await sandbox.stdout.readText(), "on a gpu\n");
  assert.equal(await sandbox.wait(), 3);
  return sandbox.sandboxId;
});

await step("volume", async () => {
  const volume = await modal.volumes.fromName("js-volume", { createIfMissing: true });
  const writer = await modal.sandboxes.create(app, image, {
    command: ["sh", "-c", "echo kept > /data/note"],
    volumes: { "/data": volume },
  });
  assert.equal(await writer.wait(), 0);
  const reader = await modal.sandboxes.create(app, image, {
    command: ["cat", "/data/note"],
    volumes: { "/data": volume.withMountOptions({ readOnly: true }) },
  });
  assert.equal(await reader.stdout.readText(), "kept\n");
  return volume.volumeId;
});

await step("secret", async () => {
  const secret = await modal.secrets.fromObject({ TOKEN: "s3cret" });
  const sandbox = await modal.sandboxes.create(app, image, {
    command: ["sh", "-c", "echo $TOKEN"],
    secrets: [secret],
  });
  assert.equal(await sandbox.stdout.readText(), "s3cret\n");
});

// A function that the test deployed with the Python SDK.
if (process.env.SMOKE_FUNCTION_APP) {
  await step("function", async () => {
    const double = await modal.functions.fromName(process.env.SMOKE_FUNCTION_APP, "double");
    assert.equal(await double.remote([21]), 42);
    const call = await double.spawn([4]);
    assert.equal(await call.get(), 8);
    await assert.rejects(double.remote([null]), RemoteError);
    return call.functionCallId;
  });
}

modal.close();
console.log(JSON.stringify(seen));
