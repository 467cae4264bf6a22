// The page: header, theme, and the order in which its parts are drawn.

import { begin, known, onChange, serverNow, stream } from "/live.js";
import { beginActions, drawControl } from "/actions.js";
import { drawAlarms, drawHeadline } from "/alarms.js";
import { drawCircuits } from "/circuits.js";
import { beginCurves } from "/curves.js";
import { drawDevices, followAddress } from "/devices.js";
import { drawEvents } from "/events.js";
import { drawFabric } from "/fabric.js";
import { byId, clock, duration, element, refreshAges, setAge, setText } from "/format.js";
import { drawJoined } from "/joined.js";
import { drawJob, drawJobAge, drawRecovery } from "/jobs.js";
import { drawMesh } from "/mesh.js";
import { beginWhatIf, drawWhatIf } from "/what_if.js";

const AGES_MS = 500;
let agedMs = 0;

function announce(text) { if (text) setText(byId("announce"), text); }

// -- header ------------------------------------------------------------------------------------------------------------

function drawHead(changed) {
  if (changed.has("live")) {
    document.body.dataset.live = stream.word.toLowerCase();
    setText(byId("live-word"), stream.word);
    announce(stream.word === "LIVE" ? "Values are live." : stream.word === "STALE" ? `Values are stale: ${stream.why}.` : "");
    document.title = `${stream.word === "LIVE" ? "" : `${stream.word} · `}${known.about ? known.about.bench : "Bench"}`;
    refreshAges();
  }
  setText(byId("live-why"), stream.why);
  setText(byId("number"), stream.number ? String(stream.number) : "–");
  setText(byId("time"), stream.timeS ? clock(stream.timeS) : "–");
  byId("missed-fact").hidden = !stream.missed && !stream.gaps;
  setText(byId("missed"), stream.gaps ? `${stream.missed}, ${stream.gaps} gaps` : String(stream.missed));
  if (changed.has("rate")) setText(byId("rate"), `${stream.rate.toFixed(stream.rate < 9.5 ? 1 : 0)} /s`);
}

function drawAbout() {
  const about = known.about, health = known.health;
  setText(byId("bench"), about.bench);
  document.title = `${stream.word === "LIVE" ? "" : `${stream.word} · `}${about.bench}`;
  setText(byId("version"), about.version);
  const tags = [about.is_emulated ? "emulated" : "hardware", about.writes ? "" : "read-only", health.keeps === "nothing" ? "" : `maintains ${health.keeps}`];
  byId("tags").replaceChildren(...tags.filter(Boolean).map((text) => element("span", "tag", text)));
  setText(byId("record"), health.record_sha256 ? `calibration record ${health.record_sha256.slice(0, 12)}` : "no calibration record");
}

function drawLease() {
  const lease = known.lease;
  setText(byId("lease"), lease.owner ? `${lease.owner}, ${duration(serverNow() - lease.since_s)}` : "free");
}

// -- drawing -----------------------------------------------------------------------------------------------------------

const PARTS = [
  [["headline"], drawHeadline],
  [["mesh", "paths"], drawMesh],
  [["circuits", "paths"], drawCircuits],
  [["fabric", "health"], drawFabric],
  [["joined"], drawJoined],
  [["job"], drawJob],
  [["recovery"], drawRecovery],
  [["events"], drawEvents],
  [["lease"], drawLease],
  [["points", "health", "about", "point_kinds", "alignments"], drawDevices],
  [["points", "health", "circuits", "fabric", "joined", "about"], (changed) => announce(drawAlarms(changed))],
];

function draw(changed) {
  drawHead(changed);
  if (known.about === null || known.health === null) return;
  if (changed.has("about") || changed.has("health")) { drawAbout(); drawWhatIf(); }
  for (const [names, drawPart] of PARTS) if (names.some((name) => changed.has(name))) drawPart(changed);
  drawControl(changed);
  if (performance.now() - agedMs > AGES_MS) drawAges();
}

function drawAges() {
  agedMs = performance.now();
  setText(byId("state-age"), stream.timeS ? duration(serverNow() - stream.timeS) : "–");
  if (known.lease) drawLease();
  if (known.circuits.length) drawCircuits();
  drawJobAge();
  const controller = known.about?.devices.find((device) => device.role === "mesh controller");
  const time = controller && known.points.get(`${controller.name}.heaters_ma`)?.[1];
  if (time) setAge(byId("mesh-age"), time, known.health?.silent[controller.name] ? "silent" : "");
  refreshAges();
}

// -- theme -------------------------------------------------------------------------------------------------------------

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  byId("theme").setAttribute("aria-pressed", String(theme === "dark"));
}

function beginTheme() {
  const system = matchMedia("(prefers-color-scheme: dark)");
  let chosen = null;
  try { chosen = localStorage.getItem("theme"); } catch { /* storage is switched off */ }
  setTheme(chosen ?? (system.matches ? "dark" : "light"));
  system.addEventListener("change", () => { if (chosen === null) setTheme(system.matches ? "dark" : "light"); });
  byId("theme").addEventListener("click", () => {
    chosen = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    setTheme(chosen);
    try { localStorage.setItem("theme", chosen); } catch { /* storage is switched off */ }
  });
}

beginTheme();
onChange(draw);
beginActions(announce);
beginWhatIf();
beginCurves();
window.addEventListener("hashchange", followAddress);
begin();
followAddress();
setInterval(() => { if (performance.now() - agedMs > 2 * AGES_MS) drawAges(); }, AGES_MS); // while no state arrives
