// Asks for the parts of the page and puts them in place. What has not changed is not touched, so that focus, selection and
// scroll stay where they are.
"use strict";

const TOKEN = "homing-admin-token";
const PARTS = { models: 2000, decisions: 2000, history: 10000 };

const byId = (id) => document.getElementById(id);
const asked = { models: {}, decisions: {}, history: {} };
const running = {};

// Makes `place` hold what `wanted` holds: rows and cards by their key, everything else by its position.
function patch(place, wanted) {
  const keyed = new Map();
  for (const child of place.children) {
    if (child.dataset.key !== undefined) keyed.set(child.dataset.key, child);
  }
  let at = place.firstChild;
  for (const child of [...wanted.childNodes]) {
    const key = child.dataset?.key;
    const kept = key === undefined ? at : keyed.get(key);
    if (kept && alike(kept, child)) {
      if (kept !== at) place.insertBefore(kept, at);
      at = kept.nextSibling;
      patchNode(kept, child);
    } else {
      place.insertBefore(child, at);
    }
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

function alike(a, b) {
  return a.nodeName === b.nodeName && a.dataset?.key === b.dataset?.key;
}

function patchNode(kept, wanted) {
  if (kept.nodeType !== Node.ELEMENT_NODE) {
    if (kept.nodeValue !== wanted.nodeValue) kept.nodeValue = wanted.nodeValue;
    return;
  }
  // What a person has chosen or opened is theirs.
  const own = { SELECT: ["value"], INPUT: ["value"], OPTION: ["selected"], DETAILS: ["open"] }[kept.nodeName] ?? [];
  for (const { name } of [...kept.attributes]) {
    if (!wanted.hasAttribute(name) && !own.includes(name)) kept.removeAttribute(name);
  }
  for (const { name, value } of wanted.attributes) {
    if (kept.getAttribute(name) !== value && !own.includes(name)) kept.setAttribute(name, value);
  }
  patch(kept, wanted);
}

function headers() {
  const token = sessionStorage.getItem(TOKEN);
  return token ? { authorization: `Bearer ${token}` } : {};
}

async function refresh(part) {
  running[part]?.abort();
  const abort = new AbortController();
  running[part] = abort;
  const query = new URLSearchParams(asked[part]);
  if (part === "history") query.set("width", Math.round(byId(part).clientWidth) || 960);
  try {
    const answer = await fetch(`/panel/${part}?${query}`, { headers: headers(), signal: abort.signal });
    if (answer.status === 401) return askForToken();
    if (!answer.ok) throw new Error(`the balancer answered ${answer.status}`);
    show(part, await answer.text());
  } catch (error) {
    if (error.name !== "AbortError") trouble(`No fresh numbers: ${error.message}. Trying again.`);
  }
}

function show(part, text) {
  const wanted = new DOMParser().parseFromString(text, "text/html").body;
  patch(byId(part), wanted);
  document.querySelector("main").hidden = false;
  byId("token").hidden = true;
  byId("fresh").textContent = `As of ${new Date().toISOString().slice(11, 19)} UTC`;
  trouble("");
}

function trouble(text) {
  const place = byId("trouble");
  if (place.textContent !== text) place.textContent = text;
  place.hidden = text === "";
}

function askForToken() {
  const form = byId("token");
  const refused = sessionStorage.getItem(TOKEN) !== null;
  sessionStorage.removeItem(TOKEN);
  document.querySelector("main").hidden = true;
  byId("fresh").textContent = "";
  if (refused) trouble("This token is not the right one.");
  if (form.hidden) {
    form.hidden = false;
    byId("token-value").focus();
  }
}

byId("token").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(TOKEN, byId("token-value").value);
  byId("token-value").value = "";
  trouble("");
  refreshAll();
});

// A filter asks at once for what it was set to.
for (const kind of ["change", "input", "submit"]) {
  document.addEventListener(kind, (event) => {
    const form = event.target.closest?.("form[data-part]");
    if (!form) return;
    if (kind === "submit") event.preventDefault();
    asked[form.dataset.part] = Object.fromEntries(new FormData(form));
    refresh(form.dataset.part);
  });
}

// Every conversation of a replica moves when it is drained, so a person is asked once more.
let meant;
document.addEventListener("click", (event) => {
  const button = event.target.closest?.("button[data-verb]");
  if (!button) return;
  meant = { ...button.dataset };
  const { engine, verb } = meant;
  byId("confirm-text").textContent =
    verb === "drain"
      ? `Drain ${engine}? It gets no new conversation, and those it has move at their next turn.`
      : `Use ${engine} again?`;
  byId("confirm-yes").textContent = button.textContent;
  byId("confirm").showModal();
});
byId("confirm-no").addEventListener("click", () => byId("confirm").close());
byId("confirm-yes").addEventListener("click", async () => {
  byId("confirm").close();
  const { engine, verb, model } = meant;
  const path = `/replicas/${encodeURIComponent(engine)}/${verb}?${new URLSearchParams({ model })}`;
  try {
    const answer = await fetch(path, { method: "POST", headers: headers() });
    if (answer.status === 401) return askForToken();
    if (!answer.ok) throw new Error((await answer.json()).error);
    refresh("models");
  } catch (error) {
    trouble(`Nothing has changed: ${error.message}.`);
  }
});

function refreshAll() {
  Object.keys(PARTS).forEach(refresh);
}

// Nobody looks at a hidden page, and one that asks for a token waits for it.
const idle = () => document.hidden || !byId("token").hidden;

for (const [part, every] of Object.entries(PARTS)) {
  setInterval(() => idle() || refresh(part), every);
}
document.addEventListener("visibilitychange", () => idle() || refreshAll());
let resized;
window.addEventListener("resize", () => {
  clearTimeout(resized);
  resized = setTimeout(() => idle() || refresh("history"), 200);
});
document.querySelector("main").hidden = false;
refreshAll();
