"use strict";

const KEPT = 60, EVERY = 2000;
const rates = [], searches = [];
let before = null;

async function asked(path, method = "GET", body = undefined) {
  const options = { method, headers: body === undefined ? {} : { "Content-Type": "application/json" } };
  if (body !== undefined) options.body = JSON.stringify(body);
  const answer = await fetch(path, options);
  const said = await answer.json();
  if (!answer.ok) throw new Error(said.error.message);
  return said;
}

function drawn(id, values) {
  const top = Math.max(...values, 1e-9);
  const points = values.map((value, at) => `${(300 * at) / (KEPT - 1)},${58 - (54 * value) / top}`);
  document.getElementById(id).setAttribute("points", points.join(" "));
}

async function live() {
  const now = await asked("/page/live");
  for (const cell of document.querySelectorAll("[data-live]")) {
    const value = now[cell.dataset.live];
    cell.textContent = cell.dataset.live === "search_ms" ? value.toFixed(2) : value.toLocaleString("en");
  }
  if (before !== null) {
    rates.push(((now.answered - before) * 1000) / EVERY);
    searches.push(now.search_ms);
    if (rates.length > KEPT) { rates.shift(); searches.shift(); }
    drawn("rate", rates);
    drawn("search", searches);
  }
  before = now.answered;
  document.documentElement.dataset.live = "yes";
}

async function keepUp() {
  try {
    if (!document.hidden) await live();
  } catch (error) {
    document.getElementById("figures").title = error.message;
  }
  setTimeout(keepUp, EVERY);
}

async function took(button) {
  const request = document.querySelector("[data-request]").dataset.request;
  const event = { ...JSON.parse(button.dataset.event), request_id: request };
  button.disabled = true;
  try {
    await asked("/v1/events", "POST", { events: [event] });
    location.reload();
  } catch (error) {
    button.disabled = false;
    button.textContent = error.message;
  }
}

async function swapped(path, body) {
  const said = document.getElementById("model-said");
  said.textContent = "…";
  try {
    const loaded = await asked(path, "POST", body);
    said.textContent = `${loaded.model} answers now.`;
    await models();
  } catch (error) {
    said.textContent = error.message;
  }
}

function button(text, press) {
  const made = document.createElement("button");
  made.type = "button";
  made.textContent = text;
  made.addEventListener("click", press);
  return made;
}

async function models() {
  const list = document.getElementById("model-list"), said = document.getElementById("model-said");
  try {
    const now = await asked("/v1/models"), trial = await asked("/v1/experiments");
    const parts = [`${now.model} answers, searched by ${now.searched_by}. `];
    for (const name of now.available) parts.push(button(`load ${name}`, () => swapped("/v1/models/load", { path: name })), " ");
    if (now.earlier.length) parts.push(button("back to the one before", () => swapped("/v1/models/rollback")));
    if (!now.available.length) parts.push("Start the service with --models-dir to load others here. ");
    for (const group of trial.groups) {
      const rate = (100 * group.hit_rate).toFixed(1);
      parts.push(document.createElement("br"), `${group.model} ${group.arm}: ${group.answers} answers, ${rate} % followed by an event with an item of theirs`);
    }
    list.replaceChildren(...parts);
  } catch (error) {
    said.textContent = error.message;
  }
}

const slider = document.querySelector("input[type=range]");
if (slider) {
  slider.addEventListener("input", () => {
    document.getElementById("effort").textContent = slider.value;
    document.querySelector("input[name=own]").checked = true;
  });
}
for (const each of document.querySelectorAll("button.took")) each.addEventListener("click", () => took(each));
document.getElementById("models-show")?.addEventListener("click", models);
if (document.getElementById("figures")) keepUp();
