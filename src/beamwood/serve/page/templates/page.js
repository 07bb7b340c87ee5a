"use strict";

const KEPT = 60, EVERY = 2000;
const rates = [], searches = [];
let before = null;

async function asked(path, method = "GET", body = undefined) {
  const options = { method, headers: body === undefined ? {} : { "Content-Type": "application/json" } };
  if (body !== undefined) options.body = typeof body === "string" ? body : JSON.stringify(body);
  let answer, said;
  try {
    answer = await fetch(path, options);
    said = await answer.json();
  } catch {
    // Nobody is there, or a proxy answers with a page of its own.
    throw Object.assign(new Error("the service does not answer; try again later"), { status: answer?.status });
  }
  if (!answer.ok) throw Object.assign(new Error(said.error.message), { status: answer.status });
  return said;
}

function drawn(id, values) {
  const top = Math.max(...values, 1e-9);
  const points = values.map((value, at) => `${(300 * at) / (KEPT - 1)},${58 - (54 * value) / top}`);
  document.getElementById(id).setAttribute("points", points.join(" "));
}

const figures = document.querySelectorAll("#figures [data-live]");

async function live() {
  const now = await asked("/page/live"), at = performance.now();
  document.getElementById("live-said").textContent = "";
  for (const cell of figures) {
    const value = now[cell.dataset.live];
    cell.textContent = cell.dataset.live === "search_ms" ? value.toFixed(2) : value.toLocaleString("en");
  }
  // The count falls when the service starts again.
  if (before !== null && now.answered >= before.answered) {
    rates.push(((now.answered - before.answered) * 1000) / (at - before.at));
    searches.push(now.search_ms);
    if (rates.length > KEPT) { rates.shift(); searches.shift(); }
    drawn("rate", rates);
    drawn("search", searches);
  }
  before = { answered: now.answered, at };
  document.documentElement.dataset.live = "yes";
}

async function keepUp() {
  try {
    if (document.hidden) before = null;
    else await live();
  } catch (error) {
    // Those of before are not of now.
    for (const cell of figures) cell.textContent = "–";
    document.getElementById("live-said").textContent = error.message;
    // A token without the scope gets it in no later round either.
    if (error.status === 401 || error.status === 403) return;
  }
  setTimeout(keepUp, EVERY);
}

async function took(button) {
  const request = document.querySelector("[data-request]").dataset.request;
  // Ids stay the text that they are: a long one is no number of a script.
  const event = `${button.dataset.event.slice(0, -1)}, "request_id": ${JSON.stringify(request)}}`;
  const said = button.nextElementSibling;
  button.disabled = true;
  said.textContent = "";
  try {
    await asked("/v1/events", "POST", `{"events": [${event}]}`);
    location.reload();
  } catch (error) {
    button.disabled = false;
    said.textContent = error.message;
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

async function tried(method, body) {
  const said = document.getElementById("model-said");
  try {
    await asked("/v1/experiments", method, body);
    said.textContent = "";
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
    const isFree = trial.experiment === null && trial.not_followed === null;
    const parts = [`${now.model} answers, searched by ${now.searched_by}. `];
    for (const name of now.available.filter((each) => !now.path.endsWith(`/${each}`))) {
      parts.push(button(`load ${name}`, () => swapped("/v1/models/load", { path: name })), " ");
      const arms = [{ model: "current", share: 0.5 }, { model: name, share: 0.5 }];
      if (isFree) parts.push(button(`try ${name} on half of the users`, () => tried("PUT", { name, arms })), " ");
    }
    if (now.earlier.length) parts.push(button("back to the one before", () => swapped("/v1/models/rollback", {})));
    if (!now.available.length) parts.push("Start the service with --models-dir to load others here. ");
    if (!isFree) {
      // One that cannot be read is null.
      const { name, arms } = trial.experiment ?? { name: "of the store", arms: [] };
      const state = trial.not_followed === null ? "runs" : `is not followed here (${trial.not_followed})`;
      const shares = arms.map((arm) => `${arm.name ?? arm.model} ${(100 * arm.share).toFixed(0)} %`).join(", ");
      parts.push(document.createElement("br"), `The experiment ${name} ${state}${shares && `: ${shares}`}. `);
      parts.push(button("end it", () => tried("DELETE")));
    }
    for (const group of trial.groups) {
      const rate = (100 * group.hit_rate).toFixed(1);
      parts.push(document.createElement("br"), `${group.model} ${group.arm}: ${group.answers} answers, ${rate} % followed by an event with an item of theirs`);
    }
    list.replaceChildren(...parts);
  } catch (error) {
    said.textContent = error.message;
  }
}

const putting = document.getElementById("item-put"), changing = document.getElementById("item-change");

function told(text) {
  document.getElementById("item-said").textContent = text;
}

// Is it a number of 64 bits? Longer ids are text.
function isLong(text) {
  return BigInt.asIntN(64, BigInt(text)) === BigInt(text);
}

function id(text) {
  const whole = putting.dataset.ids === "number" && /^(0|-?[1-9][0-9]{0,18})$/.test(text) && isLong(text);
  const unsigned = putting.dataset.ids === "unsigned" && /^(0|[1-9][0-9]{0,19})$/.test(text);
  return whole || (unsigned && BigInt.asUintN(64, BigInt(text)) === BigInt(text)) ? text : JSON.stringify(text);
}

// Between commas, or a list of JSON where ids hold commas.
function listed(text) {
  try {
    const given = JSON.parse(text);
    if (Array.isArray(given) && given.every((each) => typeof each === "string")) return given;
  } catch { /* no JSON */ }
  return text.split(",").map((each) => each.trim()).filter(Boolean);
}

function cells() {
  const given = {};
  for (const each of putting.querySelectorAll("[data-field]")) {
    const text = each.value.trim(), kind = each.dataset.kind;
    if (text) given[each.dataset.field] = kind === "number" ? Number(text) : kind === "truth" ? text === "true" : text;
  }
  return given;
}

const PLACES = {
  similar: "its place comes from the items that it is like.",
  events: "its place comes from its first events.",
  vector: "its place comes from its content.",
  category: "its place comes from its category.",
  none: "it has no place in lists yet: say what it is like or its category, or send three events.",
};

async function put() {
  const given = new FormData(putting), text = given.get("item").trim();
  const similar = listed(given.get("similar")).map(id);
  const rest = { category: (given.get("category") || "").trim() || null, fields: cells(), available: given.has("available") };
  const item = `{"item": ${id(text)}, "similar": [${similar}], ${JSON.stringify(rest).slice(1)}`;
  const done = await asked("/v1/items", "PUT", `{"items": [${item}]}`);
  putting.reset();
  return `${text} may be shown: ${PLACES[done.items[0].source]}`;
}

async function changed(text, act) {
  if (act === "erase") {
    await asked(`/v1/items/${encodeURIComponent(text)}`, "DELETE");
    return `${text} is erased: no list and no history has it any more.`;
  }
  const body = `{"${act === "show" ? "set" : "clear"}": [${id(text)}]}`;
  const done = await asked("/v1/items/availability", "PUT", body);
  const now = act === "show" ? "may be shown" : "is shown to nobody";
  return done.changed ? `${text} ${now} from now on.` : `${text} ${now} already.`;
}

// What cannot be undone is pressed twice for the same item.
function sure(pressed, text) {
  if (pressed.value !== "erase") return true;
  const isSure = pressed.dataset.asked === text;
  delete pressed.dataset.asked;
  if (isSure) return true;
  pressed.dataset.asked = text;
  told("This cannot be undone. Press again to erase.");
  pressed.addEventListener("blur", () => { delete pressed.dataset.asked; }, { once: true });
  return false;
}

async function worked(work) {
  told("…");
  try {
    const text = await work();
    if (!document.getElementById("item-list").hidden) await items();
    told(text);
  } catch (error) {
    told(error.message);
  }
}

function cell(content, kind = "td") {
  const made = document.createElement(kind);
  made.append(content);
  if (kind === "th") made.scope = "row";
  return made;
}

function rowOf(each) {
  const row = document.createElement("tr"), state = cell(each.available ? "shown " : "hidden "), text = String(each.item);
  row.dataset.item = text;
  const from = cell(each.source);
  from.className = state.className = "text";
  // An id beyond what a script can count exactly is typed above.
  if (typeof each.item === "string" || Number.isSafeInteger(each.item)) {
    for (const act of [each.available ? "hide" : "show", "erase"]) {
      const made = button(act, () => { if (sure(made, text)) worked(() => changed(text, act)); });
      made.value = act;
      made.setAttribute("aria-label", `${act} ${text}`);
      if (act === "erase") made.className = "danger";
      state.append(made, " ");
    }
  }
  row.append(cell(text, "th"), from, cell(String(each.events)), cell(String(each.shown)), state);
  return row;
}

async function items() {
  const found = await asked("/v1/items"), list = document.getElementById("item-list");
  list.tBodies[0].replaceChildren(...found.items.map(rowOf));
  list.hidden = false;
  return found.items.length ? "" : "None came after the fit.";
}

const slider = document.querySelector("input[type=range]");
if (slider) {
  slider.addEventListener("input", () => {
    document.getElementById("effort").textContent = slider.value;
    document.querySelector("input[name=own]").checked = true;
  });
}
for (const each of document.querySelectorAll("button.took")) each.addEventListener("click", () => took(each));
putting?.addEventListener("submit", (event) => {
  event.preventDefault();
  worked(put);
});
changing?.addEventListener("submit", (event) => {
  event.preventDefault();
  const text = new FormData(changing).get("item").trim();
  if (sure(event.submitter, text)) worked(() => changed(text, event.submitter.value));
});
document.getElementById("items-show")?.addEventListener("click", () => worked(items));
document.getElementById("models-show")?.addEventListener("click", models);
if (document.getElementById("figures")) keepUp();
