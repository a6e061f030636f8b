// A file as samples: mono at 16 kHz, by the policies of kws_edge/audio/load.py and, for several channels, channels.py. The
// browser decodes; it does not resample, since it does that less well than the server does, and an answer shows it.

import { RATE, Resampler } from "./resampler.js";

const SILENCE_PEAK = 10 ** (-70 / 20);
const MAX_PEAK = 16; // beyond it, somebody forgot to scale
const HEAD = 4096; // bytes in which a rate is looked for
const FINE = 48000; // Hz, where a file's own rate is not known
const CANCELLED = 0.5; // of the power that the mix of unrelated channels has; with less, they cancel each other

// The largest deviation from the mean.
function peak(samples) {
  const mean = samples.reduce((a, b) => a + b, 0) / samples.length;
  return samples.reduce((most, x) => Math.max(most, Math.abs(x - mean)), 0);
}

export const isSilent = (samples) => peak(samples) < SILENCE_PEAK;

// The power of what a channel has at each sample, by an offset that is none of it.
function power(length, at) {
  let sum = 0, squares = 0;
  for (let i = 0; i < length; i++) {
    const x = at(i);
    sum += x;
    squares += x * x;
  }
  return squares - (sum * sum) / length;
}

// Channels as one: the mean of those that sound or, where they cancel each other, the strongest.
export function mixed(channels) {
  const sounding = channels.filter((channel) => !isSilent(channel));
  const used = sounding.length ? sounding : channels;
  const { length } = used[0];
  const sum = (i) => used.reduce((total, channel) => total + channel[i], 0);
  if (used.length > 1) {
    const powers = used.map((channel) => power(length, (i) => channel[i]));
    const unrelated = powers.reduce((a, b) => a + b, 0);
    if (unrelated > 0 && power(length, sum) < CANCELLED * unrelated) return used[powers.indexOf(Math.max(...powers))];
  }
  return used[0].map((_, i) => sum(i) / used.length);
}

// The rate that a WAV, FLAC, Vorbis or Opus file says it has.
function rateOf(bytes) {
  const view = new DataView(bytes);
  const head = new TextDecoder("latin1").decode(new Uint8Array(bytes, 0, Math.min(HEAD, bytes.byteLength)));
  const at = (magic) => head.indexOf(magic);
  if (head.startsWith("RIFF") && at("fmt ") > 0) return view.getUint32(at("fmt ") + 12, true);
  if (at("fLaC") >= 0) return view.getUint32(at("fLaC") + 18) >>> 12;
  if (at("\x01vorbis") >= 0) return view.getUint32(at("\x01vorbis") + 12, true);
  return FINE; // that of Opus, too
}

export async function decode(file) {
  let audio;
  try {
    const bytes = await file.arrayBuffer();
    audio = await new OfflineAudioContext(1, 1, rateOf(bytes)).decodeAudioData(bytes);
  } catch {
    throw new Error(`${file.name}: this browser cannot read it as audio`);
  }
  const channels = Array.from({ length: audio.numberOfChannels }, (_, i) => audio.getChannelData(i));
  const samples = mixed(channels);
  if (!samples.every((x) => Math.abs(x) <= MAX_PEAK)) {
    throw new Error(`${file.name}: samples that are NaN, infinite or far beyond full scale`);
  }
  return audio.sampleRate === RATE ? samples : new Resampler(audio.sampleRate).whole(samples);
}
