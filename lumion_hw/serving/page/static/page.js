// The page: layout of the sections and their update times.

import { begin, isStale, known, onChange, serverNow, stream } from "/live.js";
import { drawMesh } from "/mesh.js";
import { beginActions, drawControl } from "/actions.js";
import { drawAlarms, drawCircuits, drawDevices, drawMargins, duration, element, loadMargins, loadSvg, number, putSvg, refreshAges, replaced, setAge, setText, withUnit } from "/tables.js";

const TABLES_MS = 100, AGES_MS = 500, MARGINS_MS = 10000, SHOWN_EVENTS = 80;
const at = (id) => document.getElementById(id);
const wall = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const clock = (seconds) => wall.format(new Date(seconds * 1000));

let lastEvent = 0, recoveryAt = null;

function announce(words) { if (words) setText(at("announce"), words); }

function drawHead(changed) {
  if (changed.has("live")) {
    document.body.dataset.live = stream.word.toLowerCase();
    setText(at("live-word"), stream.word);
    announce(stream.word === "LIVE" ? "Values are live." : stream.word === "STALE" ? `Values are stale: ${stream.why}.` : "");
    document.title = `${stream.word === "LIVE" ? "" : `${stream.word} · `}${known.about ? known.about.bench : "Bench"}`;
    refreshAges();
  }
  setText(at("live-why"), stream.why);
  setText(at("number"), String(stream.number));
  setText(at("time"), stream.timeS ? clock(stream.timeS) : "–");
  setText(at("missed"), stream.gaps ? `${stream.missed}, ${stream.gaps} gaps` : String(stream.missed));
  if (changed.has("rate")) setText(at("rate"), `${stream.rate.toFixed(stream.rate < 9.5 ? 1 : 0)} /s`);
}

function drawAbout() {
  const about = known.about;
  setText(at("bench"), about.bench);
  document.title = about.bench;
  setText(at("version"), about.version);
  const tags = [about.is_emulated ? "emulated: no hardware" : "hardware", about.writes ? "writable with token and lease" : "read-only"];
  if (known.health) tags.push(`maintains ${known.health.keeps}`);
  replaced(at("tags"), ...tags.map((text) => element("span", "tag", text)));
  for (const [id, names] of [["what-from", about.sources], ["what-to", about.targets]]) {
    if (at(id).childElementCount) continue;
    replaced(at(id), ...names.map((name) => element("option", "", name)));
  }
  if (at("what-to").options.length > 1 && at("what-to").value === at("what-from").value) at("what-to").selectedIndex = 1;
}

function drawHealth() {
  setText(at("record"), known.health.record_sha256 ? `calibration record ${known.health.record_sha256.slice(0, 12)}` : "no calibration record");
}

function drawLease() {
  const lease = known.lease;
  setText(at("lease"), lease.owner ? `${lease.owner}, ${duration(serverNow() - lease.since_s)}` : "free");
}

function drawEvents() {
  const list = at("event-list"), fresh = known.events.filter((event) => event[0] > lastEvent);
  if (known.events.length && known.events.at(-1)[0] < lastEvent) { lastEvent = 0; list.replaceChildren(); drawEvents(); return; }
  for (const [count, time, what, data] of fresh) {
    const line = element("li"), told = Object.entries(data).map(([key, value]) => `${key} ${typeof value === "object" ? JSON.stringify(value) : typeof value === "number" ? number(value) : value}`);
    line.append(element("time", "", clock(time)), " ", element("strong", "", what), " ", element("span", "name", told.join(", ").slice(0, 400)));
    line.title = `event ${count}`;
    list.prepend(line);
    lastEvent = count;
  }
  while (list.childElementCount > SHOWN_EVENTS) list.lastElementChild.remove();
}

function drawRecovery() {
  const recovery = known.recovery, body = at("recovery-body");
  if (!recovery || recovery.time_s === recoveryAt) return;
  recoveryAt = recovery.time_s;
  const words = recovery.failed ? `${recovery.failed} replaced by ${recovery.spare}` : recovery.words || "a path replaced";
  const head = element("p"), place = element("div", "picture small"), details = element("details");
  head.append(element("strong", "name", words), ` at ${clock(recovery.time_s)}. Durations of the steps, in bench time.`);
  const table = element("table"), body2 = element("tbody"), top = element("tr");
  for (const text of ["span", "ms", "CPU ms", "at ms", "source"]) { const cell = element("th", "", text); cell.scope = "col"; top.append(cell); }
  for (const [name, bench, cpu, since, source] of recovery.spans) {
    const row = element("tr");
    [name, bench.toFixed(2), cpu.toFixed(2), since.toFixed(2), source].forEach((text, index) => row.append(element("td", index && index < 4 ? "number" : "name", text)));
    body2.append(row);
  }
  const first = element("thead"); first.append(top);
  table.append(first, body2);
  details.append(element("summary", "", "The same as a table"), table);
  replaced(body, head, place, details);
  loadSvg("/recovery.svg", place);
}

function drawJob() {
  const job = known.job, body = at("job-body");
  if (!job) return;
  const line = element("p"), parts = [line];
  const word = job.is_over ? (job.error ? "FAILED" : "DONE") : "RUNNING";
  line.append(element("strong", `word-${word.toLowerCase()}`, word), ` ${job.what} for `, element("span", "name", job.by), `, started ${clock(job.begun_s)} `);
  if (!job.is_over) {
    const bar = element("progress");
    if (job.total) { bar.max = job.total; bar.value = job.done; }
    bar.setAttribute("aria-label", "progress of the job");
    parts.push(bar, element("p", "aside", `${job.stage || "starting"}${job.total ? `: ${job.done} of ${job.total}` : ""}`));
  } else if (job.stage) parts.push(element("p", "aside", `last stage: ${job.stage}`));
  if (job.error) parts.push(element("p", "severity-2", job.error));
  const residuals = Object.entries(job.residuals);
  if (residuals.length) {
    const table = element("table"), rows = element("tbody");
    table.append(element("caption", "", "Residuals of the calibration by stage"), rows);
    for (const [name, value] of residuals) {
      const row = element("tr");
      row.append(element("th", "name", name), element("td", "number", number(value)));
      rows.append(row);
    }
    parts.push(table);
  }
  replaced(body, ...parts);
}

// Header and mesh are drawn for every state, tables at most ten times a second.
let later = new Set(), isWaiting = false;

function draw(changed) {
  drawHead(changed);
  if (changed.has("mesh") || changed.has("paths")) drawMesh(changed);
  for (const name of changed) later.add(name);
  if (isWaiting) return;
  isWaiting = true;
  setTimeout(() => {
    const due = later;
    later = new Set(); isWaiting = false;
    drawTables(due);
  }, TABLES_MS);
}

function drawTables(changed) {
  if (changed.has("about") || changed.has("health")) if (known.about && known.health) { drawAbout(); drawHealth(); }
  if (changed.has("circuits") || changed.has("paths")) { drawCircuits(); drawMargins(); }
  if (changed.has("points") || changed.has("health") || changed.has("about") || changed.has("point_kinds")) drawDevices();
  if (changed.has("points") || changed.has("health") || changed.has("circuits")) announce(drawAlarms());
  if (changed.has("events")) drawEvents();
  if (changed.has("recovery")) drawRecovery();
  if (changed.has("job")) drawJob();
  if (changed.has("lease")) drawLease();
  drawControl(changed);
}

function age() {
  setText(at("state-age"), stream.timeS ? duration(serverNow() - stream.timeS) : "–");
  refreshAges();
  if (known.lease) drawLease();
  if (known.circuits.length) drawCircuits();
  const controller = known.about?.devices.find((device) => device.role === "mesh controller");
  if (controller && known.mesh) {
    const taken = [...known.points].filter(([name]) => name.startsWith(`${controller.name}.heater`)).map(([, value]) => value[1]);
    if (taken.length) setAge(at("mesh-age"), Math.min(...taken), known.health?.silent[controller.name] ? "silent" : "");
  }
}

at("what-if-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const body = at("what-if-body"), [from, to] = [at("what-from").value, at("what-to").value];
  const names = at("what-both").checked ? `${from}:${to},${to}:${from}` : `${from}:${to}`;
  const query = new URLSearchParams({ circuits: names, min_margin_db: at("what-margin").value, max_hops: at("what-hops").value });
  if (at("what-alone").checked) query.set("exclusive", "1");
  replaced(body, element("p", "quiet", "planning …"));
  try {
    const answer = await fetch(`/what-if?${query}`), told = await answer.json();
    if (!answer.ok) { replaced(body, element("p", "severity-2", `${told.error}: ${told.message}`)); return; }
    const parts = told.circuits.map((circuit) => {
      const table = element("table"), rows = element("tbody");
      table.append(element("caption", "name", `${circuit.name}: ${circuit.hops} PUCs, margin ${circuit.margin_db.toFixed(1)} dB`), rows);
      for (const [what, value, unit, limit] of circuit.lines) {
        const row = element("tr"), head = element("th", "", what);
        head.scope = "row";
        row.append(head, element("td", "number", value === null ? "none" : withUnit(Number(value.toFixed(2)), unit)), element("td", "aside", limit));
        rows.append(row);
      }
      return table;
    });
    const picture = element("div", "picture"), words = element("details");
    words.append(element("summary", "", "As text"), element("pre", "", told.words));
    putSvg(told.svg, picture);
    const tables = element("div", "side");
    tables.append(...parts);
    replaced(body, element("p", "", `Feasible; ${number(told.heat_mw)} mW of heater power.`), tables, picture, words);
  } catch { replaced(body, element("p", "severity-2", "the server did not answer")); }
});

onChange(draw);
beginActions(announce);
begin();
setInterval(age, AGES_MS);
setInterval(loadMargins, MARGINS_MS);
loadMargins();
