// Classify a file and listen to a stream through a kws-edge server, from Node 22 or newer, without any package.
//
//   node examples/node/client.mjs http://127.0.0.1:8765 kws_edge/samples/yes.flac demo.pcm
//
// demo.pcm is raw sound: 16-bit little-endian samples, 16 kHz, mono; the microphone gives the same with
// `arecord -f S16_LE -r 16000 -c 1 -t raw`. The API key, if the server asks for one, is $KWS_EDGE_API_KEY.
import { readFile } from "node:fs/promises";

function fail(error) { // in one line; fetch says only in its cause that no server answers
  console.error(`error: ${error.cause?.message || error.message}`);
  process.exit(1);
}
process.on("uncaughtException", fail);

const [server, clip, pcm] = process.argv.slice(2);
if (!clip) fail(new Error("expected client.mjs SERVER CLIP [SAMPLES.pcm]"));
const key = process.env.KWS_EDGE_API_KEY;

const headers = key ? { Authorization: `Bearer ${key}` } : {};
const form = new FormData();
form.append("file", new Blob([await readFile(clip)]), clip);
const response = await fetch(`${server}/v1/classify?target=0.99`, { method: "POST", headers, body: form });
const answer = await response.json();
if (!response.ok) throw new Error(answer.detail);
console.log("clip:", answer.label ?? `not sure (${answer.reason})`);

if (pcm) {
  if (!globalThis.WebSocket)
    throw new Error(`Node ${process.versions.node} has no WebSocket; expected Node 22 or newer, or node --experimental-websocket`);
  const samples = await readFile(pcm);
  const protocols = key ? ["kws-edge", `kws-edge.key.${key}`] : [];
  const socket = new WebSocket(`${server.replace(/^http/, "ws")}/v1/stream`, protocols);
  socket.onopen = () => {
    for (let i = 0; i < samples.length; i += 32000) socket.send(samples.subarray(i, i + 32000)); // a second each
    socket.send(JSON.stringify({ type: "finish" }));
  };
  socket.onmessage = ({ data }) => {
    const message = JSON.parse(data);
    if (message.type === "event") console.log(`${message.end.toFixed(1)} s:`, message.label ?? `not sure (${message.reason})`);
    if (message.type === "error") console.error(message.problem.detail);
  };
  socket.onclose = ({ code }) => (process.exitCode = code === 1000 ? 0 : 1);
}
