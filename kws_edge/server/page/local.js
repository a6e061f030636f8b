// The model in this browser, on onnxruntime-web: answers as the server gives them, and no audio leaves the machine.
//
// Clips are answered by the server's rules. The live mode has the server's windows and smoothing, and gives a word once;
// it has no noise gate, and writes no "not sure" into the log.

import { RATE } from "./resampler.js";
import { description } from "./server.js";

const TARGET = 0.995;
const SILENCE_PEAK = 10 ** (-70 / 20);
const STEP = RATE / 10;
const BATCH = 16;
const REFRACTORY = 0.8; // s between two words
const REARM = 3; // hops without the last word, before it can come again

let loaded = {}; // name → promise of a model

function model(name) {
  loaded[name] ??= load(name).catch((error) => {
    delete loaded[name];
    throw error;
  });
  return loaded[name];
}

async function load(name) {
  const folder = new URL("../browser/", import.meta.url);
  const ort = await import(new URL("ort.wasm.min.mjs", folder));
  ort.env.wasm.wasmPaths = folder.href;
  ort.env.wasm.numThreads = 1; // more would need a page that is isolated from all others
  const session = await ort.InferenceSession.create(new URL(`${name}.onnx`, folder).href);
  return { ort, session, about: await description(name) };
}

// Windows, each Float32Array of the same length, through the network: {alpha, entropy, vacuity} for each.
async function run({ ort, session, about }, windows) {
  const audio = new Float32Array(windows.length * windows[0].length);
  windows.forEach((window, i) => audio.set(window, i * window.length));
  const { alpha, entropy, vacuity } = await session.run({
    audio: new ort.Tensor("float32", audio, [windows.length, windows[0].length]),
  });
  const K = about.labels.length;
  return windows.map((_, i) => ({
    alpha: [...alpha.data.slice(i * K, (i + 1) * K)],
    entropy: entropy.data[i],
    vacuity: vacuity.data[i],
  }));
}

// The largest deviation from the mean.
function peak(samples) {
  const mean = samples.reduce((a, b) => a + b, 0) / samples.length;
  return samples.reduce((most, x) => Math.max(most, Math.abs(x - mean)), 0);
}

const isSilent = (samples) => peak(samples) < SILENCE_PEAK;

function thresholdOf({ thresholds, score }) {
  return (thresholds[score].find(({ target }) => target === TARGET) ?? thresholds[score][0]).threshold;
}

async function decode(file) {
  let audio;
  try {
    audio = await new OfflineAudioContext(1, 1, RATE).decodeAudioData(await file.arrayBuffer());
  } catch {
    throw new Error(`${file.name}: this browser cannot read it as audio`);
  }
  const channels = Array.from({ length: audio.numberOfChannels }, (_, i) => audio.getChannelData(i));
  const sounding = channels.filter((channel) => !isSilent(channel));
  const used = sounding.length ? sounding : channels;
  return used[0].map((_, i) => used.reduce((sum, channel) => sum + channel[i], 0) / used.length);
}

// A clip of up to one input is one window; in a longer one each second is tried, a tenth apart.
function cut(samples, { window, hop, frames }) {
  if (samples.length < window + frames * hop) return [{ start: 0, samples }];
  const length = Math.floor((RATE - window) / hop) * hop + window; // of whole frames in a second
  const last = Math.floor((samples.length - window) / hop) * hop - (length - window);
  const starts = [];
  for (let start = 0; start <= last; start += STEP) starts.push(start);
  if (starts.at(-1) !== last) starts.push(last);
  return starts.map((start) => ({ start, samples: samples.subarray(start, start + length) }));
}

export async function classify(file, name) {
  const used = await model(name);
  const { about } = used;
  const samples = await decode(file);
  if (samples.length < about.front_end.window) throw new Error(`${file.name}: too short`);
  const windows = cut(samples, about.front_end);
  const heard = windows.filter((window) => !isSilent(window.samples));
  const K = about.labels.length;
  let best = { window: windows[0], alpha: Array(K).fill(1), entropy: 1, vacuity: 1 };
  for (let i = 0; i < heard.length; i += BATCH) {
    const batch = heard.slice(i, i + BATCH);
    const outputs = await run(used, batch.map((window) => window.samples));
    outputs.forEach((output, j) => {
      if (best.guess === undefined || output[about.score] < best[about.score]) {
        best = { window: batch[j], ...output, guess: about.labels[output.alpha.indexOf(Math.max(...output.alpha))] };
      }
    });
  }
  const threshold = thresholdOf(about);
  const reason = best.guess === undefined ? "silence" : best[about.score] > threshold ? "uncertain" : null;
  return {
    label: reason ? null : best.guess,
    guess: best.guess ?? null,
    reason,
    probability: Math.max(...best.alpha) / best.alpha.reduce((a, b) => a + b),
    alpha: best.alpha,
    entropy: best.entropy,
    vacuity: best.vacuity,
    score: about.score,
    threshold,
    start: best.window.start / RATE,
    end: (best.window.start + best.window.samples.length) / RATE,
    seconds: samples.length / RATE,
    warnings: [],
  };
}

// The same face as the server's Stream.
export class Stream {
  constructor(name, onMessage, onEnd) {
    this.onMessage = onMessage;
    this.window = new Float32Array(RATE);
    this.count = 0; // of samples so far
    this.before = null; // p and vacuity of the last hop, for the smoothing
    this.word = { label: null, time: -Infinity, released: REARM };
    this.work = model(name).then((used) => {
      this.used = used;
      onMessage({ type: "hello", thresholds: { [used.about.score]: thresholdOf(used.about) } });
    });
    this.work.catch((error) => onEnd(error.message));
  }

  send(chunk) {
    const samples = Float32Array.from(new Int16Array(chunk), (x) => x / 32768);
    this.work = this.work.then(() => this.closed || this.hop(samples));
    this.work.catch(() => {}); // said by the constructor
  }

  async hop(samples) {
    const { labels } = this.used.about;
    this.window.copyWithin(0, samples.length);
    this.window.set(samples, RATE - samples.length);
    this.count += samples.length;
    const rms = Math.sqrt(samples.reduce((sum, x) => sum + x * x, 0) / samples.length);
    let now = { p: Array(labels.length).fill(1 / labels.length), vacuity: 1 };
    let state = this.count < RATE ? "warming_up" : "silence";
    if (this.count >= RATE && !isSilent(this.window)) {
      state = "listening";
      const [{ alpha, vacuity }] = await run(this.used, [this.window]);
      const sum = alpha.reduce((a, b) => a + b);
      now = { p: alpha.map((a) => a / sum), vacuity };
    }
    const before = this.before ?? now;
    this.before = now;
    const probability = now.p.map((p, i) => (p + before.p[i]) / 2);
    const vacuity = (now.vacuity + before.vacuity) / 2;
    const entropy = -probability.reduce((sum, p) => sum + (p > 0 ? p * Math.log(p) : 0), 0) / Math.log(labels.length);
    const time = this.count / RATE;
    this.onMessage({ type: "hop", state, level: Math.max(-100, 20 * Math.log10(rms)), probability, entropy, vacuity });
    this.decide({ time, probability, entropy, vacuity });
  }

  decide({ time, probability, entropy, vacuity }) {
    const { labels, score } = this.used.about;
    const best = probability.indexOf(Math.max(...probability));
    const label = labels[best];
    const accepted = !label.startsWith("_") && { entropy, vacuity }[score] <= thresholdOf(this.used.about);
    this.word.released = accepted && label === this.word.label ? 0 : this.word.released + 1;
    if (this.word.released >= REARM) this.word.label = null;
    if (!accepted || label === this.word.label || time - this.word.time < REFRACTORY) return;
    this.word = { label, time, released: 0 };
    const numbers = { probability: probability[best], entropy, vacuity };
    this.onMessage({ type: "event", label, guess: label, reason: null, start: Math.max(0, time - 1), end: time, ...numbers });
  }

  close() {
    this.closed = true;
  }
}
