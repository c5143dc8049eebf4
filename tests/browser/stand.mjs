// What the browser looks at: a simulated fleet, a balancer before it, and sessions through it.
import { spawn } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { chromium } from "playwright-core";

const BIN = process.env.HOMING_BIN ?? "target/debug";
const CHROMIUM = process.env.CHROMIUM ?? "/usr/bin/chromium";

// As many times faster than the simulated hardware.
export const SPEED = 20;
export const MODEL = "qwen3-4b";
// A name that would be markup if it were not escaped.
export const HOSTILE = `<img src=x onerror="document.title='run'">&amp;'"`;

export class Stand {
  #children = [];

  static async start({ token, hostile = true } = {}) {
    const stand = new Stand();
    stand.folder = await mkdtemp(join(tmpdir(), "homing-browser-"));
    const fleet = stand.#spawn("homing-bench", ["fleet", "--replicas", "4", "--speed", `${SPEED}`]);
    const { replicas } = JSON.parse(await line(fleet.stdout, (text) => text.startsWith("{") && text));
    const models = [
      { name: MODEL, max_num_seqs: 32, replicas: replicas.map((url) => ({ url })) },
    ];
    if (hostile) models.push({ name: HOSTILE, affinity: "off", replicas: [{ url: "http://127.0.0.1:1" }] });
    const config = {
      listen: [{ address: "127.0.0.1:0" }],
      admin: { address: "127.0.0.1:0", ...(token && { token: { env: "HOMING_BROWSER_TOKEN" } }) },
      server: { access_log: "off" },
      scrape: { interval: "1 s" },
      models,
    };
    const file = join(stand.folder, "homing.yaml");
    await writeFile(file, JSON.stringify(config));
    const homing = stand.#spawn("homing", ["serve", "--config", file], { HOMING_BROWSER_TOKEN: token ?? "" });
    const address = (words) => line(homing.stderr, (text) => text.split(words)[1]);
    [stand.clients, stand.admin] = await Promise.all([address("listening on "), address("admin on ")]);
    stand.homing = homing;
    return stand;
  }

  // Plays sessions for so many seconds of the simulated clock, to their end.
  async play(sessions, seconds, seed = 1) {
    const args = ["sessions", "--url", this.clients, "--sessions", `${sessions}`, "--seconds", `${seconds}`];
    const played = this.#spawn("homing-bench", [...args, "--speed", `${SPEED}`, "--seed", `${seed}`]);
    played.stdout.resume();
    const code = await new Promise((done) => played.on("exit", done));
    if (code !== 0) throw new Error(`the sessions ended with ${code}`);
  }

  async json(path) {
    const answer = await fetch(this.admin + path);
    if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
    return answer.json();
  }

  // Waits until nothing is in flight or parked, and every engine was read since.
  async rest() {
    let age = 0;
    for (let readings = 0; ; ) {
      const routing = await this.json(`/routing/${MODEL}`);
      const idle = routing.replicas.every((row) => row.in_flight === 0 && row.running === 0 && row.waiting === 0);
      readings = !idle || routing.admission.parked > 0 ? 0 : readings + (routing.replicas[0].reading_age_s < age ? 1 : 0);
      if (readings >= 3) return routing;
      age = routing.replicas[0].reading_age_s;
      await new Promise((later) => setTimeout(later, 100));
    }
  }

  async stop() {
    this.#children.forEach((child) => child.exitCode === null && child.kill("SIGINT"));
    await rm(this.folder, { recursive: true, force: true });
  }

  #spawn(name, args, env = {}) {
    const child = spawn(join(BIN, name), args, { env: { ...process.env, ...env }, stdio: ["ignore", "pipe", "pipe"] });
    this.#children.push(child);
    child.on("error", (error) => {
      throw new Error(`${name} does not start (make test-browser builds it): ${error.message}`);
    });
    return child;
  }
}

// A browser that fetches nothing of its own accord.
export function browser() {
  const args = ["--no-sandbox", "--disable-background-networking", "--disable-component-update", "--force-color-profile=srgb"];
  return chromium.launch({ executablePath: CHROMIUM, args });
}

// The first line of which `pick` makes something. The others are read away.
function line(stream, pick) {
  return new Promise((found, ended) => {
    const lines = createInterface({ input: stream });
    lines.on("line", (text) => {
      const picked = pick(text);
      if (picked) found(picked.trim());
    });
    lines.on("close", () => ended(new Error("it ended before it said what was waited for")));
  });
}
