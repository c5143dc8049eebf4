// The page in a real browser, before a simulated fleet.
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { after, before, test } from "node:test";
import { HOSTILE, MODEL, Stand, browser } from "./stand.mjs";

const TOKEN = "a-token-of-this-test";
const axeSource = await readFile(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

let stand;
let chromium;

before(async () => {
  chromium = await browser();
  stand = await Stand.start();
  await stand.play(8, 600);
});

after(async () => {
  await chromium?.close();
  await stand?.stop();
});

// Opens the page; fails where it complains or asks anyone else. Returns it with what it asked for.
async function open(url, { wait = "#history svg", ...options } = {}) {
  const context = await chromium.newContext({ viewport: { width: 1280, height: 900 }, ...options });
  const page = await context.newPage();
  const faults = [];
  page.on("console", (message) => message.type() === "error" && faults.push(message.text()));
  page.on("pageerror", (error) => faults.push(error.message));
  page.on("request", (request) => request.url().startsWith(url) || faults.push(`asked for ${request.url()}`));
  await page.goto(url);
  await page.waitForSelector(wait);
  return { page, faults, close: () => context.close() };
}

const number = (text) => (text === "–" ? null : Number(text.replaceAll(",", "").replace("\u00a0%", "")));
const percent = (share) => (share === null ? null : Math.round(share * 1000) / 10);

// The sum of a metric over the samples with these labels.
function sum(metrics, name, labels) {
  const wanted = Object.entries(labels).map(([label, value]) => `${label}="${value}"`);
  return metrics
    .split("\n")
    .filter((line) => line.startsWith(`${name}{`) && wanted.every((pair) => line.includes(pair)))
    .reduce((total, line) => total + Number(line.split("} ")[1]), 0);
}

test("at rest the numbers are those of /routing and /metrics", async () => {
  const routing = await stand.rest();
  const { page, faults, close } = await open(stand.admin);
  const metrics = await (await fetch(`${stand.admin}/metrics`)).text();
  const rows = await page.$$eval(`article[data-key="${MODEL}"] tbody tr`, (rows) =>
    rows.map((row) => ({
      replica: row.dataset.key,
      cells: Object.fromEntries([...row.querySelectorAll("td")].map((cell) => [cell.dataset.label, cell.textContent])),
    })),
  );
  assert.equal(rows.length, routing.replicas.length);
  for (const [index, { replica, cells }] of rows.entries()) {
    const row = routing.replicas[index];
    assert.equal(replica, row.replica);
    const same = {
      "In flight": row.in_flight,
      Sticky: row.sticky,
      Placed: row.placed,
      "Spilled in": row.spilled_in,
      "Client-pinned": row.client_pinned,
      "By load": row.balanced + row.unrouted,
      Running: row.running,
      Waiting: row.waiting,
      "KV used": percent(row.kv_cache_usage),
      Conversations: row.conversations,
      "Prefix hits": percent(row.prefix_cache_hit_ratio),
    };
    for (const [label, value] of Object.entries(same)) assert.equal(number(cells[label]), value, `${replica}: ${label}`);
    assert.deepEqual(cells["Held of capacity"].split(" of ").map(number), [row.held_tokens, row.capacity_tokens]);
    const counted = (decision) => sum(metrics, "homing_requests_total", { model: MODEL, replica, decision });
    assert.equal(number(cells.Sticky), counted("sticky"));
    assert.equal(number(cells.Placed), counted("placed"));
    assert.equal(number(cells.Conversations), sum(metrics, "homing_conversations", { replica }));
  }
  assert.ok(routing.totals.sticky > 0 && routing.totals.placed > 0);
  assert.deepEqual(faults, []);
  await close();
});

test("the chart has a column for each bucket of the history, and the table a row for each that is not quiet", async () => {
  await stand.rest();
  for (const span of ["hour", "day"]) {
    const { page, faults, close } = await open(stand.admin);
    await page.selectOption("#history select[name=span]", span);
    let history;
    const shown = () => page.locator("#history .hover rect").count();
    // A bucket may end between the two.
    for (let tries = 0; tries < 300; tries += 1) {
      history = await stand.json(`/history/${MODEL}?span=${span}`);
      if ((await shown()) === history.buckets.length) break;
      await new Promise((later) => setTimeout(later, 100));
    }
    assert.equal(await shown(), history.buckets.length);
    const busy = history.buckets.filter((bucket) => bucket.requests + bucket.parked + bucket.waits > 0);
    assert.equal(await page.locator("#history tbody tr").count(), busy.length);
    if (span === "hour") {
      assert.ok(busy.length > 0, "the load shows");
      const titles = await page.$$eval("#history .hover title", (titles) => titles.map((title) => title.textContent));
      assert.ok(titles.some((title) => /[1-9]\d* requests/.test(title)));
      const counted = busy.reduce((total, bucket) => total + bucket.requests, history.filling.requests);
      const routed = (await stand.json(`/routing/${MODEL}`)).totals;
      assert.equal(counted, routed.sticky + routed.placed + routed.spilled + routed.client_pinned + routed.balanced + routed.unrouted);
    }
    assert.deepEqual(faults, []);
    await close();
  }
});

test("decisions are filtered by model, decision and conversation", async () => {
  const { page, faults, close } = await open(stand.admin);
  const rows = page.locator("#decisions tbody tr");
  const all = (await stand.json("/decisions")).decisions;
  assert.equal(await rows.count(), all.length);
  await page.selectOption("#decisions select[name=decision]", "placed");
  const placed = all.filter((decided) => decided.decision === "placed");
  await page.waitForFunction((count) => document.querySelectorAll("#decisions tbody tr").length === count, placed.length);
  await page.selectOption("#decisions select[name=decision]", "");
  const { conversation } = all[0];
  await page.fill("#decisions input", conversation);
  const its = all.filter((decided) => decided.conversation === conversation).length;
  await page.waitForFunction((count) => document.querySelectorAll("#decisions tbody tr").length === count, its);
  await page.fill("#decisions input", "");
  await page.selectOption("#decisions select[name=model]", HOSTILE);
  await page.waitForFunction(() => document.querySelectorAll("#decisions tbody tr").length === 0);
  assert.deepEqual(faults, []);
  await close();
});

test("a name that looks like markup is shown as it is", async () => {
  const { page, faults, close } = await open(stand.admin);
  assert.ok((await page.$$eval("h3", (titles) => titles.map((title) => title.textContent))).includes(HOSTILE));
  await page.selectOption("#history select[name=model]", HOSTILE);
  await page.waitForFunction((name) => document.querySelector(".chart").getAttribute("aria-label").includes(name), HOSTILE);
  assert.equal(await page.locator("main img").count(), 0);
  assert.equal(await page.title(), "Homing");
  assert.deepEqual(faults, []);
  await close();
});

test("a refresh keeps the nodes, the focus and the selection", async () => {
  const { page, close } = await open(stand.admin);
  await page.fill("#decisions input", "0");
  await page.focus("#decisions input");
  await page.evaluate(() => {
    window.kept = document.querySelector("#models tbody tr");
    getSelection().selectAllChildren(window.kept.querySelector("th"));
    document.querySelector("#history details").open = true;
  });
  const selected = await page.evaluate(() => getSelection().toString());
  for (const part of ["models", "decisions", "history"]) {
    await (await page.waitForResponse((answer) => answer.url().includes(`/panel/${part}`))).finished();
  }
  await page.waitForFunction(() => new Promise((painted) => requestAnimationFrame(() => painted(true))));
  assert.equal(await page.evaluate(() => document.querySelector("#models tbody tr") === window.kept), true);
  assert.equal(await page.evaluate(() => getSelection().toString()), selected);
  assert.equal(await page.inputValue("#decisions input"), "0");
  assert.equal(await page.evaluate(() => document.querySelector("#history details").open), true);
  await close();
});

test("a drain by button empties a replica, after a question, by keyboard alone", async () => {
  const { page, faults, close } = await open(stand.admin);
  const { replica } = (await stand.rest()).replicas[0];
  const row = page.locator(`article[data-key="${MODEL}"] tbody tr[data-key="${replica}"]`);
  const press = async (answer) => {
    await row.locator("button").focus();
    await page.keyboard.press("Enter");
    await page.waitForSelector("#confirm[open]");
    await page.focus(answer);
    await page.keyboard.press("Enter");
    await page.waitForSelector("#confirm", { state: "hidden" });
  };
  const state = async () => (await stand.json(`/routing/${MODEL}`)).replicas[0];
  await press("#confirm-no");
  assert.equal((await state()).state, "up");
  await press("#confirm-yes");
  await row.locator(".draining").waitFor();
  await row.getByText("nothing in flight").waitFor();
  assert.equal((await state()).drained, true);
  const before = await stand.rest();
  await stand.play(4, 120, 2);
  const after = await stand.rest();
  const served = (row) => row.placed + row.sticky + row.spilled_in + row.balanced;
  assert.equal(served(after.replicas[0]), served(before.replicas[0]), "the drained one got nothing");
  assert.ok(served(after.replicas[1]) > served(before.replicas[1]));
  await press("#confirm-yes");
  await row.locator(".up").waitFor();
  assert.deepEqual(faults, []);
  await close();
});

test("it is usable by keyboard", async () => {
  const { page, close } = await open(stand.admin);
  const reached = [];
  for (let step = 0; step < 20; step += 1) {
    await page.keyboard.press("Tab");
    reached.push(await page.evaluate(() => document.activeElement.name || document.activeElement.tagName));
  }
  for (const wanted of ["A", "model", "span", "SUMMARY", "decision", "conversation"]) {
    assert.ok(reached.includes(wanted), `${wanted} among ${reached}`);
  }
  await close();
});

test("axe finds nothing, wide and narrow, light and dark", async () => {
  for (const width of [1280, 390]) {
    for (const colorScheme of ["light", "dark"]) {
      const { page, close } = await open(stand.admin, { viewport: { width, height: 900 }, colorScheme, bypassCSP: true });
      await page.evaluate(() => (document.querySelector("#history details").open = true));
      await page.addScriptTag({ content: axeSource });
      const { violations } = await page.evaluate(() => axe.run());
      const told = violations.map(({ id, nodes }) => `${id}: ${nodes.map((node) => node.target).join(", ").slice(0, 400)}`);
      assert.deepEqual(told, [], `${width} ${colorScheme}`);
      await close();
    }
  }
});

test("nothing is wider than the screen or its card", async () => {
  const { page, close } = await open(stand.admin);
  for (const width of [1440, 1280, 1217, 1216, 800, 390, 320]) {
    await page.setViewportSize({ width, height: 900 });
    const wide = await page.$$eval("html, .card, .scroll:not(:has(.numbers)), #history, #decisions", (all) =>
      all.filter((one) => one.scrollWidth > one.clientWidth).map((one) => `${one.tagName} ${one.className}: ${one.scrollWidth} > ${one.clientWidth}`),
    );
    assert.deepEqual(wide, [], `${width}`);
  }
  await close();
});

test("with a token, the page asks for it and keeps it in the tab alone", async () => {
  const guarded = await Stand.start({ token: TOKEN });
  try {
    for (const path of ["/", "/panel.js", "/panel.css", "/icon.svg"]) {
      const text = await (await fetch(guarded.admin + path)).text();
      assert.ok(!text.includes(MODEL) && !text.includes(TOKEN), `${path} holds no data`);
    }
    const { page, close } = await open(guarded.admin, { wait: "#token-value:visible" });
    assert.equal(await page.locator("main").isVisible(), false);
    await page.fill("#token-value", "wrong");
    await page.keyboard.press("Enter");
    await page.waitForSelector("#trouble:visible");
    await page.fill("#token-value", TOKEN);
    await page.keyboard.press("Enter");
    await page.waitForSelector("#history svg");
    const kept = await page.evaluate(() => [sessionStorage.length, localStorage.length, document.cookie, location.href]);
    assert.deepEqual(kept, [1, 0, "", `${guarded.admin}/`]);
    await page.reload();
    await page.waitForSelector("#history svg");
    await close();
  } finally {
    await guarded.stop();
  }
});
