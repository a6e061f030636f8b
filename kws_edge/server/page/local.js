// The model in this browser, on onnxruntime-web: answers as the server gives them, and no audio leaves the machine.

import { Decision, isWord } from "./decision.js";
import { decode, isSilent } from "./decode.js";
import { HopStream, isClipped } from "./hops.js";
import { RATE } from "./resampler.js";
import { description, modelFile } from "./server.js";

const TARGET = 0.995;
const STEP = RATE / 10;
const BATCH = 16;
const BEYOND = RATE / 2; // samples
const SMOOTHING = 0.3; // s, for a model that was not calibrated on streams
const MOST_WAITING = 20; // chunks; 2 s
const MOST_EARLY = 600; // chunks that wait for the model to be there; a minute

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
  const session = await ort.InferenceSession.create(await modelFile(name));
  return { ort, session, about: await description(name) };
}

// Windows, each Float32Array of the same length, through the network: {top, alpha, entropy, vacuity} for each, top being the class's index.
async function run({ ort, session, about }, windows) {
  const audio = new Float32Array(windows.length * windows[0].length);
  windows.forEach((window, i) => audio.set(window, i * window.length));
  const { class: top, alpha, entropy, vacuity } = await session.run({
    audio: new ort.Tensor("float32", audio, [windows.length, windows[0].length]),
  });
  const K = about.labels.length;
  return windows.map((_, i) => ({
    top: Number(top.data[i]),
    alpha: [...alpha.data.slice(i * K, (i + 1) * K)],
    entropy: entropy.data[i],
    vacuity: vacuity.data[i],
  }));
}

function thresholdOf({ name, thresholds, score }) {
  const point = thresholds[score]?.find(({ target }) => target === TARGET);
  if (!point) throw new Error(`model ${name}: no threshold for score '${score}' at target ${TARGET}`);
  return point.threshold;
}

// Whether a clip is one window, or a recording of several.
const fits = (samples, { window, hop, frames }) => samples.length < window + frames * hop;

// What a recording is taken to have half a second before and after it: its first and its last sample.
function withEnds(samples) {
  const padded = new Float32Array(samples.length + 2 * BEYOND).fill(samples[0], 0, BEYOND);
  padded.set(samples, BEYOND);
  return padded.fill(samples.at(-1), BEYOND + samples.length);
}

// Windows of so many samples, a tenth of a second apart.
function cut(samples, { window, hop }, length) {
  const last = Math.floor((samples.length - window) / hop) * hop - (length - window);
  const starts = [];
  for (let start = 0; start <= last; start += STEP) starts.push(start);
  if (starts.at(-1) !== last) starts.push(last);
  return starts.map((start) => ({ start, samples: samples.subarray(start, start + length) }));
}

// Why the answer of a window that the network saw is withheld, or null.
function withheld({ samples }, guess, uncertain) {
  if (uncertain) return isClipped(samples) ? "clipped" : "uncertain";
  if (isWord(guess)) return null;
  return guess === "_silence_" ? "silence" : "unknown_word";
}

// Whether an answer speaks for a recording rather than another: a word, what the network saw, the rest.
function outranks(one, other, score) {
  const rank = ({ reason, guess }) => (reason ? 2 : 0) + (guess ? 0 : 1);
  return rank(one) < rank(other) || (rank(one) === rank(other) && one[score] < other[score]);
}

// Over how many windows a recording is averaged, and the mean's thresholds by score, as kws_edge/model/search.py has it.
function ofFiles(about) {
  const { decision, stream, score } = about;
  const limits = { [score]: thresholdOf(about) };
  if (!stream) return { n: Math.round(SMOOTHING / 0.1), limits };
  for (const name of ["entropy", "vacuity"]) {
    const least = Math.min(limits[name] ?? Infinity, decision.thresholds[name] ?? Infinity);
    if (least < Infinity) limits[name] = least;
  }
  return { n: Math.max(1, Math.round(decision.smoothing / 0.1)), limits };
}

// The mean of what some windows say; in place of its α the probabilities, whose sum is 1.
function meanOf(outputs) {
  const mean = (of) => outputs.reduce((sum, one) => sum + of(one), 0) / outputs.length;
  const p = outputs[0].p.map((_, i) => mean((one) => one.p[i]));
  const nats = -p.reduce((sum, x) => sum + (x > 0 ? x * Math.log(x) : 0), 0);
  return { p, alpha: p, vacuity: mean((one) => one.vacuity), entropy: nats / Math.log(p.length) };
}

export async function classify(file, name) {
  const used = await model(name);
  const { about } = used;
  const ofClips = thresholdOf(about);
  const { samples, warnings } = await decode(file);
  if (samples.length < about.front_end.window) throw new Error(`${file.name}: too short`);
  const K = about.labels.length;
  const nothing = { p: Array(K).fill(1 / K), alpha: Array(K).fill(1), entropy: 1, vacuity: 1 };
  const isShort = fits(samples, about.front_end) && about.training.method !== "template of takes"; // is_searched
  const length = Math.round(about.window * RATE);
  const windows = isShort ? [{ start: 0, samples }] : cut(withEnds(samples), about.front_end, length);
  const heard = windows.filter((window) => !isSilent(window.samples));
  const outputs = new Map(); // window → what the network says of it
  for (let i = 0; i < heard.length; i += BATCH) {
    const batch = heard.slice(i, i + BATCH);
    (await run(used, batch.map((window) => window.samples))).forEach((output, j) => {
      const sum = output.alpha.reduce((a, b) => a + b);
      outputs.set(batch[j], { ...output, p: output.alpha.map((a) => a / sum) });
    });
  }
  const { n, limits } = isShort ? { n: 1, limits: { [about.score]: ofClips } } : ofFiles(about);
  const past = Array(n).fill(nothing);
  let best = { window: windows[0], guess: null, reason: "silence", score: about.score, ...nothing };
  windows.forEach((window, i) => {
    past.push(outputs.get(window) ?? nothing);
    past.shift();
    const middle = windows[Math.max(0, i - Math.floor(n / 2))];
    if (!outputs.has(middle)) return;
    const mean = isShort ? past[0] : meanOf(past);
    const guess = about.labels[mean.top ?? mean.p.indexOf(Math.max(...mean.p))];
    const above = Object.keys(limits).find((score) => mean[score] > limits[score]);
    const score = above ?? about.score; // that decided
    const answer = { window: middle, guess, reason: withheld(middle, guess, above), score, ...mean };
    if (outranks(answer, best, about.score)) best = answer;
  });
  const { window, guess, reason, score, p, alpha, entropy, vacuity } = best;
  const shift = isShort ? 0 : BEYOND;
  return {
    label: reason ? null : guess,
    guess,
    reason,
    probability: Math.max(...p),
    alpha,
    entropy,
    vacuity,
    score,
    threshold: limits[score],
    start: Math.max(0, window.start - shift) / RATE,
    end: Math.min(samples.length, window.start + window.samples.length - shift) / RATE,
    seconds: samples.length / RATE,
    warnings,
  };
}

// The same face as the server's Stream.
export class Stream {
  constructor(name, onMessage, onEnd) {
    this.onMessage = onMessage;
    this.waiting = this.lost = 0; // chunks, and samples of those that were left out
    this.work = model(name).then((used) => {
      const { about } = used;
      if (!about.decision) throw new Error(`${name} is not calibrated: there is no threshold to decide by.`);
      this.used = used;
      this.hops = new HopStream(Math.round(about.window * RATE));
      this.decision = new Decision(about);
      onMessage({ type: "hello", window: about.window, thresholds: about.decision.thresholds });
    });
    this.end = (error) => {
      if (!this.closed) onEnd(error.message);
      this.closed = true;
    };
    this.work.catch(this.end);
  }

  // Takes a chunk, an ArrayBuffer of int16, also while the model is loaded; where this machine is too slow, it is left out
  // and counted as a gap.
  send(chunk) {
    if (this.closed) return;
    const samples = Float32Array.from(new Int16Array(chunk), (x) => x / 32768);
    if (this.waiting >= (this.hops ? MOST_WAITING : MOST_EARLY)) {
      this.lost += samples.length;
      return;
    }
    const { lost } = this;
    this.lost = 0;
    this.waiting++;
    this.work = this.work.then(() => this.closed || this.take(samples, lost)).finally(() => this.waiting--);
    this.work.catch(this.end);
  }

  async take(samples, lost) {
    if (lost) {
      this.hops.gap(lost);
      this.decision.gap(lost / RATE);
    }
    for (const hop of this.hops.push(samples)) {
      let output = null;
      if (hop.window) {
        const [{ alpha, vacuity }] = await run(this.used, [hop.window]);
        const sum = alpha.reduce((a, b) => a + b);
        output = { p: alpha.map((a) => a / sum), vacuity };
      }
      const { now, events } = this.decision.step(hop, output);
      const { time, level, noise } = hop;
      const { probability, vacuity, entropy } = now;
      const state = output ? "listening" : "silence";
      this.onMessage({ type: "hop", time, state, level, noise, probability, vacuity, entropy });
      events.forEach(this.onMessage);
    }
  }

  close() {
    this.closed = true;
  }
}
