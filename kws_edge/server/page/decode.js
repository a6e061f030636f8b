// A file as samples: mono at 16 kHz, by the policies of kws_edge/audio/load.py and, for several channels, channels.py. The
// browser decodes; it does not resample, since it does that less well than the server does, and an answer shows it.

import { RATE, Resampler } from "./resampler.js";

const SILENCE_PEAK = 10 ** (-70 / 20);
const MAX_PEAK = 16; // beyond it, somebody forgot to scale
const HEAD = 4096; // bytes in which a rate is looked for
const FINE = 48000; // Hz, where a file's own rate is not known
const PIECE = 16384; // samples
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

// Whether a channel sounds: a slow drift is no sound, so that each piece is looked at on its own.
function sounds(channel) {
  for (let start = 0; start < channel.length; start += PIECE) {
    let low = Infinity, high = -Infinity;
    for (const x of channel.subarray(start, start + PIECE)) {
      low = Math.min(low, x);
      high = Math.max(high, x);
    }
    if ((high - low) / 2 >= SILENCE_PEAK) return true;
  }
  return false;
}

// Channels as one, {samples, warnings}: the mean of those that sound or, where they cancel each other, the strongest.
export function mixed(channels) {
  const all = channels.map((_, i) => i);
  const sounding = all.filter((i) => sounds(channels[i]));
  const used = sounding.length ? sounding : all;
  const { length } = channels[0];
  const sum = (at) => used.reduce((total, i) => total + channels[i][at], 0);
  if (used.length > 1) {
    const powers = used.map((i) => power(length, (at) => channels[i][at]));
    const [unrelated, most, mix] = [powers.reduce((a, b) => a + b, 0), Math.max(...powers), power(length, sum)];
    if (unrelated > 0 && mix < CANCELLED * unrelated) {
      const taken = used[powers.indexOf(most)];
      const quieter = Math.max(0.1, -10 * Math.log10(Math.max(mix / used.length ** 2 / most, 1e-12)));
      return { samples: channels[taken], warnings: [cancelled(quieter, taken + 1)] };
    }
  }
  return { samples: channels[0].map((_, at) => sum(at) / used.length), warnings: [] };
}

// What the server says of it, too.
function cancelled(quieter, channel) {
  return (
    `the channels cancel each other: their mix is ${quieter.toFixed(0)} dB quieter than channel ${channel}, which is ` +
    "taken alone; --channel (channel=) names another, or mix"
  );
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

// A file's {samples, warnings}.
export async function decode(file) {
  let audio;
  try {
    const bytes = await file.arrayBuffer();
    audio = await new OfflineAudioContext(1, 1, rateOf(bytes)).decodeAudioData(bytes);
  } catch {
    throw new Error(`${file.name}: this browser cannot read it as audio`);
  }
  const channels = Array.from({ length: audio.numberOfChannels }, (_, i) => audio.getChannelData(i));
  const { samples, warnings } = mixed(channels);
  if (!samples.every((x) => Math.abs(x) <= MAX_PEAK)) {
    throw new Error(`${file.name}: samples that are NaN, infinite or far beyond full scale`);
  }
  return { samples: audio.sampleRate === RATE ? samples : new Resampler(audio.sampleRate).whole(samples), warnings };
}
