// The running or last job with its stages and residuals, and the last recovery.

import { known, serverNow } from "/live.js";
import { scanCurve } from "/scan_curve.js";
import { byId, cell, clock, duration, element, loadSvg, number, parent, setText, show, svgElement, table } from "/format.js";

const TITLES = { calibrate: "Calibration", scan: "Scan" }, SHOWN_S = 60, SPARK_WIDTH = 150, SPARK_HEIGHT = 30;
const RESIDUALS = {
  search_unexplained_share: "unexplained share of the search", heater_sweeps_rms_sigma: "heater sweeps, rms in standard errors",
  global_fit_chi2_per_reading: "global fit, χ² per reading", held_out_db: "verification settings, rms in dB",
};
let recoveryShown = "", built = "", curve = null;

export function drawJob() {
  const job = known.job;
  show("job", job !== null && !isPast(job));
  if (job === null) return;
  const state = job.is_over ? (job.error ? "FAILED" : "DONE") : "RUNNING", now = `${job.number} ${job.what} ${job.begun_s} ${state} ${job.stages.length} ${job.residual_log.length}`;
  setText(byId("job-head"), TITLES[job.what] ?? "Job");
  if (built !== now) { built = now; build(job, state); }
  const bar = byId("job-bar");
  if (bar) {
    if (job.total) { bar.max = job.total; bar.value = job.done; } else bar.removeAttribute("value");
    setText(byId("job-progress"), job.total ? `${job.stage}: ${job.done} of ${job.total}` : job.stage || "starting");
  }
  drawCurve(job);
}

function drawCurve(job) {
  const place = byId("job-curve"), now = `${built} ${place.clientWidth}`; // the width changes if a phone is turned
  if (curve === job.curve && place.dataset.drawn === now) return;
  curve = job.curve; place.dataset.drawn = now;
  place.replaceChildren(...(curve ? scanCurve(curve, place.clientWidth) : []));
}

// A job that has ended well is shown for a minute, a calibration or a failed job until the next one.
function isPast(job) {
  const begun = job.stages.length ? job.stages.at(-1)[1] : job.begun_s;
  return job.is_over && !job.error && !Object.keys(job.residuals).length && serverNow() - begun > SHOWN_S;
}

/** Show the time since a running job began. */
export function drawJobAge() {
  const place = byId("job-time"), job = known.job;
  if (job?.is_over) show("job", !isPast(job));
  if (place && job) drawCurve(job);
  if (place && job && !job.is_over) setText(place, `for ${duration(serverNow() - job.begun_s)}`);
}

function build(job, state) {
  const severity = { FAILED: 2, DONE: 0, RUNNING: -1 }[state];
  const time = element("span", "aside"), word = element("strong", `state severity-${severity}`, state);
  const head = parent("p", "job-line", word, ` ${job.what} for `, element("span", "name", job.by), `, started ${clock(job.begun_s)} `, time);
  time.id = "job-time";
  const parts = [head];
  if (!job.is_over) {
    const bar = element("progress"), text = element("p", "number");
    bar.id = "job-bar"; text.id = "job-progress";
    bar.setAttribute("aria-label", "progress of the job");
    parts.push(bar, text);
  } else if (job.stage && job.error) parts.push(element("p", "aside", `last stage: ${job.stage}`));
  if (job.error) parts.push(element("p", "severity-2", job.error));
  const sides = [stages(job), residuals(job)].filter(Boolean);
  if (sides.length) parts.push(parent("div", "side", ...sides));
  const picture = element("div");
  picture.id = "job-curve";
  parts.push(picture);
  byId("job-body").replaceChildren(...parts);
  drawJobAge();
}

function stages(job) {
  if (job.what !== "calibrate" || !job.stages.length) return null;
  const list = element("ol", "stages");
  job.stages.forEach(([name, begun], index) => {
    const next = job.stages[index + 1], isNow = next === undefined && !job.is_over;
    const sign = isNow ? "▶" : next === undefined && job.error ? "✖" : "✓";
    list.append(parent("li", isNow ? "now" : "", `${sign} ${name} `, element("span", "number aside", next ? duration(next[1] - begun) : "")));
  });
  return parent("div", "", element("h3", "", "Stages"), list);
}

function residuals(job) {
  const names = Object.keys(job.residuals);
  if (!names.length) return null;
  const rows = names.map((name) => {
    const values = job.residual_log.filter((each) => each[1] === name).map((each) => each[2]);
    const picture = parent("td", "", values.length > 1 ? spark(values) : "");
    return parent("tr", "", cell(RESIDUALS[name] ?? name, "name", true), cell(number(job.residuals[name]), "number"), picture);
  });
  return parent("div", "", element("h3", "", "Residuals"), table("Residuals of the calibration by stage", ["residual", "last value", "course"], rows));
}

function spark(values) {
  const logs = values.map((value) => Math.log10(Math.max(value, 1e-12))), low = Math.min(...logs), span = Math.max(...logs) - low || 1;
  const points = logs.map((value, index) => `${(2 + index / (logs.length - 1) * (SPARK_WIDTH - 4)).toFixed(1)} ${(SPARK_HEIGHT - 3 - (value - low) / span * (SPARK_HEIGHT - 6)).toFixed(1)}`);
  const svg = svgElement("svg", { width: SPARK_WIDTH, height: SPARK_HEIGHT, role: "img", "aria-label": `${values.length} values from ${number(values[0])} to ${number(values.at(-1))}` });
  svg.append(svgElement("path", { class: "spark", d: `M${points.join("L")}` }));
  return svg;
}

export function drawRecovery() {
  const recovery = known.recovery;
  show("recovery", Boolean(recovery));
  const now = JSON.stringify(recovery);
  if (!recovery || now === recoveryShown) return;
  recoveryShown = now;
  const what = recovery.failed ? `${recovery.failed} replaced by ${recovery.spare}` : `${recovery.circuit || "a circuit"} over another path`;
  const confirmed = recovery.is_confirmed === false ? " Modules and meters did not confirm it." : "";
  const total = recovery.spans.length ? ` ${(recovery.spans.at(-1)[3] / 1000).toFixed(2)} s after the fault` : "";
  const place = element("div", "picture"), details = element("details");
  details.open = matchMedia("(max-width: 700px)").matches; // where the picture would be too small to read
  const rows = recovery.spans.map(([name, bench, cpu, since, source]) =>
    parent("tr", "", cell(name, "name", true), ...[bench, cpu, since].map((ms) => cell(ms.toFixed(2), "number")), cell(source)));
  details.append(element("summary", "", "The same as a table"), table("Spans of the last recovery", ["span", "ms", "CPU ms", "at ms", "source"], rows));
  byId("recovery-body").replaceChildren(parent("p", "", element("strong", "name", what), `${total}, at ${clock(recovery.time_s)}.${confirmed}`, recovery.words && ` ${recovery.words}`), place, details);
  loadSvg("/recovery.svg", place);
}
