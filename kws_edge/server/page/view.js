// What is shown. Everything goes in as text, never as HTML.

import { worthNaming } from "./decision.js";

const $ = (id) => document.getElementById(id);
const percent = (x) => `${(100 * x).toFixed(x > 0.9995 || x < 0.0005 ? 0 : 1)} %`;
const MOST = 100; // entries of a log

function element(tag, className, text) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

export function problem(text) {
  $("problem").textContent = text;
  $("problem").hidden = !text;
}

export function privacy(isLocal) {
  $("privacy").textContent = isLocal
    ? "The model runs in this browser: audio stays on this machine."
    : "Audio goes to the server that this page is from, which keeps none of it.";
}

export function state(text) {
  if ($("state").textContent !== text) $("state").textContent = text;
}

export function listening(on) {
  $("microphone").setAttribute("aria-pressed", on);
  $("microphone").textContent = on ? "Stop listening" : "Start listening";
}

// The labels of a model, each with a bar; gives a function that sets the bars to probabilities.
export function bars(labels) {
  const rows = labels.map((label) => {
    const row = element("li");
    const value = element("span", "value", "–");
    const track = element("div", "track");
    track.setAttribute("aria-hidden", "true");
    track.append(element("div", "fill"));
    row.append(element("span", "name", label), value, track);
    return { row, value, fill: track.firstChild };
  });
  $("bars").replaceChildren(...rows.map(({ row }) => row));
  return (probabilities) => {
    const most = Math.max(...probabilities);
    const best = most > Math.min(...probabilities) ? probabilities.indexOf(most) : -1;
    probabilities.forEach((p, i) => {
      rows[i].fill.style.setProperty("--share", p);
      rows[i].value.textContent = percent(p);
      rows[i].row.classList.toggle("best", i === best);
    });
  };
}

// One of entropy, vacuity: its value against its threshold, null where it has none.
export function uncertainty(name, value, threshold) {
  const meter = $(name);
  const has = threshold !== null && threshold !== undefined;
  meter.querySelector(".limit").hidden = !has;
  meter.querySelector(".limit").style.setProperty("--limit", Math.max(0, Math.min(1, threshold ?? 0)));
  meter.querySelector(".fill").style.setProperty("--share", value ?? 0);
  meter.classList.toggle("over", has && value !== null && value > threshold);
  const limit = has ? `, threshold ${Math.max(0, threshold).toFixed(3)}` : "";
  meter.querySelector(".value").textContent = `${value === null ? "–" : value.toFixed(3)}${limit}`;
}

// Whether the meters show nothing yet.
export function idle() {
  return $("entropy").querySelector(".value").textContent.startsWith("–");
}

export function level(decibels) {
  $("level").querySelector(".fill").style.setProperty("--share", Math.max(0, Math.min(1, 1 + decibels / 80)));
  $("level").querySelector(".value").textContent = `${decibels.toFixed(0).replace("-", "−")} dBFS`;
}

function answer(item, said, when, details) {
  item.append(element("span", "word", said), element("span", "when", when), element("span", "detail", details));
  return item;
}

function words({ label, guess, reason, probability }, K) {
  if (label) return label;
  if (reason === "losses") return "too many samples are lost to recognise words";
  const named = guess && worthNaming(guess, probability, K);
  return `not sure (${reason.replace("_", " ")})${named ? `, best guess ${guess}` : ""}`;
}

function numbers({ probability, entropy, vacuity }) {
  return `${percent(probability)}, entropy ${entropy.toFixed(3)}, vacuity ${vacuity.toFixed(3)}`;
}

function first(list, item) {
  list.prepend(item);
  while (list.children.length > MOST) list.lastChild.remove();
}

// An event of a model with these labels.
export function heard(event, labels) {
  $("heard").textContent = event.label ?? (event.reason === "losses" ? "samples lost" : "not sure");
  $("heard").classList.toggle("unsure", !event.label);
  $("log-empty").hidden = true;
  const item = element("li", event.label ? "" : "unsure");
  first($("log"), answer(item, words(event, labels.length), `${event.start.toFixed(1)} s`, numbers(event)));
}

export function classified(name, result) {
  const where = `${result.start.toFixed(2)}–${result.end.toFixed(2)} s of ${result.seconds.toFixed(2)} s`;
  const details = [name, numbers(result), ...result.warnings].join("; ");
  first($("answers"), answer(element("li", result.label ? "" : "unsure"), words(result, result.alpha.length), where, details));
}

export function refused(text) {
  first($("answers"), answer(element("li", "failed"), "not classified", "", text));
}
