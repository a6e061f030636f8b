// Windowed-sinc resampling of a stream, from any rate to 16 kHz.

export const RATE = 16000;
const PASSED = 0.9136; // of the lower Nyquist frequency: what soxr's HQ setting, which the server has, lets through
const BETA = 12.27; // of Kaiser's window: 120 dB
const CROSSINGS = 96; // of the sinc, on each side: with BETA, nothing is left at the Nyquist frequency
const STEPS = 512; // of the kernel's table between two crossings
const CUTOFF = (1 + PASSED) / 2;

// The modified Bessel function of the first kind, of order 0.
function bessel(x) {
  let [sum, term] = [1, 1];
  for (let k = 1; term > 1e-12 * sum; k++) sum += term *= (x / (2 * k)) ** 2;
  return sum;
}

function kernel() {
  const table = new Float32Array(CROSSINGS * STEPS + 2);
  for (let i = 0; i <= CROSSINGS * STEPS; i++) {
    const x = i / STEPS;
    const sinc = i === 0 ? 1 : Math.sin(Math.PI * x * CUTOFF) / (Math.PI * x * CUTOFF);
    table[i] = (CUTOFF * sinc * bessel(BETA * Math.sqrt(1 - (x / CROSSINGS) ** 2))) / bessel(BETA);
  }
  return table;
}

export class Resampler {
  constructor(rate) {
    this.step = rate / RATE; // input samples for an output sample
    this.scale = Math.max(1, this.step); // how far the kernel is stretched, to remove what would alias
    this.reach = Math.ceil(CROSSINGS * this.scale);
    this.table = kernel();
    this.input = new Float32Array(this.reach); // silence before the start
    this.position = this.reach; // in `input`, of the next output sample
  }

  // Float32Array in, Float32Array out: all that can be known from what came so far.
  push(samples) {
    const input = new Float32Array(this.input.length + samples.length);
    input.set(this.input);
    input.set(samples, this.input.length);
    const count = Math.max(0, Math.ceil((input.length - this.reach - this.position) / this.step));
    const output = new Float32Array(count);
    for (let i = 0; i < count; i++) output[i] = this.at(input, this.position + i * this.step);
    this.position += count * this.step;
    const spent = Math.max(0, Math.floor(this.position) - this.reach);
    this.input = input.slice(spent);
    this.position -= spent;
    return output;
  }

  // A whole recording: n samples at a rate become n · 16000 / rate.
  whole(samples) {
    const length = Math.round(samples.length / this.step);
    const ahead = new Float32Array(2 * this.reach + Math.ceil(this.step));
    const output = new Float32Array(length);
    const known = this.push(samples).subarray(0, length);
    output.set(known);
    output.set(this.push(ahead).subarray(0, length - known.length), known.length);
    return output;
  }

  at(input, position) {
    let sum = 0;
    const last = Math.min(input.length - 1, Math.floor(position + this.reach));
    for (let n = Math.max(0, Math.ceil(position - this.reach)); n <= last; n++) {
      const x = (Math.abs(position - n) / this.scale) * STEPS;
      const i = Math.floor(x);
      if (i >= CROSSINGS * STEPS) continue;
      sum += input[n] * (this.table[i] + (x - i) * (this.table[i + 1] - this.table[i]));
    }
    return sum / this.scale;
  }
}
