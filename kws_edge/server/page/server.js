// The server's API, as README and /openapi.json describe it.

const MOST_EARLY = 100; // chunks; 10 s

let key = "";

export class Problem extends Error {
  constructor(problem) {
    super(problem.detail);
    this.code = problem.type.split(":").pop();
  }
}

export function useKey(text) {
  key = text.trim(); // or a WebSocket would not take what came along as it was pasted
}

async function request(path, options = {}) {
  const response = await fetch(path, { ...options, headers: key ? { Authorization: `Bearer ${key}` } : {} }).catch(() => {
    throw new Error("The server cannot be reached.");
  });
  if (!response.ok) throw await refusal(response);
  return response;
}

// The error that an answer is; what stands before the server, as a proxy, has no problem details.
async function refusal(response) {
  const { status } = response;
  const problem = await response.json().catch(() => null);
  if (typeof problem?.type === "string" && typeof problem.detail === "string") return new Problem(problem);
  if (status === 413) return new Error("Something before the server takes no file of that size.");
  if (status === 503) return new Error("The server is busy; try again later.");
  return new Error(`Status ${status} from something before the server.`);
}

async function call(path, options) {
  return (await request(path, options)).json();
}

export async function models() {
  return (await call("v1/models")).models;
}

export function description(model) {
  return call(`v1/models/${encodeURIComponent(model)}`);
}

// A model with its front end, as the bytes of an ONNX file.
export async function modelFile(model) {
  return new Uint8Array(await (await request(`browser/${encodeURIComponent(model)}.audio.onnx`)).arrayBuffer());
}

export function classify(file, model) {
  const form = new FormData();
  form.append("file", file);
  return call(`v1/classify?${new URLSearchParams({ model })}`, { method: "POST", body: form });
}

// A stream: `onMessage` gets each message of the server, `onEnd` a text that says why it ended, or "" where we ended it.
// `options` are further parameters, such as those of a wake word.
export class Stream {
  constructor(model, onMessage, onEnd, options = {}) {
    const url = new URL(`v1/stream?${new URLSearchParams({ model, posteriors: true, ...options })}`, document.baseURI);
    url.protocol = url.protocol.replace("http", "ws");
    this.socket = new WebSocket(url, key ? ["kws-edge", `kws-edge.key.${key}`] : ["kws-edge"]);
    this.closing = false;
    this.early = []; // chunks that came before the connection was there
    this.lost = 0; // samples that were left out
    this.socket.onopen = () => this.early.splice(0).forEach((chunk) => this.socket.send(chunk));
    let said = "";
    this.socket.onmessage = ({ data }) => {
      const message = JSON.parse(data);
      if (message.type === "error") said = message.problem.detail;
      else onMessage(message);
    };
    this.socket.onclose = ({ code }) => {
      const reasons = { 1006: "The connection was lost." };
      onEnd(this.closing ? "" : said || reasons[code] || `The server ended the stream (${code}).`);
    };
  }

  // Sends a chunk; where the network is too slow, it is left out and the server told of the gap.
  send(chunk) {
    const connecting = this.socket.readyState === WebSocket.CONNECTING;
    if (connecting && this.early.length < MOST_EARLY) {
      this.early.push(chunk);
      return;
    }
    if (connecting || this.socket.bufferedAmount > 20 * chunk.byteLength) {
      this.lost += chunk.byteLength / 2;
      return;
    }
    if (this.socket.readyState !== WebSocket.OPEN) return;
    if (this.lost) this.socket.send(JSON.stringify({ type: "gap", samples: this.lost }));
    this.lost = 0;
    this.socket.send(chunk);
  }

  close() {
    this.closing = true;
    this.socket.close(1000);
  }
}
