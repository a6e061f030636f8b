// From hops to events: each spoken word once, and "not sure" once for what might have been a word. The rule, and why it
// is so, are in kws_edge/stream/decision.py; what a page of this server says is what its streams say.

import { HOP } from "./hops.js";

const SPEECH = 9; // dB above the noise floor
const MIN_SPEECH = 0.2; // s
const MAX_SPEECH = 3;
const PAUSE = 0.6;
const CROWD_SPAN = 2.5;
const CROWD_RECENT = 1;
const CROWD_LEVEL = 8; // dB
const CROWD_FREE = 0.4; // s
const CROWD_MOST = 1;
const ROUNDING = 1e-6;

// A label that begins with an underscore is a class that is not a word.
export const isWord = (label) => !label.startsWith("_");

// Whether a guess is worth showing: a word, and more probable than chance among K labels, by a tenth.
export const worthNaming = (guess, probability, K) => isWord(guess) && probability > 1 / K + 0.1;

// What is compared with the threshold of a score.
function crowded(score, { [score]: u, odds }) {
  return odds === 1 ? u : (u * odds) / (u * odds + 1 - u);
}

export class Decision {
  // `labels`, `decision`, `window` and `stream` are those of a model's description.
  constructor({ labels, decision, window, stream }) {
    this.labels = labels;
    this.words = stream?.calibration?.words_chosen ?? labels; // those that the thresholds hold for; no others give events
    this.settings = decision;
    this.window = window;
    this.firstScore = Object.keys(decision.thresholds)[0];
    this.nothing = { p: Array(labels.length).fill(1 / labels.length), vacuity: 1 };
    this.forgetWindows();
    this.rearm = Math.max(1, Math.round(decision.rearm / HOP));
    this.armed = true;
    this.released = 0; // hops on end
    this.word = null; // that of the last event
    this.eventTime = -Infinity;
    this.levels = []; // dB, of the last CROWD_RECENT
    this.speech = []; // and of the last CROWD_SPAN, where there was speech
    this.episode = null; // {start, last, accepted, clipped, best}: sound above the noise floor
  }

  // So many seconds of sound were lost: they were quiet, as the windows before them.
  gap(seconds) {
    this.forgetWindows();
    const quiet = Array(Math.min(Math.round(seconds / HOP), Math.ceil(CROWD_SPAN / HOP))).fill(-Infinity);
    this.levels.push(...quiet);
    this.speech.push(...quiet);
  }

  forgetWindows() {
    this.past = Array(Math.max(1, Math.round(this.settings.smoothing / HOP))).fill(this.nothing);
  }

  // A hop, and what the network said of its window, {p, vacuity}, or null: {now, events}.
  step({ time, level, noise, clipped }, output) {
    const now = { ...this.average(output ?? this.nothing), odds: this.oddsAt(level, level > noise + SPEECH) };
    const { accepted, released } = this.judge(now);
    const events = [];
    if (accepted && this.episode) this.episode.accepted = true;
    const abstention = this.follow(time, now, { clipped, speech: level > noise + SPEECH, heard: output !== null });
    if (accepted && this.episode) this.episode.accepted = true; // which may have begun with this hop
    if (abstention) events.push(abstention);
    this.released = released || now.guess !== this.word ? this.released + 1 : 0;
    this.armed ||= this.released >= this.rearm;
    if (accepted && this.armed && time - this.eventTime >= this.settings.refractory - ROUNDING) {
      Object.assign(this, { armed: false, released: 0, word: now.guess, eventTime: time });
      if (this.words.includes(now.guess)) events.push(this.event(now, time, null));
    }
    return { now, events };
  }

  // What the odds of the scores are multiplied by at the next hop: more where there was sound lately that is as loud.
  oddsAt(level, speech) {
    this.levels = [...this.levels, level].slice(-Math.round(CROWD_RECENT / HOP));
    this.speech = [...this.speech, speech ? level : -Infinity].slice(-Math.round(CROWD_SPAN / HOP));
    const least = Math.max(...this.levels) - CROWD_LEVEL;
    const seconds = HOP * this.speech.filter((one) => one > least).length - CROWD_FREE;
    return Math.exp((this.settings.crowding ?? 0) * Math.min(Math.max(seconds, 0), CROWD_MOST));
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
  judge(now) {
    const { guess, probability } = now;
    const { thresholds, labels, hysteresis } = this.settings;
    let accepted = isWord(guess) && Math.max(...probability) >= this.settings.probability;
    let released = false;
    for (const [score, general] of Object.entries(thresholds)) {
      const threshold = labels[guess]?.[score] ?? general;
      const u = crowded(score, now);
      accepted &&= u <= threshold;
      released ||= u > threshold + hysteresis * (1 - threshold);
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
      if (episode.best && utterance && !episode.accepted && this.maybeMeant(episode.best)) {
        event = this.event(episode.best, time, episode.clipped ? "clipped" : "uncertain");
      }
      episode = null;
    }
    if (speech && !episode) episode = { start: Math.max(0, time - HOP), accepted: false, clipped: false, best: null };
    if (episode) {
      if (speech) episode.last = time;
      episode.clipped ||= clipped;
      if (heard && !(episode.best && crowded(this.firstScore, episode.best) <= crowded(this.firstScore, now))) episode.best = now;
    }
    this.episode = episode;
    return event;
  }

  // Whether one of the words may have been meant.
  maybeMeant({ guess, probability }) {
    return this.words.includes(guess) && worthNaming(guess, Math.max(...probability), this.labels.length);
  }

  event({ guess, probability, vacuity, entropy }, time, reason) {
    const { episode } = this;
    let [start, end] = [Math.max(0, time - this.window), time];
    if (episode && reason) [start, end] = [episode.start, episode.last];
    else if (episode && episode.last > start) [start, end] = [Math.max(start, episode.start), episode.last];
    const numbers = { probability: Math.max(...probability), vacuity, entropy };
    return { type: "event", label: reason ? null : guess, guess, reason, start, end, time, ...numbers };
  }
}
