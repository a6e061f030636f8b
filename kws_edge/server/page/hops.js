// A stream cut into hops, as kws_edge/stream/framing.py cuts it: windows end a hop apart, and the network is asked only about
// those in which a level rose above the noise.

import { RATE } from "./resampler.js";

export const HOP = 0.1; // s; also the span over which a level is measured
const STEP = HOP * RATE;
const LOWEST = -100; // dBFS; what digital silence counts as
const FLOOR_START = -60;
const FLOOR_MIN = -65;
const FLOOR_RISE = 3; // dB a second
const GATE = 3; // dB above the floor
const CLIP_LEVEL = 0.98;
const CLIP_RUN = 3;
const CLIP_FRACTION = 0.01;

// Whether more of the samples are clipped than may be, each in a run of some.
export function isClipped(samples) {
  let clipped = 0;
  let run = 0;
  for (const sample of samples) {
    run = Math.abs(sample) >= CLIP_LEVEL ? run + 1 : 0;
    if (run >= CLIP_RUN) clipped += run === CLIP_RUN ? CLIP_RUN : 1;
  }
  return clipped / samples.length > CLIP_FRACTION;
}

// What came before a stream: white noise with an RMS of 1, as `quiet` of framing.py makes it.
function quiet(n) {
  return Float64Array.from({ length: n }, (_, i) => {
    let k = i + 1;
    for (const [shift, factor] of [[16, 0x85ebca6b], [13, 0xc2b2ae35], [16, 1]]) k = Math.imul(k ^ (k >>> shift), factor);
    return ((k >>> 0) / 2 ** 31 - 1) * Math.sqrt(3);
  });
}

export class HopStream {
  // `size` is that of a window, in samples.
  constructor(size) {
    this.window = new Float32Array(size);
    this.position = 0; // samples, of the stream's time
    this.floor = FLOOR_START;
    this.restart();
  }

  // Samples were lost: time passes, and what comes after is heard as after a pause.
  gap(samples) {
    this.position += samples;
    this.restart();
  }

  restart() {
    this.since = 0;
    this.lacking = ((this.window.length - 1) % STEP) + 1; // so that the first window ends with a hop
    this.lastLoud = -Infinity;
  }

  // Float32Array of any length in; the hops that it completes, each before the next is made:
  // {time, level, noise, clipped, window}, the last of them null where there is nothing to ask.
  *push(samples) {
    for (let done = 0; done < samples.length; ) {
      const part = samples.subarray(done, done + this.lacking);
      this.window.copyWithin(0, part.length);
      this.window.set(part, this.window.length - part.length);
      this.position += part.length;
      this.since += part.length;
      this.lacking -= part.length;
      done += part.length;
      if (this.lacking === 0) yield this.complete();
    }
  }

  complete() {
    this.lacking = STEP;
    const hop = this.window.subarray(-Math.min(STEP, this.since));
    const mean = hop.reduce((sum, x) => sum + x, 0) / hop.length;
    const power = hop.reduce((sum, x) => sum + x * x, 0) / hop.length - mean ** 2;
    const level = Math.max(LOWEST, 10 * Math.log10(Math.max(power, 0) + 1e-20));
    this.floor = Math.max(FLOOR_MIN, Math.min(level, this.floor + FLOOR_RISE * HOP));
    if (level > this.floor + GATE) this.lastLoud = this.since;
    if (this.since <= STEP) {
      const past = quiet(this.window.length - this.since);
      this.window.set(past.map((x) => x * 10 ** (this.floor / 20)));
    }
    const heard = this.since - this.lastLoud < this.window.length;
    const window = heard ? this.window.slice() : null;
    return { time: this.position / RATE, level, noise: this.floor, clipped: isClipped(hop), window };
  }
}
