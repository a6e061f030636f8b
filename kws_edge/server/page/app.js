// The page: what the controls do.

import { isWord } from "./decision.js";
import { Microphone } from "./microphone.js";
import * as local from "./local.js";
import * as server from "./server.js";
import * as view from "./view.js";

const $ = (id) => document.getElementById(id);
const SCORES = ["entropy", "vacuity"];
const STATES = {
  warming_up: "Warming up.",
  silence: "Listening: silence.",
  listening: "Listening: there is sound.",
  losses: "Too many samples are lost on the way to recognise words.",
};

const OFF = "The microphone is off.";
const WAKE_SECONDS = 4; // in which commands count
const SLOW_FOR = 4000; // ms for which a server is slow that says so; it says it every 2 s

let known = []; // what the server has
let showBars = () => {};
let session = null; // { microphone, stream } while it listens
let starting = false; // while permission is asked for

const model = () => known.find(({ name }) => name === $("model").value);

function fail(error) {
  const unknown = error instanceof server.Problem && error.code === "unauthorized";
  $("key-form").hidden = !unknown;
  view.problem(unknown ? "This server asks for an API key." : error.message);
}

async function load() {
  try {
    known = await server.models();
  } catch (error) {
    view.state(error.code === "unauthorized" ? "Listening needs the API key." : "Listening needs the server's models.");
    return fail(error);
  }
  view.problem("");
  view.state(OFF);
  $("microphone").disabled = $("file").disabled = false;
  $("key-form").hidden = true;
  $("model").replaceChildren(...known.map(({ name }) => new Option(name, name)));
  $("wake").replaceChildren(new Option("none", ""), ...known.map(wakeWords));
  choose();
}

// The words of a model, as choices of a wake word.
function wakeWords({ name, labels }) {
  const group = document.createElement("optgroup");
  group.label = name;
  group.append(...labels.filter(isWord).map((word) => new Option(word, JSON.stringify({ wake: word, wake_model: name }))));
  return group;
}

// What answers: the server, or this browser.
const where = () => (model().in_browser && $("local").checked ? local : server);

function choose() {
  $("local-label").hidden = !model().in_browser;
  $("wake-label").hidden = where() === local; // a second decision is the server's
  view.privacy(where() === local);
  showBars = view.bars(model().labels);
  showThresholds();
}

// Where the marks will be, before anything is heard.
async function showThresholds() {
  const chosen = model();
  for (const name of SCORES) view.uncertainty(name, null, null);
  const { decision } = await server.description(chosen.name).catch(() => ({}));
  if (decision && chosen === model() && !session && view.idle()) {
    for (const name of SCORES) view.uncertainty(name, null, decision.thresholds[name]);
  }
}

async function start() {
  if (starting) return; // the button is not disabled, which would take the keyboard's focus from it
  view.problem("");
  starting = true;
  const opened = {};
  let thresholds = {};
  let woken = -Infinity; // stream time
  let behind = null; // when the server last said that it is, ms
  const end = (why) => {
    if (session !== opened) return;
    stop();
    view.problem(why);
  };
  try {
    opened.microphone = await Microphone.open((chunk) => opened.stream?.send(chunk), end);
    const chosen = where() === local ? "" : $("wake").value; // now, as it may have changed while permission was asked for
    const wake = chosen && { ...JSON.parse(chosen), wake_seconds: WAKE_SECONDS };
    opened.stream = new (where().Stream)($("model").value, (message) => {
      if (message.type === "hello") thresholds = message.thresholds;
      if (message.type === "event") view.heard(message, model().labels);
      if (message.type === "event" && message.label === wake?.wake) woken = message.time;
      if (message.type === "hop") {
        const awake = message.time <= woken + WAKE_SECONDS ? "Awake: say a command." : `Waiting for "${wake.wake}".`;
        view.state(wake && message.state !== "losses" ? awake : STATES[message.state]);
        hop(message, thresholds);
      }
      if (message.type === "slow") {
        behind = performance.now();
        view.problem(`The server is ${message.lag.toFixed(0)} s behind.`);
      } else if (behind !== null && performance.now() - behind > SLOW_FOR) {
        behind = null;
        view.problem("");
      }
    }, end, wake || {});
    session = opened;
    view.listening(true);
    view.state("Connecting.");
  } catch (error) {
    opened.microphone?.close();
    fail(error);
  } finally {
    starting = false;
  }
}

function hop({ level, probability, entropy, vacuity }, thresholds) {
  view.level(level);
  view.uncertainty("entropy", entropy, thresholds.entropy);
  view.uncertainty("vacuity", vacuity, thresholds.vacuity);
  showBars(probability);
}

function stop() {
  session.stream.close();
  session.microphone.close();
  session = null;
  view.problem("");
  view.listening(false);
  view.state(OFF);
}

async function answerFiles(files) {
  if (!known.length) return; // what to do is said already
  for (const file of files) {
    try {
      const bars = showBars;
      const result = await where().classify(file, $("model").value);
      view.classified(file.name, result);
      if (session || bars !== showBars) continue; // the bars are live, or another model's
      const sum = result.alpha.reduce((a, b) => a + b);
      showBars(result.alpha.map((a) => a / sum));
      for (const name of SCORES) {
        view.uncertainty(name, result[name], name === result.score ? result.threshold : null);
      }
    } catch (error) {
      if (error.code === "unauthorized") fail(error);
      else view.refused(error.message);
    }
  }
}

$("microphone").addEventListener("click", () => (session ? stop() : start()));
for (const control of ["model", "local", "wake"]) {
  $(control).addEventListener("change", () => {
    if (session) stop();
    choose();
  });
}
$("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  server.useKey($("key").value);
  load();
});
$("file").addEventListener("change", async () => {
  await answerFiles([...$("file").files]);
  $("file").value = "";
});
for (const kind of ["dragenter", "dragover", "dragleave", "drop"]) {
  $("drop").addEventListener(kind, (event) => {
    event.preventDefault();
    $("drop").classList.toggle("over", kind === "dragenter" || kind === "dragover");
    if (kind === "drop") answerFiles([...event.dataTransfer.files]);
  });
}
load();
