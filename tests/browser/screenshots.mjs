// Writes pictures of the page under load: wide and narrow, light and dark.
import { mkdir } from "node:fs/promises";
import { SPEED, Stand, browser } from "./stand.mjs";

const FOLDER = "target/screenshots";
const WIDTHS = [1280, 390];
// How long the load runs before the pictures, in seconds: rising and falling, past what the caches hold and back.
const SECONDS = Number(process.env.SCREENSHOT_LOAD_S ?? 180);
const TIERS = [4, 10, 16, 24, 16, 8];

const stand = await Stand.start({ hostile: false });
try {
  await mkdir(FOLDER, { recursive: true });
  console.log(`Load for ${SECONDS} s.`);
  for (const [index, sessions] of TIERS.entries()) {
    await stand.play(sessions, Math.ceil((SECONDS * SPEED) / TIERS.length), index + 1);
  }
  const load = stand.play(12, 3600, 99).catch(() => {});
  // Until the last decisions are those of this load, and none of a turn that was cut off.
  await new Promise((later) => setTimeout(later, 5000));
  const chromium = await browser();
  for (const width of WIDTHS) {
    for (const scheme of ["light", "dark"]) {
      const page = await chromium.newPage({
        colorScheme: scheme,
        viewport: { width, height: 900 },
        deviceScaleFactor: width < 800 ? 2 : 1,
      });
      await page.goto(stand.admin);
      await page.waitForSelector("#history svg");
      await page.waitForSelector("#decisions tbody tr");
      await page.screenshot({ path: `${FOLDER}/${width}-${scheme}.png`, fullPage: true });
      console.log(`${FOLDER}/${width}-${scheme}.png`);
      await page.close();
    }
  }
  await chromium.close();
  await stand.stop();
  await load;
} finally {
  await stand.stop();
}
