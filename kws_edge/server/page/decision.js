// From hops to events: each spoken word once, and "not sure" once for what might have been a word. The rule, and why it
// is so, are in kws_edge/stream/decision.py; what a page of this server says is what its streams say.

import { HOP } from "./hops.js";

const SPEECH = 9; // dB above the noise floor
const MIN_SPEECH = 0.2; // s
const MAX_SPEECH = 3;
const PAUSE = 0.6;
const ALONE_LONGEST = 1.3;
const ALONE_PAUSE = 0.3;
const ROUNDING = 1e-6;

// A label that begins with an underscore is a class that is not a word.
export const isWord = (label) => !label.startsWith("_");

// Whether a word is more probable than chance, by a tenth: one that might have been meant.
function standsOut({ guess, probability }, labels) {
  return isWord(guess) && Math.max(...probability) > 1 / labels.length + 0.1;
}

export class Decision {
  // `labels`, `decision` and `window` are those of a model's description.
  constructor({ labels, decision, window }) {
    this.labels = labels;
    this.settings = decision;
    this.window = window;
    this.firstScore = Object.keys(decision.thresholds)[0];
    this.nothing = { p: Array(labels.length).fill(1 / labels.length), vacuity: 1 };
    this.gap();
    this.rearm = Math.max(1, Math.round(decision.rearm / HOP));
    this.armed = true;
    this.released = 0; // hops on end
    this.word = null; // that of the last event
    this.eventTime = -Infinity;
    this.episode = null; // {start, last, accepted, clipped, best}: sound above the noise floor
  }

  // Samples were lost: what came before was quiet.
  gap() {
    this.past = Array(Math.max(1, Math.round(this.settings.smoothing / HOP))).fill(this.nothing);
  }

  // A hop, and what the network said of its window, {p, vacuity}, or null: {now, events}.
  step({ time, level, noise, clipped }, output) {
    const now = this.average(output ?? this.nothing);
    const { accepted, released } = this.judge(now);
    const events = [];
    const { episode } = this;
    let found = accepted ? now : null;
    if (episode) {
      this.keepBest(episode, now, output !== null);
      if (!accepted && level <= noise + SPEECH && this.saidAlone(episode, time)) found = episode.best;
      episode.accepted ||= found !== null;
    }
    const abstention = this.follow(time, now, { clipped, speech: level > noise + SPEECH, heard: output !== null });
    if (abstention) events.push(abstention);
    this.released = released || now.guess !== this.word ? this.released + 1 : 0;
    this.armed ||= this.released >= this.rearm;
    if (found && this.armed && time - this.eventTime >= this.settings.refractory - ROUNDING) {
      Object.assign(this, { armed: false, released: 0, word: found.guess, eventTime: time });
      events.push(this.event(found, time, null, this.episode ?? episode));
    }
    return { now, events };
  }

  // Whether the sound that has ended was a word on its own, as sure as that has to be.
  saidAlone({ start, last, accepted, best }, time) {
    const limits = Object.entries(this.settings.alone ?? {});
    if (!limits.length || accepted || !best || !isWord(best.guess)) return false;
    if (time - last < ALONE_PAUSE - ROUNDING || last - start > ALONE_LONGEST + ROUNDING) return false;
    return limits.every(([score, limit]) => best[score] <= limit) && Math.max(...best.probability) >= this.settings.probability;
  }

  keepBest(episode, now, heard) {
    if (heard && !(episode.best?.[this.firstScore] <= now[this.firstScore])) episode.best = now;
  }

  // The mean over the last windows.
  average(output) {
    this.past.push(output);
    this.past.shift();
    const mean = (of) => this.past.reduce((sum, one) => sum + of(one), 0) / this.past.length;
    const probability = this.labels.map((_, i) => mean(({ p }) => p[i]));
    const nats = -probability.reduce((sum, p) => sum + (p > 0 ? p * Math.log(p) : 0), 0);
    const guess = this.labels[probability.indexOf(Math.max(...probability))];
    return { guess, probability, vacuity: mean(({ vacuity }) => vacuity), entropy: nats / Math.log(this.labels.length) };
  }

  // Whether it may be said, and whether it is far enough from that for a word to come again.
  judge({ guess, probability, ...scores }) {
    const { thresholds, labels, hysteresis } = this.settings;
    let accepted = isWord(guess) && Math.max(...probability) >= this.settings.probability;
    let released = false;
    for (const [score, general] of Object.entries(thresholds)) {
      const threshold = labels[guess]?.[score] ?? general;
      accepted &&= scores[score] <= threshold;
      released ||= scores[score] > threshold + hysteresis * (1 - threshold);
    }
    return { accepted, released };
  }

  // Carries the episode on; its abstention where it ends without a word.
  follow(time, now, { clipped, speech, heard }) {
    let event = null;
    let { episode } = this;
    if (episode && time - (speech ? HOP : 0) - episode.last >= PAUSE - ROUNDING) {
      const length = episode.last - episode.start;
      const utterance = length >= MIN_SPEECH - ROUNDING && length <= MAX_SPEECH + ROUNDING;
      if (episode.best && utterance && !episode.accepted && standsOut(episode.best, this.labels)) {
        event = this.event(episode.best, time, episode.clipped ? "clipped" : "uncertain");
      }
      episode = null;
    }
    if (speech && !episode) episode = { start: Math.max(0, time - HOP), accepted: false, clipped: false, best: null };
    if (episode) {
      if (speech) episode.last = time;
      episode.clipped ||= clipped;
      this.keepBest(episode, now, heard);
    }
    this.episode = episode;
    return event;
  }

  event({ guess, probability, vacuity, entropy }, time, reason, episode = this.episode) {
    let [start, end] = [Math.max(0, time - this.window), time];
    if (episode && reason) [start, end] = [episode.start, episode.last];
    else if (episode && episode.last > start) [start, end] = [Math.max(start, episode.start), episode.last];
    const numbers = { probability: Math.max(...probability), vacuity, entropy };
    return { type: "event", label: reason ? null : guess, guess, reason, start, end, time, ...numbers };
  }
}
