// In the audio thread: microphone samples become messages of 0.1 s, int16 at 16 kHz.

import { RATE, Resampler } from "./resampler.js";

const SIZE = RATE / 10;

class Capture extends AudioWorkletProcessor {
  constructor() {
    super();
    this.resampler = new Resampler(sampleRate);
    this.chunk = new Int16Array(SIZE);
    this.filled = 0;
  }

  process([channels]) {
    if (!channels.length) return true;
    const mono = new Float32Array(channels[0].length);
    for (const channel of channels) for (let i = 0; i < mono.length; i++) mono[i] += channel[i] / channels.length;
    for (const sample of this.resampler.push(mono)) {
      this.chunk[this.filled++] = Math.max(-32768, Math.min(32767, Math.round(sample * 32768)));
      if (this.filled === SIZE) {
        this.port.postMessage(this.chunk.buffer, [this.chunk.buffer]);
        this.chunk = new Int16Array(SIZE);
        this.filled = 0;
      }
    }
    return true;
  }
}

registerProcessor("capture", Capture);
